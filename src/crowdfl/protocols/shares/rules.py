"""`distance`, the one rule that pays by secure arithmetic: what KGC deals for a round's rewards, and both servers' halves from
scores to rewards. Eight exchanges: the masked sum of all lanes, operands, divisions (2), products, division (2), products.

From weights to rewards: mu_i = (b_t - n) * w_i / sum(w), rounded, modulo 2^128. Rounding moves each reward by less than 1
millionth, up or down. The numerator b_t - n makes up for that, so the sum of n rewards is at most b_t, and at least b_t - 2n.
b_t below n pays nothing.

The rule is the paper's Eq. 10 on sketches: weight samples_i / (d_i + floor), up to a factor common to all. With Y the total of
samples,
G_i = Y^2 A_i - 2 Y s_i B_i + s_i^2 UU = |Y u_i - s_i U|^2 is (Y s_i)^2 times the sketched squared distance of model i from the
average. So the weight is s_i^3 * 2^F / y_i with y_i = G_i + floor Y^2 s_i^2 + 1, where the floor is scaled like the sketch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from crowdfl.errors import LengthMismatch, WidthBudgetExceeded
from crowdfl.protocols.shares.circuits.program import SP, Half
from crowdfl.protocols.shares.circuits.reciprocal import DealtReciprocals, Divider
from crowdfl.protocols.shares.circuits.reciprocal import deal as deal_reciprocals
from crowdfl.protocols.shares.circuits.scalars import Masked, open_masked, plus, to_integers, truncate, widen
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt
from crowdfl.protocols.shares.round_scores import RoundScores
from crowdfl.protocols.shares.rule_widths import RuleWidths

REWARD_BITS = 128
_OPERANDS = 5  # A, B, s, s^2, Y s of a participant
_FORMS = 3  # G, (Y s)^2, s^3


@dataclass(frozen=True)
class DealtDistance:
    """The mask of the total, its square, its products with the samples' masks; operands' masks and forms by slot, then masks of
    UU and Y^2; reciprocals; masks of cubes and reciprocals by slot, and their products."""

    total: Dealt
    totals: Dealt = field(repr=False)
    masks: Dealt = field(repr=False)
    forms: Dealt = field(repr=False)
    reciprocals: DealtReciprocals
    factors: Dealt = field(repr=False)
    products: Dealt = field(repr=False)


@dataclass(frozen=True)
class DealtPayout:
    """A division; masks of the weights and of its result, with their products; a sharing of zero."""

    division: DealtReciprocals
    masks: Dealt = field(repr=False)
    products: Dealt = field(repr=False)
    zeros: Dealt = field(repr=False)


@dataclass(frozen=True)
class DealtRewards:
    distance: DealtDistance
    payout: DealtPayout


def deal(cards: Cards, widths: RuleWidths, samples: Dealt) -> DealtRewards:
    """`samples` are the masks, one for each slot, under which the samples are opened modulo 2^R."""
    return DealtRewards(_deal_distance(cards, widths, samples), _deal_payout(cards, widths))


def _deal_payout(cards: Cards, widths: RuleWidths) -> DealtPayout:
    n, bits = widths.participants, widths.product_bits
    division = deal_reciprocals(cards, widths.payout, 1)
    masks = cards.uniform(n + 1, bits)
    products = cards.derived(n, bits, lambda: [mask * masks.share[n] for mask in masks.share[:n]])
    return DealtPayout(division, masks, products, cards.derived(n, REWARD_BITS, lambda: [0] * n))


def paid(
    divider: Divider, widths: RuleWidths, dealt: DealtPayout, weights: Sequence[int], budget: int
) -> Half[list[int]]:
    """Shares modulo 2^128 of the rewards for these weights, in millionths and in their order: three exchanges."""
    _require_fits(widths, weights, budget)
    side = divider.side
    bits = widths.product_bits
    count = len(weights)
    total = sum(to_integers(weights, widths.weight_bits, side.index))
    (inverse,) = yield from divider.reciprocals("sum", widths.payout, dealt.division, [total])
    operands = [*widen(weights, widths.weight_bits, bits, side.index), inverse]
    masks = [*dealt.masks.share[:count], dealt.masks.share[widths.participants]]
    opened = yield from open_masked(side, operands, masks, bits)
    scale = max(0, budget - count)
    products = [scale * (opened.product(i, count, side.index) + dealt.products.share[i]) for i in range(count)]
    amounts = (
        truncate(products, widths.payout_precision, bits, side.index) if scale else [0] * count
    )  # times 0 no share is uniform
    return [amount % (1 << REWARD_BITS) for amount in plus(amounts, dealt.zeros.share[:count])]


def _require_fits(widths: RuleWidths, weights: Sequence[int], budget: int) -> None:
    if len(weights) > widths.participants:
        raise LengthMismatch(f"{len(weights)} weights in a task for {widths.participants} participants")
    if not 0 <= budget <= widths.budget:
        raise WidthBudgetExceeded(f"a budget of {budget} millionths; what was dealt is for 0 to {widths.budget}")


def _deal_distance(cards: Cards, widths: RuleWidths, samples: Dealt) -> DealtDistance:
    """`samples` are the masks under which the samples are opened, modulo 2^R."""
    n, bits, R = widths.participants, widths.distance_bits, widths.R  # noqa: N806
    total = cards.uniform(1, R)
    totals = cards.derived(1 + n, R, lambda: [total.share[0] * other for other in (*total.share, *samples.share)])
    masks = cards.uniform(_OPERANDS * n + 2, bits)
    forms = cards.derived(_FORMS * n, bits, lambda: _forms(masks.share, n))
    inverses = deal_reciprocals(cards, widths.distance, n)
    factors = cards.uniform(2 * n, widths.weight_bits)
    products = cards.derived(
        n, widths.weight_bits, lambda: [factors.share[slot] * factors.share[n + slot] for slot in range(n)]
    )
    return DealtDistance(total, totals, masks, forms, inverses, factors, products)


def _forms(masks: Sequence[int], n: int) -> list[int]:
    uu, yy = masks[_OPERANDS * n :]
    rows = (masks[_OPERANDS * slot : _OPERANDS * (slot + 1)] for slot in range(n))
    return [form for a, b, s, ss, ys in rows for form in (yy * a - 2 * ys * b + ss * uu, ys * ys, s * ss)]


def distance_weights(
    divider: Divider, widths: RuleWidths, dealt: DealtDistance, scores: RoundScores
) -> Half[list[int]]:
    """Shares modulo 2^weight_bits of everyone's weight: four exchanges."""
    side, bits = divider.side, widths.distance_bits
    operands = yield from _open_operands(divider, widths, dealt, scores)
    y, cubes = _divisors(side.index, widths, dealt, scores, operands)
    divisors = to_integers(y, bits, side.index)
    inverses = yield from divider.reciprocals("distances", widths.distance, dealt.reciprocals, divisors)
    n = widths.participants
    count = len(y)
    factors = dealt.factors.share
    covers = [factors[slot] for slot in scores.places] + [factors[n + slot] for slot in scores.places]
    shares = [*widen(cubes, bits, widths.weight_bits, side.index), *inverses]
    opened = yield from open_masked(side, shares, covers, widths.weight_bits)
    return [
        (opened.product(i, count + i, side.index) + dealt.products.share[slot]) % (1 << widths.weight_bits)
        for i, slot in enumerate(scores.places)
    ]


