"""What the operator of SP sees of its tasks and of the money, and can do: at the command line, and in the console."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crowdfl.errors import RoundNotOpen, SettingsError, TaskNotEnded
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.ports import Clock, SpStore
from crowdfl.roles.records import (
    LONGEST_REASON,
    DepositState,
    EndedBy,
    PaymentState,
    RoundState,
    StoredPayment,
    StoredTask,
    TaskState,
    Tombstone,
)
from crowdfl.roles.retention import Held
from crowdfl.roles.sp.core import ENDED, LedgerPorts
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.sp.results import has_publication
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.roles.sp.settlement import PAID_BEFORE
from crowdfl.roles.sp.tasks import Abort, cancel_task, give_up_round
from crowdfl.roles.waiting import PEERS, format_time, operator_waits_for, operator_words
from crowdfl.settings import in_cents, money_words

Row = dict[str, Any]
PAYMENT_COLUMNS = (
    *("task", "participant", "amount", "currency", "state", "seconds", "attempts", "key", "note"),
    *("millionths", "claimed", "destination"),  # exactly, and sealed to the payer: `crowdfl payer open`
)
_ADVICE = "check with your bank, then `crowdfl sp resolve`"


def require_reason(reason: str) -> str:
    """Why a task is cancelled, in words that everyone in it can read."""
    if not reason.strip() or not reason.isprintable() or len(reason) > LONGEST_REASON:
        raise SettingsError(f"give a reason of 1 to {LONGEST_REASON} printable characters")
    return reason.strip()


def retry_round(ports: LedgerPorts, task: str, number: int, seconds: float, *, void: bool = False) -> None:
    """Whatever process works on a round stops within a lease of so many seconds. Then its step is taken afresh.

    It sends CSP the same bytes as before, and takes the replies that were used before. A `void` round is given up instead: its
    money returns, what was dealt for it serves no other, and CSP answers no more about it once the next round has begun.
    """
    store = ports.store
    with store.transaction():
        last = next(iter(reversed(store.rounds(task))), None)
        if last is None or last.number != number or last.is_over:
            stands = "has no round" if last is None else f"is at round {last.number}, which is {last.state}"
            raise RoundNotOpen(f"round {number} is not under way: the task {stands}")
        store.seize(task, "the operator", ports.clock.now(), seconds)
        if void:
            give_up_round(store, task, last)


@dataclass(frozen=True)
class OperatorActions:
    """`sure` has a clock that says nothing while it is in doubt; `abort` gives a round up in the process that runs it."""

    retention: SpRetention
    clock: Clock
    sure: LedgerPorts
    abort: Abort | None = None

    @property
    def store(self) -> SpStore:
        return self.retention.store

    def row(self, stored: StoredTask) -> Row:
        store, rounds = self.store, self.store.rounds(stored.task)
        number = f"{rounds[-1].number if rounds else 0}/{stored.opened.settings.rounds}"
        since = stored.ended_at if stored.ended_at is not None else rounds[-1].opened_at if rounds else None
        return {
            "task": stored.task,
            "state": stored.state,
            "round": number,
            "enrolled": store.turnout(stored.task, 0)[1],
            "since": None if since is None else format_time(since),
            "waits_for": operator_words(operator_waits_for(store, stored)),
        }

    def details(self, stored: StoredTask) -> Row:
        store, definition = self.store, stored.opened
        payments = store.payments(stored.task)
        currency, found = definition.settings.currency, store.deposits(stored.task)
        deposits = [f"{one.name}: {money_words(one.amount, currency)}, {one.state}" for one in found]
        rounds = [
            f"{one.number}: {one.state}, {store.turnout(stored.task, one.number)[0]} uploads"
            for one in store.rounds(stored.task)
        ]
        return self.row(stored) | {
            "purpose": definition.purpose,
            "requester": definition.requester.hex(),
            "ended": None if stored.end is None else stored.end.words(),
            "claims_until": format_time(stored.claims_until) if stored.state in ENDED else None,
            "rounds": rounds,
            "deposits": deposits,
            "payments": dict(Counter(str(one.state_at(self.clock.now())) for one in payments)),
            "held": self.held(stored.task),
            "not_told": self.not_told(stored),
        }

    def not_told(self, stored: StoredTask) -> list[str]:
        """The peers that have not heard of a task's end."""
        return [PEERS[name] for name in stored.unnotified(PEERS)] if stored.state in ENDED else []

    def held(self, task: str) -> dict[str, int]:
        """What is held of a task; every file is looked at."""
        return held_of(self.retention.held(), task)

    def cancel(self, task: str, reason: str) -> None:
        cancel_task(self.sure, task, Tombstone("cancelled", EndedBy.SP_OPERATOR, reason), self.abort)

    def purge(self, stored: StoredTask, *, results: bool) -> None:
        """Of a cancelled task that owes nobody anything this is the end: nobody waits for its time to claim."""
        with self.store.transaction():
            stored = self.store.task(stored.task)
            if not self.can_purge(stored):
                raise TaskNotEnded(self._not_settled(stored))
            self.store.delete_subscription(stored.task)
            self.store.change_task(stored.task, state=TaskState.SETTLED)
        (self.retention.purge if results else self.retention.erase)(stored.task)
        # They are told again: one may have been restored from a backup, and hold again what it had erased.
        self.store.change_task(stored.task, kgc_told_end=None, csp_told_end=None)

    def can_purge(self, stored: StoredTask) -> bool:
        """Whether it is settled, or was cancelled and its books are empty, every deposit decided and the model delivered."""
        if stored.state != TaskState.CANCELLED or stored.ended_at is None or stored.unreconciled:
            return stored.state == TaskState.SETTLED
        is_open = any(one.state == DepositState.PENDING for one in self.store.deposits(stored.task))
        is_owed = any(Ledger(self.store.movements(stored.task)).balances().values())
        return not is_open and not is_owed and self._is_delivered(stored)

    def _is_delivered(self, stored: StoredTask) -> bool:
        """Whether the requester has its last average, if there is one."""
        rounds = [one for one in self.store.rounds(stored.task) if one.state is RoundState.REWARDED]
        audience = profile_named(stored.opened.settings.profile).audience(final=True)
        return not rounds or stored.without_model or has_publication(rounds[-1], audience)

    def _not_settled(self, stored: StoredTask) -> str:
        if stored.state in (TaskState.FINISHED, TaskState.CANCELLED):
            until = format_time(stored.claims_until)
            return (
                f"task {stored.task} owes people, or has a deposit that is not decided, and claims are open until {until}: "
                "what people earned would be lost"
            )
        words = operator_words(operator_waits_for(self.store, stored))
        return f"task {stored.task} is {stored.state} and waits for {words}: cancel it first, or wait for its end"


