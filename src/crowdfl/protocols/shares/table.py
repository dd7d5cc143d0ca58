"""A function of a small shared number, by a table that KGC deals: perfect, in one exchange, whatever a server sends.

KGC draws a shift r and deals shares of the table turned by r. The servers open w + r, which is uniform whatever w is, and each
takes its share of the entry in that place. Nothing about w is shown, not even its size; a server that sends a false share
gets shares of the entry of another number, which it cannot read either.

A division by a mask that only one server knows has no such property: CSP could add a large number of its choice to its share of
the divisor, and read mask and divisor off the product. So the reciprocal of a sum of small weights is looked up, not computed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.protocols.shares.circuits.program import Half, Side
from crowdfl.protocols.shares.dealing.correlations import Cards, DealtRows

_PLACE_BYTES = 4


@dataclass(frozen=True)
class DealtTable:
    """This server's share of the shift, modulo the number of entries, and of every entry, turned by the shift."""

    size: int  # a power of two
    shift: int = field(repr=False)
    entries: DealtRows = field(repr=False)


def deal(cards: Cards, size: int, bits: int, values: Callable[[], Sequence[int]]) -> DealtTable:
    """`values` are the function's, from 0 on, each below 2^bits; KGC alone evaluates them."""
    if size & (size - 1) or not 1 < size <= 1 << (8 * _PLACE_BYTES):
        raise ValueError(f"a table of {size} entries: expected a power of two")
    shift = cards.uniform(1, 8 * _PLACE_BYTES).share[0] % size
    return DealtTable(size, shift, cards.derived_rows(size, bits, lambda: _turned(values(), shift, bits)))


def _turned(values: Sequence[int], shift: int, bits: int) -> Bytes:
    """Row x holds the value of x - shift."""
    rows = np.frombuffer(b"".join(value.to_bytes(bits // 8, "little") for value in values), dtype=np.uint8)
    return np.roll(rows.reshape(len(values), bits // 8), shift, axis=0)


def look_up(side: Side, dealt: DealtTable, share: int) -> Half[int]:
    """A share, modulo 2^bits, of the entry of a number that is shared modulo the table's size."""
    mine = (share + dealt.shift) % dealt.size
    theirs = yield from side.swap(mine.to_bytes(_PLACE_BYTES, "little"))
    place = (mine + int.from_bytes(theirs, "little")) % dealt.size
    return int.from_bytes(dealt.entries.share[place].tobytes(), "little")
