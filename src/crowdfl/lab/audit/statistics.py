"""Two-sample tests in NumPy alone: are these two sets of numbers from one distribution?"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import erfc, exp, sqrt

import numpy as np
import numpy.typing as npt

__all__ = ["Outcome", "chi_square", "compare", "kolmogorov_smirnov"]

_Floats = npt.NDArray[np.float64]
_BINS = 16


@dataclass(frozen=True)
class Outcome:
    """The least likely of many tests, corrected for their number (Bonferroni)."""

    tests: int
    name: str
    p_value: float

    @property
    def corrected(self) -> float:
        """What to compare with a level."""
        return min(1.0, self.tests * self.p_value)


def kolmogorov_smirnov(a: _Floats, b: _Floats, *, allowed: float = 0.0) -> float:
    """p-value of the largest gap between the distribution functions; a gap up to `allowed` counts for nothing."""
    a, b = np.sort(a), np.sort(b)
    both = np.concatenate([a, b])
    gap = np.abs(np.searchsorted(a, both, "right") / len(a) - np.searchsorted(b, both, "right") / len(b)).max()
    effective = sqrt(len(a) * len(b) / (len(a) + len(b)))
    x = max(0.0, float(gap) - allowed) * effective
    if x < 0.2:  # the series below converges slowly there, and the answer is one
        return 1.0
    tail = sum((1.0 if k % 2 else -1.0) * exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, 2 * tail))


def chi_square(a: _Floats, b: _Floats) -> float:
    """p-value of equal frequencies in up to 16 bins of [0, 1), by Wilson and Hilferty's normal approximation."""
    bins = max(4, min(_BINS, (len(a) + len(b)) // 20))  # ten to a bin and sample, or the approximation is none
    counts = np.array([np.histogram(sample % 1.0, bins=bins, range=(0.0, 1.0))[0] for sample in (a, b)], dtype=float)
    counts = counts[:, counts.sum(axis=0) > 0]
    freedom = counts.shape[1] - 1
    if freedom < 1:
        return 1.0
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return erfc(((statistic / freedom) ** (1 / 3) - (1 - spread)) / sqrt(2 * spread)) / 2


def compare(
    first: Mapping[str, _Floats], second: Mapping[str, _Floats], allowed: Mapping[str, float] | None = None
) -> Outcome:
    """Every series that both views have, by both tests; `allowed` names the gaps that a bound concedes."""
    results: dict[str, float] = {}
    for name in sorted(first.keys() & second.keys()):
        a, b, gap = first[name], second[name], (allowed or {}).get(name, 0.0)
        results[f"{name}, KS"] = kolmogorov_smirnov(a, b, allowed=gap)
        if not gap:
            results[f"{name}, chi-square"] = chi_square(a, b)
    name = min(results, key=lambda key: results[key])
    return Outcome(len(results), name, results[name])
