"""What a task waits for, in words for its requester. SP says it to its operator; this follows from what a requester may see."""

from collections.abc import Mapping
from typing import Any

from crowdfl.roles.documents import Definition
from crowdfl.roles.sp.ledger import ESCROW
from crowdfl.settings import TaskSettings, from_millionths, to_millionths

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
    return _for_next_round(definition.settings, status, report) or ["the next round to open"]


def _for_next_round(settings: TaskSettings, status: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    found = []
    people = settings.min_participants - status["enrolled"]
    if people > 0:
        found.append(f"{people} more participant{'s' if people > 1 else ''}: invite people")
    missing = to_millionths(settings.budget or 0) - escrow(report)
    pending = [one["name"] for one in report["deposits"] if one["state"] == "pending"]
    if missing > report["pending"]:
        found.append(f"money: {from_millionths(missing - report['pending']):.2f} more for the next round")
    if missing > 0 and pending:
        found.append(f"the platform's operator, who must confirm the deposit {' and '.join(pending)}")
    return found


def escrow(report: Mapping[str, Any]) -> int:
    """What rounds can be paid from, in millionths."""
    movements = report["movements"]
    came = sum(one["amount"] for one in movements if one["target"] == ESCROW)
    return int(came - sum(one["amount"] for one in movements if one["source"] == ESCROW))
