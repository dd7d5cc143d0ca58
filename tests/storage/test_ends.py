"""What a store and a folder forget when a task ends, and that nothing of it stays in their files."""

import os
from collections import Counter
from pathlib import Path

import pytest

from crowdfl.protocols.claims import KeptClaim
from crowdfl.protocols.profile import SpRecord
from crowdfl.protocols.records import Look, MemoryRecords
from crowdfl.roles.records import StoredTask
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.memory_blobs import MemoryBlobs
from crowdfl.storage.sealed_blobs import SealedBlobs
from crowdfl.storage.sql import SqlStore

SECRET = b"a mask seed that nobody must find"


def _fill(store: SqlStore, task: str) -> None:
    store.add_task(StoredTask(task, "definition", "appointment", "open"))
    for number in (1, 2):
        secret = SECRET + task.encode() + bytes([number])
        store.set_sp_record(task, number, SpRecord(), SpRecord(round=secret))
        store.set_sp_record(task, number, SpRecord(round=secret), SpRecord(round=b"a seed, and another " + secret))
        look = Look(MemoryRecords())
        look.put(KeptClaim(SECRET + task.encode()), number)
        store.set_records(task, look, f"request {number}", f"{task}/answers/{number}")


def test_one_task_is_forgotten_and_no_other(store: SqlStore):
    for task in ("a", "b"):
        _fill(store, task)
    assert store.seed_counts() == {"a": 2, "b": 2}
    assert store.answer_counts() == {task: Counter(answers=2, records=2) for task in ("a", "b")}
    for _ in range(2):
        store.erase_seeds("a")
        store.erase_answers("a")
    assert store.seed_counts() == {"b": 2}
    assert store.answer_counts() == {"b": Counter(answers=2, records=2)}
    assert (store.sp_record("a", 1), store.answered("a", "request 1")) == (SpRecord(), None)
    assert SECRET in store.sp_record("b", 1).round
    assert store.answered("b", "request 1") == "b/answers/1"
    assert store.task("a").definition == "definition"


def test_erasing_inside_a_transaction_stands_or_falls_with_it(store: SqlStore):
    _fill(store, "a")

    def fail() -> None:
        with store.transaction():
            store.erase_seeds("a")
            store.erase_answers("a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (store.seed_counts(), store.recorded_rounds("a")) == ({"a": 2}, [1, 2])


def test_sqlite_keeps_no_copy_of_what_was_erased(tmp_path: Path):
    """Neither in its pages nor in its log of writes."""
    store = SqlStore(f"sqlite:///{tmp_path}/state.db")
    store.create_tables()
    _fill(store, "a")
    assert any(SECRET in path.read_bytes() for path in tmp_path.iterdir())
    store.erase_seeds("a")
    store.erase_answers("a")
    found = [path.name for path in tmp_path.iterdir() if SECRET in path.read_bytes()]
    store.close()
    assert found == []


def test_somebody_who_reads_does_not_keep_sqlite_from_erasing(tmp_path: Path):
    """The log is emptied by whoever erases next."""
    store = SqlStore(f"sqlite:///{tmp_path}/state.db")
    store.create_tables()
    for task in ("a", "b"):
        _fill(store, task)
    with store.engine.connect().execution_options(crowdfl_reading=True) as reader:
        reader.exec_driver_sql("SELECT * FROM sp_records").fetchall()
        store.erase_seeds("a")
        assert store.seed_counts() == {"b": 2}
    for task in ("a", "b"):
        store.erase_seeds(task)
        store.erase_answers(task)
    found = [path.name for path in tmp_path.iterdir() if SECRET in path.read_bytes()]
    store.close()
    assert found == []


def test_blobs_are_listed_with_their_time(tmp_path: Path):
    """Of a sealed folder too, but for its own mark."""
    files = FileBlobs(tmp_path / "files")
    for blobs in (files, MemoryBlobs(), SealedBlobs(FileBlobs(tmp_path / "sealed"), "passphrase", 1)):
        blobs.put("a/b", b"1")
        blobs.put("c", b"2")
        assert blobs.listing().keys() == {"a/b", "c"}
        blobs.clear("a")
        blobs.delete("c")
        assert blobs.listing() == {}
    files.put("old", b"1")
    os.utime(tmp_path / "files/old", (5.0, 5.0))
    assert files.listing() == {"old": 5.0}


def test_what_a_crash_left_of_a_write_is_removed_once_it_is_old(tmp_path: Path):
    """One that is being written now is not."""
    blobs = FileBlobs(tmp_path / "files")
    blobs.put("a/b", b"1")
    (tmp_path / "files/a/.0123.part").write_bytes(SECRET)
    os.utime(tmp_path / "files/a/.0123.part", (1000.0, 1000.0))
    assert blobs.remove_unfinished(999.0) == 0
    assert blobs.remove_unfinished(1001.0) == 1
    assert [path.name for path in (tmp_path / "files/a").iterdir()] == ["b"]
    sealed = SealedBlobs(FileBlobs(tmp_path / "sealed"), "passphrase", 1)
    assert (sealed.remove_unfinished(1e12), MemoryBlobs().remove_unfinished(1e12)) == (0, 0)
