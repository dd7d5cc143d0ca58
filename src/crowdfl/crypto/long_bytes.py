"""Long bytes that are looked at piece by piece: in memory, in several parts, or elsewhere. None is copied to be passed on."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import Protocol, TypeAlias

Wire: TypeAlias = "bytes | bytearray | memoryview"

LONG_BYTES = 1 << 24  # from here on bytes are passed on as they lie, and not in one piece
BLOCK_BYTES = 1 << 22  # that are looked at at once


class Long(Protocol):
    """Bytes that may lie elsewhere, looked at piece by piece."""

    def __len__(self) -> int: ...
    def __getitem__(self, piece: slice, /) -> Wire: ...


class LongPart:
    """A part of long bytes, where they lie."""

    def __init__(self, whole: Long, start: int, stop: int) -> None:
        self._whole, self._start, self._length = whole, start, stop - start

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, piece: slice, /) -> Wire:
        first, last, _ = piece.indices(self._length)
        return self._whole[self._start + first : self._start + max(first, last)]

    def part(self, start: int, stop: int) -> "LongPart":
        return LongPart(self._whole, self._start + start, self._start + stop)


class Joined:
    """Several, one after the other."""

    def __init__(self, parts: Sequence[Long]) -> None:
        self._parts = [part for part in parts if len(part)]
        self._length = sum(map(len, self._parts))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, piece: slice, /) -> bytes:
        first, last, _ = piece.indices(self._length)
        found, place = list[Wire](), 0
        for part in self._parts:
            if place < last and first < place + len(part):
                found.append(part[max(0, first - place) : last - place])
            place += len(part)
        return b"".join(found)


def view_of(data: Long) -> Long:
    """The same, whose parts are no copies where it is in memory."""
    return memoryview(data) if isinstance(data, bytes | bytearray) else data


def blocks_of(data: Long) -> Iterator[Wire]:
    """All of it, a block at a time."""
    data = view_of(data)
    for start in range(0, len(data), BLOCK_BYTES):
        yield data[start : start + BLOCK_BYTES]


def whole(data: Long) -> bytes:
    """In one piece, in memory."""
    return data if isinstance(data, bytes) else gathered(blocks_of(data))


def gathered(blocks: Iterable[Wire]) -> bytes:
    """One after the other, as they come: to join them, all would be in memory beside what comes of them."""
    found = BytesIO()
    for block in blocks:
        found.write(block)
    return found.getvalue()


def sha256_of(*parts: Long) -> bytes:
    """Of all of them, one after the other."""
    found = hashlib.sha256()
    for part in parts:
        for block in blocks_of(part):
            found.update(block)
    return found.digest()
