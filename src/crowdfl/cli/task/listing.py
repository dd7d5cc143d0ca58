"""`crowdfl task list`: every task of this requester, as its own folder and the platform know it."""

from collections.abc import Mapping
from typing import Any

from crowdfl.errors import CrowdFLError, ServiceUnavailable
from crowdfl.roles.requester import Requester
from crowdfl.roles.waiting import amount_words, waits_for

_LONGEST = 46  # of a purpose, beside an id in 80 columns


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
    return row | {"purpose": definition.purpose, "profile": settings.profile, "rounds": settings.rounds}


def _from_platform(requester: Requester, task: str) -> dict[str, Any]:
    status, report = requester.sp.status(task), requester.report(task)
    sums = {name: report[name] for name in ("pending", "paid_in", "rewards", "returned")}
    done = sum(one["state"] == "rewarded" for one in status["rounds"])
    waits = waits_for(requester.definition(task), status, report)
    return {"state": status["state"], "done": done, "enrolled": status["enrolled"], "waits": waits, **sums}


def task_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Each task's id and purpose, and below it where it stands and what it waits for."""
    lines = []
    for row in rows:
        words = row["purpose"] if len(row["purpose"]) <= _LONGEST else f"{row['purpose'][: _LONGEST - 3]}..."
        lines.append(f"{row['task']}  {words}".rstrip())
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
    sums = {name: amount_words(row[name]) for name in ("pending", "paid_in", "returned")}
    returned = f", {sums['returned']} returned" if row["returned"] else ""
    pending = f", {sums['pending']} pending" if row["pending"] else ""
    return f"{sums['paid_in']} paid in{returned}{pending}"
