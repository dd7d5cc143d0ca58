"""Pools: randomizers made ahead of time and kept on disk, each handed out at most once. Layout: docs/formats.md.

The file is opened and locked anew for every step, so that processes, threads and forks may share it. The state on disk
moves on before any randomizer leaves: a crash may lose some, and repeats none. The state stands there twice, and both
copies are durable before a step ends: a copy torn by a crash belongs to a step that handed out nothing, and a copy that
rots later has an equal twin.
"""

import contextlib
import fcntl
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from crowdfl.crypto.blocks import Block, at_least, empty
from crowdfl.crypto.compute import Progress
from crowdfl.crypto.paillier.pctd import PublicKey, RandomizerSource
from crowdfl.errors import (
    Cancelled,
    KeyMismatch,
    LengthMismatch,
    PoolDamaged,
    PoolError,
    PoolExhausted,
    UnsupportedVersion,
)
from crowdfl.storage.atomic import require_owner_only, write_private

_MAGIC = b"CFLP"
_VERSION = 1
_HEADER = struct.Struct(">4sB3x32sI")  # magic, version, fingerprint, width of a randomizer
_STATE = struct.Struct(">QQQ")  # sequence, filled, taken
_DIGEST = 32
_CRC = 4
_PAGE = 4096  # what a disk writes at once: a torn write must not reach the other copy of the state
_STATES_AT = (_PAGE, 2 * _PAGE)
_ENTRIES_AT = 3 * _PAGE
_ADVICE = "delete the pool and fill a new one: it holds nothing but randomizers"


@dataclass(frozen=True, eq=False)
class RandomizerPool:
    """A `RandomizerSource` on disk. Never copy a pool or restore one from a backup: the copy would repeat randomizers."""

    path: Path
    public: PublicKey

    @classmethod
    def open(cls, path: str | os.PathLike[str], public: PublicKey) -> Self:
        """The pool at `path`, for `public`; made, empty and mode 0600, if there is none."""
        pool = cls(Path(path), public)
        if not pool.path.exists():
            pool._create()
        with pool._locked():
            return pool

    @property
    def available(self) -> int:
        with self._locked() as file:
            return file.state.left

    def take(self, count: int, *, progress: Progress | None = None) -> Block:
        """`count` randomizers, removed from the pool before this returns; `PoolExhausted`, and none removed, if too few."""
        _require_not_negative(count)
        progress = progress or Progress()
        progress.check()
        with self._locked() as file:
            block = file.take(count)
        progress.report(count, count)
        return block

    def fill(self, count: int, source: RandomizerSource, *, progress: Progress | None = None, batch: int = 256) -> None:
        """Add `count` randomizers from `source`; each `batch` is durable once added, whatever happens to the next."""
        self.public.require_same(source.public)
        _require_not_negative(count)
        if batch < 1:
            raise PoolError(f"a batch holds at least one randomizer, not {batch}")
        progress = progress or Progress()
        progress.report(0, count)
        for done in range(0, count, batch):
            try:
                progress.check()
            except Cancelled:
                text = f"filling the pool was cancelled; the {done} randomizers added so far are kept"
                raise Cancelled(text) from None
            wanted = min(batch, count - done)
            block = source.take(wanted)
            self._require_randomizers(block, wanted)
            # Not locked while the source works: others may take meanwhile.
            with self._locked() as file:
                file.append(block)
            progress.report(done + wanted, count)

    def _create(self) -> None:
        try:
            write_private(self.path, _empty_pool(self.public))
        except FileExistsError:
            pass  # another process made it first
        except (FileNotFoundError, NotADirectoryError):
            raise PoolError(f"there is no folder for {self.path}: `mkdir -m 700` it first") from None

    def _require_randomizers(self, block: Block, count: int) -> None:
        if block.shape != (count, self.public.ciphertext_bytes):
            raise LengthMismatch(f"the source gave {block.shape} bytes, not {count} x {self.public.ciphertext_bytes}")
        if at_least(block, self.public.n_squared).any() or not block.any(axis=1).all():
            raise PoolError("the source gave numbers outside (0, N^2): they are not randomizers of this key")

    @contextlib.contextmanager
    def _locked(self) -> Iterator["_PoolFile"]:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        except FileNotFoundError:
            raise PoolError(f"there is no pool {self.path} any more: open it again") from None
        except (IsADirectoryError, PermissionError):
            raise PoolError(f"{self.path} is not a pool that this user may write") from None
        try:
            require_owner_only(descriptor, self.path, PoolError)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield _PoolFile(descriptor, self.path, self.public)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough if the process forked meanwhile
            os.close(descriptor)


@dataclass(frozen=True)
class _State:
    """Entries taken..filled-1 are left."""

    sequence: int
    filled: int
    taken: int

    @property
    def left(self) -> int:
        return self.filled - self.taken

    def pack(self, header: bytes) -> bytes:
        record = _STATE.pack(self.sequence, self.filled, self.taken)
        return record + _digest(header + record)

    @classmethod
    def parse(cls, record: bytes, header: bytes) -> "_State | None":
        state = cls(*_STATE.unpack_from(record))
        return state if state.pack(header) == record else None


