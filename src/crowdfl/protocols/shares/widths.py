"""Every width of a task of this profile, from its settings: the ring of the uploads, the sketch, the bounds of a lane.

Whole numbers and fractions throughout, so that every party computes the same ones on every machine: roots are rounded up, a
chance is a weight out of the sum of all weights, and floats are only printed. Logarithms and powers of floats differ between
machines in their last digit. docs/width-budget.md has the proofs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import Self

from crowdfl.crypto.encoding import FixedPoint
from crowdfl.crypto.shares.sketch import load_bound
from crowdfl.errors import SettingsError, WidthBudgetExceeded
from crowdfl.settings import DELTA, LEAST_LANES, TaskSettings

BLOCK = 64  # lanes that are used or left out together
SAMPLE_BITS = 128  # of the ring that sample counts are shared in
_CHEAT = Fraction(1, 2**40)  # of an upload that wraps around and passes
_WIDEST, _NARROWEST_SCALARS, _SLACK = 64, 136, 44
_MUCH_TOO_WIDE = 512
_MOST_ROWS = 64  # that are tried
_MOST_DROPPED = Fraction(1, 100)
_MOST_FALSE = Fraction(1, 10**6)  # of rejecting one honest upload
_MOST_LANES = 1 << 16
_TAU_STEPS = 1 << 20  # tau is a whole number of these parts, so that it is the same everywhere


@dataclass(frozen=True)
class SharesWidths:
    """A task's bounds and what follows from them. Without checks there is no sketch: `lanes` and all about it is 0.

    `k` and `R` are the bits of the rings of uploads and of scalars. A lane of an upload lies in [-lane_bound, lane_bound].
    """

    parameters: int
    participants: int  # in the sum
    cohort: int  # of them, who are checked together
    max_samples: int  # that an upload is multiplied by: 1 where everyone counts once
    unit: int  # 10^L
    entry_bound: int  # of one weight of an update
    norm_bound: int  # of an update's length, per sample, in units, rounding included
    has_counts: bool  # numbers of samples, which are shared and checked too
    has_norm_bound: bool
    has_sums: bool  # products of lanes with their sum, which the rule `distance` needs
    has_reference: bool  # an upload of the requester's, which the others are compared with
    k: int
    rows: int
    buckets: int
    load: int
    lane_bound: int
    noise_bound: int = 0  # of the noise that both servers add to an entry of a sum
    most_false: Fraction = _MOST_FALSE  # of rejecting one honest upload

    @classmethod
    def of(cls, settings: TaskSettings, parameters: int) -> Self:
        """The widths of a task, or its refusal with the numbers and with what to change."""
        _require_computable(settings)
        checked, has_counts = settings.check == "bounds", settings.weighting == "samples"
        entry_bound = FixedPoint(settings.decimals, float(settings.clip)).bound
        norm_bound = _norm_bound(settings, parameters)
        bare = cls(
            parameters=parameters,
            participants=settings.most_in_round,
            cohort=-(-settings.most_in_round // settings.most_cohorts),
            max_samples=settings.max_samples if has_counts else 1,
            unit=10**settings.decimals,
            entry_bound=entry_bound if has_counts else min(entry_bound, norm_bound),
            norm_bound=norm_bound,
            has_counts=has_counts,
            has_norm_bound=settings.max_norm is not None and checked,
            has_sums=settings.budget is not None and pay_of(settings) == "distance",
            has_reference=settings.reference,
            k=8,
            rows=0,
            buckets=0,
            load=0,
            lane_bound=0,
            noise_bound=0 if settings.sigma is None else _noise_bound(settings.sigma, parameters, settings.rounds),
            most_false=_most_false(settings),
        )
        return bare._sketched(int(settings.lanes or 0)) if checked else bare._as_wide_as_sums()

    @cached_property
    def lanes(self) -> int:
        return self.rows * self.buckets

    @cached_property
    def slots(self) -> int:
        """Uploads whose lanes are opened; the last one is the reference, in a task that has one."""
        return self.cohort + self.has_reference

    @cached_property
    def is_checked(self) -> bool:
        return self.rows > 0

    @cached_property
    def blocks(self) -> list[tuple[int, int]]:
        """First lane and end of each block; none holds lanes of two rows."""
        starts = ((row * self.buckets, (row + 1) * self.buckets) for row in range(self.rows))
        return [(first, min(first + BLOCK, end)) for start, end in starts for first in range(start, end, BLOCK)]

    @cached_property
    def drop_chance(self) -> Fraction:
        """Of one block, in one round: some lane of someone cannot be used."""
        return Fraction(BLOCK * 2 * self.slots * self.lane_bound, 1 << self.k)

    @cached_property
    def max_dropped_blocks(self) -> int:
        """More than these are no chance (2^-40): a server has made them unusable."""
        return most(len(self.blocks), min(self.drop_chance, Fraction(1)), _CHEAT)

    @cached_property
    def R(self) -> int:  # noqa: N802 -- as in docs/width-budget.md
        needed = 2 * self.k + self.lanes.bit_length() + _SLACK
        return max(_NARROWEST_SCALARS, -(-needed // 8) * 8)

    @cached_property
    def tau(self) -> Fraction:
        """How far above the bound a sketched square may be: max(1/2, 6 sqrt(2/lanes))."""
        if not self.is_checked:
            return Fraction(1, 2)
        return max(Fraction(1, 2), Fraction(_root_up(72 * _TAU_STEPS**2 // self.lanes + 1), _TAU_STEPS))

    @cached_property
    def K(self) -> int:  # noqa: N802
        """Largest square of an update's length, per sample squared, that is accepted; in units squared."""
        return math.ceil((1 + self.tau) * self.norm_bound**2)

    @cached_property
    def sum_bound(self) -> int:
        """Largest entry of the sum of all accepted uploads: a cheater's may hold all of its length in one entry, and
        pass with more than 2^-40 as long as its square is below `rows` times what the check allows."""
        one = max(self.entry_bound, _root_up(self.rows * self.K)) if self.is_checked else self.entry_bound
        return self.participants * self.max_samples * one + self.noise_bound

    @cached_property
    def wrap_chance(self) -> Fraction:
        """Of an upload that wraps around in the ring, so that its lanes look small, to be accepted."""
        return self._missed**self.rows

    @cached_property
    def twice_chance(self) -> float:
        """Estimate for an upload of exactly twice the norm bound to be accepted: all in one entry, or spread out."""
        hidden = 1 - (1 + self.tau) / 4  # share of its square that must not show
        missed = min(self._missed, Fraction(1))
        weights = islice(binomial_weights(self.rows, missed), max(0, math.ceil(self.rows * hidden)), None)
        return max(float(Fraction(sum(weights), missed.denominator**self.rows)), self._off_by(hidden))

    @cached_property
    def false_rejection(self) -> float:
        """Estimate for an honest upload at the norm bound, of its worst shapes: two or three equal entries, or very many."""
        return max(self._off_by(self.tau), float(self.sparse_rejection)) if self.is_checked else 0.0

    @cached_property
    def sparse_rejection(self) -> Fraction:
        """The same of two or three equal entries, over all numbers of blocks that are left out. Only this decides on widths:
        as `tau` is six standard deviations or more, an even update is rejected once in 10^9 at most."""
        return max(self._rejection(entries) for entries in (2, 3))

    @cached_property
    def _missed(self) -> Fraction:
        """Chance that one row does not show one large entry: another cancels it, or its block is left out."""
        return Fraction(1, self.buckets) + self.drop_chance if self.is_checked else Fraction(1)

    def _off_by(self, share: Fraction) -> float:
        """Chance that the sketched square of an even update is off by this share of it, to one side."""
        return math.erfc(float(share) * math.sqrt(self.lanes) / 2) / 2  # its variance is 2 / lanes

    def explain(self) -> str:
        lines = [
            f"one upload     {self.max_samples:,} samples * {self.entry_bound:,} in each of {self.parameters:,} entries"
            if self.has_counts
            else f"one upload     counts once: {self.entry_bound:,} in each of {self.parameters:,} entries",
            f"sum of uploads {self.participants:,} participants: {self.sum_bound:,}, in a ring of {self.k} bits",
        ]
        if not self.is_checked:
            return "\n".join([*lines, "checks         none: one upload out of bounds spoils the average"])
        norm = "length         no norm bound: `max_norm` is not set"
        if self.has_norm_bound and self.has_counts:
            norm = f"length         at most {self.norm_bound:,} units a sample"
        elif self.has_norm_bound:
            norm = f"length         at most {self.norm_bound:,} units"
        return "\n".join([*lines, norm, *self._sketch_lines()])

    def _sketch_lines(self) -> list[str]:
        return [
            f"sketch         {self.rows} rows of {self.buckets} buckets, at most {self.load} entries a bucket",
            f"lanes          up to {self.lane_bound:,}",
            f"scalars        {self.R} bits",
            f"left out       a block of {BLOCK} lanes with chance {float(self.drop_chance):.2g}, "
            f"at most {self.max_dropped_blocks} of {len(self.blocks)} blocks",
            f"accepted       up to {float(1 + self.tau):.3g} times the squared bound; twice the bound with chance "
            f"{power_of_two(self.twice_chance)}, wrapped around with chance {power_of_two(float(self.wrap_chance))}",
            f"honest uploads rejected with chance {self.false_rejection:.1g}",
        ]

    def _as_wide_as_sums(self) -> Self:
        needed = (2 * self.sum_bound).bit_length()
        return replace(self, k=-(-needed // 8) * 8)._narrow_enough()

    def _sketched(self, lanes: int) -> Self:
        """The narrowest ring that some number of rows fits, and the fewest rows for it."""
        least = [self._shaped(rows, lanes, -(-self.parameters // (lanes // rows))) for rows in _row_counts(lanes)]
        for k in range(8, _MUCH_TOO_WIDE, 8):
            for even in least:  # as if every bucket held as many entries: what does not fit then, fits no sketch
                shape = self._shaped(even.rows, lanes) if replace(even, k=k)._fits() else even
                if replace(shape, k=k)._fits():
                    return replace(shape, k=k)._narrow_enough()
        raise WidthBudgetExceeded(f"the sum of all uploads reaches {self.sum_bound}: {self._remedy()}")

    def _narrow_enough(self) -> Self:
        if self.k > _WIDEST:
            raise WidthBudgetExceeded(
                f"an entry of an upload would need {self.k} bits, and {_WIDEST} is the most. The sum of all uploads reaches "
                f"{self.sum_bound}, a lane {self.lane_bound}, and lanes must rarely wrap around: {self._remedy()}"
            )
        return self

    def _remedy(self) -> str:
        others = "lower max_participants, clip or decimals"
        if self.has_counts:
            others = "lower max_participants, max_samples, clip or decimals"
        if not self.is_checked:
            return others
        if self.has_norm_bound:
            return f"lower max_norm (about the largest norm of a trial), or {others}"
        return f"set max_norm (about the largest norm of a trial), or {others}"

    def _shaped(self, rows: int, lanes: int, load: int | None = None) -> Self:
        buckets = lanes // rows
        load = load_bound(self.parameters, buckets, rows) if load is None else load
        bound = _root_up(load * (self.max_samples * self.norm_bound) ** 2)
        return replace(self, rows=rows, buckets=buckets, load=load, lane_bound=bound)

    def _fits(self) -> bool:
        wide = 2 * self.sum_bound < 2**self.k and self.drop_chance <= _MOST_DROPPED
        return wide and self.wrap_chance <= _CHEAT and self.sparse_rejection <= self.most_false

    def _rejection(self, entries: int) -> Fraction:
        """Of an upload of so many equal entries."""
        count = len(self.blocks)
        drop = min(self.drop_chance, Fraction(1))
        excess = sparse_rows(entries, self.buckets, self.rows)
        weights = islice(binomial_weights(count, drop), self.max_dropped_blocks + 1)
        rejected = sum(
            weight * self._above(excess, Fraction(count - dropped, count)) for dropped, weight in enumerate(weights)
        )
        return Fraction(rejected, drop.denominator**count * sum(excess.values()))

    def _above(self, sixths: Mapping[int, int], kept: Fraction) -> int:
        limit = 6 * self.rows * ((1 + self.tau) * kept - 1)
        return sum(weight for excess, weight in sixths.items() if excess > limit)


OPEN_PAY = ("equal", "fixed")  # everyone's follows from CSP's record: nothing is computed for it, and nothing hidden


def pay_of(settings: TaskSettings) -> str:
    return settings.pay or "equal"


def _noise_bound(sigma: int, parameters: int, rounds: int) -> int:
    """Beyond this no entry's noise lies, of either server in any round, but with a chance below 2^-40.

    A sample is beyond m with a chance of at most 2 exp(-m^2 / (2 sigma^2)), and ln(n) is below 7/10 of the bits of n.
    """
    bits = (4 * parameters * rounds).bit_length() + 40
    return 2 * _root_up(-(-2 * sigma * sigma * 7 * bits // 10))


def _most_false(settings: TaskSettings) -> Fraction:
    """With noise, a rejection that depends on the update is a part of delta: all rounds together use a tenth of it."""
    if settings.epsilon is None:
        return _MOST_FALSE
    return min(_MOST_FALSE, Fraction(settings.delta or DELTA) / (10 * settings.rounds))


def _require_computable(settings: TaskSettings) -> None:
    for refused, reason in _refusals(settings):
        if refused:
            raise SettingsError(f"the profile `shares`: {reason}")


def _refusals(settings: TaskSettings) -> Iterator[tuple[bool, str]]:
    unchecked = settings.check == "none"
    paid = settings.budget is not None and pay_of(settings) != "none"
    yield (
        settings.total == "hidden",
        'total = "hidden" is not possible, readers need it: set "shown", or take `hardened`',
    )
    yield settings.lanes is None, "exact distances are not possible: set `lanes` to a number, such as 1024"
    yield (
        settings.lanes == 0 and not unchecked,
        'without lanes no upload can be checked: set `lanes`, or check = "none"',
    )
    yield unchecked and paid, 'check = "none" pays nobody: leave `budget` out, or set check = "bounds"'
    equal = settings.weighting == "equal"
    yield (
        equal and settings.max_norm is None,
        'weighting = "equal" needs `max_norm`, which bounds what one person can do: set what `--try DATA` suggests',
    )
    yield (
        equal and pay_of(settings) in {"samples", "distance"},
        f'pay = "{settings.pay}" rests on numbers of samples, and with weighting = "equal" none leaves a device: '
        'set pay = "fixed" or "equal", or weighting = "samples"',
    )
    yield (
        settings.most_cohorts > 1 and paid and pay_of(settings) not in OPEN_PAY,
        f'pay = "{settings.pay}" pays rounds of at most `cohort` people, which is {settings.cohort}, and a round of this task '
        f'has up to {settings.most_in_round}: set pay = "fixed" or "equal", or fewer in a round',
    )
    noisy = settings.epsilon is not None
    yield (
        noisy and paid and pay_of(settings) not in OPEN_PAY,
        f'pay = "{settings.pay}" shows more than `epsilon` allows: set "fixed" or "equal"',
    )
    yield (
        noisy and not unchecked and (settings.lanes or 0) < LEAST_LANES,
        f"with `epsilon` a check needs at least {LEAST_LANES} `lanes`, or honest uploads would be rejected too often",
    )
    yield (settings.lanes or 0) > _MOST_LANES, f"`lanes` is {settings.lanes}; expected at most {_MOST_LANES}"


def _norm_bound(settings: TaskSettings, parameters: int) -> int:
    """unit * norm + sqrt(D)/2, rounded up; no update is longer than clip * sqrt(D), whatever `max_norm` says.

    Where everyone counts once, devices bound the length of their integers, and nothing is added.
    """
    unit = 10**settings.decimals
    longest = _root_up(math.ceil((Fraction(settings.clip) * unit) ** 2 * parameters))
    given = settings.max_norm
    if settings.weighting == "equal":
        return min(longest + -(-_root_up(parameters) // 2), settings.length_units)
    norm = longest if given is None else min(longest, math.ceil(Fraction(given) * unit))
    return norm + -(-_root_up(parameters) // 2)


def _row_counts(lanes: int) -> Sequence[int]:
    """Numbers of rows that are worth a look: with none of them may an upload that cancels in every row pass."""
    hiding = (rows for rows in range(1, lanes // 2 + 1) if (lanes // rows) ** rows >= _CHEAT.denominator)
    counts = list(islice(hiding, _MOST_ROWS))
    if not counts:
        raise WidthBudgetExceeded(
            f"with {lanes} lanes, uploads that wrap around would pass more often than once in 2^40: set `lanes` to 128 or more"
        )
    return counts


def _root_up(square: int) -> int:
    return math.isqrt(square - 1) + 1 if square > 0 else 0


# ---- chances --------------------------------------------------------------------------------------------------------


def binomial_weights(count: int, chance: Fraction) -> Iterator[int]:
    """Of 0, 1, 2 ... hits among `count`, each out of `chance.denominator ** count`."""
    hit = chance.numerator
    miss = chance.denominator - chance.numerator
    if miss == 0:
        yield from chain((0 for _ in range(count)), [hit**count])
        return
    weight = miss**count
    for hits in range(count + 1):
        yield weight
        weight = weight * (count - hits) * hit // ((hits + 1) * miss)  # without a remainder


def most(count: int, chance: Fraction, allowed: Fraction) -> int:
    """Smallest m such that more than m hits have no more than the chance allowed."""
    whole = chance.denominator**count
    more = whole
    for hits, weight in enumerate(binomial_weights(count, chance)):
        more -= weight
        if more * allowed.denominator <= whole * allowed.numerator:
            return hits
    return count


def pair(buckets: int) -> dict[int, int]:
    """Two equal entries in one row: how far the row's square is above theirs, in sixths of it, by weight."""
    return {-6: 1, 0: 2 * buckets - 2, 6: 1}


def triple(buckets: int) -> dict[int, int]:
    three = 4
    two = 12 * (buckets - 1)
    return {-4: two // 2 + 3, 0: 4 * buckets**2 - two - three, 4: two // 2, 12: 1}


def added(first: Mapping[int, int], second: Mapping[int, int]) -> dict[int, int]:
    total: dict[int, int] = {}
    for a, weight in first.items():
        for b, other in second.items():
            total[a + b] = total.get(a + b, 0) + weight * other
    return total


@lru_cache(maxsize=128)
def sparse_rows(entries: int, buckets: int, rows: int) -> Mapping[int, int]:
    """The same of two or three equal entries in so many rows together."""
    if rows == 0:
        return {0: 1}
    return added(sparse_rows(entries, buckets, rows - 1), {2: pair, 3: triple}[entries](buckets))


def power_of_two(chance: float) -> str:
    """A chance as people read it."""
    return f"2^{math.log2(chance):.0f}" if chance > 0 else "0"
