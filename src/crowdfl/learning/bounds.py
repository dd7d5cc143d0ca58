"""A bound for updates, from how long some were."""

import math
from collections.abc import Iterable


def suggested_bound(lengths: Iterable[float]) -> float | None:
    """A `max_norm` for updates of these lengths: the largest, rounded up to two digits; a device scales a longer one down.

    None where training changed nothing, or did not stay finite.
    """
    largest = max(lengths, default=0.0)
    return rounded_up(largest) if 0 < largest < math.inf else None


def rounded_up(value: float) -> float:
    """To two digits, as a bound is suggested; the value is above zero and finite."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step) * step:.3g}")
