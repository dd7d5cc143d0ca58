"""Numbers shared modulo 2^bits, few and as long as needed: opening, products under dealt masks, conversion without a message.

A share of SP and one of CSP add up to the number, modulo 2^bits. If each is uniform and the number is small beside 2^bits, then
over the integers they add up to the number plus 2^bits, except with a chance of |number| / 2^bits. So SP's share as it is and
CSP's less 2^bits are shares over the integers: they can be taken modulo any other power of two, or divided by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from crowdfl.crypto.long_bytes import Wire
from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.protocols.shares.circuits.program import CSP, SP, Half, Side

SPARE = 44  # bits that a number is shorter than its modulus, where it is converted: each fails with a chance of 2^-44
Group = tuple[Sequence[int], int]
"""Shares, and the bits of their modulus."""


def whole_bytes(bits: int) -> int:
    """The next multiple of 8."""
    return -(-bits // 8) * 8


def modulus_for(bound: int) -> int:
    """Bits of a modulus for signed numbers up to this bound."""
    return whole_bytes(bound.bit_length() + 1 + SPARE)


def to_integers(shares: Sequence[int], bits: int, index: int) -> list[int]:
    """Shares over the integers, of numbers far below 2^bits, signed."""
    return [share % (1 << bits) - (1 << bits) if index == CSP else share % (1 << bits) for share in shares]


def widen(shares: Sequence[int], bits: int, wider: int, index: int) -> list[int]:
    """The same numbers modulo another power of two."""
    return [share % (1 << wider) for share in to_integers(shares, bits, index)]


def truncate(shares: Sequence[int], shift: int, bits: int, index: int) -> list[int]:
    """Shares over the integers of number / 2^shift, rounded up or down; exact where nothing is to be rounded."""
    if index == SP:
        return [(share % (1 << bits)) >> shift for share in shares]
    return [-(((1 << bits) - share % (1 << bits)) >> shift) for share in shares]


def open_groups(side: Side, groups: Sequence[Group]) -> Half[list[list[int]]]:
    """All numbers of all groups, in one exchange."""
    mine = [pack(shares, bits) for shares, bits in groups]
    theirs = Pieces((yield from side.swap(b"".join(mine))))
    pieces = zip(mine, groups, strict=True)
    return [added(unpack(piece, bits), theirs.numbers(len(shares), bits), bits) for piece, (shares, bits) in pieces]


@dataclass(frozen=True)
class Masked:
    """Numbers that were opened under masks: what both saw (number + mask), and this server's shares of the masks."""

    opened: list[int]
    masks: list[int] = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.opened) != len(self.masks):
            raise ValueError(f"{len(self.opened)} numbers under {len(self.masks)} masks")

    def share(self, place: int, index: int) -> int:
        """Of a number itself."""
        return _public(self.opened[place], index) - self.masks[place]

    def product(self, first: int, second: int, index: int) -> int:
        """Of the product of two numbers, less the product of their masks: that one is dealt, the caller adds it."""
        a, b = self.opened[first], self.opened[second]
        return _public(a * b, index) - a * self.masks[second] - b * self.masks[first]


def _public(number: int, index: int) -> int:
    return number if index == SP else 0


def open_masked(side: Side, shares: Sequence[int], masks: Sequence[int], bits: int) -> Half[Masked]:
    """Open numbers under dealt masks, in one exchange."""
    (opened,) = yield from open_groups(side, [(plus(shares, masks), bits)])
    return Masked(opened, list(masks))


def plus(shares: Sequence[int], others: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(shares, others, strict=True)]


def pack(numbers: Sequence[int], bits: int) -> bytes:
    """Numbers, reduced modulo 2^bits."""
    mask = (1 << bits) - 1
    size = bits // 8
    return b"".join((number & mask).to_bytes(size, "little") for number in numbers)


def unpack(data: Wire, bits: int) -> list[int]:
    size = bits // 8
    return [int.from_bytes(data[start : start + size], "little") for start in range(0, len(data), size)]


def added(first: Sequence[int], second: Sequence[int], bits: int) -> list[int]:
    """Sums modulo 2^bits: what is opened, from what each server sent."""
    mask = (1 << bits) - 1
    return [(a + b) & mask for a, b in zip(first, second, strict=True)]


def pack_flips(flips: Bytes) -> bytes:
    """Bits, eight to a byte, the first one lowest."""
    return np.packbits(flips, bitorder="little").tobytes()


def unpack_flips(data: Wire, count: int) -> Bytes:
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
