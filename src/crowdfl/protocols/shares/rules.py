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
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from crowdfl.errors import LengthMismatch, WidthBudgetExceeded
from crowdfl.protocols.shares import agreement, distance, gate
from crowdfl.protocols.shares.circuits.program import SP, Half
from crowdfl.protocols.shares.circuits.reciprocal import DealtReciprocals, Divider
from crowdfl.protocols.shares.circuits.reciprocal import deal as deal_reciprocals
from crowdfl.protocols.shares.circuits.scalars import open_masked, plus, to_integers, truncate, widen
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt
from crowdfl.protocols.shares.rule_widths import PayoutWidths, RoundScores, RuleWidths
from crowdfl.protocols.shares.table import DealtTable, look_up
from crowdfl.protocols.shares.table import deal as deal_table

REWARD_BITS = 128
_DealtRule = gate.DealtGate | agreement.DealtAgreement | distance.DealtDistance


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
        return self.rule.total if isinstance(self.rule, distance.DealtDistance) else None


def deal(cards: Cards, widths: RuleWidths, samples: Dealt) -> DealtRewards:
    """`samples` are the masks, one for each slot, under which the samples are opened modulo 2^R."""
    return DealtRewards(_deal_rule(cards, widths, samples), _deal_payout(cards, widths.payout))


def _deal_rule(cards: Cards, widths: RuleWidths, samples: Dealt) -> _DealtRule:
    if widths.rule == "gate":
        return gate.deal(cards, widths, samples)
    if widths.rule == "agreement":
        return agreement.deal(cards, widths)
    return distance.deal(cards, widths, samples)


def weights(divider: Divider, widths: RuleWidths, dealt: DealtRewards, scores: RoundScores) -> Half[list[int]]:
    """Shares modulo 2^weight_bits of everyone's weight."""
    if isinstance(dealt.rule, gate.DealtGate):
        return (yield from gate.weights(divider.side, widths, dealt.rule, scores))
    if isinstance(dealt.rule, agreement.DealtAgreement):
        return (yield from agreement.weights(divider.side, widths, dealt.rule, scores))
    return (yield from distance.weights(divider, widths, dealt.rule, scores))


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
