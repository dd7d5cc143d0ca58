"""The money's part of a store: movements, deposits, payments; and where participants take reminders."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import insert, select, update

from crowdfl.errors import UnknownDeposit
from crowdfl.roles.records import DepositState, Movement, PaymentState, StoredDeposit, StoredPayment, StoredSubscription
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.storage import tables as t
from crowdfl.storage.database import Database
from crowdfl.storage.statements import add, add_new, change, find, put, remove

_MOVEMENT = [t.movements.c[field.name] for field in fields(Movement)]
_DEPOSIT = [t.deposits.c[field.name] for field in fields(StoredDeposit)]
_PAYMENT = [t.payments.c[field.name] for field in fields(StoredPayment)]
_SUBSCRIPTION = [t.subscriptions.c[field.name] for field in fields(StoredSubscription)]


class MoneyTables(Database):
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
            return [Movement(*row) for row in find(c, _MOVEMENT, task=task)]

    def add_deposit(self, deposit: StoredDeposit) -> None:
        with self._write() as c:
            add(c, t.deposits, **vars(deposit))
            self._tell("deposit announced", task=deposit.task, name=deposit.name, amount=deposit.amount)

    def deposit(self, task: str, name: str) -> StoredDeposit:
        with self._read() as c:
            found = _deposits(find(c, _DEPOSIT, task=task, name=name))
        if not found:
            raise UnknownDeposit(f"task {task} has no deposit called {name!r}")
        return found[0]

    def deposits(self, task: str | None = None) -> list[StoredDeposit]:
        with self._read() as c:
            return _deposits(find(c, _DEPOSIT) if task is None else find(c, _DEPOSIT, task=task))

    def decide_deposit(self, deposit: StoredDeposit) -> None:
        decision = {"state": deposit.state, "decided_at": deposit.decided_at}
        with self._write() as c:
            change(c, t.deposits, decision, task=deposit.task, name=deposit.name)
            self._tell(f"deposit {deposit.state}", task=deposit.task, name=deposit.name, amount=deposit.amount)

    def add_payment(self, payment: StoredPayment) -> None:
        with self._write() as c:
            add(c, t.payments, **vars(payment))
            self._tell(f"payment {payment.state}", task=payment.task, who=payment.who)

    def payment(self, task: str, who: str) -> StoredPayment | None:
        with self._read() as c:
            return next(iter(_payments(find(c, _PAYMENT, task=task, who=who))), None)

    def payments(self, task: str | None = None, states: Sequence[str] | None = None) -> list[StoredPayment]:
        p, wanted = t.payments.c, select(*_PAYMENT).order_by(t.payments.c.position)
        wanted = wanted if task is None else wanted.where(p.task == task)
        wanted = wanted if states is None else wanted.where(p.state.in_(states))
        with self._read() as c:
            return _payments(c.execute(wanted))

    def change_payment(self, known: StoredPayment, changed: StoredPayment) -> bool:
        """The transaction holds the writers' lock: what is read here is still true when it is written."""
        with self._write() as c:
            if self.payment(known.task, known.who) != known:
                return False
            change(c, t.payments, vars(changed), task=known.task, who=known.who)
            if known.state is not changed.state:
                why = {} if changed.error is None else {"reason": changed.error}
                self._tell(f"payment {changed.state}", task=changed.task, who=changed.who, **why)
            return True

    def put_subscription(self, subscription: StoredSubscription) -> None:
        with self._write() as c:
            put(c, t.subscriptions, [vars(subscription)])

    def delete_subscription(self, task: str, who: str | None = None) -> None:
        with self._write() as c:
            remove(c, t.subscriptions, task=task, **({} if who is None else {"who": who}))

    def take_subscriptions(self, task: str, number: int, message: str, most: int) -> list[StoredSubscription]:
        s = t.subscriptions.c
        wanted = (s.task == task) & (s[message] < number)
        with self._read() as c:  # most looks find nobody, and need no lock
            if c.execute(select(s.who).where(wanted).limit(1)).first() is None:
                return []
        with self._write() as c:
            found = [StoredSubscription(*row) for row in c.execute(select(*_SUBSCRIPTION).where(wanted).limit(most))]
            c.execute(
                update(t.subscriptions).where(wanted, s.who.in_([one.who for one in found])).values({message: number})
            )
            return found

    def mark_paid_before(self, task: str, keys: Sequence[str]) -> None:
        with self._write() as c:
            for key in keys:
                add_new(c, t.paid_before, task=task, key=key)

    def paid_before(self, task: str) -> frozenset[str]:
        with self._read() as c:
            return frozenset(find(c, [t.paid_before.c.key], task=task).scalars())


def _deposits(rows: Iterable[Any]) -> list[StoredDeposit]:
    return [StoredDeposit(*(*row[:3], DepositState(row[3]), *row[4:])) for row in rows]


def _payments(rows: Iterable[Any]) -> list[StoredPayment]:
    return [StoredPayment(*(*row[:5], PaymentState(row[5]), *row[6:])) for row in rows]
