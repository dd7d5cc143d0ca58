"""The rule `gate`: samples count where an update goes where the others go, by more than chance, and not where the last sum
went.

    g1: T > 0    g2: kept T^2 > 4 A |U - u|^2 = 4 A (UU - 2 T - A)    g3: 4 P^2 <= 3 A VV   weight = samples * g1 g2 g3

with T = B - A, in three exchanges: the operands of the products, the numbers to compare, the bits. All stay shared. Without
a last sum there is no g3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.protocols.shares.circuits import compare
from crowdfl.protocols.shares.circuits.program import Half, Side
from crowdfl.protocols.shares.circuits.scalars import Masked, open_groups, open_masked, pack_flips, unpack_flips, widen
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt
from crowdfl.protocols.shares.rule_widths import RoundScores, RuleWidths

_FORMS = 3  # quadratic forms of masks: T^2, A times the rest of g2, and g3
_BITS = 3
_SUBSETS = 1 << _BITS


@dataclass(frozen=True)
class DealtGate:
    """By slot: masks of T, A, P, then of UU and VV, and their forms; comparisons; bits rho; products of rhos, alone and
    with the masks of the samples."""

    slots: int
    bits: int
    masks: Dealt = field(repr=False)
    forms: Dealt = field(repr=False)
    direction: compare.Comparison
    others: compare.Comparison
    flips: Bytes = field(repr=False)
    products: Dealt = field(repr=False)
    samples: Dealt = field(repr=False)


def deal(cards: Cards, widths: RuleWidths, samples: Dealt) -> DealtGate:
    """`samples` are the masks under which the samples are opened, modulo 2^R."""
    n, bits = widths.participants, widths.gate_bits
    masks = cards.uniform(3 * n + 2, bits)
    forms = cards.derived(_FORMS * n, bits, lambda: _forms(masks.share, n))
    direction, others = compare.deal(cards, n, widths.compare_bits), compare.deal(cards, 2 * n, bits)
    flips = cards.flips(_BITS * n)
    products = cards.derived(_SUBSETS * n, widths.R, lambda: [_joint(flips, n, *at) for at in _every(n)])
    with_samples = cards.derived(
        _SUBSETS * n,
        widths.R,
        lambda: [samples.share[slot] * _joint(flips, n, slot, chosen) for slot, chosen in _every(n)],
    )
    return DealtGate(n, bits, masks, forms, direction, others, flips, products, with_samples)


def _forms(masks: Sequence[int], n: int) -> list[int]:
    uu, vv = masks[3 * n :]
    triples = zip(masks[:n], masks[n : 2 * n], masks[2 * n : 3 * n], strict=True)
    return [form for t, a, p in triples for form in (t * t, 4 * a * (2 * t + a - uu), 3 * a * vv - 4 * p * p)]


def _every(n: int) -> list[tuple[int, int]]:
    """Slots, and for each the subsets of its bits."""
    return [(slot, chosen) for slot in range(n) for chosen in range(_SUBSETS)]


def _joint(flips: Bytes, n: int, slot: int, chosen: int) -> int:
    """1 if all chosen bits of a slot are 1."""
    return int(all(flips[number * n + slot] for number in _members(chosen)))


def _members(chosen: int) -> list[int]:
    return [number for number in range(_BITS) if chosen >> number & 1]


def weights(side: Side, widths: RuleWidths, dealt: DealtGate, scores: RoundScores) -> Half[list[int]]:
    """Shares modulo 2^R of the weights: three exchanges."""
    operands = yield from _open_operands(side, widths, dealt, scores)
    answers = yield from _compared(side, dealt, scores, _differences(side.index, dealt, scores, operands))
    bits = len(answers)
    mine = [answer ^ dealt.flips[_at(dealt, number, scores)] for number, answer in enumerate(answers)]
    theirs = [unpack_flips(piece, len(scores.places)) for piece in _pieces((yield from side.swap(_packed(mine))), bits)]
    opened = [[int(e) for e in a ^ b] for a, b in zip(mine, theirs, strict=True)]
    return [
        _weight(dealt, scores.samples, place, slot, [e[place] for e in opened], side.index) % (1 << widths.R)
        for place, slot in enumerate(scores.places)
    ]


def _open_operands(side: Side, widths: RuleWidths, dealt: DealtGate, scores: RoundScores) -> Half[Masked]:
    """T and A of everyone, then UU; if there is a last sum P of everyone, then VV."""
    n, masks = dealt.slots, dealt.masks.share
    t = [b - a for a, b in zip(scores.A, scores.B, strict=True)]
    numbers = [*t, *scores.A, scores.UU]
    covers = [*(masks[slot] for slot in scores.places), *(masks[n + slot] for slot in scores.places), masks[3 * n]]
    if scores.VV is not None:
        numbers += [*scores.P, scores.VV]
        covers += [*(masks[2 * n + slot] for slot in scores.places), masks[3 * n + 1]]
    return (yield from open_masked(side, widen(numbers, widths.R, dealt.bits, side.index), covers, dealt.bits))


def _differences(index: int, dealt: DealtGate, scores: RoundScores, operands: Masked) -> list[list[int]]:
    """Shares of T - 1, of g2's left side less its right side less 1, and of g3's right side less its left: each is to be
    compared with zero. g3 is not strict, so that a last sum of zero keeps nobody from being paid."""
    count, less = len(scores.places), int(index == 0)
    product, forms = operands.product, dealt.forms.share
    found: list[list[int]] = [[operands.share(i, index) - less for i in range(count)], [], []]
    for i, slot in enumerate(scores.places):
        t, a, uu = i, count + i, 2 * count
        square = product(t, t, index) + forms[_FORMS * slot]
        rest = 8 * product(a, t, index) + 4 * product(a, a, index) - 4 * product(a, uu, index)
        found[1].append(scores.kept * square + rest + forms[_FORMS * slot + 1] - less)
        if scores.VV is not None:
            p, vv = 2 * count + 1 + i, 3 * count + 1
            found[2].append(3 * product(a, vv, index) - 4 * product(p, p, index) + forms[_FORMS * slot + 2])
    return found if scores.VV is not None else found[:2]


def _compared(side: Side, dealt: DealtGate, scores: RoundScores, numbers: list[list[int]]) -> Half[list[Bytes]]:
    """XOR shares of whether each number is not negative: one exchange."""
    places = [scores.places] + [[number * dealt.slots + slot for slot in scores.places] for number in range(2)]
    keys = [dealt.direction, dealt.others, dealt.others][: len(numbers)]
    groups = [
        (compare.masked(key, at, shares), key.bits) for key, at, shares in zip(keys, places, numbers, strict=False)
    ]
    opened = yield from open_groups(side, groups)
    return [
        compare.less_than(side, key, at, values, 1 << (key.bits - 1))
        for key, at, values in zip(keys, places, opened, strict=False)
    ]


def _at(dealt: DealtGate, number: int, scores: RoundScores) -> list[int]:
    return [number * dealt.slots + slot for slot in scores.places]


def _packed(flips: Sequence[Bytes]) -> bytes:
    return b"".join(pack_flips(row) for row in flips)


def _pieces(data: bytes, count: int) -> list[bytes]:
    size = len(data) // count
    return [data[start : start + size] for start in range(0, len(data), size)]


def _weight(dealt: DealtGate, samples: Masked, place: int, slot: int, e: Sequence[int], index: int) -> int:
    """samples * product of (e_j + (1 - 2 e_j) rho_j), multiplied out; samples = opened - mask."""
    share = 0
    for chosen in range(1 << len(e)):
        factor = 1
        for number, bit in enumerate(e):
            factor *= 1 - 2 * bit if chosen >> number & 1 else bit
        if factor:
            share += factor * _term(dealt, samples, place, _SUBSETS * slot + chosen, index)
    return share


def _term(dealt: DealtGate, samples: Masked, place: int, at: int, index: int) -> int:
    if at % _SUBSETS == 0:  # no bit chosen
        return samples.share(place, index)
    return samples.opened[place] * dealt.products.share[at] - dealt.samples.share[at]
