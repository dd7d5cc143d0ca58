"""The rules that pay, as one: what KGC deals for a round's rewards, and both servers' halves from scores to rewards.

| rule | exchanges, after the one that opens the masked sum of all lanes |
|---|---|
| `gate` | operands, comparisons, bits, table, products: 5 (6 where it must divide) |
| `agreement` | comparisons, bits, division (2), products: 5 |
| `distance` | operands, divisions (2), products, division (2), products: 7 |

From weights to rewards: mu_i = (b_t - n) * w_i / sum(w), rounded, modulo 2^128. The reciprocal of a small sum (`gate`: at most
all samples) is looked up in a dealt table; nothing of the sum is seen by anyone. A large one is divided: y = 2^s * sum + 1 with
2^s > 2 b_t, so that a sum of zero divides by 1, and pays nothing. Rounding moves each reward by less than 1 millionth, up or
down, and leaves a zero as it is. The numerator b_t - n makes up for that, so the sum of n rewards is at most b_t, and at least
b_t - 2n unless all weights are zero. b_t below n pays nothing.

`gate` and `agreement` have modules of their own. `distance` is the paper's Eq. 10 on sketches: weight
samples_i / (d_i + epsilon), up to a factor common to all. With Y the total of samples,
G_i = Y^2 A_i - 2 Y s_i B_i + s_i^2 UU = |Y u_i - s_i U|^2 is (Y s_i)^2 times the sketched squared distance of model i from the
average. So the weight is s_i^3 * 2^F / y_i with y_i = G_i + epsilon Y^2 s_i^2 + 1, where epsilon is scaled like the sketch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from crowdfl.errors import LengthMismatch, ProtocolError, WidthBudgetExceeded
from crowdfl.protocols.shares import agreement, gate
from crowdfl.protocols.shares.circuits.program import SP, Half
from crowdfl.protocols.shares.circuits.reciprocal import DealtReciprocals, Divider
from crowdfl.protocols.shares.circuits.reciprocal import deal as deal_reciprocals
from crowdfl.protocols.shares.circuits.scalars import Masked, open_masked, plus, to_integers, truncate, widen
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt
from crowdfl.protocols.shares.rule_widths import PayoutWidths, RoundScores, RuleWidths
from crowdfl.protocols.shares.table import DealtTable, look_up
from crowdfl.protocols.shares.table import deal as deal_table

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


_DealtRule = gate.DealtGate | agreement.DealtAgreement | DealtDistance


@dataclass(frozen=True)
class DealtPayout:
    """A table or a division; masks of the weights and of J, with their products; a sharing of zero."""

    table: DealtTable | None
    division: DealtReciprocals | None
    masks: Dealt = field(repr=False)
    products: Dealt = field(repr=False)
    zeros: Dealt = field(repr=False)


@dataclass(frozen=True)
class DealtRewards:
    rule: _DealtRule
    payout: DealtPayout

    @property
    def total_mask(self) -> Dealt | None:
        """Modulo 2^R, for the total of samples, which is opened before a rule begins; None where the rule does not ask for
        it."""
        return self.rule.total if isinstance(self.rule, DealtDistance) else None


def deal(cards: Cards, widths: RuleWidths, samples: Dealt) -> DealtRewards:
    """`samples` are the masks, one for each slot, under which the samples are opened modulo 2^R."""
    return DealtRewards(_deal_rule(cards, widths, samples), _deal_payout(cards, widths.payout))


def _deal_rule(cards: Cards, widths: RuleWidths, samples: Dealt) -> _DealtRule:
    if widths.rule == "gate":
        return gate.deal(cards, widths, samples)
    if widths.rule == "agreement":
        return agreement.deal(cards, widths)
    return _deal_distance(cards, widths, samples)


def weights(divider: Divider, widths: RuleWidths, dealt: DealtRewards, scores: RoundScores) -> Half[list[int]]:
    """Shares modulo 2^weight_bits of everyone's weight."""
    if isinstance(dealt.rule, gate.DealtGate):
        return (yield from gate.weights(divider.side, widths, dealt.rule, scores))
    if isinstance(dealt.rule, agreement.DealtAgreement):
        return (yield from agreement.weights(divider.side, widths, dealt.rule, scores))
    return (yield from _distance_weights(divider, widths, dealt.rule, scores))


def rewards(
    divider: Divider, widths: RuleWidths, dealt: DealtRewards, scores: RoundScores, budget: int
) -> Half[list[int]]:
    """Shares modulo 2^128 of everyone's reward, in millionths, in the order of the scores."""
    weighed = yield from weights(divider, widths, dealt, scores)
    divider.view.computed("weights", (scores, weighed))
    return (yield from paid(divider, widths.payout, dealt.payout, weighed, budget))


