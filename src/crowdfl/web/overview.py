"""What the console shows of SP: rows for the overview, and all about one task. Read-only; amounts are millionths, as text.

Names of participants are pseudonyms. Nothing here is opened or decrypted, and each list has a bound: a campaign may have a
million participants.
"""

import contextlib
import json
import shutil
import time
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from crowdfl.errors import TaskUnreadable, UnknownPayment
from crowdfl.protocols.claims import BONUS
from crowdfl.reasons import Reason
from crowdfl.roles.records import (
    DepositState,
    DisputeState,
    Movement,
    PaymentState,
    Round,
    RoundState,
    StoredDeposit,
    StoredDispute,
    StoredPayment,
    StoredTask,
    TaskState,
)
from crowdfl.roles.sp.core import ENDED
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER, Ledger
from crowdfl.roles.sp.operator import OperatorActions
from crowdfl.roles.sp.payees import waits_for_destination
from crowdfl.roles.sp.turnout import left_out
from crowdfl.roles.sp.why import Cause, causes
from crowdfl.roles.waiting import operator_waits_for
from crowdfl.services.client.breaker import Breaker, BreakerState
from crowdfl.services.run import SpParts, around_sp
from crowdfl.text import printable
from crowdfl.web.events import EventHistory, Row, Sections

ROUNDS = 30  # of a task that are shown if nobody asks for more
_MOST = 200  # rows of any list
_FRESH_SECONDS = 60.0  # that rows of tasks with nothing left to do are believed
_RECENT = 20  # deposits that are decided
_OPEN = (PaymentState.PENDING, PaymentState.RUNNING, PaymentState.UNKNOWN)
_PEERS = {BreakerState.CLOSED: "up", BreakerState.OPEN: "away", BreakerState.HALF_OPEN: "trying"}


