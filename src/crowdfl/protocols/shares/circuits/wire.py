"""Numbers as both servers write them in a message, and as they are opened: little endian, whole bytes, one after another."""

from collections.abc import Sequence

import numpy as np

from crowdfl.protocols.shares.dealing.correlations import Bytes


def pack(numbers: Sequence[int], bits: int) -> bytes:
    """Numbers, reduced modulo 2^bits."""
    mask, size = (1 << bits) - 1, bits // 8
    return b"".join((number & mask).to_bytes(size, "little") for number in numbers)


def unpack(data: bytes, bits: int) -> list[int]:
    size = bits // 8
    return [int.from_bytes(data[start : start + size], "little") for start in range(0, len(data), size)]


def added(first: Sequence[int], second: Sequence[int], bits: int) -> list[int]:
    """Sums modulo 2^bits: what is opened, from what each server sent."""
    mask = (1 << bits) - 1
    return [(a + b) & mask for a, b in zip(first, second, strict=True)]


def pack_flips(flips: Bytes) -> bytes:
    """Bits, eight to a byte, the first one lowest."""
    return np.packbits(flips, bitorder="little").tobytes()


def unpack_flips(data: bytes, count: int) -> Bytes:
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count, bitorder="little")


def flips_bytes(count: int) -> int:
    return (count + 7) // 8


class Pieces:
    """A message read from its beginning, in pieces of known length."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, length: int) -> bytes:
        self._place += length
        return self._data[self._place - length : self._place]

    def numbers(self, count: int, bits: int) -> list[int]:
        return unpack(self.take(count * bits // 8), bits)

    def flips(self, count: int) -> Bytes:
        return unpack_flips(self.take(flips_bytes(count)), count)
