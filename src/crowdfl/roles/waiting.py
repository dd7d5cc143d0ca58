"""What a task waits for, in words: for its requester from what a requester may see, and for SP's operator from the books."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Self

from crowdfl.documents.signed import Definition
from crowdfl.roles.dealt import dealt_sizes
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import Round, RoundState, StoredTask, TaskState
from crowdfl.roles.sp.core import UNDER_WAY
from crowdfl.roles.sp.ledger import ESCROW, Ledger
from crowdfl.settings import MILLION, TaskSettings


class Wait(str):
    """What a task waits for, in words; pages make their own, in their reader's language, from its code and values."""

    code: str
    values: dict[str, object]

    @classmethod
    def of(cls, code: str, words: str, **values: object) -> Self:
        made = cls(words)
        made.code, made.values = code, values
        return made

    def coded(self) -> dict[str, Any]:
        return {"code": self.code, **self.values}


_ENDED = Wait.of("returned", "claims of participants: what is left when they end is returned to you")
_BY_STATE = {
    "paused": [Wait.of("you", "you: the task is paused")],
    "finished": [_ENDED],
    "cancelled": [_ENDED],
    "settled": [],
}
_COMPUTED = [str(state) for state in UNDER_WAY if state is not RoundState.HELD]
_FINAL = Wait.of("final", "the final model")


def waits_for(definition: Definition, status: Mapping[str, Any], report: Mapping[str, Any]) -> list[Wait]:
    """Everything that must happen before the task moves on; nothing once it is settled."""
    last: Mapping[str, Any] = status["rounds"][-1] if status["rounds"] else {"state": "none", "number": 0}
    if last["state"] in _COMPUTED and status["state"] != "settled":
        return [Wait.of("computing", f"SP and CSP, which compute round {last['number']}", number=last["number"])]
    if status["state"] in _BY_STATE:
        return _BY_STATE[status["state"]]
    if last["state"] in ("open", "held"):  # late ones still come
        in_round = min(last["drawn"] or status["enrolled"], definition.settings.most_in_round)
        come = {"uploads": last["uploads"], "all": in_round}
        own = [_reference(status["task"], last["number"])] if last.get("reference") is False else []
        return [*own, _come(last["number"], "", **come)]
    if last["number"] >= definition.settings.rounds:
        return [_FINAL]
    number = last["number"] + 1
    at = status.get("next_round")
    return _for_next_round(definition, status, report) or [
        _at(number, at) if at else _opening(number, dealt=number == 1 and bool(dealt_sizes(definition)))
    ]


def _reference(task: str, number: int) -> Wait:
    words = f"your reference of round {number}: `crowdfl task watch {task} --reference DATA --until settled`"
    return Wait.of("reference", words, number=number, task=task)


def _come(number: int, by: str, *, uploads: int, all: int, until: float | None = None) -> Wait:
    words = f"uploads to round {number}{by}: {uploads} of {all} have come"
    return Wait.of("uploads_until" if by else "uploads", words, number=number, uploads=uploads, all=all, until=until)


def _at(number: int, at: float) -> Wait:
    return Wait.of("time", f"the time of round {number}, {format_time(at)}", number=number, at=at)


def _opening(number: int, *, dealt: bool = False) -> Wait:
    if dealt:
        return Wait.of("dealing", f"SP and CSP, which fetch what KGC deals and then open round {number}", number=number)
    return Wait.of("opening", f"round {number} to open", number=number)


def _for_next_round(definition: Definition, status: Mapping[str, Any], report: Mapping[str, Any]) -> list[Wait]:
    settings = definition.settings
    found = []
    over = status.get("enrolment") == "over"
    needed = definition.plan.needed(settings, first=not status["rounds"], over=over)
    people = needed - status["enrolled"]
    if people > 0:
        counts = {"count": people, "joined": status["enrolled"], "needed": needed}
        joined = f"{status['enrolled']} of {needed} have joined"
        found.append(Wait.of("people", f"{_more_people(people)} ({joined}): invite people", **counts))
    missing = definition.plan.round_cost(settings, first=not status["rounds"]) - escrow(report)
    pending = [one for one in report["deposits"] if one["state"] == "pending"]
    if missing > report["pending"]:
        amount = missing - report["pending"]
        announced = "" if pending else "; no payment is announced"
        words = f"money: {amount_words(amount)} {settings.currency} more for the next round{announced}"
        code = "money" if pending else "unannounced"
        found.append(Wait.of(code, words, amount=amount, currency=settings.currency))
    for one in pending if missing > 0 else ():
        deposit = f"{one['name']} of {amount_words(one['amount'])} {settings.currency}"
        words = f"the platform's operator, who must confirm the deposit {deposit}"
        values = {"name": one["name"], "amount": one["amount"], "currency": settings.currency}
        found.append(Wait.of("confirming", words, **values))
    return found


