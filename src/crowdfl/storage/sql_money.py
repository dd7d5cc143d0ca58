"""The money's part of a store: movements, deposits, payments."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

from sqlalchemy import insert, select

from crowdfl.errors import TaskUnreadable, UnknownDeposit
from crowdfl.roles.records import (
    DepositState,
    DisputeState,
    Movement,
    PaymentState,
    StoredDeposit,
    StoredDispute,
    StoredPayee,
    StoredPayment,
)
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.storage import tables as t
from crowdfl.storage.sql_tasks import Row, TaskTables
from crowdfl.storage.statements import add, change, find, put, remove

_MOVEMENT = [t.movements.c[field.name] for field in fields(Movement)]
_DEPOSIT = [t.deposits.c[field.name] for field in fields(StoredDeposit)]
_PAYMENT = [t.payments.c[field.name] for field in fields(StoredPayment)]
_PAYEE = [t.payees.c[field.name] for field in fields(StoredPayee)]
_DISPUTE = [t.disputes.c[field.name] for field in fields(StoredDispute)]

_Read = TypeVar("_Read", StoredDeposit, StoredDispute, StoredPayment)


class MoneyTables(TaskTables):
    """Amounts that participants earn are in no event: nobody but they and the bank need to know."""

    def post(self, task: str, *movements: Movement) -> bool:
        with self._write() as c:
            ledger = Ledger(self.movements(task))
            new = [movement for movement in movements if ledger.post(movement)]
            if new:
                c.execute(insert(t.movements), [{"task": task, **vars(movement)} for movement in new])
            return bool(new)

    def movements(self, task: str) -> list[Movement]:
        with self._read() as c:
            rows = find(c, _MOVEMENT, task=task).all()
        with self.reading(task, "its books"):
            return [Movement(*row) for row in rows]

    def movement(self, task: str, name: str) -> Movement | None:
        with self._read() as c:
            row = find(c, _MOVEMENT, task=task, name=name).first()
        with self.reading(task, "its books"):
            return None if row is None else Movement(*row)

    def add_deposit(self, deposit: StoredDeposit) -> None:
        with self._write() as c:
            add(c, t.deposits, **vars(deposit))
            self._tell("deposit announced", task=deposit.task, name=deposit.name, amount=deposit.amount)

    def deposit(self, task: str, name: str) -> StoredDeposit:
        with self._read() as c:
            found = self._deposits(find(c, _DEPOSIT, task=task, name=name))
        if not found:
            raise UnknownDeposit(f"task {task} has no deposit called {name!r}")
        return found[0]

    def deposits(self, task: str | None = None) -> list[StoredDeposit]:
        with self._read() as c:
            rows = (find(c, _DEPOSIT) if task is None else find(c, _DEPOSIT, task=task)).all()
        return self._of_readable(rows, self._deposits) if task is None else self._deposits(rows)

    def decide_deposit(self, deposit: StoredDeposit) -> None:
        decision = {"state": deposit.state, "decided_at": deposit.decided_at}
        with self._write() as c:
            change(c, t.deposits, decision, task=deposit.task, name=deposit.name)
            self._tell(f"deposit {deposit.state}", task=deposit.task, name=deposit.name, amount=deposit.amount)

    def add_payment(self, payment: StoredPayment) -> None:
        with self._write() as c:
            add(c, t.payments, **vars(payment))
            self._tell(f"payment {payment.state}", task=payment.task, who=payment.who)

    def payment(self, task: str, who: str, sequence: int) -> StoredPayment | None:
        with self._read() as c:
            return next(iter(self._payments(find(c, _PAYMENT, task=task, who=who, sequence=sequence))), None)

    def instalments(self, task: str, who: str) -> list[StoredPayment]:
        with self._read() as c:
            return sorted(self._payments(find(c, _PAYMENT, task=task, who=who)), key=lambda one: one.sequence)

    def payments(self, task: str | None = None, states: Sequence[str] | None = None) -> list[StoredPayment]:
        p = t.payments.c
        wanted = select(*_PAYMENT).order_by(t.payments.c.position)
        wanted = wanted if task is None else wanted.where(p.task == task)
        wanted = wanted if states is None else wanted.where(p.state.in_(states))
        with self._read() as c:
            rows = c.execute(wanted).all()
        return self._of_readable(rows, self._payments) if task is None else self._payments(rows)

    def change_payment(self, known: StoredPayment, changed: StoredPayment) -> bool:
        """The transaction holds the writers' lock: what is read here is still true when it is written."""
        with self._write() as c:
            if self.payment(known.task, known.who, known.sequence) != known:
                return False
            change(c, t.payments, vars(changed), task=known.task, who=known.who, sequence=known.sequence)
            if known.state is not changed.state:
                why = {} if changed.error is None else {"reason": changed.error}
                self._tell(f"payment {changed.state}", task=changed.task, who=changed.who, **why)
            return True

    def payee(self, task: str, who: str) -> StoredPayee:
        with self._read() as c:
            row = find(c, _PAYEE, task=task, who=who).first()
            return StoredPayee(task, who) if row is None else StoredPayee(*row)

    def payees(self, task: str) -> dict[str, StoredPayee]:
        with self._read() as c:
            return {one.who: one for one in (StoredPayee(*row) for row in find(c, _PAYEE, task=task))}

    def change_payee(self, known: StoredPayee, changed: StoredPayee) -> bool:
        with self._write() as c:
            if self.payee(known.task, known.who) != known:
                return False
            put(c, t.payees, [vars(changed)])
            return True

    def add_dispute(self, dispute: StoredDispute) -> None:
        with self._write() as c:
            add(c, t.disputes, **vars(dispute))
            self._tell("claim disputed", task=dispute.task, who=dispute.who, number=dispute.number)

    def dispute(self, task: str, who: str, number: int) -> StoredDispute | None:
        with self._read() as c:
            return next(iter(self._disputes(find(c, _DISPUTE, task=task, who=who, number=number))), None)

    def disputes(self, task: str | None = None, who: str | None = None) -> list[StoredDispute]:
        d = t.disputes.c
        wanted = select(*_DISPUTE).order_by(t.disputes.c.position)
        wanted = wanted if task is None else wanted.where(d.task == task)
        wanted = wanted if who is None else wanted.where(d.who == who)
        with self._read() as c:
            rows = c.execute(wanted).all()
        return self._of_readable(rows, self._disputes) if task is None else self._disputes(rows)

    def change_dispute(self, dispute: StoredDispute) -> None:
        with self._write() as c:
            place = {"task": dispute.task, "who": dispute.who, "number": dispute.number}
            change(c, t.disputes, vars(dispute), **place)

    def mark_paid_before(self, task: str, amounts: Mapping[str, int]) -> None:
        with self._write() as c:
            for key, amount in amounts.items():
                remove(c, t.paid_before, task=task, key=key)
                add(c, t.paid_before, task=task, key=key, amount=amount)

    def paid_before(self, task: str) -> dict[str, int]:
        with self._read() as c:
            rows = find(c, [t.paid_before.c.key, t.paid_before.c.amount], task=task)
            return {key: amount for key, amount in rows}  # noqa: C416 -- typed so

    def _of_readable(self, rows: Sequence[Row], read: Callable[[Iterable[Row]], list[_Read]]) -> list[_Read]:
        """In their order; what cannot be read is its task's trouble, and no more of that task is shown."""
        try:
            found = read(rows)
        except TaskUnreadable:
            found = []
            for row in rows:
                with contextlib.suppress(TaskUnreadable):
                    found += read([row])
        unreadable = {one.task for one in self.unreadable()}
        return [one for one in found if one.task not in unreadable] if unreadable else found

    def _deposits(self, rows: Iterable[Row]) -> list[StoredDeposit]:
        found = []
        for row in rows:
            with self.reading(row.task, f"deposit {row.name}"):
                found.append(StoredDeposit(**{**row._asdict(), "state": DepositState(row.state)}))
        return found

    def _disputes(self, rows: Iterable[Row]) -> list[StoredDispute]:
        found = []
        for row in rows:
            with self.reading(row.task, f"a dispute about round {row.number}"):
                values = {**row._asdict(), "claim": bytes(row.claim), "state": DisputeState(row.state)}
                found.append(StoredDispute(**values))
        return found

    def _payments(self, rows: Iterable[Row]) -> list[StoredPayment]:
        found = []
        for row in rows:
            with self.reading(row.task, f"payment {row.sequence} of {row.who}"):
                found.append(StoredPayment(**{**row._asdict(), "state": PaymentState(row.state)}))
        return found
