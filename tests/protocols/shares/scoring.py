"""Rounds of small whole-number lanes, their scores as shares, and the rules in the clear with exact arithmetic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from crowdfl.protocols.shares import rules
from crowdfl.protocols.shares.circuits.scalars import Masked
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt
from crowdfl.protocols.shares.rule_widths import RoundScores, RuleWidths
from tests.protocols.shares.dealing import Given, Transcript, deal_with, joined, run, split

Vector = Sequence[int]


def dot(a: Vector, b: Vector) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class SmallRound:
    """Lanes u_i = samples_i times an update, and the last sum's; `kept` of the sketch's `buckets` wide rows are used."""

    lanes: list[list[int]]
    samples: list[int]
    previous: list[int] | None = None
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

    @property
    def P(self) -> list[int]:  # noqa: N802
        return [] if self.previous is None else [dot(u, self.previous) for u in self.lanes]


def widths_for(rule: str, participants: int = 6, norm: int = 1000, lanes: int = 16, **changes: Any) -> RuleWidths:
    """Bounds for lanes of vectors no longer than samples * norm; one row of as many buckets as lanes."""
    samples = changes.pop("max_samples", 50)
    square = samples**2 * norm**2
    widths = RuleWidths(
        rule=rule,
        participants=participants,
        min_participants=3,
        max_samples=samples,
        rounds=5,
        budget=10**9,
        epsilon_units=10,
        R=160,
        buckets=lanes,
        lanes=lanes,
        least_kept=lanes,
        square=square,
        previous=participants**2 * square,
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
    uu, vv = dot(small.total, small.total), None if small.previous is None else dot(small.previous, small.previous)
    numbers = [*small.A, *small.B, *(s * s for s in small.samples), *small.P, uu, vv or 0]
    shares = split(numbers, widths.R, seed)
    modulus = 1 << widths.R
    opened = [(s + given.kgc[0].share[slot]) % modulus for s, slot in zip(small.samples, small.slots, strict=True)]
    mask = given.kgc[1].total_mask
    total = None if mask is None else (sum(small.samples) + mask.share[0]) % modulus
    sp, csp = (
        _scores(own, server, small, opened, total) for own, server in zip(shares, (given.sp, given.csp), strict=True)
    )
    return sp, csp


def _scores(
    own: list[int], server: tuple[Dealt, rules.DealtRewards], small: SmallRound, opened: list[int], total: int | None
) -> RoundScores:
    n, has_last = len(small.lanes), small.previous is not None
    masks, dealt = server
    return RoundScores(
        places=small.slots,
        kept=small.kept,
        A=own[:n],
        B=own[n : 2 * n],
        UU=own[-2],
        samples=Masked(opened, [masks.share[slot] for slot in small.slots]),
        squares=own[2 * n : 3 * n],
        total=None if total is None or dealt.total_mask is None else Masked([total], list(dealt.total_mask.share)),
        P=own[3 * n : 4 * n] if has_last else [],
        VV=own[-1] if has_last else None,
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
    first, second, transcript = run(
        lambda divider: rules.rewards(divider, widths, given.sp[1], sp, budget),
        lambda divider: rules.rewards(divider, widths, given.csp[1], csp, budget),
        seed,
    )
    return joined(first, second, 128), transcript


def weighed(widths: RuleWidths, small: SmallRound, seed: int = 1) -> list[int]:
    given = scripted(widths, seed)
    sp, csp = scores_of(given, widths, small, seed)
    first, second, _ = run(
        lambda divider: rules.weights(divider, widths, given.sp[1], sp),
        lambda divider: rules.weights(divider, widths, given.csp[1], csp),
        seed,
    )
    return joined(first, second, widths.weight_bits)


def plain_weights(widths: RuleWidths, small: SmallRound) -> list[Fraction]:
    """The rule in the clear, with exact arithmetic."""
    rule = _RULES[widths.rule]
    return [rule(widths, small, i) for i in range(len(small.lanes))]


def _gate(widths: RuleWidths, small: SmallRound, i: int) -> Fraction:
    del widths
    others = [whole - own for whole, own in zip(small.total, small.lanes[i], strict=True)]
    t, a = dot(small.lanes[i], others), small.A[i]
    fits = t > 0 and small.kept * t**2 > 4 * a * dot(others, others)
    if small.previous is not None:
        fits = fits and 4 * small.P[i] ** 2 <= 3 * a * dot(small.previous, small.previous)
    return Fraction(small.samples[i] * fits)


def _agreement(widths: RuleWidths, small: SmallRound, i: int) -> Fraction:
    del widths
    return Fraction(max(0, small.B[i] - small.A[i]))


def _distance(widths: RuleWidths, small: SmallRound, i: int) -> Fraction:
    y, s = sum(small.samples), small.samples[i]
    apart = [y * own - s * whole for own, whole in zip(small.lanes[i], small.total, strict=True)]
    return Fraction(s**3, dot(apart, apart) + widths.epsilon(small.kept) * (y * s) ** 2 + 1)


_RULES = {"gate": _gate, "agreement": _agreement, "distance": _distance}


def plain_rewards(weights: Sequence[Fraction], budget: int) -> list[Fraction]:
    total = sum(weights, Fraction(0))
    numerator = max(0, budget - len(weights))
    return [numerator * weight / total if total else Fraction(0) for weight in weights]