def held_of(held: Held, task: str) -> dict[str, int]:
    return dict(+held.get(task, Counter()))


def payment_row(store: SpStore, payment: StoredPayment, now: float | None = None) -> dict[str, str | int]:
    """One that a participant has claimed."""
    now = payment.since if now is None else now
    state, currency = payment.state_at(now), store.task(payment.task).opened.settings.currency
    note = "; ".join(filter(None, (payment.error, _ADVICE if state is PaymentState.UNKNOWN else None)))
    amount, seconds = f"{in_cents(payment.amount):f}", max(0, int(now - payment.since))
    values = (payment.task, payment.who, amount, currency, str(state), seconds, payment.attempts, payment.key, note)
    exact = (payment.amount, sum(json.loads(payment.claimed).values()), (payment.destination or b"").hex())
    return dict(zip(PAYMENT_COLUMNS, (*values, *exact), strict=True))


def forgotten_rows(task: str, keys: Mapping[str, str | None]) -> list[dict[str, str | int]]:
    """Payments that were made before a restore, by key; how much each was, the bank knows."""
    note, paid = f"{PAID_BEFORE}; not claimed again yet", str(PaymentState.PAID)
    rows = [(task, who or "", "", "", paid, 0, 0, key, note, "", "", "") for key, who in keys.items()]
    return [dict(zip(PAYMENT_COLUMNS, values, strict=True)) for values in rows]
