"""How long the numbers of the rule `distance` are.

    A_i = |u_i|^2, B_i = <u_i, U>, UU = |U|^2

u_i are the lanes of participant i that are kept, U their sum over the accepted. The check gives A_i <= `square`; the rest
follows by Cauchy and Schwarz.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from crowdfl.protocols.shares.circuits.reciprocal import ReciprocalWidths, leak_of, span_for
from crowdfl.protocols.shares.circuits.scalars import SPARE, modulus_for
from crowdfl.protocols.shares.widths import BLOCK, SharesWidths
from crowdfl.settings import TaskSettings, to_millionths


@dataclass(frozen=True)
class RuleWidths:
    """A task's bounds, as far as rewards depend on them, and the moduli that follow; each conversion has 44 spare bits."""

    participants: int
    min_participants: int
    max_samples: int
    rounds: int
    budget: int  # millionths, of one round
    floor_units: int
    R: int
    buckets: int
    lanes: int
    least_kept: int
    square: int

    @classmethod
    def of(cls, widths: SharesWidths, settings: TaskSettings) -> Self:
        """Those of a task, or its refusal with the numbers and with what to change."""
        made = cls(
            participants=widths.participants,
            min_participants=settings.min_participants,
            max_samples=widths.max_samples,
            rounds=settings.rounds,
            budget=to_millionths(settings.budget or 0),
            floor_units=settings.floor_units,
            R=widths.R,
            buckets=widths.buckets,
            lanes=widths.lanes,
            least_kept=max(1, widths.lanes - BLOCK * widths.max_dropped_blocks),
            square=widths.rows * widths.K * widths.max_samples**2,
        )
        made.require_divisible()
        return made

    def require_divisible(self) -> None:
        """Refuse, with the numbers, what needs longer masks than can be computed with."""
        for division in (self.payout, self.distance):
            division.require_computable()

    def floor(self, kept: int) -> int:
        """`distance_floor` at the scale of sketched squared distances."""
        return self.floor_units * kept // self.buckets

    @cached_property
    def distance_most(self) -> int:
        """Largest y_i: |Y u_i - s_i U| is at most 2 N S sqrt(square)."""
        pairs = (self.participants * self.max_samples) ** 2
        return pairs * (4 * self.square + self.max_samples**2 * self.floor(self.lanes)) + 1

    @cached_property
    def distance_least(self) -> int:
        return self.min_participants**2 * self.floor(self.least_kept) + 1

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
        return modulus_for(self.distance_weight)

    @cached_property
    def span(self) -> int:
        """Of the masks of all divisions of the task, so that together they show no more than 1%."""
        return span_for(self._divisions)

    @cached_property
    def distance(self) -> ReciprocalWidths:
        low = self.distance_least.bit_length() - 1
        high = self.distance_most.bit_length()
        return ReciprocalWidths(low, high, self.distance_bits, self.distance_precision, self.span)

    @cached_property
    def payout_precision(self) -> int:
        """F of the division by the sum of weights: all its errors together are below 1/2 millionth."""
        return (self.budget * self._weights[1]).bit_length() + 3

    @cached_property
    def product_bits(self) -> int:
        return modulus_for(self.budget << (self.payout_precision + 1))

    @cached_property
    def payout(self) -> ReciprocalWidths:
        least, most = self._weights
        share = self.weight_bits + self.participants.bit_length() + 1
        return ReciprocalWidths(least.bit_length() - 1, most.bit_length(), share, self.payout_precision, self.span)

    @cached_property
    def leak(self) -> float:
        """By how much, at most, CSP can tell any two tasks apart by all that it sees of divisors."""
        return leak_of(self._divisions, self.span)

    @cached_property
    def longest_bits(self) -> int:
        """Of one number that travels."""
        return max(self.weight_bits, self.payout.modulus, self.distance.modulus)

    def explain(self) -> str:
        counted = " and ".join(f"{count} of divisors with {bits} bits of range" for count, bits in self._divisions)
        lines = [
            f"pay            distance: weights in {self.weight_bits} bits, products with the budget in "
            f"{self.product_bits} bits",
            f"divisions      {counted}, behind masks of {self.span} bits, in numbers of {self.longest_bits} bits",
            f"               over the whole task CSP can tell any two sets of divisors apart by at most {self.leak:.2%}",
            f"errors         a conversion fails with a chance of at most 2^-{SPARE}; a reward is off by less than 2 millionths",
        ]
        return "\n".join(lines)

    @cached_property
    def _weights(self) -> tuple[int, int]:
        """The least and the most that all weights add up to."""
        least = self.min_participants * ((1 << self.distance_precision) // self.distance_most - 2)
        return least, self.participants * self.distance_weight

    @cached_property
    def _divisions(self) -> list[tuple[int, int]]:
        """How many there are in a task, of so many bits of range each."""
        ranges = self._weights, (self.distance_least, self.distance_most)
        bits = [most.bit_length() - least.bit_length() + 1 for least, most in ranges]
        return [(self.rounds, bits[0]), (self.rounds * self.participants, bits[1])]
