"""What is erased when a task ends, on a connection that its caller has opened: seeds, answers, what CSP remembers."""

from collections import Counter, defaultdict
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import delete, func, select

from crowdfl.storage import tables as t


def erase_seeds(c: sa.Connection, task: str, number: int | None) -> None:
    of_round = () if number is None else (t.seeds.c.number == number,)
    c.execute(delete(t.seeds).where(t.seeds.c.task == task, *of_round))


def seed_counts(c: sa.Connection) -> dict[str, int]:
    return _counts(c, t.seeds)


def erase_answers(c: sa.Connection, task: str, keep: Collection[str]) -> None:
    c.execute(delete(t.answers).where(t.answers.c.task == task))
    c.execute(delete(t.memory).where(t.memory.c.task == task, t.memory.c.name.not_in(keep)))


def answer_counts(c: sa.Connection, keep: Collection[str]) -> dict[str, Counter[str]]:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for kind, counts in (("answers", _counts(c, t.answers)), ("memory", _counts(c, t.memory, keep))):
        for task, count in counts.items():
            found[task][kind] = count
    return dict(found)


def _counts(c: sa.Connection, table: sa.Table, keep: Collection[str] = ()) -> dict[str, int]:
    wanted = select(table.c.task, func.count()).group_by(table.c.task)
    if keep:
        wanted = wanted.where(table.c.name.not_in(keep))
    return {row[0]: row[1] for row in c.execute(wanted)}
