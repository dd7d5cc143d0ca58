"""Chances that the widths of a task rest on: binomial tails, and few large entries that meet in one bucket of a sketch."""

import math
from collections.abc import Iterator


def binomial(count: int, hits: int, chance: float) -> float:
    if not 0.0 < chance < 1.0:
        return float(hits == (count if chance else 0))
    logarithm = math.lgamma(count + 1) - math.lgamma(hits + 1) - math.lgamma(count - hits + 1)
    return math.exp(logarithm + hits * math.log(chance) + (count - hits) * math.log1p(-chance))


def most(count: int, chance: float, allowed: float) -> int:
    """Smallest m such that more than m hits have no more than the chance allowed."""
    tail, hits = 0.0, count
    while hits > 0 and tail + binomial(count, hits, chance) <= allowed:
        tail += binomial(count, hits, chance)
        hits -= 1
    return hits


def pair(buckets: int) -> dict[int, float]:
    """Two equal entries in one row: how far the row's square is above theirs, in sixths of it."""
    return {-6: 0.5 / buckets, 0: 1 - 1 / buckets, 6: 0.5 / buckets}


def triple(buckets: int) -> dict[int, float]:
    three, two = 1 / buckets**2, 3 / buckets * (1 - 1 / buckets)
    return {-4: two / 2 + 0.75 * three, 0: 1 - two - three, 4: two / 2, 12: 0.25 * three}


def added(first: dict[int, float], second: dict[int, float]) -> dict[int, float]:
    total: dict[int, float] = {}
    for key, chance in _pairs(first, second):
        total[key] = total.get(key, 0.0) + chance
    return total


def _pairs(first: dict[int, float], second: dict[int, float]) -> Iterator[tuple[int, float]]:
    return ((a + b, first[a] * second[b]) for a in first for b in second)


def power_of_two(chance: float) -> str:
    return f"2^{math.log2(chance):.0f}" if chance > 0 else "0"
