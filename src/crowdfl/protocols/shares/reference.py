"""Which uploads are in line with the requester's reference: one bit for each participant, whatever it was that decided.

z are the lanes of an upload that are kept, z_c those of the reference, A = |z|^2, G = <z, z_c>. An upload is in if
    bound    it is no longer than the task's bound, as without a reference
    length   A <= LONGEST^2 |z_c|^2
    whole    G, added to those of its rounds whose record accepted it, is above 0
    now      G >= 0, or G^2 <= OPPOSED^2 A |z_c|^2: its cosine with the reference is not below -OPPOSED
The reference is judged as if it were a person's: it is in if it is within the bound and not zero.

Four comparisons take one exchange, with everything that the square needs behind masks; the square's takes a second. The five
answers are then opened behind dealt bits, and a dealt table of all cases, one of which holds a 1, gives the conjunction as XOR
shares without anything else having been opened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.shares.circuits import compare
from crowdfl.protocols.shares.circuits.compare import Comparison
from crowdfl.protocols.shares.circuits.program import SP, Half, Side
from crowdfl.protocols.shares.circuits.scalars import (
    Group,
    Masked,
    open_groups,
    pack,
    pack_flips,
    plus,
    unpack,
    unpack_flips,
    whole_bytes,
    widen,
)
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt
from crowdfl.protocols.shares.widths import SharesWidths

REQUESTER_NAME = "requester"  # that a reference is uploaded by; no participant's has these letters
OPPOSED = Fraction(1, 4)
LONGEST = Fraction(3, 2)
_ANSWERS = 5  # bound, length, whole, G >= 0, and that of the square
_CASES = np.arange(1 << _ANSWERS)
_IS_IN = (_CASES & 0b111 == 0b111) & (_CASES & 0b11000 != 0)


def square_bits(widths: SharesWidths) -> int:
    """Of the modulus that OPPOSED^2 A |z_c|^2 - G^2 fits, times its denominator, whatever the lanes are."""
    product = 2 * (2 * widths.k + widths.lanes.bit_length())
    return whole_bytes(product + (OPPOSED.denominator**2).bit_length() + 2)


@dataclass(frozen=True)
class DealtReference:
    """For every slot: masks of A and of G, and the form of them that the square needs; keys of comparisons; bits, and the table
    of their cases."""

    masks: Dealt = field(repr=False)
    forms: Dealt = field(repr=False)
    checks: tuple[Comparison, ...]
    square: Comparison
    flips: Bytes = field(repr=False)
    table: Dealt = field(repr=False)


def deal(cards: Cards, widths: SharesWidths) -> DealtReference:
    count = widths.slots
    bits = square_bits(widths)
    masks = cards.uniform(2 * count, bits)
    forms = cards.derived(count, bits, lambda: _forms(masks.share, count))
    checks = tuple(compare.deal(cards, count, widths.R) for _ in range(_ANSWERS - 1))
    square = compare.deal(cards, count, bits)
    flips = cards.flips(count * _ANSWERS)
    table = cards.derived(count * len(_CASES), 8, lambda: _one_hot(flips))
    return DealtReference(masks, forms, checks, square, flips, table)


def _forms(masks: Sequence[int], count: int) -> list[int]:
    lengths = masks[:count]
    products = masks[count:]
    above, below = OPPOSED.numerator**2, OPPOSED.denominator**2
    return [above * a * lengths[-1] - below * g * g for a, g in zip(lengths, products, strict=True)]


def _one_hot(flips: Bytes) -> list[int]:
    return (_case(flips)[:, np.newaxis] == _CASES).astype(np.int64).reshape(-1).tolist()  # type: ignore[no-any-return]


def _case(bits: Bytes) -> Bytes:
    """Five bits as the number of their case."""
    return np.packbits(bits.reshape(-1, _ANSWERS), axis=1, bitorder="little")[:, 0]


@dataclass(frozen=True)
class ReferenceScores:
    """One server's shares modulo 2^R, of some slots and, last, of the reference: how far a square falls short of its bound, A,
    G, and the sum of G over the rounds before."""

    slots: list[int]
    short: list[int] = field(repr=False)
    lengths: list[int] = field(repr=False)
    products: list[int] = field(repr=False)
    sums: list[int] = field(repr=False)


def in_line(side: Side, widths: SharesWidths, dealt: DealtReference, scores: ReferenceScores) -> Half[Bytes]:
    """XOR shares of who is in: three exchanges."""
    slots = scores.slots
    count = len(scores.slots)
    wide = square_bits(widths)
    longest = LONGEST.numerator**2 * scores.lengths[-1]
    part = LONGEST.denominator**2
    first = int(side.index == SP)  # above 0 is not below 1
    numbers = (
        scores.short,
        [longest - part * length for length in scores.lengths],
        [before + now - first for before, now in zip(scores.sums, scores.products, strict=True)],
        scores.products,
    )
    places = [*slots, *(widths.slots + slot for slot in slots)]
    masks = [dealt.masks.share[place] for place in places]
    operands = plus(widen([*scores.lengths, *scores.products], widths.R, wide, side.index), masks)
    covered = [compare.masked(check, slots, of) for check, of in zip(dealt.checks, numbers, strict=True)]
    groups: list[Group] = [*((of, widths.R) for of in covered), (operands, wide)]
    *shown, opened = yield from open_groups(side, groups)
    half = 1 << (widths.R - 1)
    answers = [compare.less_than(side, check, slots, of, half) for check, of in zip(dealt.checks, shown, strict=True)]
    square = _square(side, dealt, slots, Masked(opened, masks))
    (shown_square,) = yield from open_groups(side, [(compare.masked(dealt.square, slots, square), wide)])
    answers.append(compare.less_than(side, dealt.square, slots, shown_square, 1 << (wide - 1)))
    flips = dealt.flips.reshape(-1, _ANSWERS)[slots]
    mine = np.stack(answers, axis=1) ^ flips
    theirs = unpack_flips((yield from side.swap(pack_flips(mine.reshape(-1)))), mine.size)
    return _looked_up(dealt, slots, _case(mine.reshape(-1) ^ theirs), count)


def _square(side: Side, dealt: DealtReference, slots: Sequence[int], both: Masked) -> list[int]:
    """Shares of OPPOSED^2 A |z_c|^2 - G^2, times its denominator."""
    count = len(slots)
    above = OPPOSED.numerator**2
    below = OPPOSED.denominator**2
    return [
        above * both.product(place, count - 1, side.index)
        - below * both.product(count + place, count + place, side.index)
        + dealt.forms.share[slot]
        for place, slot in enumerate(slots)
    ]


def _looked_up(dealt: DealtReference, slots: Sequence[int], shown: Bytes, count: int) -> Bytes:
    """The shown case is the true one, flipped: of the table's 1, which stands where the dealt bits are, this finds the rest."""
    table = np.array(dealt.table.share, dtype=np.uint8).reshape(-1, len(_CASES))[slots]
    wanted = _IS_IN[shown[:, np.newaxis] ^ _CASES]
    bits: Bytes = np.bitwise_xor.reduce(np.where(wanted, table & 1, 0), axis=1).astype(np.uint8).reshape(count)
    return bits


class RunningSums(Message, kind=67, repr=False):
    """A server's shares of everyone's sum of G over the rounds whose record accepted them: kept with each record."""

    names: tuple[str, ...]
    shares: bytes

    @classmethod
    def of(cls, sums: Mapping[str, int], bits: int) -> "RunningSums":
        return cls(tuple(sorted(sums)), pack([sums[who] for who in sorted(sums)], bits))

    @classmethod
    def read(cls, kept: bytes | None, bits: int, people: int) -> dict[str, int]:
        """By name; nobody has one before the first record."""
        if not kept:
            return {}
        found = cls.from_bytes(kept, Limits(None, 0, max_entries=people, longest=len(kept)))
        return dict(zip(found.names, unpack(found.shares, bits), strict=True))


def added(sums: Mapping[str, int], products: Mapping[str, int], bits: int) -> RunningSums:
    """What is kept once a record has accepted these."""
    new = {who: (sums.get(who, 0) + product) % (1 << bits) for who, product in products.items()}
    return RunningSums.of({**sums, **new}, bits)
