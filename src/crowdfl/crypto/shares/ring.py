"""Integers modulo 2^bits as whole bytes, little endian: what travels and what is added up.

An element of fewer than eight bytes is read as the eight bytes that begin where it begins. The surplus bytes belong to its
neighbours and disturb only bits that the mask removes: in a sum modulo 2^64 nothing moves from a higher bit to a lower one.
So an upload is added in one pass over its wire bytes, without being decoded first.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.long_bytes import Long, Wire, view_of, whole
from crowdfl.errors import LengthMismatch, WidthError

Words: TypeAlias = npt.NDArray[np.uint64]

_WORD = 8
_BLOCK = 1 << 19  # elements that are computed with at once, of long vectors


class Ring:
    """The integers modulo 2^bits: 8, 16, ... 64 bits."""

    def __init__(self, bits: int) -> None:
        if bits % 8 or not 8 <= bits <= 64:
            raise WidthError(f"a ring has 8, 16, ... or 64 bits, not {bits}")
        self.bits = bits
        self.bytes = bits // 8
        self.mask = (1 << bits) - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ring) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __repr__(self) -> str:
        return f"Ring({self.bits})"

    def decode(self, data: Long) -> Words:
        """Elements in [0, 2^bits)."""
        if len(data) % self.bytes:
            raise LengthMismatch(f"{len(data)} bytes are not whole elements of {self.bytes} bytes")
        return self.reduced(self.eights(data))

    def encode(self, elements: Words) -> bytes:
        """Elements as they travel: the bytes above 2^bits are left out."""
        words = np.ascontiguousarray(elements, dtype="<u8")
        return np.ndarray((len(words),), f"V{self.bytes}", words, strides=(_WORD,)).tobytes()

    def reduced(self, elements: Words) -> Words:
        return elements & np.uint64(self.mask)

    def of_signed(self, values: npt.NDArray[np.int64]) -> Words:
        """Signed numbers as elements."""
        return self.reduced(values.astype(np.int64, copy=False).view(np.uint64))

    def signed(self, elements: Words) -> npt.NDArray[np.int64]:
        """Elements as the numbers in [-2^(bits-1), 2^(bits-1))."""
        spare = np.uint64(64 - self.bits)
        shifted = np.left_shift(elements, spare).view(np.int64)
        return np.right_shift(shifted, spare.astype(np.int64))

    def eights(self, data: Long) -> Words:
        """For each element the eight bytes from its first on: right modulo 2^bits, arbitrary above."""
        data = data if isinstance(data, bytes | bytearray | memoryview) else whole(data)
        count = len(data) // self.bytes
        first = max(0, count - _WORD // self.bytes)  # that has no eight bytes any more
        words = np.empty(count, dtype=np.uint64)
        words[:first] = _in_place(data, first, self.bytes)
        words[first:] = self._last(data, first)
        return words

    def accumulate(self, step: Callable[..., Words], total: Words, data: Long) -> None:
        """total = step(total, elements), right modulo 2^bits, without a copy of the elements."""
        if not isinstance(data, bytes | bytearray | memoryview):
            for piece in self.blocks(len(data)):
                self.accumulate(step, total[piece.start // self.bytes : piece.stop // self.bytes], data[piece])
            return
        first = max(0, len(total) - _WORD // self.bytes)
        step(total[:first], _in_place(data, first, self.bytes), out=total[:first])
        step(total[first:], self._last(data, first), out=total[first:])

    def added(self, left: Long, right: Long, *, step: Callable[..., Words] = np.add) -> Iterator[bytes]:
        """step(left, right) of two vectors as they travel, a block at a time."""
        if len(left) != len(right):
            raise LengthMismatch(f"{len(left)} bytes and {len(right)} bytes are not added up")
        left, right = view_of(left), view_of(right)
        for piece in self.blocks(len(left)):
            words = self.eights(left[piece])
            self.accumulate(step, words, right[piece])
            yield self.encode(words)

    def blocks(self, length: int) -> Iterator[slice]:
        """Of a vector of so many bytes, whole elements each."""
        size = _BLOCK * self.bytes
        return (slice(start, min(start + size, length)) for start in range(0, length, size))

    def _last(self, data: Wire, first: int) -> Words:
        """The elements from `first` on, with zeros behind them."""
        end = bytes(memoryview(data).cast("B")[first * self.bytes :])
        return _in_place(end + bytes(_WORD), len(end) // self.bytes, self.bytes)


def _in_place(data: Wire, count: int, stride: int) -> Words:
    """The eight bytes at every `stride`-th byte, as they lie."""
    if not count:
        return np.empty(0, dtype=np.uint64)
    return np.ndarray((count,), "<u8", data, strides=(stride,))


class RunningSum:
    """Sum of uploads, added in any order: eight bytes per element, however many there are, and none before the first."""

    def __init__(self, ring: Ring, count: int) -> None:
        self._ring, self._count = ring, count
        self._own: Words | None = None

    @property
    def _total(self) -> Words:
        if self._own is None:
            self._own = np.zeros(self._count, dtype=np.uint64)
        return self._own

    def add(self, data: Long) -> None:
        self._require_all(data)
        self._ring.accumulate(np.add, self._total, data)

    def subtract(self, data: Long) -> None:
        self._require_all(data)
        self._ring.accumulate(np.subtract, self._total, data)

    def _require_all(self, data: Long) -> None:
        if len(data) != self._count * self._ring.bytes:
            raise LengthMismatch(f"{len(data)} bytes where {self._count * self._ring.bytes} are expected")

    def add_row(self, row: Words) -> None:
        """An upload as elements."""
        total = self._total
        if row.shape != total.shape:
            raise LengthMismatch(f"an upload of shape {row.shape} where {len(total)} elements are expected")
        total += row

    def merge(self, other: "RunningSum") -> None:
        """What the other one held is here now, and there no more: two long ones are not kept where one will do."""
        if self._own is None:
            self._own = other._own
        elif other._own is not None:
            self._own += other._own
        other._own = None

    def result(self) -> Words:
        """The sum so far, in [0, 2^bits)."""
        return self._ring.reduced(self._total)

    def encoded(self) -> bytes:
        """The same as it travels."""
        return bytes(self._count * self._ring.bytes) if self._own is None else self._ring.encode(self._own)

    def __repr__(self) -> str:
        return f"RunningSum({self._ring!r}, {self._count})"