class Overview:
    """Reads the store; one that is slow is looked at less often (`events.Snapshots`)."""

    def __init__(self, parts: SpParts, actions: OperatorActions, history: EventHistory) -> None:
        self._parts = parts
        self._sp = parts.sp
        self._store = parts.sp.store
        self._actions, self.history = actions, history
        self._over: dict[str, Row] = {}  # rows of tasks that have nothing left to do
        self._forgotten = time.monotonic()

    def forget(self) -> None:
        """Read again what is over, too: a command may have changed it."""
        self._over = {}
        self._forgotten = time.monotonic()

    def sections(self) -> Sections:
        if time.monotonic() - self._forgotten > _FRESH_SECONDS:
            self.forget()
        now = self._sp.clock.now()
        payments = self._store.payments(states=_OPEN)
        return {
            "tasks": dict(self._rows()),
            "deposits": {f"{one.task} {one.name}": self._deposit(one) for one in self._deposits()},
            "payments": {f"{one.task} {one.key}": row for one, row in self._payments(payments, now)},
            "payouts": self._totals(payments, now),
            "disputes": {f"{one.task} {one.who} {one.number}": self._dispute(one) for one in self._disputes()},
            "health": self._health(),
            **self.history.sections(),
        }

    def task(self, task: str, rounds: int = ROUNDS) -> Row:
        """All about one task; of its rounds the last ones."""
        stored = self._store.task(task)
        definition = self._sp.core.definition(task)
        now = self._sp.clock.now()
        payments = self._store.payments(task)
        return self._row(stored) | {
            "requester": definition.requester.hex(),
            "profile": definition.settings.profile,
            "window": definition.settings.window,
            "least": definition.settings.min_participants,
            "ended": None if stored.end is None else stored.end.coded(),
            "claims_until": stored.claims_until if stored.state in ENDED else None,
            "why": [one.shown() for one in self._causes(stored)],
            "not_told": self._actions.not_told(stored),
            "can_purge": self._actions.can_purge(stored),
            "timeline": self._timeline(task, rounds),
            "watched_since": self.history.since,
            "refusals": self.history.refusals(task),
            "ledger": ledger_by_round(self._sp.core.ledger(task)),
            "deposits": [self._deposit(one) for one in self._store.deposits(task)[-_MOST:]],
            "payments": [row for _, row in self._payments(payments, now)],
            "payouts": list(self._totals(payments, now).values()),
            "disputes": [self._dispute(one) for one in self._disputes(task)],
        }

    def _causes(self, stored: StoredTask) -> Sequence[Cause]:
        """What `crowdfl sp task why` says."""
        parts = self._parts
        around = around_sp(parts.settings, self._store, parts.retention.guard)
        return causes(self._store, parts.retention.blobs, stored, around)

    def proofs(self, task: str, who: str, number: int) -> Row:
        """Of a dispute: what the participant has signed, and what the books said."""
        found = self._store.dispute(task, who, number)
        if found is None:
            raise UnknownPayment(f"nothing of {who} in round {number} of task {task} is disputed")
        return self._dispute(found) | {"claim": b64encode(found.claim).decode()}

    def uploads(self, task: str, number: int) -> list[Row]:
        """The last ones of a round, the newest first. When one came, the store does not say: `at` is what this process saw."""
        found = self._store.last_uploads(task, number, _MOST)
        seen = self.history.arrival
        return [{"who": one.who, "late": one.late, "at": seen(task, number, one.who)} for one in found]

    def _rows(self) -> Iterator[tuple[str, Row]]:
        for stored in self._store.tasks():
            with contextlib.suppress(TaskUnreadable):  # it is among those of `_health` from now on
                yield stored.task, self._row(stored)

    def _row(self, stored: StoredTask) -> Row:
        known = self._over.get(stored.task)
        if known is not None:
            return known
        row = self._fresh_row(stored)
        if stored.state == TaskState.SETTLED and not row["waits_for"]:
            self._over[stored.task] = row
        return row

    def _fresh_row(self, stored: StoredTask) -> Row:
        store = self._store
        definition = self._sp.core.definition(stored.task)
        rounds = self._store.rounds(stored.task)
        last = rounds[-1] if rounds else None
        uploaded, missing = store.turnout(stored.task, last.number if last else 0)
        return {
            "task": stored.task,
            "purpose": printable(definition.purpose, 500),
            "state": stored.state,
            "round": last.number if last else 0,
            "rounds": definition.settings.rounds,
            "currency": definition.settings.currency,
            "round_state": str(last.state) if last else None,
            "uploads": uploaded,
            "enrolled": store.turnout(stored.task, 0)[1] if last else missing,
            "until": last.last_call(definition.settings) if last and last.state is RoundState.OPEN else None,
            "ended_at": stored.ended_at,
            "waits_for": [one.coded() for one in operator_waits_for(store, stored, definition)],
        }

    def _deposits(self) -> Iterable[StoredDeposit]:
        """Those to decide, and the last ones that were."""
        found = self._store.deposits()
        decided = [one for one in found if one.state is not DepositState.PENDING]
        yield from [one for one in found if one.state is DepositState.PENDING][:_MOST]
        yield from sorted(decided, key=lambda one: one.decided_at or 0.0)[-_RECENT:]

    def _currency(self, task: str) -> str:
        return self._sp.core.definition(task).settings.currency

    def _deposit(self, one: StoredDeposit) -> Row:
        times = {"announced_at": one.announced_at, "decided_at": one.decided_at}
        money = {"amount": str(one.amount), "currency": self._currency(one.task)}
        return {"task": one.task, "name": one.name, **money, "state": str(one.state), **times}

    def _payments(self, payments: Sequence[StoredPayment], now: float) -> list[tuple[StoredPayment, Row]]:
        """Those that wait for somebody."""
        found = _attention(payments, now)
        waits = {task: waits_for_destination(self._store, task) for task in {one.task for one in found}}
        return [(one, self._payment(one, now, is_missing=waits[one.task](one.who))) for one in found]

    def _payment(self, one: StoredPayment, now: float, *, is_missing: bool) -> Row:
        is_asked = bool(self._sp.core.definition(one.task).payer)
        return {
            "task": one.task,
            "who": one.who,
            "sequence": one.sequence,
            "amount": str(one.amount),
            "on_sp_word": str(one.word),  # of it: unused uploads, which CSP attests nothing of
            "currency": self._currency(one.task),
            "destination": "missing" if is_missing else "sealed" if is_asked else "none",
            "state": str(one.pay_state(now, has_place=not is_missing)),
            "can": _resolutions(one.state_at(now)),
            "since": one.since,
            "attempts": one.attempts,
            "key": one.key,
            "error": None if one.error is None else printable(one.error, 500),
        }

    def _disputes(self, task: str | None = None) -> list[StoredDispute]:
        """Those to decide."""
        return [one for one in self._store.disputes(task) if one.state is DisputeState.OPEN][:_MOST]

    def _dispute(self, one: StoredDispute) -> Row:
        books = json.loads(one.books)
        return {
            "task": one.task,
            "who": one.who,
            "number": one.number,
            "amount": str(one.amount),
            "currency": self._currency(one.task),
            "round": books["round"],
            "owed": str(books["owed"]),
            "held": str(books["held"]),
            "counted": books["upload"] is not None,
            "since": one.since,
        }

    def _totals(self, payments: Sequence[StoredPayment], now: float) -> dict[str, Row]:
        """By task and state."""
        counts: Counter[tuple[str, str]] = Counter()
        sums: Counter[tuple[str, str]] = Counter()
        waits = {task: waits_for_destination(self._store, task) for task in {one.task for one in payments}}
        for one in payments:
            key = one.task, str(one.pay_state(now, has_place=not waits[one.task](one.who)))
            counts[key] += 1
            sums[key] += one.amount
        return {
            f"{task} {state}": {"task": task, "state": state, "count": counts[task, state]}
            | {"amount": str(amount), "currency": self._currency(task)}
            for (task, state), amount in sums.items()
        }

    def _health(self) -> dict[str, Row]:
        """By what is looked at: whether it is well, and a code by which the page finds words."""
        peers = {one.peer: _peer(one) for one in self._parts.peers}
        sure = self._sp.core.clock_is_sure()
        failing = self._sp.options.failures.count()
        unread = {
            f"task {one.task}": {"name": one.task[:8], "well": False, "code": "unreadable"}
            for one in self._store.unreadable()
        }
        return (
            peers
            | unread
            | {
                "clock": {"name": "clock", "well": sure, "code": "sure" if sure else "doubt"},
                "tasks": {
                    "name": "tasks",
                    "well": not failing,
                    "code": "failing" if failing else "moving",
                    "count": failing,
                },
                "disk": _disk(self._parts.folder),
                "strangers": _strangers(self.history.strangers),
            }
        )

    def _timeline(self, task: str, most: int) -> list[Row]:
        """The newest round first."""
        rounds, counts = self._store.rounds(task)[-most:], self._store.upload_counts(task)
        rejected = left_out(self._store, self._sp.blobs, task, rounds)
        return [self.round(task, one, counts.get(one.number, 0), rejected[one.number]) for one in reversed(rounds)]

    def round(self, task: str, one: Round, uploads: int, rejected: Mapping[str, Reason]) -> Row:
        pays = bool(self._sp.core.definition(task).settings.budget)
        rows = [{"who": who, "why": why} for who, why in sorted(rejected.items())]
        return {
            "number": one.number,
            "state": str(one.state),
            "extended": one.extended,
            "uploads": uploads,
            "rejected": len(rows),
            "rejections": rows[:_MOST],
            "steps": steps_of(one, self.history.steps(task, one.number), pays),
        }


