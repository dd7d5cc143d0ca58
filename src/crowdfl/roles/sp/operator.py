"""What the operator of SP sees of its tasks and of the money, and can do: at the command line, and in the console."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crowdfl.errors import RoundNotOpen, SettingsError, TaskNotEnded, TaskUnreadable, UnknownParticipant
from crowdfl.protocols.registry import profile_named
from crowdfl.reasons import Void
from crowdfl.roles.ports import Clock, SpStore
from crowdfl.roles.records import (
    LONGEST_REASON,
    DepositState,
    EndedBy,
    PaymentState,
    PayState,
    RoundState,
    StoredPayment,
    StoredTask,
    TaskState,
    Tombstone,
    UnreadableTask,
)
from crowdfl.roles.retention import Held
from crowdfl.roles.sp.core import ENDED, LedgerPorts
from crowdfl.roles.sp.instalments import PAID_BEFORE
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.sp.payees import waits_for_destination
from crowdfl.roles.sp.results import has_publication
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.roles.sp.tasks import Abort, cancel_task, give_up_round
from crowdfl.roles.waiting import PEERS, format_time, operator_waits_for, operator_words
from crowdfl.settings import handed_over, in_cents, money_words

Row = dict[str, Any]
PAYMENT_COLUMNS = (
    *("task", "participant", "amount", "currency", "state", "seconds", "attempts", "key", "note"),
    *("millionths", "on_sp_word"),  # exactly, and what of it no attestation of CSP's says: unused uploads
    # For the payer, who believes signatures (`crowdfl payer open`); the papers of a task in its first row alone.
    *("unused", "unused_millionths", "statement", "destination", "certificate", "appointment", "definition"),
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
            give_up_round(store, task, last, Void.OPERATOR)


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
        store = self.store
        rounds = self.store.rounds(stored.task)
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
        currency = definition.settings.currency
        found = store.deposits(stored.task)
        returned = Ledger(store.movements(stored.task)).returned()
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
            "returned": f"{money_words(returned, currency)}: pay it back to where the deposits came from"
            if returned
            else None,
            "payments": dict(Counter(self._pay_states(stored.task, payments))),
            "held": self.held(stored.task),
            "not_told": self.not_told(stored),
        }

    def _pay_states(self, task: str, payments: Iterable[StoredPayment]) -> list[str]:
        lacks, now = waits_for_destination(self.store, task), self.clock.now()
        return [one.pay_state(now, has_place=not lacks(one.who)).words for one in payments]

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


def payment_rows(store: SpStore, payments: Iterable[StoredPayment], now: float | None = None) -> list[Row]:
    """Instalments that participants have claimed, each as it stands now, or as it stood when its state began."""
    rows, about = [], dict[str, _PayerView]()
    for payment in payments:
        if payment.task not in about:
            about[payment.task] = _PayerView(store, payment.task)
        at = payment.since if now is None else now
        is_unknown = payment.state_at(at) is PaymentState.UNKNOWN
        state = payment.pay_state(at, has_place=not about[payment.task].lacks(payment.who))
        note = "; ".join(filter(None, (payment.error, payment.note, _ADVICE if is_unknown else None)))
        paid = sum(
            one.amount for one in store.instalments(payment.task, payment.who) if one.sequence < payment.sequence
        )
        money = f"{in_cents(handed_over(paid, payment.amount)):f}", about[payment.task].currency
        stands = str(state), max(0, int(at - payment.since)), payment.attempts, payment.key, note
        own = (payment.task, payment.who, *money, *stands, payment.amount, payment.word)
        rows.append(dict(zip(PAYMENT_COLUMNS, (*own, *about[payment.task].shown(payment.who)), strict=True)))
    return rows


def due_rows(store: SpStore, task: str, now: float) -> list[Row]:
    """What a payer is to be given: what waits for payment, or failed, and whose owner said where to; with the task's papers."""
    rows = payment_rows(store, store.payments(task), now)
    due = [row for row in rows if row["state"] in (PayState.WAITING, PayState.FAILED) and row["destination"]]
    papers = {name: rows[0][name] for name in ("appointment", "definition")} if rows else {}
    return [row | (papers if place == 0 else {}) for place, row in enumerate(due)]


def held_rows(store: SpStore, unread: UnreadableTask) -> list[Row]:
    """Instalments of a task that cannot be read: none of them runs. In which currency, and whether somebody asks where to pay,
    nobody can say."""
    note = f"held: {unread.why}"
    try:
        found = store.payments(unread.task)
    except TaskUnreadable:
        found = []
    rows = [
        (
            one.task,
            one.who,
            f"{in_cents(one.amount):f}",
            "",
            str(one.pay_state(0.0, has_place=True)),
            0,
            one.attempts,
            one.key,
            note,
        )
        for one in found
    ]
    rows = rows or [(unread.task, "", "", "", "", 0, 0, "", note)]
    return [dict.fromkeys(PAYMENT_COLUMNS, "") | dict(zip(PAYMENT_COLUMNS, row, strict=False)) for row in rows]


class _PayerView:
    """What the payer is shown of a task: for how many unused uploads SP pays somebody, and what others have signed."""

    def __init__(self, store: SpStore, task: str) -> None:
        stored = store.task(task)
        self._store = store
        self._task = task
        self.lacks = waits_for_destination(store, task)
        self.currency = stored.opened.settings.currency
        self._papers = (stored.appointment, stored.definition) if stored.opened.payer else None
        self._unused = Ledger(store.movements(task)).paid_unused() if self._papers else {}

    def shown(self, who: str) -> tuple[str | int, ...]:
        if self._papers is None:
            return ("",) * 7
        known = self._store.payee(self._task, who)
        papers = self._papers
        self._papers = "", ""
        certificate = ""
        unused = self._unused.get(who, {})
        with contextlib.suppress(UnknownParticipant):  # a restored SP may have lost whom it paid
            certificate = self._store.participant(self._task, who).certificate
        return (len(unused), sum(unused.values()), known.statement.hex(), known.destination.hex(), certificate, *papers)


def forgotten_rows(task: str, amounts: Mapping[str, int]) -> list[Row]:
    """Payments that were made before a restore, by key, and are not claimed again."""
    note = f"{PAID_BEFORE}; not claimed again yet"
    paid = str(PayState.PAID)
    rows = [
        (task, "", f"{in_cents(one):f}", "", paid, 0, 0, key, note, one, 0, *[""] * 7) for key, one in amounts.items()
    ]
    return [dict(zip(PAYMENT_COLUMNS, values, strict=True)) for values in rows]
