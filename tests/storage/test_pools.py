"""Pools: no randomizer is handed out twice, none is wrong, whatever happens to the process or the disk."""

import hashlib
import itertools
import os
import shutil
import stat
import struct
import subprocess
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pool_child import Numbered, work
from tests import subprocesses

from crowdfl.crypto.blocks import Block, to_ints
from crowdfl.crypto.compute import Progress
from crowdfl.crypto.paillier import pctd, vector
from crowdfl.crypto.paillier.pctd import FreshRandomizers, RandomizerSource
from crowdfl.errors import (
    Cancelled,
    KeyMismatch,
    LengthMismatch,
    PoolDamaged,
    PoolError,
    PoolExhausted,
    UnsupportedVersion,
)
from crowdfl.storage.pools import RandomizerPool

PAIR = pctd.keygen(64, insecure_test_key=True)
PUBLIC = PAIR.public
CHILD = Path(__file__).with_name("pool_child.py")
STATES, ENTRIES, STRIDE = (4096, 8192), 12288, PUBLIC.ciphertext_bytes + 4
RECORD = 56


def filled(path: Path, count: int, first: int = 1) -> RandomizerPool:
    pool = RandomizerPool.open(path, PUBLIC)
    pool.fill(count, Numbered(PUBLIC, first))
    return pool


def numbers(block: Block) -> list[int]:
    return [int(x) for x in to_ints(block)]


def rest(path: Path) -> list[int]:
    """Everything that a pool still hands out."""
    pool = RandomizerPool.open(path, PUBLIC)
    return numbers(pool.take(pool.available))


def child(path: Path) -> subprocess.Popen[str]:
    """Another process at work on the pool."""
    command = [sys.executable, str(CHILD), str(path), str(PUBLIC.n), str(PUBLIC.h_s)]
    return subprocesses.start(command, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, list[int]]:
    """How a child ended, and what it was handed."""
    output = output_of(process)
    return process.returncode, [int(line, 16) for line in output.split()]


def output_of(process: subprocess.Popen[str]) -> str:
    """What a child prints; one that hangs is killed."""
    try:
        return process.communicate(timeout=400)[0]
    finally:
        process.kill()
        process.wait(60)


def flip(path: Path, position: int, change: int = 0xFF) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ change]))


def test_a_pool_is_a_source_of_randomizers(tmp_path: Path):
    """What is encrypted from a pool decrypts right, and the pool is used up by it."""
    pool = RandomizerPool.open(tmp_path / "pool", PUBLIC)
    source: RandomizerSource = pool
    pool.fill(50, FreshRandomizers(PUBLIC), batch=20)
    message = [-3, 0, 7, *range(47)]
    cipher = vector.encrypt(source, message)
    assert [PAIR.private.decrypt(cipher[i]) for i in range(50)] == message
    assert pool.available == 0