def _more_people(count: int) -> str:
    return f"{count} more participant{'s' if count > 1 else ''}"


def amount_words(millionths: int) -> str:
    """Exact, with two decimals at least: people type it again."""
    whole, parts = divmod(millionths, MILLION)
    decimals = f"{parts:06}".rstrip("0")
    return f"{whole}.{decimals:0<2}"


def unannounced(definition: Definition, report: Mapping[str, Any]) -> int:
    """What all rounds cost and was neither paid in nor announced, in millionths."""
    whole = definition.plan.whole_cost(definition.settings)
    return max(0, whole - int(report["paid_in"]) - int(report["pending"]))


def escrow(report: Mapping[str, Any]) -> int:
    """What rounds can be paid from, in millionths."""
    movements = report["movements"]
    came = sum(one["amount"] for one in movements if one["target"] == ESCROW)
    return int(came - sum(one["amount"] for one in movements if one["source"] == ESCROW))


PEERS = {"kgc": "KGC", "csp": "CSP"}


def format_time(seconds: float | None) -> str:
    """A time as people read it; one that no calendar has stays a number."""
    if seconds is None:
        return "some time after the last round"
    try:
        return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s after 1970"


def operator_words(waits: Sequence[Wait]) -> str:
    return " and ".join(waits) or "nothing"


def operator_waits_for(store: SpStore, stored: StoredTask, definition: Definition | None = None) -> list[Wait]:
    """`definition` is the task's, for whoever has read it already."""
    if stored.state == TaskState.SETTLED:
        missing = [PEERS[name] for name in stored.unnotified(PEERS)]
        words = f"{' and '.join(missing)} to hear that it is over"
        return [Wait.of("hearing", words, names=missing)] if missing else []
    if stored.unreconciled:
        words = "its operator, who compares its money with the bank: `crowdfl sp reconcile`"
        return [Wait.of("reconciling", words)]
    return _under_way(store, stored, definition or stored.opened)


def _under_way(store: SpStore, stored: StoredTask, definition: Definition) -> list[Wait]:
    rounds = store.rounds(stored.task)
    last = rounds[-1] if rounds else None
    if last is not None and last.state in UNDER_WAY and last.state is not RoundState.HELD:
        return [_computing(stored, last)]
    if stored.state in (TaskState.FINISHED, TaskState.CANCELLED):
        until = stored.claims_until
        return [Wait.of("claims", f"claims, until {format_time(until)}", until=until)]
    if stored.state == TaskState.PAUSED:
        since = stored.paused_at
        words = "its requester, who paused it" + (f" on {format_time(since)}" if since is not None else "")
        return [Wait.of("requester", words, since=since)]
    if last is not None and not last.is_over:
        return [_uploads(store, stored.task, last, definition.settings)]
    return _next_round(store, stored, definition, last)


def _computing(stored: StoredTask, last: Round) -> Wait:
    number, since = last.number, stored.csp_away_since
    if since is not None:
        words = f"CSP, which has not answered round {number} since {format_time(since)}"
        return Wait.of("csp", words, number=number, since=since)
    return Wait.of("computing", f"round {number} to be computed with CSP", number=number)


def _uploads(store: SpStore, task: str, last: Round, settings: TaskSettings) -> Wait:
    uploaded, missing = store.turnout(task, last.number)
    until = last.last_call(settings)
    in_round = min(uploaded + missing, settings.most_in_round)
    return _come(last.number, f", until {format_time(until)}", uploads=uploaded, all=in_round, until=until)


def _next_round(store: SpStore, stored: StoredTask, definition: Definition, last: Round | None) -> list[Wait]:
    settings = definition.settings
    plan = definition.plan
    number = 1 if last is None else last.number + 1
    if number > settings.rounds:
        return [_FINAL]
    if stored.ready_at is not None:
        return [_at(number, plan.opening(stored.ready_at, None if last is None else last.opened_at))]
    waits = []
    here = store.turnout(stored.task, 0)[1]
    needed = plan.needed(settings, first=number == 1)
    if needed > here:
        counts = {"count": needed - here, "joined": here, "needed": needed}
        waits.append(Wait.of("people", _more_people(needed - here), **counts))
    money = plan.round_cost(settings, first=number == 1) - Ledger(store.movements(stored.task)).balance(ESCROW)
    if money > 0:
        words = f"a confirmed deposit of {amount_words(money)} {settings.currency}"
        waits.append(Wait.of("deposit", words, amount=money, currency=settings.currency))
    return waits or [_opening(number)]
