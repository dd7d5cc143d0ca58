"""Deposits: a requester announces one, and it counts once whoever runs SP has seen the money and confirms it.

Until then it funds no round and is never refunded. Every step can be repeated.
"""

from dataclasses import replace

from crowdfl.errors import (
    Conflict,
    DepositRefused,
    UnknownDeposit,
    WrongCurrency,
)
from crowdfl.roles.records import (
    DepositState,
    StoredDeposit,
    TaskState,
)
from crowdfl.roles.sp.core import LedgerPorts, require_running
from crowdfl.roles.sp.ledger import Ledger


class Deposits:
    """`announce` is the requester's; `confirm` and `reject` are the operator's, and nobody else's."""

    def __init__(self, ports: LedgerPorts) -> None:
        self._ports = ports

    def announce(self, task: str, name: str, amount: int) -> None:
        with self._ports.store.transaction():  # or the task could end in between
            state = self._ports.store.task(task).state
            try:
                known = self._ports.store.deposit(task, name)
            except UnknownDeposit:
                require_running(state)
                now = self._ports.clock.now()
                self._ports.store.add_deposit(StoredDeposit(task, name, amount, DepositState.PENDING, now))
                return
            if known.amount != amount:
                raise Conflict(f"deposit {name!r} was announced with another amount: choose another name")
            if known.state is DepositState.REJECTED:
                raise DepositRefused(f"deposit {name!r} was rejected by the platform: ask its operator why")

    def confirm(self, task: str, name: str, amount: int, currency: str) -> None:
        """The money is there. Amount and currency are those that came in: others than were announced are refused."""
        with self._ports.store.transaction():
            meant = self._ports.store.task(task).opened.settings.currency
            if currency != meant:
                raise WrongCurrency(
                    f"task {task} is paid in {meant}, and {currency} is confirmed for deposit {name!r}: reject it"
                )
            known = self._ports.store.deposit(task, name)
            if known.amount != amount:
                raise DepositRefused(
                    f"deposit {name!r} was announced as {known.amount} millionths, and {amount} are confirmed: "
                    "reject it, and let the requester announce what it paid under another name"
                )
            if self._decide(known, DepositState.CONFIRMED):
                self._credit(task, name, amount)

    def reject(self, task: str, name: str) -> None:
        """No such money came in."""
        with self._ports.store.transaction():
            self._decide(self._ports.store.deposit(task, name), DepositState.REJECTED)

    def _decide(self, known: StoredDeposit, state: DepositState) -> bool:
        """False if this was decided before."""
        if known.state is state:
            return False
        if known.state is not DepositState.PENDING:
            raise DepositRefused(f"deposit {known.name!r} was {known.state} before, and that is final")
        self._ports.store.decide_deposit(replace(known, state=state, decided_at=self._ports.clock.now()))
        return True

    def _credit(self, task: str, name: str, amount: int) -> None:
        """Into escrow; of a task whose books are closed, back to the requester at once."""
        ledger = Ledger(self._ports.store.movements(task))
        ledger.post(deposit := ledger.deposit(name, amount))
        self._ports.store.post(task, deposit)
        if self._ports.store.task(task).state == TaskState.SETTLED:
            self._ports.store.post(task, ledger.refund(f"deposit {name}"))
