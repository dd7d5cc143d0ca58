"""Processes that work on a store at the same time as others, or are killed while they do.

    python store_child.py URL race NAME COUNT LIMIT     uploads, spends and enrols, COUNT times each
    python store_child.py URL sweep                     see `sweep`

Each waits for a line on its input before it starts, and prints a line when it is ready to.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial

from sqlalchemy import event

from crowdfl.errors import NotEnoughMoney, TaskFull
from crowdfl.protocols.claims import KeptClaim
from crowdfl.protocols.profile import Identity, SpRecord
from crowdfl.protocols.records import Look, MemoryRecords
from crowdfl.roles.records import Movement, Round, StoredParticipant, StoredTask, Upload
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER
from crowdfl.storage.sql import SqlStore

KILLED = -signal.SIGKILL


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def race(store: SqlStore, name: str, count: int, limit: int) -> None:
    """How many uploads were new, how often a millionth was had, how many people got in."""
    tries: list[list[Callable[[], object]]] = [
        [partial(upload, store, n) for n in range(1, count + 1)],
        [partial(store.post, "t", Movement(f"{name} {n}", ESCROW, "out", 1)) for n in range(count)],
        [partial(enrol, store, f"{name} {n}", limit) for n in range(count)],
    ]
    tell(*(sum(map(succeeds, calls)) for calls in tries))


def succeeds(call: Callable[[], object]) -> bool:
    """Whether it was done, now and by this process."""
    try:
        return bool(call())
    except (NotEnoughMoney, TaskFull):
        return False


def upload(store: SqlStore, number: int) -> bool:
    """One of each round; True if it was new."""
    return store.acknowledge("t", number, [Upload("p", f"{number:064x}", late=False)])[0] is True


def enrol(store: SqlStore, who: str, limit: int) -> bool:
    store.add_participant("t", StoredParticipant(Identity(who, b"s", b"r", who), "c"), limit)
    return True


def campaign(store: SqlStore, task: str) -> None:
    """Two transactions, the second of which is acknowledged by a line."""
    with store.transaction():
        store.add_task(StoredTask(task, "d", "a", "running"))
        store.post(task, Movement("deposit 1", REQUESTER, ESCROW, 5))
    with store.transaction():
        store.post(task, Movement("fund round 1", ESCROW, "round 1", 5))
        store.set_sp_record(task, 1, SpRecord(), SpRecord(round=b"seed"))
        with store.transaction():
            store.set_round(task, None, Round(1, 1.0))
        look = Look(MemoryRecords())
        look.put(KeptClaim(b"b"), 1)
        store.set_records(task, look, "r", None)
    tell("done", task)


def sweep(url: str) -> None:
    """Kill a process at its first call to the database, another at its second, ... until one lives to the end."""
    for step in range(1, 1000):
        child = os.fork()
        if child == 0:
            run_until(url, step)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        tell("ended", step, status)
        if status != KILLED:
            return


def run_until(url: str, step: int) -> None:
    """A campaign of its own, killed at a step; each statement and each commit is two: before and after."""
    left = [step]

    def count(*_arguments: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    store = SqlStore(url)
    for moment in ("before_cursor_execute", "after_cursor_execute", "commit", "checkin"):
        event.listen(store.engine, moment, count)
    campaign(store, f"t{step}")
    store.close()
    os._exit(0)


def main() -> None:
    url, what, *rest = sys.argv[1:]
    tell("ready")
    sys.stdin.readline()
    if what == "sweep":
        sweep(url)
        return
    store = SqlStore(url)
    race(store, rest[0], int(rest[1]), int(rest[2]))
    store.close()


if __name__ == "__main__":
    main()
