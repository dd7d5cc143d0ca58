"""How long the numbers of a reward rule are, and what a rule starts from.

    A_i = |u_i|^2, B_i = <u_i, U>, P_i = <u_i, V>, UU = |U|^2, VV = |V|^2

u_i are the lanes of participant i that are kept, U their sum over the accepted, V those of the last round's sum. The check
gives A_i <= `square`; the rest follows by Cauchy and Schwarz.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from crowdfl.errors import RewardsOff
from crowdfl.protocols.shares.circuits.reciprocal import ReciprocalWidths, leak_of, span_for
from crowdfl.protocols.shares.circuits.scalars import SPARE, Masked, modulus_for
from crowdfl.protocols.shares.widths import BLOCK, SharesWidths
from crowdfl.settings import TaskSettings, to_millionths

_LARGEST_TABLE = 1 << 20  # entries


@dataclass(frozen=True)
class RoundScores:
    """What a rule starts from: shares modulo 2^R, of the accepted in the order of their places among all slots.

    `samples` are opened under the masks that were dealt for squaring them; `total` likewise, for the rule `distance` alone.
    P is empty, and VV None, where there is no last sum.
    """

    places: list[int]
    kept: int  # lanes
    A: list[int] = field(repr=False)
    B: list[int] = field(repr=False)
    UU: int = field(repr=False)
    samples: Masked
    squares: list[int] = field(repr=False, default_factory=list)
    total: Masked | None = None
    P: list[int] = field(repr=False, default_factory=list)
    VV: int | None = field(repr=False, default=None)


@dataclass(frozen=True)
class PayoutWidths:
    """Weights shared modulo 2^bits with their spare bits; the sum of all lies in [least, most], or is 0 where least is 0."""

    participants: int
    budget: int  # millionths, of one round
    bits: int
    least: int
    most: int
    span: int = 0  # of the divisions' masks

    @cached_property
    def is_table(self) -> bool:
        return self.most < _LARGEST_TABLE

    @cached_property
    def table_size(self) -> int:
        return max(2, 1 << self.most.bit_length())

    @cached_property
    def s(self) -> int:
        return 0 if self.is_table else (2 * self.budget).bit_length()

    @cached_property
    def F(self) -> int:  # noqa: N802 -- as above
        """All errors of J together are below 1/2 millionth."""
        return (self.budget * self.most << self.s).bit_length() + 3

    @cached_property
    def J_bits(self) -> int:  # noqa: N802
        return modulus_for(1 << self.F)

    @cached_property
    def product_bits(self) -> int:
        return modulus_for(self.budget << (self.F + 1))

    @cached_property
    def low(self) -> int:
        return ((self.least << self.s) + 1).bit_length() - 1

    @cached_property
    def high(self) -> int:
        return ((self.most << self.s) + 1).bit_length()

    @cached_property
    def reciprocal(self) -> ReciprocalWidths:
        share = self.bits + self.s + self.participants.bit_length() + 1
        return ReciprocalWidths(self.low, self.high, share, self.F, self.span)


@dataclass(frozen=True)
class RuleWidths:
    """A task's bounds, as far as rewards depend on them, and the moduli that follow; each conversion has 44 spare bits."""

    rule: str
    participants: int
    min_participants: int
    max_samples: int
    rounds: int
    budget: int  # millionths, of one round
    epsilon_units: int
    R: int
    buckets: int
    lanes: int
    least_kept: int
    square: int
    previous: int  # of VV

    @classmethod
    def of(cls, widths: SharesWidths, settings: TaskSettings) -> Self:
        """Those of a task, or its refusal with the numbers and with what to change."""
        made = cls(
            rule=rule_of(settings),
            participants=widths.participants,
            min_participants=settings.min_participants,
            max_samples=widths.max_samples,
            rounds=settings.rounds,
            budget=to_millionths(settings.budget or 0),
            epsilon_units=settings.epsilon_units,
            R=widths.R,
            buckets=widths.buckets,
            lanes=widths.lanes,
            least_kept=max(1, widths.lanes - BLOCK * widths.max_dropped_blocks),
            square=widths.rows * widths.K * widths.max_samples**2,
            previous=widths.lanes * widths.previous_bound**2,
        )
        made.require_divisible()
        return made

    def require_divisible(self) -> None:
        """Refuse, with the numbers, what needs longer masks than can be computed with."""
        for division in self._division_widths():
            division.require_computable()

    @cached_property
    def agreement(self) -> int:
        """Largest |T_i|."""
        return self.participants * self.square

    @cached_property
    def compare_bits(self) -> int:
        """Of a modulus that holds T_i with its sign: a comparison needs no spare bits."""
        return modulus_for(self.agreement, spare=0)

    @cached_property
    def gate_bits(self) -> int:
        """Of a modulus that holds the differences that `gate` compares with zero."""
        direction = (self.lanes + 4) * self.agreement**2
        return modulus_for(max(direction, 4 * self.square * self.previous), spare=0)

    @cached_property
    def agreement_bits(self) -> int:
        """Of the modulus of T_i, compared and then converted."""
        return modulus_for(self.agreement)

    def epsilon(self, kept: int) -> int:
        """epsilon at the scale of sketched squared distances."""
        return self.epsilon_units * kept // self.buckets

    @cached_property
    def distance_most(self) -> int:
        """Largest y_i: |Y u_i - s_i U| is at most 2 N S sqrt(square)."""
        pairs = (self.participants * self.max_samples) ** 2
        return pairs * (4 * self.square + self.max_samples**2 * self.epsilon(self.lanes)) + 1

    @cached_property
    def distance_least(self) -> int:
        return self.min_participants**2 * self.epsilon(self.least_kept) + 1

    @cached_property
    def distance_bits(self) -> int:
        return modulus_for(self.distance_most)

    @cached_property
    def distance_precision(self) -> int:
        """F of the reciprocals: together, their errors move no reward by more than 1/2 millionth."""
        return (self.distance_most * self.budget).bit_length() + 3

    @cached_property
    def distance_weight(self) -> int:
        return int(self.max_samples**3 * ((1 << self.distance_precision) // self.distance_least + 2))

    @cached_property
    def weight_bits(self) -> int:
        return {
            "gate": self.R,
            "agreement": self.agreement_bits,
            "distance": modulus_for(self.distance_weight),
        }[self.rule]

    @cached_property
    def span(self) -> int:
        """Of the masks of all divisions of the task, so that together they show no more than 1%."""
        return span_for(self._divisions())

    @cached_property
    def distance(self) -> ReciprocalWidths:
        low, high = self.distance_least.bit_length() - 1, self.distance_most.bit_length()
        return ReciprocalWidths(low, high, self.distance_bits, self.distance_precision, self.span)

    @cached_property
    def payout(self) -> PayoutWidths:
        return self._payout(self.span)

    @cached_property
    def leak(self) -> float:
        """By how much, at most, CSP can tell any two tasks apart by all that it sees of divisors. 0 with a table."""
        return leak_of(self._divisions(), self.span)

    def explain(self) -> str:
        payout = self.payout
        lines = [
            f"rule           {self.rule}: weights in {self.weight_bits} bits, products with the budget in "
            f"{payout.product_bits} bits"
        ]
        if payout.is_table:
            return "\n".join(
                [*lines, f"division       none: a table of {payout.table_size} reciprocals, dealt for each round"]
            )
        counted = " and ".join(f"{count} of divisors with {bits} bits of range" for count, bits in self._divisions())
        longest = max(division.modulus for division in self._division_widths())
        lines += [
            f"divisions      {counted}, behind masks of {self.span} bits, in numbers of {longest} bits",
            f"               over the whole task CSP can tell any two sets of divisors apart by at most {self.leak:.2%}",
            f"errors         a conversion fails with a chance of at most 2^-{SPARE}; a reward is off by less than 2 millionths",
        ]
        return "\n".join(lines)

    def _division_widths(self) -> list[ReciprocalWidths]:
        found = [] if self.payout.is_table else [self.payout.reciprocal]
        return [*found, self.distance] if self.rule == "distance" else found

    def _payout(self, span: int) -> PayoutWidths:
        least, most = {
            "gate": (0, self.participants * self.max_samples),
            "agreement": (0, self.participants * self.agreement),
            "distance": (self._least_distance_sum, self.participants * self.distance_weight),
        }[self.rule]
        return PayoutWidths(self.participants, self.budget, self.weight_bits, least, most, span)

    @cached_property
    def _least_distance_sum(self) -> int:
        return self.min_participants * ((1 << self.distance_precision) // self.distance_most - 2)

    def _divisions(self) -> list[tuple[int, int]]:
        payout = self._payout(0)
        found = [] if payout.is_table else [(self.rounds, payout.high - payout.low)]
        if self.rule == "distance":
            bits = self.distance_most.bit_length() - self.distance_least.bit_length() + 1
            found.append((self.rounds * self.participants, bits))
        return found


def rule_of(settings: TaskSettings) -> str:
    """The rule that pays."""
    rule = settings.rule or "gate"
    if rule == "none":
        raise RewardsOff('the rule "none" pays nobody')
    return rule
