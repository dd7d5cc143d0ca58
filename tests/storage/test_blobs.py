"""Blobs are there as a whole or not at all, under names that cannot leave their folder."""

import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crowdfl.errors import Conflict, FormatError, NotReady
from crowdfl.simulation.disks import FileDisk
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.memory_blobs import MemoryBlobs

BAD_NAMES = {
    "up": "../x",
    "up in the middle": "a/../../x",
    "absolute": "/x",
    "empty": "",
    "empty segment": "a//b",
    "trailing slash": "a/",
    "here": ".",
    "hidden": ".x",
    "NUL": "a\0b",
    "newline": "a\nb",
    "backslash": "..\\x",
    "half a character": "\ud800",
    "not ASCII": "\u00e4",
    "long segment": "x" * 201,
    "long": "/".join(["x" * 100] * 11),
}


Blobs = FileBlobs | MemoryBlobs


@pytest.fixture
def file_blobs(tmp_path: Path) -> FileBlobs:
    """An empty folder of blobs, two folders below what exists."""
    return FileBlobs(tmp_path / "role" / "blobs")


@pytest.fixture(params=["memory", "files"])
def blobs(request: pytest.FixtureRequest, file_blobs: FileBlobs) -> Blobs:
    return MemoryBlobs() if request.param == "memory" else file_blobs


def test_bytes_come_back_and_are_listed(blobs: Blobs):
    blobs.put("t/rounds/1/a", b"\x00one")
    blobs.put("t.sp", b"")
    assert blobs.get("t/rounds/1/a") == b"\x00one"
    assert blobs.has("t.sp")
    assert sorted(blobs.listing()) == ["t.sp", "t/rounds/1/a"]


def test_the_same_bytes_again_are_fine_and_others_a_conflict(blobs: Blobs):
    blobs.put("a", b"first")
    blobs.put("a", b"first")
    with pytest.raises(Conflict):
        blobs.put("a", b"other")
    assert blobs.get("a") == b"first"


def test_what_is_not_there_is_named(blobs: Blobs):
    """Nothing, a folder, and a name below a blob."""
    blobs.put("a/b", b"")
    for name in ("x", "x/y", "a", "a/b/c"):
        assert not blobs.has(name)
        with pytest.raises(NotReady):
            blobs.get(name)


def test_a_blob_is_read_piece_by_piece(blobs: Blobs):
    """From its beginning, by each who opens it; also while its name goes away."""
    blobs.put("a/b", b"0123456789")
    with blobs.open("a/b") as first, blobs.open("a/b") as second:
        assert (first.read(4), second.read(2)) == (b"0123", b"01")
        blobs.delete("a/b")
        assert (first.read(), second.read()) == (b"456789", b"23456789")
    for missing in ("a/b", "a", "a/b/c"):
        with pytest.raises(NotReady):
            blobs.open(missing)


def test_a_blob_is_no_folder_and_a_folder_no_blob(blobs: Blobs):
    blobs.put("a/b", b"")
    for name in ("a", "a/b/c", "a/b/c/d"):
        with pytest.raises(Conflict):
            blobs.put(name, b"other")


def test_deleting_twice_is_fine(blobs: Blobs):
    blobs.put("a/b", b"1")
    for name in ("a/b", "a/b", "x/y", "x"):
        blobs.delete(name)
    assert not blobs.has("a/b")
    blobs.put("a/b", b"2")


def test_clearing_takes_what_is_below_a_name_alone(blobs: Blobs):
    for name in ("t/1/a", "t/1/b/c", "t/10", "t/2"):
        blobs.put(name, b"")
    blobs.clear("t/1")
    blobs.clear("t/2")
    assert sorted(blobs.listing()) == ["t/10", "t/2"]


def test_several_are_put_at_once(blobs: Blobs):
    """Again too; one with other contents is a conflict."""
    both = {"a/b": b"1", "c": b"2"}
    blobs.put_all(both)
    blobs.put_all(both)
    assert {name: blobs.get(name) for name in blobs.listing()} == both
    with pytest.raises(Conflict):
        blobs.put_all({"d": b"3", "c": b"other"})
    assert blobs.get("c") == b"2"


