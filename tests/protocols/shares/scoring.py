"""Rounds of small whole-number lanes, their scores as shares, and the rules in the clear with exact arithmetic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from crowdfl.protocols.shares import rules
from crowdfl.protocols.shares.circuits.program import SP, Half
from crowdfl.protocols.shares.circuits.reciprocal import Divider
from crowdfl.protocols.shares.circuits.scalars import Masked
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt
from crowdfl.protocols.shares.round_scores import RoundScores
from crowdfl.protocols.shares.rule_widths import RuleWidths
from tests.protocols.shares.dealing import Given, Transcript, deal_with, joined, run, split

Vector = Sequence[int]


def dot(a: Vector, b: Vector) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class SmallRound:
    """Lanes u_i = samples_i times an update; `kept` of the sketch's `buckets` wide rows are used."""

    lanes: list[list[int]]
    samples: list[int]
    places: list[int] = field(default_factory=list)

    @property
    def slots(self) -> list[int]:
        return self.places or list(range(len(self.lanes)))

    @property
    def total(self) -> list[int]:
        return [sum(column) for column in zip(*self.lanes, strict=True)]

    @property
    def kept(self) -> int:
        return len(self.lanes[0])

    @property
    def A(self) -> list[int]:  # noqa: N802
        return [dot(u, u) for u in self.lanes]

    @property
    def B(self) -> list[int]:  # noqa: N802
        return [dot(u, self.total) for u in self.lanes]


def widths_for(participants: int = 6, norm: int = 1000, lanes: int = 16, **changes: Any) -> RuleWidths:
    """Bounds for lanes of vectors no longer than samples * norm; one row of as many buckets as lanes."""
    samples = changes.pop("max_samples", 50)
    widths = RuleWidths(
        participants=participants,
        min_participants=3,
        max_samples=samples,
        rounds=5,
        budget=10**9,
        floor_units=10,
        R=160,
        buckets=lanes,
        lanes=lanes,
        least_kept=lanes,
        square=samples**2 * norm**2,
    )
    return replace(widths, **changes)


def scripted(widths: RuleWidths, seed: int = 1) -> Given:
    """The masks of the samples, and what is dealt for rewards."""

    def script(cards: Cards) -> tuple[Dealt, rules.DealtRewards]:
        samples = cards.uniform(widths.participants, widths.R)
        return samples, rules.deal(cards, widths, samples)

    return deal_with(script, seed)


def scores_of(given: Given, widths: RuleWidths, small: SmallRound, seed: int = 1) -> tuple[RoundScores, RoundScores]:
    """Both servers' shares, and what they have opened before a rule begins."""
    numbers = [*small.A, *small.B, *(s * s for s in small.samples), dot(small.total, small.total)]
    shares, modulus = split(numbers, widths.R, seed), 1 << widths.R
    opened = [(s + given.kgc[0].share[slot]) % modulus for s, slot in zip(small.samples, small.slots, strict=True)]
    total = (sum(small.samples) + given.kgc[1].distance.total.share[0]) % modulus
    sp, csp = (
        _scores(own, server, small, opened, total) for own, server in zip(shares, (given.sp, given.csp), strict=True)
    )
    return sp, csp


def _scores(
    own: list[int], server: tuple[Dealt, rules.DealtRewards], small: SmallRound, opened: list[int], total: int
) -> RoundScores:
    n = len(small.lanes)
    return RoundScores(
        places=small.slots,
        kept=small.kept,
        A=own[:n],
        B=own[n : 2 * n],
        UU=own[-1],
        samples=Masked(opened, [server[0].share[slot] for slot in small.slots]),
        squares=own[2 * n : 3 * n],
        total=Masked([total], server[1].distance.total.share),
    )


def computed(
    widths: RuleWidths,
    small: SmallRound,
    budget: int,
    seed: int = 1,
    meddle: Callable[[RoundScores], None] = lambda scores: None,
) -> tuple[list[int], Transcript]:
    """The rewards of a round by both halves, and what was sent. A CSP that deviates has meddled with its shares."""
    given = scripted(widths, seed)
    sp, csp = scores_of(given, widths, small, seed)
    meddle(csp)

    def half(divider: Divider) -> Half[list[int]]:
        (_, dealt), scores = (given.sp, sp) if divider.side.index == SP else (given.csp, csp)
        weights = yield from rules.distance_weights(divider, widths, dealt.distance, scores)
        return (yield from rules.paid(divider, widths, dealt.payout, weights, budget))

    first, second, transcript = run(half, half, seed)
    return joined(first, second, 128), transcript


def weighed(widths: RuleWidths, small: SmallRound, seed: int = 1) -> list[int]:
    given = scripted(widths, seed)
    sp, csp = scores_of(given, widths, small, seed)
    first, second, _ = run(
        lambda divider: rules.distance_weights(divider, widths, given.sp[1].distance, sp),
        lambda divider: rules.distance_weights(divider, widths, given.csp[1].distance, csp),
        seed,
    )
    return joined(first, second, widths.weight_bits)


def plain_weights(widths: RuleWidths, small: SmallRound) -> list[Fraction]:
    """The rule in the clear, with exact arithmetic."""
    return [_distance(widths, small, i) for i in range(len(small.lanes))]


def _distance(widths: RuleWidths, small: SmallRound, i: int) -> Fraction:
    y, s = sum(small.samples), small.samples[i]
    apart = [y * own - s * whole for own, whole in zip(small.lanes[i], small.total, strict=True)]
    return Fraction(s**3, dot(apart, apart) + widths.floor(small.kept) * (y * s) ** 2 + 1)


def plain_rewards(weights: Sequence[Fraction], budget: int) -> list[Fraction]:
    """b_t - n split by weights."""
    total, numerator = sum(weights, Fraction(0)), max(0, budget - len(weights))
    return [numerator * weight / total for weight in weights]
