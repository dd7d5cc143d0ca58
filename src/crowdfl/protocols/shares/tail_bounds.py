"""Chances that the widths of a task rest on: binomial tails, and few large entries that meet in one bucket of a sketch.

Whole numbers throughout: a chance is a weight out of the sum of all weights. Logarithms and powers of floats differ between
machines in their last digit, and two parties must never find two widths.
"""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import chain


def binomial_weights(count: int, chance: Fraction) -> Iterator[int]:
    """Of 0, 1, 2 ... hits among `count`, each out of `chance.denominator ** count`."""
    hit, miss = chance.numerator, chance.denominator - chance.numerator
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
    three, two = 4, 12 * (buckets - 1)
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
