"""Timing on a noisy machine: variants take turns, so that a disturbance falls on all of them alike."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import gmpy2

_T = TypeVar("_T")
_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True)
class Timing:
    """Seconds of each repetition, on the wall clock and of all processors."""

    seconds: tuple[float, ...]
    cpu: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> float:
        """The least disturbed one: for ratios a few percent wide, since noise only ever adds."""
        return min(self.seconds)

    def __str__(self) -> str:
        return f"median of {len(self.seconds)}, least {self.minimum:.3g} s"


def timed(action: Callable[[], object]) -> float:
    return timed_call(action)[0]


def timed_call(action: Callable[[], _T]) -> tuple[float, _T]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def turns(variants: Mapping[_Name, Callable[[], object]], repetitions: int) -> dict[_Name, Timing]:
    """Time the variants A B C A B C ..., `repetitions` times each."""
    taken: dict[_Name, list[tuple[float, float]]] = {name: [] for name in variants}
    for _ in range(repetitions):
        for name, action in variants.items():
            busy = time.process_time()
            taken[name].append((timed(action), time.process_time() - busy))
    return {name: Timing(*map(tuple, zip(*took, strict=True))) for name, took in taken.items()}


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