def _open_operands(divider: Divider, widths: RuleWidths, dealt: DealtDistance, scores: RoundScores) -> Half[Masked]:
    index = divider.side.index
    n = widths.participants
    square, with_samples = _totals(index, dealt, scores)
    rows = zip(scores.A, scores.B, scores.squares, with_samples, strict=True)
    numbers = [
        number
        for place, (a, b, ss, ys) in enumerate(rows)
        for number in (a, b, scores.samples.share(place, index), ss, ys)
    ]
    covers = [mask for slot in scores.places for mask in dealt.masks.share[_OPERANDS * slot : _OPERANDS * (slot + 1)]]
    covers += dealt.masks.share[_OPERANDS * n :]
    shares = widen([*numbers, scores.UU, square], widths.R, widths.distance_bits, index)
    return (yield from open_masked(divider.side, shares, covers, widths.distance_bits))


def _totals(index: int, dealt: DealtDistance, scores: RoundScores) -> tuple[int, list[int]]:
    """Shares modulo 2^R of Y^2 and of Y s_i of everyone: Y and s_i are opened under masks whose products are dealt."""
    both = Masked([*scores.total.opened, *scores.samples.opened], [*scores.total.masks, *scores.samples.masks])
    products = [both.product(0, 1 + place, index) for place in range(len(scores.places))]
    dealt_products = [dealt.totals.share[1 + slot] for slot in scores.places]
    return both.product(0, 0, index) + dealt.totals.share[0], [
        a + b for a, b in zip(products, dealt_products, strict=True)
    ]


def _divisors(
    index: int, widths: RuleWidths, dealt: DealtDistance, scores: RoundScores, operands: Masked
) -> tuple[list[int], list[int]]:
    """Shares of y_i and of s_i^3."""
    floor = widths.floor(scores.kept)
    product = operands.product
    forms = dealt.forms.share
    uu = _OPERANDS * len(scores.places)
    y, cubes = [], []
    for place, slot in enumerate(scores.places):
        a, b, s, ss, ys = range(_OPERANDS * place, _OPERANDS * (place + 1))
        g = product(uu + 1, a, index) - 2 * product(ys, b, index) + product(ss, uu, index) + forms[_FORMS * slot]
        scaled = floor * (product(ys, ys, index) + forms[_FORMS * slot + 1])
        y.append(g + scaled + int(index == SP))
        cubes.append(product(s, ss, index) + forms[_FORMS * slot + 2])
    return y, cubes