_AVERAGED = (RoundState.HELD, RoundState.GATHERED, RoundState.PUBLISHED)
_CHECKED = (*_AVERAGED, RoundState.WEIGHED)


def steps_of(one: Round, seen: dict[str, float], pays: bool) -> list[Row]:
    """A round's steps: whether each is done, and when, if that is known. Both servers check uploads before anything is opened:
    a round with rewards is checked when these are computed, one without when its average is there."""
    times: dict[str, float] = {"open": one.opened_at} | seen
    if not pays and "averaged" in times:
        times["checked"] = times["averaged"]
    if "rewarded" in times and "published" not in times:
        times["published"] = times["rewarded"]  # nobody can read the average before: it is one transaction
    if one.state is RoundState.ABORTED:
        return [
            _step(name, times, done=True) for name in ("open", "closed", "aborted") if name != "closed" or name in times
        ]
    over = one.state is RoundState.REWARDED
    done = {
        "open": True,
        "closed": one.state is not RoundState.OPEN,
        "checked": over or one.state in _CHECKED or "checked" in times,
        "averaged": over or one.state in _AVERAGED or "averaged" in times,
        "published": over or one.state is RoundState.PUBLISHED,
    } | ({"rewarded": over} if pays else {})
    return [_step(name, times, done=is_done) for name, is_done in done.items()]


