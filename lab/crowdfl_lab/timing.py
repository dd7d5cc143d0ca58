"""What the system says of processes: memory and processor time of this one, or of another and its children.

The kernel's high-water mark of a program is read (VmHWM), not getrusage's: on Linux, ru_maxrss survives exec, so a child of a
large parent would start with the parent's peak and appear to need nothing.

Timing on a noisy machine: variants take turns, so that a disturbance falls on all of them alike.
"""

import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import gmpy2


def current_bytes() -> int:
    """Resident memory of this program now; where the system does not say, the peak so far."""
    return _status_bytes("VmRSS") or peak_bytes()


def peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return _status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def family_bytes(name: str, pid: int) -> int:
    """Of a process and its children together, under one of Linux's names: VmRSS, VmHWM."""
    return _status_bytes(name, pid) + sum(family_bytes(name, child) for child in _children(pid))


def processor_seconds(pid: int) -> float:
    """User and system time of a process and its children, by Linux's accounts."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:  # one of its children that has just ended
        return 0.0
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(processor_seconds, _children(pid)))


def _status_bytes(name: str, pid: int | str = "self") -> int:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    line = next(line for line in status.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # each under the thread that started it
    return [int(child) for listed in lists for child in listed.read_text().split()]


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