def test_clearing_takes_unfinished_writes_too(file_blobs: FileBlobs):
    """What a crash left unfinished too, and nothing beside it; twice is fine."""
    file_blobs.put("t/1/uploads/a", b"")
    file_blobs.put("t/1/rewards", b"kept")
    (file_blobs.folder / "t/1/uploads/.0123.part").write_bytes(b"half")
    file_blobs.clear("t/1/uploads")
    file_blobs.clear("t/1/uploads")
    assert not (file_blobs.folder / "t/1/uploads").exists()
    assert sorted(file_blobs.listing()) == ["t/1/rewards"]


def test_unfinished_writes_are_not_listed(file_blobs: FileBlobs):
    """A killed process leaves a hidden file; no name leads to it."""
    (file_blobs.folder / ".0123.part").write_bytes(b"half")
    assert sorted(file_blobs.listing()) == []


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_names_that_could_mean_something_else_are_refused(blobs: Blobs, name: str, tmp_path: Path):
    for act in (
        lambda: blobs.put(name, b"x"),
        lambda: blobs.get(name),
        lambda: blobs.open(name),
        lambda: blobs.has(name),
    ):
        with pytest.raises(FormatError):
            act()
    for act in (blobs.delete, blobs.clear):
        with pytest.raises(FormatError):
            act(name)
    assert sorted(blobs.listing()) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_everything_is_the_owners_alone(tmp_path: Path):
    before = os.umask(0)
    try:
        blobs = FileBlobs(tmp_path / "a" / "b")
        blobs.put("c/d/e", b"x")
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a").rglob("*") if path.is_dir()}
    assert modes == {0o700}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a/b/c/d/e").stat().st_mode) == 0o600


def test_a_full_disk_surfaces_as_itself_and_leaves_nothing(file_blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch):
    """Half the bytes went out before it was full; the name is free for the next try."""
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) <= 50:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:50])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space") as refused:
        file_blobs.put("a/b", b"x" * 100)
    assert refused.value.errno == errno.ENOSPC
    assert not file_blobs.has("a/b")
    assert [path for path in file_blobs.folder.rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    file_blobs.put("a/b", b"x" * 100)


def test_a_put_is_on_disk_with_its_name_and_the_folders_above(file_blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch):
    """The bytes are synced before the name appears; then the folder, and each folder that is new."""
    told: list[str] = []
    fsync, link = os.fsync, os.link

    def noting_fsync(descriptor: int) -> None:
        fsync(descriptor)
        told.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    def noting_link(source: Path, target: Path) -> None:
        link(source, target)
        told.append("named")

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "link", noting_link)
    file_blobs.put("c/d", b"x")
    assert told[0] == "blobs"
    assert told[1].endswith(".part")
    assert told[2:] == ["named", "c"]
    told.clear()
    file_blobs.put("c/d", b"x")  # said to be there only when its name is durable too
    assert told[-1] == "c"


@pytest.mark.parametrize("durable", [True, False])
def test_a_simulation_waits_for_no_disk_only_where_it_says_so(tmp_path, monkeypatch, durable):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    blobs = FileDisk(tmp_path, durable=durable).blobs("role/blobs")
    blobs.put("a/b", b"x")
    blobs.delete("a/b")
    blobs.clear("a")
    assert bool(synced) == durable


def test_of_two_that_put_at_once_one_wins_whole(blobs: Blobs):
    """Each reader sees one of the two; exactly the losers are told."""
    for number in range(20):
        bodies = [bytes([i]) * 5000 for i in range(4)]
        gate = threading.Barrier(4)

        def put(body: bytes, number: int = number, gate: threading.Barrier = gate) -> bool:
            gate.wait()
            try:
                blobs.put(f"race/{number}", body)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(put, bodies))
        assert won.count(True) == 1
        assert blobs.get(f"race/{number}") == bodies[won.index(True)]