def test_entries_come_in_order_and_once(tmp_path: Path):
    """Across many takes, handles and fills, nothing is repeated and nothing is lost."""
    path, seen, added = tmp_path / "pool", [], 0
    filler = Numbered(PUBLIC)
    for count in (0, 1, 5, 17, 3, 40, 2, 8, 100, 1):
        RandomizerPool.open(path, PUBLIC).fill(count, filler, batch=7)
        added += count
        for share in (count // 3, count // 4, 1):
            pool = RandomizerPool.open(path, PUBLIC)
            seen += numbers(pool.take(min(share, pool.available)))
    seen += rest(path)
    assert seen == list(range(1, added + 1))


def test_an_exhausted_pool_hands_out_nothing(tmp_path: Path):
    """The error says how many there are, and they stay there."""
    pool = filled(tmp_path / "pool", 3)
    with pytest.raises(PoolExhausted, match="holds 3 randomizers, 4 were asked for"):
        pool.take(4)
    assert pool.available == 3
    assert numbers(pool.take(3)) == [1, 2, 3]
    assert pool.take(0).shape == (0, PUBLIC.ciphertext_bytes)


def test_taken_entries_are_wiped(tmp_path: Path):
    pool = filled(tmp_path / "pool", 5)
    pool.take(2)
    data = (tmp_path / "pool").read_bytes()[ENTRIES:]
    assert data[: 2 * STRIDE] == bytes(2 * STRIDE)
    assert any(data[2 * STRIDE : 3 * STRIDE])


def test_a_wipe_that_fails_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The entries are used up by then, and still are handed out once."""
    pool = filled(tmp_path / "pool", 3)
    real = os.pwrite

    def fail_to_wipe(descriptor: int, data: bytes, position: int) -> int:
        if position >= ENTRIES:
            raise OSError(28, "no space left")
        return real(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", fail_to_wipe)
    assert numbers(pool.take(2)) == [1, 2]
    monkeypatch.undo()
    assert rest(tmp_path / "pool") == [3]


def test_a_pool_that_is_topped_up_does_not_grow(tmp_path: Path):
    pool = filled(tmp_path / "pool", 20)
    filler = Numbered(PUBLIC, 21)
    seen = []
    for _ in range(50):
        seen += numbers(pool.take(10))
        pool.fill(10, filler)
    assert seen == list(range(1, 501))
    assert (tmp_path / "pool").stat().st_size <= ENTRIES + 40 * STRIDE


def test_the_file_is_the_owners_alone(tmp_path: Path):
    """Made with mode 0600; refused when others may read or write it, or when it is no file."""
    path = tmp_path / "pool"
    filled(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(PoolError, match="chmod 600"):
        RandomizerPool.open(path, PUBLIC)
    for no_pool in (tmp_path, tmp_path / "no" / "folder"):
        with pytest.raises(PoolError):
            RandomizerPool.open(no_pool, PUBLIC)


def test_another_key_is_refused(tmp_path: Path):
    """A pool, or a source to fill it from, of another key."""
    pool = filled(tmp_path / "pool", 2)
    other = pctd.keygen(64, insecure_test_key=True).public
    with pytest.raises(KeyMismatch):
        RandomizerPool.open(tmp_path / "pool", other)
    with pytest.raises(KeyMismatch):
        pool.fill(1, Numbered(other))
    assert pool.available == 2


def test_another_version_and_garbage_are_told_apart(tmp_path: Path):
    filled(tmp_path / "pool", 2)
    flip(tmp_path / "pool", 4, 3)
    with pytest.raises(UnsupportedVersion, match="version 2"):
        RandomizerPool.open(tmp_path / "pool", PUBLIC)
    for garbage in (b"", b"CFLP", b"x" * 20000):
        (tmp_path / "pool").write_bytes(garbage)
        with pytest.raises(PoolDamaged):
            RandomizerPool.open(tmp_path / "pool", PUBLIC)


def test_a_pool_deleted_meanwhile_is_named(tmp_path: Path):
    """No other file is made in its place."""
    pool = filled(tmp_path / "pool", 2)
    (tmp_path / "pool").unlink()
    with pytest.raises(PoolError, match="no pool"):
        pool.take(1)
    assert not (tmp_path / "pool").exists()


def test_numbers_of_no_randomizers_are_refused(tmp_path: Path):
    pool = filled(tmp_path / "pool", 2)
    for wrong in (lambda: pool.take(-1), lambda: pool.fill(-1, pool), lambda: pool.fill(1, pool, batch=0)):
        with pytest.raises(PoolError):
            wrong()
    assert pool.available == 2


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (np.zeros((2, PUBLIC.ciphertext_bytes), np.uint8), PoolError),
        (np.full((2, PUBLIC.ciphertext_bytes), 255, np.uint8), PoolError),
        (np.ones((1, PUBLIC.ciphertext_bytes), np.uint8), LengthMismatch),
        (np.ones((2, PUBLIC.ciphertext_bytes - 1), np.uint8), LengthMismatch),
    ],
)
def test_a_source_that_gives_no_randomizers_is_refused(tmp_path: Path, rows: Block, error: type[Exception]):
    """Zeros, numbers above N^2, too few, too narrow: none gets in."""

    class Wrong(Numbered):
        def take(self, count: int, *, progress: object = None) -> Block:
            return rows

    pool = RandomizerPool.open(tmp_path / "pool", PUBLIC)
    with pytest.raises(error):
        pool.fill(2, Wrong(PUBLIC))
    assert pool.available == 0


def test_an_interrupted_fill_keeps_whole_batches(tmp_path: Path):
    """A source that fails, and a progress that cancels, leave what was added."""

    class Failing(Numbered):
        def take(self, count: int, *, progress: object = None) -> Block:
            if self._next > 20:
                raise RuntimeError("the lights went out")
            return super().take(count)

    pool = RandomizerPool.open(tmp_path / "pool", PUBLIC)
    with pytest.raises(RuntimeError):
        pool.fill(100, Failing(PUBLIC), batch=10)
    assert pool.available == 20
    progress = Progress(on_progress=lambda done, total: progress.cancel() if done == 30 else None)
    with pytest.raises(Cancelled, match="30 randomizers added so far are kept"):
        pool.fill(100, Numbered(PUBLIC, 21), batch=10, progress=progress)
    assert rest(tmp_path / "pool") == list(range(1, 51))


def test_a_watch_follows_a_fill_and_stops_a_take(tmp_path: Path):
    """Progress in randomizers; a cancelled take takes nothing."""
    heard: list[tuple[int, int]] = []
    progress = Progress(on_progress=lambda done, total: heard.append((done, total)))
    pool = RandomizerPool.open(tmp_path / "pool", PUBLIC)
    pool.fill(5, Numbered(PUBLIC), batch=2, progress=progress)
    assert heard == [(0, 5), (2, 5), (4, 5), (5, 5)]
    progress.cancel()
    with pytest.raises(Cancelled):
        pool.take(1, progress=progress)
    assert pool.available == 5


def test_a_full_disk_during_a_fill_keeps_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pool = filled(tmp_path / "pool", 3)
    real = os.pwrite

    def half_then_full(descriptor: int, data: bytes, position: int) -> int:
        if position >= ENTRIES and len(data) < STRIDE * 4:
            raise OSError(28, "no space left")
        return real(descriptor, data[: (len(data) + 1) // 2], position)

    monkeypatch.setattr(os, "pwrite", half_then_full)
    with pytest.raises(OSError, match="no space left"):
        pool.fill(4, Numbered(PUBLIC, 500))
    monkeypatch.undo()
    pool.fill(2, Numbered(PUBLIC, 4))
    assert rest(tmp_path / "pool") == [1, 2, 3, 4, 5]


def meaningful_bytes(count: int) -> Iterator[int]:
    """The positions in a pool of `count` entries that carry meaning, and some of the padding."""
    yield from range(80)
    for state in STATES:
        yield from range(state - 2, state + RECORD + 2)
    yield from range(ENTRIES - 2, ENTRIES + count * STRIDE)


def test_a_flipped_byte_never_gives_a_wrong_or_a_used_randomizer(tmp_path: Path):
    """Every byte of a pool, some entries taken and not even wiped: the right rest, or a named error."""
    path, original = tmp_path / "pool", tmp_path / "original"
    pool = filled(original, 6)
    before = original.read_bytes()
    pool.take(2)
    with original.open("r+b") as file:  # as if the wipe had never reached the disk
        file.seek(ENTRIES)
        file.write(before[ENTRIES : ENTRIES + 2 * STRIDE])
    outcomes: Counter[str] = Counter()
    for position, change in itertools.product(meaningful_bytes(6), (0x01, 0xFF)):
        shutil.copy(original, path)
        flip(path, position, change)
        try:
            got = rest(path)
        except (PoolDamaged, UnsupportedVersion, KeyMismatch) as error:
            outcomes[type(error).__name__] += 1
        else:
            assert got == [3, 4, 5, 6]
            outcomes["right"] += 1
    assert outcomes["PoolDamaged"] >= 2 * (72 + 4 * STRIDE)
    assert outcomes["right"] >= 2 * 2 * RECORD


def test_a_damaged_entry_is_named_and_takes_nothing(tmp_path: Path):
    """The message says which, and what to do."""
    pool = filled(tmp_path / "pool", 6)
    flip(tmp_path / "pool", ENTRIES + 3 * STRIDE + 5)
    with pytest.raises(PoolDamaged, match=r"randomizer 3 .*delete the pool"):
        pool.take(6)
    assert pool.available == 6
    assert numbers(pool.take(3)) == [1, 2, 3]


def test_a_truncated_pool_is_damaged(tmp_path: Path):
    filled(tmp_path / "original", 3)
    data = (tmp_path / "original").read_bytes()
    for length in (*range(80), 4096, 4100, 8192, 8200, 8247, *range(ENTRIES, len(data))):
        (tmp_path / "pool").write_bytes(data[:length])
        (tmp_path / "pool").chmod(0o600)
        with pytest.raises(PoolDamaged):
            RandomizerPool.open(tmp_path / "pool", PUBLIC)


def test_a_torn_state_leaves_the_other_copy(tmp_path: Path):
    """Either copy alone is enough, is mended by the next step, and both gone are damage."""
    path = tmp_path / "pool"
    filled(path, 4).take(1)
    for state in STATES:
        flip(path, state + 3)
        assert RandomizerPool.open(path, PUBLIC).available == 3
        data = path.read_bytes()
        assert data[STATES[0] : STATES[0] + RECORD] == data[STATES[1] : STATES[1] + RECORD]
    for state in STATES:
        flip(path, state)
    with pytest.raises(PoolDamaged, match="both copies"):
        RandomizerPool.open(path, PUBLIC)


def assert_nothing_repeated(path: Path, handed: list[int]) -> None:
    """What a pool has left is what was put in, less what was handed out, less what a crash may have lost."""
    left = rest(path)
    assert not set(handed) & set(left)
    assert len(set(handed + left)) == len(handed + left)
    assert set(handed + left) <= {*range(1, 7), *range(1000, 1006)}


def test_two_processes_share_a_pool(tmp_path: Path):
    """Three processes that drain one pool get everything, and no entry twice."""
    filled(tmp_path / "pool", 300)
    results = [finish(process) for process in [child(tmp_path / "pool") for _ in range(3)]]
    assert {code for code, _ in results} == {0}
    assert sorted(x for _, handed in results for x in handed) == list(range(1, 301))


def test_threads_share_one_pool_object(tmp_path: Path):
    """Takes and fills at once: nothing twice, nothing lost."""
    pool = filled(tmp_path / "pool", 100)
    got: list[int] = []

    def taker() -> None:
        for _ in range(20):
            got.extend(numbers(pool.take(2)))

    threads = [threading.Thread(target=taker) for _ in range(2)]
    threads.append(threading.Thread(target=lambda: pool.fill(30, Numbered(PUBLIC, 101), batch=3)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got + rest(tmp_path / "pool")) == list(range(1, 131))


class Disk:
    """Records what a pool writes, so that a power cut can be played at any moment with any part of the cache lost."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before = path.read_bytes()
        self.events: list[tuple[str, int, bytes]] = []
        real = {name: getattr(os, name) for name in ("pwrite", "fsync", "ftruncate")}

        def pwrite(descriptor: int, data: bytes, position: int) -> int:
            self.events.append(("write", position, bytes(data)))
            return int(real["pwrite"](descriptor, data, position))

        def fsync(descriptor: int) -> None:
            self.events.append(("sync", 0, b""))
            real["fsync"](descriptor)

        def ftruncate(descriptor: int, length: int) -> None:
            self.events.append(("cut", length, b""))
            real["ftruncate"](descriptor, length)

        for call in (pwrite, fsync, ftruncate):
            monkeypatch.setattr(os, call.__name__, call)

    def images(self) -> Iterator[tuple[bytes, list[int]]]:
        """Every content that the disk may have had, with what had been handed out by then."""
        for now in range(len(self.events) + 1):
            past = self.events[:now]
            synced = max((i + 1 for i, event in enumerate(past) if event[0] == "sync"), default=0)
            cached = [event for event in past[synced:] if event[0] != "handed"]
            handed = [position for kind, position, _ in past if kind == "handed"]
            for kept in itertools.product(("all", "half", "none"), repeat=len(cached)):
                yield self._apply(past[:synced], zip(cached, kept, strict=True)), handed

    def _apply(self, sure: list[tuple[str, int, bytes]], maybe: Iterator[tuple[tuple[str, int, bytes], str]]) -> bytes:
        image = bytearray(self.before)
        for (kind, position, data), kept in (*((event, "all") for event in sure), *maybe):
            if kind == "write" and kept != "none":
                part = data if kept == "all" else data[: len(data) // 2]
                image.extend(bytes(max(0, position - len(image))))
                image[position : position + len(part)] = part
            elif kind == "cut" and kept == "all":
                del image[position:]
        return bytes(image)


def test_a_power_cut_at_any_moment_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever was not yet synced is on the disk, half on it, or not, in every combination; what was handed out is gone."""
    path = tmp_path / "pool"
    pool = filled(path, 6)
    with monkeypatch.context() as patch:
        disk = Disk(path, patch)
        patch.setattr("pool_child.tell", lambda block: disk.events.extend(("handed", x, b"") for x in numbers(block)))
        work(pool)
    tried = 0
    for image, handed in {(image, tuple(handed)) for image, handed in disk.images()}:
        path.write_bytes(image)
        assert_nothing_repeated(path, list(handed))
        tried += 1
    assert tried > 60


def test_the_layout_is_the_documented_one(tmp_path: Path):
    """The file's parts, found by hand where docs/formats.md puts them."""
    filled(tmp_path / "pool", 2).take(1)
    data = (tmp_path / "pool").read_bytes()
    width = PUBLIC.ciphertext_bytes
    header = b"CFLP\x01\0\0\0" + PUBLIC.fingerprint + struct.pack(">I", width)
    assert data[:76] == header + hashlib.sha256(b"crowdfl pool 1" + header).digest()
    state = struct.pack(">QQQ", 3, 2, 1)
    digest = hashlib.sha256(b"crowdfl pool 1" + header + state).digest()
    for at in STATES:
        assert data[at : at + RECORD] == state + digest
    number = (2).to_bytes(width, "big")
    assert data[ENTRIES:] == bytes(STRIDE) + number + struct.pack(">I", zlib.crc32(number))
