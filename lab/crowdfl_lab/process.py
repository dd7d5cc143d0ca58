"""What the system says of processes: memory and processor time of this one, or of another and its children.

The kernel's high-water mark of a program is read (VmHWM), not getrusage's: on Linux, ru_maxrss survives exec, so a child of a
large parent would start with the parent's peak and appear to need nothing.
"""

import os
import resource
import sys
from pathlib import Path


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
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
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
