"""Why a task does not move: whom it waits for, since when, what was tried, and what its operator can do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from crowdfl.roles.ports import Blobs, SpStore
from crowdfl.roles.records import DepositState, PaymentState, RoundState, StoredTask, Trouble
from crowdfl.roles.sp.core import UNDER_WAY, reference_name
from crowdfl.roles.waiting import Wait, amount_words, format_time, operator_waits_for

NO_ROOM = "StorageFull"


@dataclass(frozen=True)
class Around:
    """What is wrong with SP itself, as whoever asks has seen it: every task waits for these."""

    disk_full: bool = False
    guard: str = ""  # why no step can be noted
    clock: str = ""  # why nobody knows the time
    csp_patience: float = 0.0  # seconds after a round's end until a CSP that stays away costs the round


@dataclass(frozen=True)
class Cause:
    """One thing that a task waits for. Commands say SETTINGS where the operator's settings file goes."""

    wait: Wait
    since: float | None = None
    tried: Sequence[Trouble] = ()
    do: Sequence[str] = ()  # the operator's
    ask: Sequence[str] = ()  # the requester's
    by_itself: str = field(default="", compare=False)  # what happens if nobody does anything

    def shown(self) -> dict[str, Any]:
        """As the console and `--json` have it."""
        tried = [{"times": one.times, "last": one.last, "error": one.error, "reason": one.reason} for one in self.tried]
        words = {"words": str(self.wait), "by_itself": self.by_itself}
        return {
            "wait": self.wait.coded(),
            "since": self.since,
            "tried": tried,
            "do": list(self.do),
            "ask": list(self.ask),
        } | words


def causes(store: SpStore, blobs: Blobs, stored: StoredTask, around: Around) -> list[Cause]:
    """What keeps all tasks waiting comes first: the disk before anything else, for it may cause the rest."""
    troubles = store.troubles(stored.task)
    return [*_of_sp(around, troubles), *_of_task(store, blobs, stored, around, troubles)]


def _of_sp(around: Around, troubles: Sequence[Trouble]) -> Iterator[Cause]:
    full = [one for one in troubles if one.error == NO_ROOM]
    if around.disk_full or full:
        wait = Wait.of("disk", "room on SP's disk: it is full")
        since = min((one.since for one in full), default=None)
        by_itself = "it goes on once there is room; nothing is lost, and nothing needs a restart"
        yield Cause(wait, since, full, ["df -h"], by_itself=by_itself)
    if around.guard:
        wait = Wait.of("guard", f"SP's guard: {around.guard}", reason=around.guard)
        yield Cause(wait, None, (), ["crowdfl doctor SETTINGS", "crowdfl sp guard new SETTINGS"])
    if around.clock:
        wait = Wait.of("clock", f"SP's clock: {around.clock}", reason=around.clock)
        yield Cause(wait, None, (), ["date", "crowdfl sp clock confirm SETTINGS"])


def _of_task(
    store: SpStore, blobs: Blobs, stored: StoredTask, around: Around, troubles: Sequence[Trouble]
) -> Iterator[Cause]:
    last = next(reversed(store.rounds(stored.task)), None)
    settings = stored.opened.settings
    if last is not None and last.state is RoundState.OPEN:
        number = last.number
        if settings.reference and not blobs.has(reference_name(stored.task, number)):
            wait = Wait.of("reference", f"the requester's reference of round {number}", number=number)
            command = f"crowdfl task watch {stored.task} --reference DATA --until settled"
            until = format_time(last.last_call(settings))
            by_itself = f"without it the round is given up after {until}, and its budget returns"
            yield Cause(wait, last.opened_at, ask=[command], by_itself=by_itself)
    for wait in operator_waits_for(store, stored):
        yield _cause(store, stored, wait, around, troubles, last.number if last is not None else 0)
    unknown = [one for one in store.payments(stored.task) if one.state is PaymentState.UNKNOWN]
    for one in unknown:
        words = f"its operator, who asks the bank about payment {one.key}"
        do = [f"crowdfl sp resolve SETTINGS {stored.task} {one.key} {how}" for how in ("paid", "again")]
        yield Cause(Wait.of("payment", words, key=one.key), one.since, (), do)


def _cause(
    store: SpStore, stored: StoredTask, wait: Wait, around: Around, troubles: Sequence[Trouble], number: int
) -> Cause:
    """The operator's commands for one of `waiting`'s codes."""
    task, tried = stored.task, tuple(troubles)
    since = min((one.since for one in tried), default=None)
    do: list[str] = []
    ask: list[str] = []
    by_itself = ""
    if wait.code in ("csp", "computing"):
        since = stored.csp_away_since or since
        last = store.round(task, number)
        if since is not None:
            rounds = [f"crowdfl sp round {how} SETTINGS {task} {number}" for how in ("retry", "void")]
            do = ["crowdfl doctor SETTINGS", *rounds]
        if last.state in UNDER_WAY and around.csp_patience:
            until = last.last_call(stored.opened.settings) + around.csp_patience
            by_itself = f"after {format_time(until)} the round is given up, and its budget returns"
    elif wait.code == "uploads_until":
        by_itself = "nothing is wrong: the round closes when its plan says, or is given up with too few"
    elif wait.code == "people":
        ask = [f"crowdfl task invite {task} FOLDER --count {wait.values['count']}"]
    elif wait.code == "deposit":
        currency = stored.opened.settings.currency
        do = [
            f"crowdfl sp deposit confirm SETTINGS {task} {one.name} {amount_words(one.amount)} {currency}"
            for one in store.deposits(task)
            if one.state is DepositState.PENDING
        ]
        ask = [] if do else [f"crowdfl task fund {task} {amount_words(int(str(wait.values['amount'])))}"]
    elif wait.code == "requester":
        since = stored.paused_at
        ask, do = [f"crowdfl task resume {task}"], [f'crowdfl sp task cancel SETTINGS {task} --reason "..."']
        by_itself = f"it ends as cancelled at {format_time(stored.opened.rounds_until)}; what was earned can be claimed"
    elif wait.code == "reconciling":
        do = [f"crowdfl sp reconcile SETTINGS {task} --returned AMOUNT"]
    elif wait.code == "hearing":
        since, do = stored.ended_at, ["crowdfl doctor SETTINGS"]
    return Cause(wait, since, tried, do, ask, by_itself)


def told(stored: StoredTask, found: Sequence[Cause], settings: str) -> str:
    """For a terminal; `settings` is the file's path."""
    if not found:
        return f"task {stored.task} is {stored.state}, and waits for nothing"
    lines = [f"task {stored.task} is {stored.state}. It waits for"]
    for cause in found:
        since = "" if cause.since is None else f" (since {format_time(cause.since)})"
        lines.append(f"- {cause.wait}{since}")
        for one in cause.tried:
            failed = ": ".join(filter(None, (one.error, one.reason)))
            lines.append(f"    tried {one.times} times, at last at {format_time(one.last)}: {failed}")
        lines += [f"    $ {one}" for one in cause.do]
        lines += [f"    the requester: $ {one}" for one in cause.ask]
        lines += [f"    by itself: {cause.by_itself}"] if cause.by_itself else []
    return "\n".join(lines).replace("SETTINGS", settings)
