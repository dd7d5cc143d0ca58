"""The money's tables, on a connection that its caller has opened: movements, deposits, payments."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy import insert, select, update

from crowdfl.errors import UnknownDeposit
from crowdfl.roles.ports import DepositState, PaymentState, StoredDeposit, StoredPayment
from crowdfl.roles.sp.ledger import Ledger, Movement
from crowdfl.storage import tables as t


def post(c: sa.Connection, task: str, movement: Movement) -> bool:
    if not Ledger(movements(c, task)).post(movement):
        return False
    c.execute(insert(t.movements).values(task=task, **vars(movement)))
    return True


def movements(c: sa.Connection, task: str) -> list[Movement]:
    m = t.movements.c
    rows = c.execute(select(m.name, m.source, m.target, m.amount).where(m.task == task).order_by(m.position))
    return [Movement(*row) for row in rows]


def add_deposit(c: sa.Connection, deposit: StoredDeposit) -> None:
    c.execute(insert(t.deposits).values(**_values(deposit)))


def deposit(c: sa.Connection, task: str, name: str) -> StoredDeposit:
    found = _deposits(c, t.deposits.c.task == task, t.deposits.c.name == name)
    if not found:
        raise UnknownDeposit(f"task {task} has no deposit called {name!r}")
    return found[0]


def deposits(c: sa.Connection, task: str | None) -> list[StoredDeposit]:
    return _deposits(c, *([] if task is None else [t.deposits.c.task == task]))


def decide_deposit(c: sa.Connection, deposit: StoredDeposit) -> None:
    d = t.deposits.c
    mine = update(t.deposits).where(d.task == deposit.task, d.name == deposit.name)
    c.execute(mine.values(state=str(deposit.state), decided_at=deposit.decided_at))


def _deposits(c: sa.Connection, *which: sa.ColumnElement[bool]) -> list[StoredDeposit]:
    rows = _rows(c, t.deposits, which)
    return [StoredDeposit(**row | {"state": DepositState(row["state"])}) for row in rows]


def add_payment(c: sa.Connection, payment: StoredPayment) -> None:
    c.execute(insert(t.payments).values(**_values(payment)))


def payments(
    c: sa.Connection, task: str | None = None, states: Sequence[str] | None = None, who: str | None = None
) -> list[StoredPayment]:
    p, which = t.payments.c, list[sa.ColumnElement[bool]]()
    which += [] if task is None else [p.task == task]
    which += [] if states is None else [p.state.in_(map(str, states))]
    which += [] if who is None else [p.who == who]
    return [StoredPayment(**row | {"state": PaymentState(row["state"])}) for row in _rows(c, t.payments, which)]


def change_payment(c: sa.Connection, known: StoredPayment, changed: StoredPayment) -> bool:
    """The connection holds the writers' lock: what is read here is still true when it is written."""
    if payments(c, known.task, who=known.who) != [known]:
        return False
    p = t.payments.c
    c.execute(update(t.payments).where(p.task == known.task, p.who == known.who).values(**_values(changed)))
    return True


def _values(stored: StoredDeposit | StoredPayment) -> dict[str, Any]:
    return asdict(stored) | {"state": str(stored.state)}


def _rows(c: sa.Connection, table: sa.Table, which: Sequence[sa.ColumnElement[bool]]) -> list[dict[str, Any]]:
    columns = [column for column in table.c if column.name != "position"]
    rows = c.execute(select(*columns).where(*which).order_by(table.c.position)).mappings()
    return [dict(row) for row in rows]