class _PoolFile:
    """An open, locked and verified pool."""

    def __init__(self, descriptor: int, path: Path, public: PublicKey) -> None:
        self._descriptor, self._path, self._public = descriptor, path, public
        self._width = public.ciphertext_bytes
        self._stride = self._width + _CRC
        self._require_header()
        self.state = self._recover_state()
        if os.fstat(descriptor).st_size < self._position(self.state.filled) or self.state.left < 0:
            raise PoolDamaged(f"{path} is shorter than its {self.state.filled} randomizers; {_ADVICE}")

    def take(self, count: int) -> Block:
        """Read, verify, move on durably, wipe: in this order."""
        first, left = self.state.taken, self.state.left
        if count > left:
            raise PoolExhausted(f"the pool holds {left} randomizers, {count} were asked for: fill it first")
        block = self._verified(first, count)
        self._commit(self.state.filled, first + count)
        with contextlib.suppress(OSError):  # they are removed already; wiping them is only tidy
            self._write(bytes(count * self._stride), self._position(first))
        return block

    def append(self, block: Block) -> None:
        self._reclaim()
        entries = empty(len(block), self._stride)
        entries[:, : self._width] = block
        entries[:, self._width :] = self._checksums(entries)
        self._write_durably(entries.tobytes(), self._position(self.state.filled))
        self._commit(self.state.filled + len(block), self.state.taken)

    def _reclaim(self) -> None:
        """Move what is left to the front once it fits there: a pool that is refilled does not grow for ever."""
        taken, left = self.state.taken, self.state.left
        if not 0 < taken >= left:
            return
        # The old places stay as they are until the state points at the new ones.
        if left:
            self._write_durably(self._read(left * self._stride, self._position(taken)), self._position(0))
        self._commit(left, 0)
        os.ftruncate(self._descriptor, self._position(left))

    def _commit(self, filled: int, taken: int) -> None:
        self.state = _State(self.state.sequence + 1, filled, taken)
        for position in _STATES_AT:
            self._write_durably(self.state.pack(self._header), position)

    def _recover_state(self) -> _State:
        """The newer copy of the state; the other is brought up to it before anything else happens."""
        copies = [_State.parse(self._read(_STATE.size + _DIGEST, at), self._header) for at in _STATES_AT]
        valid = [state for state in copies if state is not None]
        if not valid:
            raise PoolDamaged(f"both copies of the state of {self._path} were altered; {_ADVICE}")
        newest = max(valid, key=lambda state: state.sequence)
        for state, position in zip(copies, _STATES_AT, strict=True):
            if state != newest:
                self._write_durably(newest.pack(self._header), position)
        return newest

    def _require_header(self) -> None:
        self._header = self._read(_HEADER.size, 0)
        magic, version, fingerprint, width = _HEADER.unpack(self._header)
        if magic != _MAGIC:
            raise PoolDamaged(f"{self._path} is not a pool of randomizers")
        if version != _VERSION:
            raise UnsupportedVersion(f"{self._path} is of version {version}; this program reads version {_VERSION}")
        if self._read(_DIGEST, _HEADER.size) != _digest(self._header):
            raise PoolDamaged(f"the header of {self._path} was altered; {_ADVICE}")
        if fingerprint != self._public.fingerprint:
            ours = self._public.fingerprint.hex()[:16]
            raise KeyMismatch(f"{self._path} is a pool for key {fingerprint.hex()[:16]}, not for {ours}")
        if width != self._width:
            raise PoolDamaged(f"{self._path} holds numbers of {width} bytes, this key has {self._width}; {_ADVICE}")

    def _verified(self, first: int, count: int) -> Block:
        entries = np.frombuffer(self._read(count * self._stride, self._position(first)), dtype=np.uint8)
        entries = entries.reshape(count, self._stride)
        wrong = (entries[:, self._width :] != self._checksums(entries)).any(axis=1)
        if wrong.any():
            raise PoolDamaged(f"randomizer {first + int(np.argmax(wrong))} of {self._path} was altered; {_ADVICE}")
        return entries[:, : self._width].copy()

    def _checksums(self, entries: Block) -> Block:
        """The CRC-32 of each entry's number, as four big-endian bytes."""
        data = memoryview(entries.tobytes())
        starts = range(0, len(data), self._stride)
        sums = np.array([zlib.crc32(data[i : i + self._width]) for i in starts], dtype=">u4")
        return sums.view(np.uint8).reshape(-1, _CRC)

    def _position(self, entry: int) -> int:
        return _ENTRIES_AT + entry * self._stride

    def _read(self, size: int, position: int) -> bytes:
        pieces = []
        while size:
            piece = os.pread(self._descriptor, size, position)
            if not piece:
                raise PoolDamaged(f"{self._path} is truncated, or not a pool; {_ADVICE}")
            pieces.append(piece)
            size = size - len(piece)
            position = position + len(piece)
        return b"".join(pieces)

    def _write(self, data: bytes, position: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, position)
            rest = rest[written:]
            position = position + written

    def _write_durably(self, data: bytes, position: int) -> None:
        self._write(data, position)
        os.fsync(self._descriptor)


def _empty_pool(public: PublicKey) -> bytes:
    header = _HEADER.pack(_MAGIC, _VERSION, public.fingerprint, public.ciphertext_bytes)
    state = _State(1, 0, 0).pack(header).ljust(_PAGE, b"\0")
    return (header + _digest(header)).ljust(_PAGE, b"\0") + state + state


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(b"crowdfl pool 1" + data).digest()


def _require_not_negative(count: int) -> None:
    if count < 0:
        raise PoolError(f"{count} is not a number of randomizers")
