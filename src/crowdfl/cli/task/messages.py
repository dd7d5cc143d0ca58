"""What a requester is told about its tasks: where one stands, what it waits for, and what to do next."""

import time
from collections.abc import Mapping
from typing import Any

from crowdfl.roles.waiting import amount_words
from crowdfl.text import span_words

SUMS = ("pending", "paid_in", "rewards", "returned")
_AFTER: Mapping[str, str] = {
    "pause": "the task is paused: no upload is taken and no round opens until `crowdfl task resume {task}`",
    "resume": "the task goes on; `crowdfl task watch {task}` shows where it stands",
    "cancel": "the task is cancelled: there are no further rounds, people can claim what they have earned, and the rest of "
    "the money is returned; `crowdfl task report {task}` shows it, `crowdfl task fetch {task} FILE` gets the last model",
    "close": "enrolment is closed: nobody else can join, and KGC has destroyed the key that it kept for newcomers; "
    "`crowdfl task watch {task}` shows what the task waits for",
}


def order_words(action: str, task: str) -> str:
    return _AFTER[action].format(task=task)


def fund_words(task: str, deposit: str, amount: int) -> str:
    paid = amount_words(amount)
    return (
        f"{paid} is announced as the deposit {deposit}. It counts once the money is with the platform and its operator has "
        f"confirmed it there: `crowdfl sp deposit confirm SETTINGS {task} {deposit} {paid}`"
    )


def created_words(task: str) -> list[str]:
    """What comes after a task was made, in the order in which it is done."""
    return [
        f"next: crowdfl task invite {task} invitations -n 5    one file for each person",
        f"      crowdfl task watch {task}                      what it waits for",
    ]


def status_words(status: Mapping[str, Any]) -> str:
    """A line on where the task stands, and one for each thing that it waits for."""
    task, now = status["task"], time.time()
    lines = [status_line(status)]
    for waited in status.get("waits", ()):
        lines.append(f"  waits for {waited}{_more(waited, task, status, now)}")
    if status["state"] == "finished":
        lines.append(f"  the model is there: `crowdfl task fetch {task} model.safetensors`")
    left = status.get("claim_seconds_left")
    if left and status["state"] in ("finished", "cancelled"):
        lines.append(f"  rewards can be claimed for another {span_words(left)}")
    return "\n".join(lines)


def status_line(status: Mapping[str, Any]) -> str:
    rounds = ", ".join(f"round {r['number']} {r['state']} ({r['uploads']} uploads)" for r in status["rounds"])
    key = status.get("key", "")
    warning = f" [{key}]" if "INSECURE" in key else ""
    why = f" ({status['ended']})" if status.get("ended") else ""
    return f"{status['state']}{why}: {status['enrolled']} enrolled; {rounds or 'no round yet'}{warning}"


def _more(waited: str, task: str, status: Mapping[str, Any], now: float) -> str:
    """The command that helps, or how long it can take."""
    if "invite people" in waited:
        return f": `crowdfl task invite {task} FOLDER`"
    if waited.startswith("money:") and "to_fund" in status:
        return f": `crowdfl task fund {task} {amount_words(status['to_fund'])}` pays for all rounds"
    if waited.startswith("uploads"):
        left = max(0.0, status["rounds"][-1]["deadline"] - now)
        return f"; the window closes in {span_words(left)}, or once all have come"
    if waited.startswith("you"):
        return f": `crowdfl task resume {task}`"
    return ""