def _deal_payout(cards: Cards, widths: PayoutWidths) -> DealtPayout:
    n, bits = widths.participants, widths.product_bits
    looked_up = (
        deal_table(cards, widths.table_size, widths.J_bits, lambda: _entries(widths)) if widths.is_table else None
    )
    division = None if widths.is_table else deal_reciprocals(cards, widths.reciprocal, 1)
    masks = cards.uniform(n + 1, bits)
    products = cards.derived(n, bits, lambda: [mask * masks.share[n] for mask in masks.share[:n]])
    return DealtPayout(looked_up, division, masks, products, cards.derived(n, REWARD_BITS, lambda: [0] * n))


def _entries(widths: PayoutWidths) -> list[int]:
    one = 1 << widths.F
    return [0, *(one // total for total in range(1, widths.table_size))]


def paid(
    divider: Divider, widths: PayoutWidths, dealt: DealtPayout, weights: Sequence[int], budget: int
) -> Half[list[int]]:
    """Shares modulo 2^128 of the rewards for these weights, in their order: two exchanges with a table, else three."""
    _require_fits(widths, weights, budget)
    side, bits, count = divider.side, widths.product_bits, len(weights)
    inverse = yield from _inverse(divider, widths, dealt, weights)
    operands = [*widen(weights, widths.bits, bits, side.index), inverse]
    masks = [*dealt.masks.share[:count], dealt.masks.share[widths.participants]]
    opened = yield from open_masked(side, operands, masks, bits)
    scale = max(0, budget - count) << widths.s
    products = [scale * (opened.product(i, count, side.index) + dealt.products.share[i]) for i in range(count)]
    amounts = truncate(products, widths.F, bits, side.index) if scale else [0] * count  # times 0 no share is uniform
    return [amount % (1 << REWARD_BITS) for amount in plus(amounts, dealt.zeros.share[:count])]


def _inverse(divider: Divider, widths: PayoutWidths, dealt: DealtPayout, weights: Sequence[int]) -> Half[int]:
    """A share, modulo 2^product_bits, of J = 2^F / sum(w), or of 2^F / (2^s sum(w) + 1)."""
    side = divider.side
    if dealt.table is not None:
        entry = yield from look_up(side, dealt.table, sum(weights))
        return widen([entry], widths.J_bits, widths.product_bits, side.index)[0]
    if dealt.division is None:
        raise ValueError("neither a table nor a division was dealt")
    y = (sum(to_integers(weights, widths.bits, side.index)) << widths.s) + (side.index == SP)
    (inverse,) = yield from divider.reciprocals("sum", widths.reciprocal, dealt.division, [y])
    return inverse


def _require_fits(widths: PayoutWidths, weights: Sequence[int], budget: int) -> None:
    if len(weights) > widths.participants:
        raise LengthMismatch(f"{len(weights)} weights in a task for {widths.participants} participants")
    if not 0 <= budget <= widths.budget:
        raise WidthBudgetExceeded(f"a budget of {budget} millionths; what was dealt is for 0 to {widths.budget}")


# ---- the rule `distance` ---------------------------------------------------------------------------------------------


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


def _distance_weights(
    divider: Divider, widths: RuleWidths, dealt: DealtDistance, scores: RoundScores
) -> Half[list[int]]:
    """Shares modulo 2^weight_bits: four exchanges."""
    side, bits = divider.side, widths.distance_bits
    operands = yield from _open_operands(divider, widths, dealt, scores)
    y, cubes = _divisors(side.index, widths, dealt, scores, operands)
    divisors = to_integers(y, bits, side.index)
    inverses = yield from divider.reciprocals("distances", widths.distance, dealt.reciprocals, divisors)
    n, count, factors = widths.participants, len(y), dealt.factors.share
    covers = [factors[slot] for slot in scores.places] + [factors[n + slot] for slot in scores.places]
    shares = [*widen(cubes, bits, widths.weight_bits, side.index), *inverses]
    opened = yield from open_masked(side, shares, covers, widths.weight_bits)
    return [
        (opened.product(i, count + i, side.index) + dealt.products.share[slot]) % (1 << widths.weight_bits)
        for i, slot in enumerate(scores.places)
    ]


def _open_operands(divider: Divider, widths: RuleWidths, dealt: DealtDistance, scores: RoundScores) -> Half[Masked]:
    index, n = divider.side.index, widths.participants
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
    if scores.total is None:
        raise ProtocolError("the rule `distance` needs the total of samples, opened under its mask")
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
    epsilon, product, forms = widths.epsilon(scores.kept), operands.product, dealt.forms.share
    uu = _OPERANDS * len(scores.places)
    y, cubes = [], []
    for place, slot in enumerate(scores.places):
        a, b, s, ss, ys = range(_OPERANDS * place, _OPERANDS * (place + 1))
        g = product(uu + 1, a, index) - 2 * product(ys, b, index) + product(ss, uu, index) + forms[_FORMS * slot]
        scaled = epsilon * (product(ys, ys, index) + forms[_FORMS * slot + 1])
        y.append(g + scaled + int(index == SP))
        cubes.append(product(s, ss, index) + forms[_FORMS * slot + 2])
    return y, cubes