def _step(name: str, times: dict[str, float], *, done: bool) -> Row:
    return {"name": name, "done": done, "at": times.get(name) if done else None}


def ledger_by_round(ledger: Ledger) -> Row:
    """Sums by round, and the balances that are no round's; what a single participant was paid is in none."""
    rounds: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for movement in ledger.movements:
        kind, number = _meaning(movement)
        if kind is not None:
            rounds[number][kind] += movement.amount
    rows = [
        {"number": number, **{kind: str(sums[kind]) for kind in _KINDS}}
        | {"unclaimed": str(sums["offered"] - sums["earned"] - sums["expired"])}
        for number, sums in sorted(rounds.items(), reverse=True)
    ]
    totals = {kind: str(sum(sums[kind] for sums in rounds.values())) for kind in ("offered", "earned")}
    return totals | {"rounds": rows, "escrow": str(ledger.balance(ESCROW)), "paid_in": str(-ledger.balance(REQUESTER))}


# A round that is rewarded offers its budget; people have earned what they claim of it.
_KINDS = ("funded", "returned", "offered", "earned", "expired")
_WORDS = {
    "fund round": "funded",
    "abort round": "returned",
    "return of round": "returned",
    "reward round": "offered",
    "expire claims": "expired",
}
_OF_BONUSES = {"fund bonuses": "funded", "return of bonuses": "returned", "reward bonuses": "offered"}


def _meaning(movement: Movement) -> tuple[str | None, int]:
    """What a movement is to which round, by its name."""
    if movement.name in _OF_BONUSES:
        return _OF_BONUSES[movement.name], BONUS
    words, _, number = movement.name.rpartition(" ")
    if not number.isdecimal():
        return None, 0
    return ("earned" if words.startswith("pay ") else _WORDS.get(words)), int(number)


def _attention(payments: Sequence[StoredPayment], now: float) -> list[StoredPayment]:
    """Those that wait for somebody: nobody knows whether they were made, or an attempt failed; then those that are due."""
    unknown = [one for one in payments if one.state_at(now) is PaymentState.UNKNOWN]
    failed = [one for one in payments if one.state is PaymentState.PENDING and one.error]
    due = [one for one in payments if one.state is PaymentState.PENDING and not one.error]
    return [*unknown, *failed, *due][:_MOST]


def _resolutions(state: PaymentState) -> list[str]:
    """What the operator can say of it."""
    if state is PaymentState.UNKNOWN:
        return ["paid", "again"]
    return ["paid"] if state is PaymentState.PENDING else []


def _peer(one: Breaker) -> Row:
    state, since = one.state, one.failing_since
    code = "failed" if state is BreakerState.CLOSED and since is not None else _PEERS[state]
    return {"name": one.peer, "well": one.is_up, "code": code, "since": since}


def _disk(folder: Path) -> Row:
    """In whole gigabytes: it changes with every upload."""
    found = shutil.disk_usage(folder)
    share = found.free / found.total
    return {"name": "disk", "well": share > 0.05, "code": "free", "free": found.free // 10**9, "share": round(share, 2)}


def _strangers(count: int) -> Row:
    """In powers of ten: anyone can send one, and must not make every console busy."""
    least = 10 ** (len(str(count)) - 1) if count else 0
    return {"name": "strangers", "well": True, "code": "some" if count else "none", "count": least}
