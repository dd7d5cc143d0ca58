"""Timing on a noisy machine: variants take turns, so that a disturbance falls on all of them alike."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import gmpy2

__all__ = ["Timing", "machine", "timed", "turns"]


@dataclass(frozen=True)
class Timing:
    """Seconds of each repetition."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one: for figures that are shown."""
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> float:
        """The least disturbed one: for ratios a few percent wide, since noise only ever adds."""
        return min(self.seconds)

    def __str__(self) -> str:
        return f"median of {len(self.seconds)}, least {self.minimum:.3g} s"


def timed(action: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def turns(variants: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, Timing]:
    """Time the variants A B C A B C ..., `repetitions` times each."""
    rounds = [{name: timed(action) for name, action in variants.items()} for _ in range(repetitions)]
    return {name: Timing(tuple(seconds[name] for seconds in rounds)) for name in variants}


def machine() -> dict[str, str | int]:
    """Where a run takes place; to be asked first, so that the load is what others cause."""
    return {
        "cores": os.cpu_count() or 1,
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "gmpy2": gmpy2.version(),
        "gmp": gmpy2.mp_version(),
        "load_before": f"{os.getloadavg()[0]:.2f}",
    }
