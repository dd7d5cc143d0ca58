"""From shares of weights to shares of rewards: mu_i = (b_t - n) * w_i / sum(w), rounded, modulo 2^128.

The reciprocal of a small sum (`gate`: at most all samples) is looked up in a dealt table; nothing of the sum is seen by
anyone. A large one is divided: y = 2^s * sum + 1 with 2^s > 2 b_t, so that a sum of zero divides by 1, and pays nothing.

Rounding moves each reward by less than 1 millionth, up or down, and leaves a zero as it is. The numerator b_t - n makes up
for that, so the sum of n rewards is at most b_t, and at least b_t - 2n unless all weights are zero. b_t below n pays
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from crowdfl.errors import LengthMismatch, WidthBudgetExceeded
from crowdfl.protocols.shares import table
from crowdfl.protocols.shares.circuits import reciprocal
from crowdfl.protocols.shares.circuits.program import SP, Half
from crowdfl.protocols.shares.circuits.reciprocal import DealtReciprocals, Divider, ReciprocalWidths
from crowdfl.protocols.shares.circuits.scalars import modulus_for, open_masked, plus, to_integers, truncate, widen
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt

REWARD_BITS = 128
_LARGEST_TABLE = 1 << 20  # entries


@dataclass(frozen=True)
class PayoutWidths:
    """Weights shared modulo 2^bits with their spare bits; the sum of all lies in [least, most], or is 0 where least is 0."""

    participants: int
    budget: int  # millionths, of one round
    bits: int
    least: int
    most: int
    span: int = 0  # of the divisions' masks

    @property
    def is_table(self) -> bool:
        return self.most < _LARGEST_TABLE

    @property
    def table_size(self) -> int:
        return max(2, 1 << self.most.bit_length())

    @property
    def s(self) -> int:
        return 0 if self.is_table else (2 * self.budget).bit_length()

    @property
    def F(self) -> int:  # noqa: N802 -- as above
        """All errors of J together are below 1/2 millionth."""
        return (self.budget * self.most << self.s).bit_length() + 3

    @property
    def J_bits(self) -> int:  # noqa: N802
        return modulus_for(1 << self.F)

    @property
    def product_bits(self) -> int:
        return modulus_for(self.budget << (self.F + 1))

    @property
    def low(self) -> int:
        return ((self.least << self.s) + 1).bit_length() - 1

    @property
    def high(self) -> int:
        return ((self.most << self.s) + 1).bit_length()

    @property
    def reciprocal(self) -> ReciprocalWidths:
        share = self.bits + self.s + self.participants.bit_length() + 1
        return ReciprocalWidths(self.low, self.high, share, self.F, self.span)


@dataclass(frozen=True)
class DealtPayout:
    """A table or a division; masks of the weights and of J, with their products; a sharing of zero."""

    table: table.DealtTable | None
    division: DealtReciprocals | None
    masks: Dealt = field(repr=False)
    products: Dealt = field(repr=False)
    zeros: Dealt = field(repr=False)


def deal(cards: Cards, widths: PayoutWidths) -> DealtPayout:
    n, bits = widths.participants, widths.product_bits
    looked_up = (
        table.deal(cards, widths.table_size, widths.J_bits, lambda: _entries(widths)) if widths.is_table else None
    )
    division = None if widths.is_table else reciprocal.deal(cards, widths.reciprocal, 1)
    masks = cards.uniform(n + 1, bits)
    products = cards.derived(n, bits, lambda: [mask * masks.share[n] for mask in masks.share[:n]])
    return DealtPayout(looked_up, division, masks, products, cards.derived(n, REWARD_BITS, lambda: [0] * n))


def _entries(widths: PayoutWidths) -> list[int]:
    one = 1 << widths.F
    return [0, *(one // total for total in range(1, widths.table_size))]


def rewards(
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
        entry = yield from table.look_up(side, dealt.table, sum(weights))
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
