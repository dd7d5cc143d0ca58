"""What happens at the same time happens as if one after the other: in threads, in processes, and when one is killed."""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from tests import subprocesses

from crowdfl.errors import Conflict
from crowdfl.protocols.profile import SpRecord
from crowdfl.roles.records import Movement, Round, StoredTask, Upload
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER
from crowdfl.storage.sql import SqlStore

CHILD = Path(__file__).with_name("store_child.py")
T = TypeVar("T")


def at_once(count: int, act: Callable[[int], T]) -> list[T]:
    """The results of so many threads that start together."""
    gate = threading.Barrier(count)

    def wait_and_act(number: int) -> T:
        gate.wait()
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(wait_and_act, range(count)))


def processes(url: str, *calls: tuple[object, ...]) -> list[list[str]]:
    """The lines of so many processes that start together."""
    with contextlib.ExitStack() as stack:
        commands = ([sys.executable, CHILD, url, *call] for call in calls)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        children = [stack.enter_context(subprocesses.running(command, **pipes)) for command in commands]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("\n")
            child.stdin.flush()
        said = [child.communicate(timeout=400)[0].splitlines() for child in children]
        assert [child.returncode for child in children] == [0] * len(children)
    return said


def test_of_different_uploads_at_once_one_is_counted(sql_store: SqlStore):
    """The others are refused by name, not by a broken constraint."""
    sql_store.set_round("t", None, Round(1, 0.0))

    def upload(number: int) -> str:
        return type(sql_store.acknowledge("t", 1, [Upload("p", str(number) * 64, late=False)])[0]).__name__

    assert sorted(at_once(4, upload)) == ["AlreadyCounted"] * 3 + ["bool"]


def test_of_several_records_at_once_one_is_set(sql_store: SqlStore):
    """So that no process masks with a seed that is not the durable one, or names results that are not the round's."""
    first = Round(1, 0.0)
    sql_store.set_round("t", None, first)

    def keep(number: int) -> bool:
        try:
            sql_store.set_sp_record("t", 1, SpRecord(), SpRecord(b"t", bytes([number + 1])))
        except Conflict:
            return False
        return True

    def name(number: int) -> bool:
        try:
            sql_store.set_round("t", first, Round(1, 0.0, average=str(number)))
        except Conflict:
            return False
        return True

    kept, named = at_once(4, keep), at_once(4, name)
    assert kept.count(True) == named.count(True) == 1
    assert sql_store.sp_record("t", 1) == SpRecord(b"t", bytes([kept.index(True) + 1]))
    assert sql_store.round("t", 1).average == str(named.index(True))


def test_one_of_several_owners_gets_a_lease(sql_store: SqlStore):
    """A free one, and one that has run out."""
    for now in (0.0, 60.0, 120.0):
        assert at_once(4, lambda number, now=now: sql_store.lease("t", f"{number} {now}", now, 60.0)).count(True) == 1


def test_two_processes_on_one_database_keep_every_promise(sql_store: SqlStore, url: str):
    """They upload the same bytes, drain the same account and race for the same places."""
    sql_store.add_task(StoredTask("t", "d", "a", "running"))
    sql_store.post("t", Movement("deposit 1", REQUESTER, ESCROW, 25))
    for number in range(1, 21):
        sql_store.set_round("t", None, Round(number, 0.0))
    said = processes(url, ("race", "a", 20, 25), ("race", "b", 20, 25))
    new, spent, inside = (sum(column) for column in zip(*(map(int, lines[-1].split()) for lines in said), strict=True))
    assert (new, spent, inside) == (20, 25, 25)
    assert all(len(sql_store.uploads("t", number)) == 1 for number in range(1, 21))
    assert len(sql_store.participants("t")) == 25


@pytest.mark.second
def test_a_process_killed_at_any_call_leaves_all_of_a_transaction_or_nothing(sql_store: SqlStore, url: str):
    """Two transactions, killed before and after every statement and commit; what was acknowledged is there."""
    (lines,) = processes(url, ("sweep",))
    ended = {int(step): int(status) for word, step, status in (line.split() for line in lines if "ended" in line)}
    done = {line.split()[1] for line in lines if line.startswith("done")}
    assert len(ended) > 20
    assert list(ended.values()) == [-9] * (len(ended) - 1) + [0]
    tasks = {task.task for task in sql_store.all_tasks()}
    states = set()
    for step in ended:
        name = f"t{step}"
        made = len(sql_store.movements(name))
        second = (
            bool(sql_store.rounds(name)),
            bool(sql_store.sp_record(name, 1).round),
            bool(sql_store.recorded_rounds(name)),
        )
        assert made == {(False, False): 0, (True, False): 1, (True, True): 2}[name in tasks, all(second)]
        assert len(set(second)) == 1
        assert all(second) or name not in done
        states.add(made)
    assert states == {0, 1, 2}
    assert f"t{len(ended)}" in done
