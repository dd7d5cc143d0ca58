"""What a task waits for, in words for its requester. SP says it to its operator; this follows from what a requester may see."""

from collections.abc import Mapping
from typing import Any

from crowdfl.documents.signed import Definition
from crowdfl.roles.dealt import dealt_sizes
from crowdfl.roles.sp.ledger import ESCROW
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
        return [f"uploads to round {last['number']}: {last['uploads']} of {status['enrolled']} have come"]
    if last["number"] >= definition.settings.rounds:
        return ["the final model"]
    number = last["number"] + 1
    dealt = number == 1 and dealt_sizes(definition)
    opening = [
        f"SP and CSP, which fetch what KGC deals and then open round {number}" if dealt else f"round {number} to open"
    ]
    return _for_next_round(definition.settings, status, report) or opening


def _for_next_round(settings: TaskSettings, status: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    found = []
    people = settings.min_participants - status["enrolled"]
    if people > 0:
        joined = f"{status['enrolled']} of {settings.min_participants} have joined"
        found.append(f"{people} more participant{'s' if people > 1 else ''} ({joined}): invite people")
    missing = to_millionths(settings.budget or 0) - escrow(report)
    pending = [
        f"{one['name']} of {amount_words(one['amount'])}" for one in report["deposits"] if one["state"] == "pending"
    ]
    if missing > report["pending"]:
        announced = "" if pending else "; no payment is announced"
        found.append(f"money: {amount_words(missing - report['pending'])} more for the next round{announced}")
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
