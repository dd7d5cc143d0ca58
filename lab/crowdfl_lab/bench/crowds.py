"""What an upload costs SP where more people are enrolled: everything that must be read for it is found by key.

A few people join as everyone does, upload, and look where the task stands; the others' rows are written straight into SP's
database. Processor time of one process, with SP's own code from the check of a signature on; no HTTP.
"""

import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from crowdfl.documents.signed import Definition
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import Tools
from crowdfl.roles.participant.participant import Participant
from crowdfl.settings import TaskSettings
from crowdfl.simulation.disks import FileDisk
from crowdfl.simulation.host import Host
from crowdfl.storage import tables as t
from crowdfl.storage.sql import SqlStore
from crowdfl_lab.bench.workload import Say
from crowdfl_lab.report.results import Figure, Reference, Row, Target

CROWDS = (1_000, 10_000, 100_000)
_UPLOADS = 60
_PARAMETERS = 200
_PIECE = 10_000


def crowd_rows(crowds: Sequence[int] = CROWDS, uploads: int = _UPLOADS, say: Say = lambda _: None) -> list[Row]:
    """Seconds an upload, for each size of a crowd, and the ratio to the first."""
    found = {crowd: _seconds(crowd, uploads, say) for crowd in crowds}
    few = Reference(f"{crowds[0]:,} enrolled", Figure(found[crowds[0]], "s"))
    note = f"SP's processor time an upload and a look, mean of {uploads}; without HTTP"
    same = Target("no more than 1.3 times", "ratio", at_most=1.3)
    return [
        Row(f"crowd_{crowd}", f"an upload with {crowd:,} enrolled", Figure(spent, "s"), same, note=note).over(
            few, f"over {crowds[0]:,}"
        )
        for crowd, spent in found.items()
    ]


def _seconds(crowd: int, uploads: int, say: Say) -> float:
    say(f"{crowd} people in a database")
    with tempfile.TemporaryDirectory(prefix="crowdfl-crowd-") as folder:
        host = Host(Tools.unwatched(insecure_test_key=True), disk=FileDisk(Path(folder)))
        task = host.create(_definition(crowd), [np.zeros(_PARAMETERS)])
        people = [host.join(task, str(number)) for number in range(uploads)]
        _fill(host.sp.store, task, crowd - uploads)  # type: ignore[arg-type]
        host.sp.steps.open(task, 0)
        for person in people:
            person.encrypt(1, [np.zeros(_PARAMETERS)], 1)
        started = time.process_time()
        for person in people:
            _serve(host, task, person)
        return (time.process_time() - started) / uploads


def _serve(host: Host, task: str, person: Participant) -> None:
    host.sp.store.participant(task, person.keys.who)
    host.sp.tasks.status(task)
    person.send(1)


def _definition(crowd: int) -> Definition:
    settings = TaskSettings.of(
        profile="shares", max_participants=crowd, check="none", pay="none", lanes=0, rounds=1, window=86400.0
    )
    shape = ModelShape.of({"w": np.zeros(_PARAMETERS)})
    return Definition("a crowd", "none", "nobody", shape, settings, 60, {})


def _fill(store: SqlStore, task: str, count: int) -> None:
    """So many people who have joined, and whom nobody has heard of since."""
    with store.engine.begin() as c:
        for start in range(0, count, _PIECE):
            c.execute(sa.insert(t.participants), [_somebody(task) for _ in range(min(_PIECE, count - start))])
        more = {name: t.tasks.c[name] + count for name in ("active", "taken", "joined")}
        c.execute(sa.update(t.tasks).where(t.tasks.c.task == task).values(more))


def _somebody(task: str) -> dict[str, object]:
    key, who = secrets.token_bytes(32), secrets.token_hex(10)
    return {
        "task": task,
        "who": who,
        "place": who,
        "device": 1,
        "signing": key,
        "reading": key,
        "certificate": "c" * 700,
        "left": False,
        "recruited": False,
        "freed": False,
        "joined_at": 0.0,
    }
