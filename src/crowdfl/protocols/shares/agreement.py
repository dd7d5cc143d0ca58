"""The rule `agreement`: weight max(0, T_i), T_i = B_i - A_i, the product of an update with the sum of the others'.

Two exchanges: T + r, opened for the comparison, and the masked bit. T * g comes from both and from the dealt product of r
and rho.
"""

from dataclasses import dataclass, field

from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.protocols.shares.circuits import compare
from crowdfl.protocols.shares.circuits.program import SP, Half, Side
from crowdfl.protocols.shares.circuits.scalars import open_groups, pack_flips, unpack_flips, widen
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt
from crowdfl.protocols.shares.rule_widths import RoundScores, RuleWidths


@dataclass(frozen=True)
class DealtAgreement:
    """By slot: the comparison with its mask r, a bit rho, and as numbers rho and then r * rho."""

    comparison: compare.Comparison
    flips: Bytes = field(repr=False)
    products: Dealt = field(repr=False)


def deal(cards: Cards, widths: RuleWidths) -> DealtAgreement:
    n, bits = widths.participants, widths.agreement_bits
    comparison, flips = compare.deal(cards, n, bits), cards.flips(n)
    masks = comparison.mask.share
    products = cards.derived(
        2 * n, bits, lambda: [*map(int, flips), *(mask * int(flip) for mask, flip in zip(masks, flips, strict=True))]
    )
    return DealtAgreement(comparison, flips, products)


def weights(side: Side, widths: RuleWidths, dealt: DealtAgreement, scores: RoundScores) -> Half[list[int]]:
    """Shares modulo 2^agreement_bits: two exchanges."""
    bits, places = dealt.comparison.bits, scores.places
    t = widen([b - a for a, b in zip(scores.A, scores.B, strict=True)], widths.R, bits, side.index)
    (opened,) = yield from open_groups(side, [(compare.masked(dealt.comparison, places, t), bits)])
    mine = compare.less_than(side, dealt.comparison, places, opened, 1 << (bits - 1)) ^ dealt.flips[places]
    theirs = unpack_flips((yield from side.swap(pack_flips(mine))), len(places))
    pairs = zip(places, opened, mine ^ theirs, strict=True)
    return [_weight(side, dealt, slot, c, int(e)) % (1 << bits) for slot, c, e in pairs]


def _weight(side: Side, dealt: DealtAgreement, slot: int, opened: int, e: int) -> int:
    """(opened - r) * (e + (1 - 2 e) rho)."""
    products = dealt.products.share
    rho, r_rho = products[slot], products[len(products) // 2 + slot]
    public = e * opened if side.index == SP else 0
    return public - e * dealt.comparison.mask.share[slot] + (1 - 2 * e) * (opened * rho - r_rho)
