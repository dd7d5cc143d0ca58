"""What `crowdfl task` shows: a task's state, money and orders, in words."""

import time
from collections.abc import Mapping
from typing import Any

from crowdfl.durations import span_words
from crowdfl.errors import CrowdFLError, ServiceUnavailable
from crowdfl.roles.records import EndedBy, Tombstone
from crowdfl.roles.requester import Requester
from crowdfl.roles.waiting import Wait, amount_words, waits_for
from crowdfl.settings import (
    money_words,
)

SUMS = ("pending", "paid_in", "offered", "earned", "returned")
_LONGEST = 76  # of a purpose, in 80 columns


def listed(requester: Requester) -> list[dict[str, Any]]:
    """The last one first. What cannot be read or asked is said in its row; a platform that is away is asked once."""
    rows, away = [], ""
    for task in requester.tasks():
        row = _from_folder(requester, task)
        if not row["problem"]:
            try:
                row |= {"problem": away} if away else _from_platform(requester, task)
            except ServiceUnavailable as why:
                row["problem"] = away = str(why)
            except CrowdFLError as why:
                row["problem"] = str(why)
        rows.append(row)
    return rows


def _from_folder(requester: Requester, task: str) -> dict[str, Any]:
    row: dict[str, Any] = {"task": task, "purpose": "", "problem": ""}
    try:
        definition = requester.definition(task)
    except CrowdFLError as why:  # one file that is damaged, or of a newer version, hides no other task
        return row | {"problem": str(why)}
    settings = definition.settings
    return row | {
        "purpose": definition.purpose,
        "profile": settings.profile,
        "rounds": settings.rounds,
        "currency": settings.currency,
    }


def _from_platform(requester: Requester, task: str) -> dict[str, Any]:
    status, report = requester.sp.status(task), requester.report(task)
    sums = {name: report[name] for name in SUMS}
    done = sum(one["state"] == "rewarded" for one in status["rounds"])
    waits = waits_for(requester.definition(task), status, report)
    return {"state": status["state"], "done": done, "enrolled": status["enrolled"], "waits": waits, **sums}


def task_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Each task's id, and below it its purpose, where it stands and what it waits for."""
    lines = []
    for row in rows:
        words = row["purpose"] if len(row["purpose"]) <= _LONGEST else f"{row['purpose'][: _LONGEST - 3]}..."
        lines += [row["task"], f"    {words}"] if words else [row["task"]]
        if "state" in row:
            people = f"{row['enrolled']} enrolled"
            lines.append(f"    {row['state']}; {row['done']} of {row['rounds']} rounds; {people}; {_money(row)}")
            lines += [f"    waits for {waited}" for waited in row["waits"]]
    return lines


def problem_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Each problem once, with the tasks that have it."""
    problems: dict[str, list[str]] = {}
    for row in rows:
        if row["problem"]:
            problems.setdefault(row["problem"], []).append(row["task"][:8])
    return [f"not known of {', '.join(tasks)}: {why}" for why, tasks in problems.items()]


def _money(row: Mapping[str, Any]) -> str:
    sums = {name: f"{amount_words(row[name])} {row['currency']}" for name in ("pending", "paid_in", "returned")}
    returned = f", {sums['returned']} returned" if row["returned"] else ""
    pending = f", {sums['pending']} pending" if row["pending"] else ""
    return f"{sums['paid_in']} paid in{returned}{pending}"


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


def sum_words(report: Mapping[str, Any], currency: str) -> dict[str, str]:
    """The sums of a report; what people have earned is known when claims have ended."""
    amounts = {name: report[name] for name in SUMS}
    return {
        name.replace("_", " "): "not known yet" if amount is None else money_words(amount, currency)
        for name, amount in amounts.items()
    }


def fund_words(task: str, deposit: str, amount: int, currency: str) -> str:
    paid = amount_words(amount)
    return (
        f"{paid} {currency} is announced as the deposit {deposit}. It counts once the money is with the platform and its "
        f"operator has confirmed it there: `crowdfl sp deposit confirm SETTINGS {task} {deposit} {paid} {currency}`"
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
    warning = f" [{status['key']}]" if status.get("insecure") else ""
    ended = status.get("ended")
    why = f" ({Tombstone(ended['why'], EndedBy(ended['by']), ended['reason']).words()})" if ended else ""
    listed = status.get("listed")
    came = "" if listed is None else f" ({listed} by the platform's list, {status['enrolled'] - listed} invited)"
    return f"{status['state']}{why}: {status['enrolled']} enrolled{came}; {rounds or 'no round yet'}{warning}"


def _more(waited: Wait, task: str, status: Mapping[str, Any], now: float) -> str:
    """The command that helps, or how long it can take."""
    if waited.code == "people":
        return f": `crowdfl task invite {task} FOLDER`"
    if waited.code in ("money", "unannounced") and "to_fund" in status:
        return f": `crowdfl task fund {task} {amount_words(status['to_fund'])}` pays for all rounds"
    if waited.code == "uploads":
        left = max(0.0, status["rounds"][-1]["last_call"] - now)
        return f"; the window closes in {span_words(left)}, or once all have come"
    if waited.code == "you":
        return f": `crowdfl task resume {task}`"
    return ""
