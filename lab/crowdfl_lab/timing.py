"""What the system says of processes: memory and processor time of this one, or of another and its children.

The kernel's high-water mark of a program is read (VmHWM), not getrusage's: on Linux, ru_maxrss survives exec, so a child of a
large parent would start with the parent's peak and appear to need nothing.

Timing on a noisy machine: variants take turns, so that a disturbance falls on all of them alike; and what other programs used
of the processors meanwhile is measured, for processor seconds too are longer on a busy machine.
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
from typing import ClassVar, TypeVar

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
    """Seconds of each repetition, on the clock that was asked for (the wall's, unless told) and of all processors."""

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


Clock = Callable[[], float]


def timed(action: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    return timed_call(action, clock)[0]


def timed_call(action: Callable[[], _T], clock: Clock = time.perf_counter) -> tuple[float, _T]:
    start = clock()
    result = action()
    return clock() - start, result


@dataclass(frozen=True)
class Disturbance:
    """Over some seconds, the processor seconds that went to other programs; None where the system does not say."""

    seconds: float
    others: float | None

    QUIET: ClassVar[float] = 0.25
    """What others may use of one core, in the mean, while times are taken that are published."""

    @property
    def cores(self) -> float | None:
        return None if self.others is None else self.others / max(self.seconds, 1e-9)

    @property
    def quiet(self) -> bool:
        """Where nobody knows, it is not."""
        return self.cores is not None and self.cores <= self.QUIET

    def __add__(self, other: "Disturbance") -> "Disturbance":
        both = None if self.others is None or other.others is None else self.others + other.others
        return Disturbance(self.seconds + other.seconds, both)


def disturbed_call(action: Callable[[], _T]) -> tuple[Disturbance, _T]:
    """What the system counted as busy meanwhile, less what this program used."""
    before, own = busy_seconds(), time.process_time()
    seconds, result = timed_call(action)
    after, own = busy_seconds(), time.process_time() - own
    others = None if before is None or after is None else max(0.0, after - before - own)
    return Disturbance(seconds, others), result


def busy_seconds() -> float | None:
    """Of all processors since the machine started, by Linux's account; time that a host took away counts."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    counts = stat.read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _idle, _waiting, irq, soft, stolen, *_ = map(int, counts)
    return (user + nice + system + irq + soft + stolen) / os.sysconf("SC_CLK_TCK")


def turns(
    variants: Mapping[_Name, Callable[[], object]], repetitions: int, clock: Clock = time.perf_counter
) -> dict[_Name, Timing]:
    """Time the variants A B C A B C ..., `repetitions` times each."""
    taken: dict[_Name, list[tuple[float, float]]] = {name: [] for name in variants}
    for _ in range(repetitions):
        for name, action in variants.items():
            busy = time.process_time()
            taken[name].append((timed(action, clock), time.process_time() - busy))
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
