"""What a task waits for, in words: for its requester from what a requester may see, and for SP's operator from the books."""

import datetime
from collections.abc import Mapping
from typing import Any

from crowdfl.documents.signed import Definition
from crowdfl.roles.dealt import dealt_sizes
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import Round, RoundState, StoredTask, TaskState
from crowdfl.roles.sp.core import UNDER_WAY
from crowdfl.roles.sp.ledger import ESCROW, Ledger
from crowdfl.settings import MILLION, TaskSettings, to_millionths

_ENDED = "claims of participants: what nobody claims in time is returned to you"
_BY_STATE = {"paused": ["you: the task is paused"], "finished": [_ENDED], "cancelled": [_ENDED], "settled": []}


def waits_for(definition: Definition, status: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    """Everything that must happen before the task moves on; nothing once it is settled."""
    last: Mapping[str, Any] = status["rounds"][-1] if status["rounds"] else {"state": "none", "number": 0}
    if last["state"] in ("closed", "weighed") and status["state"] != "settled":
        return [f"SP and CSP, which compute round {last['number']}"]
    if status["state"] in _BY_STATE:
        return _BY_STATE[status["state"]]
    if last["state"] == "open":
        task, number = status["task"], last["number"]
        missing = last.get("reference") is False
        own = [f"your reference of round {number}: `crowdfl task watch {task} --reference DATA --until settled`"]
        come = f"{last['uploads']} of {last['drawn'] or status['enrolled']} have come"
        return (own if missing else []) + [f"uploads to round {number}: {come}"]
    if last["number"] >= definition.settings.rounds:
        return ["the final model"]
    number = last["number"] + 1
    dealt = number == 1 and dealt_sizes(definition)
    opening = [
        f"SP and CSP, which fetch what KGC deals and then open round {number}" if dealt else f"round {number} to open"
    ]
    at = status.get("next_round")
    return _for_next_round(definition, status, report) or (
        [f"the time of round {number}, {format_time(at)}"] if at else opening
    )


def _for_next_round(definition: Definition, status: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    settings, found = definition.settings, []
    over = status.get("enrolment") == "over"
    needed = definition.plan.needed(settings, first=not status["rounds"], over=over)
    people = needed - status["enrolled"]
    if people > 0:
        joined = f"{status['enrolled']} of {needed} have joined"
        found.append(f"{people} more participant{'s' if people > 1 else ''} ({joined}): invite people")
    missing = to_millionths(settings.budget or 0) - escrow(report)
    pending = [
        f"{one['name']} of {amount_words(one['amount'])} {settings.currency}"
        for one in report["deposits"]
        if one["state"] == "pending"
    ]
    if missing > report["pending"]:
        announced = "" if pending else "; no payment is announced"
        found.append(
            f"money: {amount_words(missing - report['pending'])} {settings.currency} more for the next round{announced}"
        )
    if missing > 0 and pending:
        found.append(f"the platform's operator, who must confirm the deposit {' and '.join(pending)}")
    return found


def amount_words(millionths: int) -> str:
    """Exact, with two decimals at least: people type it again."""
    whole, parts = divmod(millionths, MILLION)
    decimals = f"{parts:06}".rstrip("0")
    return f"{whole}.{decimals:0<2}"


def unannounced(definition: Definition, report: Mapping[str, Any]) -> int:
    """What all rounds cost and was neither paid in nor announced, in millionths."""
    whole = definition.settings.rounds * to_millionths(definition.settings.budget or 0)
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


def operator_waits_for(store: SpStore, stored: StoredTask, definition: Definition | None = None) -> str:
    """`definition` is the task's, for whoever has read it already."""
    if stored.state == TaskState.SETTLED:
        missing = stored.unnotified(PEERS)
        return f"{' and '.join(PEERS[name] for name in missing)} to hear that it is over" if missing else "nothing"
    if stored.unreconciled:
        return "its operator, who compares its money with the bank: `crowdfl sp reconcile`"
    return _under_way(store, stored, definition or stored.opened)


def _under_way(store: SpStore, stored: StoredTask, definition: Definition) -> str:
    rounds = store.rounds(stored.task)
    last = rounds[-1] if rounds else None
    if last is not None and last.state in UNDER_WAY:
        return _computing(stored, last)
    if stored.state in (TaskState.FINISHED, TaskState.CANCELLED):
        return f"claims, until {format_time(stored.claims_until)}"
    if stored.state == TaskState.PAUSED:
        since = stored.paused_at
        return "its requester, who paused it" + (f" on {format_time(since)}" if since is not None else "")
    if last is not None and last.state is RoundState.OPEN:
        return _uploads(store, stored.task, last, definition.settings)
    return _next_round(store, stored, definition, last)


def _computing(stored: StoredTask, last: Round) -> str:
    if stored.csp_away_since is not None:
        return f"CSP, which has not answered round {last.number} since {format_time(stored.csp_away_since)}"
    return f"round {last.number} to be computed with CSP"


def _uploads(store: SpStore, task: str, last: Round, settings: TaskSettings) -> str:
    uploaded, missing = store.turnout(task, last.number)
    until = format_time(last.last_call(settings))
    return f"uploads to round {last.number}, until {until}: {uploaded} of {uploaded + missing} have come"


def _next_round(store: SpStore, stored: StoredTask, definition: Definition, last: Round | None) -> str:
    task, settings, plan, number = (
        stored.task,
        definition.settings,
        definition.plan,
        1 if last is None else last.number + 1,
    )
    if number > settings.rounds:
        return "the final model"
    needed = []
    if stored.ready_at is not None:
        at = plan.opening(stored.ready_at, None if last is None else last.opened_at)
        return f"the time of round {number}, {format_time(at)}"
    people = plan.needed(settings, first=number == 1) - store.turnout(task, 0)[1]
    if people > 0:
        needed.append(f"{people} more participant{'s' if people > 1 else ''}")
    money = to_millionths(settings.budget or 0) - Ledger(store.movements(task)).balance(ESCROW)
    if money > 0:
        needed.append(f"a confirmed deposit of {amount_words(money)} {settings.currency}")
    return " and ".join(needed) or f"round {number} to open"
