"""What `crowdfl doctor` checks on this machine."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from crowdfl.cli.doctor.check import DoctorCheck, fail, ok, warn
from crowdfl.errors import LearningError
from crowdfl.storage.atomic import write_private

_GIB = 2**30


# package: what is missing without it, and how to get it
_OPTIONAL = {
    "torch": (
        "convolutions, and modules and losses in torch, cannot be trained here",
        "pip install 'crowdfl[learning]'",
    ),
    "fastapi": ("no service can run here", "pip install 'crowdfl[services]'"),
    "matplotlib": ("the demo's report has no plots", "pip install 'crowdfl[plots]'"),
}


def machine_checks(folder: Path) -> Iterator[DoctorCheck]:
    import gmpy2

    yield ok("Python", sys.version.split()[0])  # no older one could load this module
    yield ok("gmpy2", f"{gmpy2.version()}, {gmpy2.mp_version()}")
    yield ok("cryptography", metadata.version("cryptography"))
    for package, (loss, advice) in _OPTIONAL.items():
        yield _package(package, loss, advice)
    yield _watch_data()
    yield _threads()
    yield _entropy()
    yield space(folder)
    yield _sync(folder)


def _package(name: str, loss: str, advice: str) -> DoctorCheck:
    try:
        return ok(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return warn(name, f"not installed: {loss}", advice)


def _watch_data() -> DoctorCheck:
    from crowdfl.learning.datasets import supplied as watch

    try:
        watch.read_checked()
        return ok("watch data", str(watch.FILE))
    except LearningError as error:
        return warn("watch data", "not usable: the demo and watch:N cannot run", str(error))


def _threads() -> DoctorCheck:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = f"{cores} cores for this process; OMP_NUM_THREADS is {os.environ.get('OMP_NUM_THREADS', 'not set')}"
    if cores < 2:
        return warn("threads", found, "one core is enough, but slow")
    return ok("threads", found)


def _entropy() -> DoctorCheck:
    try:
        if hasattr(os, "getrandom"):
            os.getrandom(32, os.GRND_NONBLOCK)
        else:
            os.urandom(32)
    except (BlockingIOError, NotImplementedError):
        return fail("entropy", "the system's generator is not ready", "wait until the machine has gathered entropy")
    return ok("entropy", "the system's generator answers")


def space(folder: Path, otherwise: str = "name an existing folder with --folder") -> DoctorCheck:
    """Of the disk with this folder: bytes, and names for files."""
    try:
        free, names = shutil.disk_usage(folder).free, os.statvfs(folder)
    except OSError as problem:
        return fail("disk", f"{folder}: {problem.strerror}", otherwise)
    found = f"{free / _GIB:.1f} GiB free"
    if names.f_files and not names.f_favail:
        return fail("disk", f"{found}, and no name is left for a file", "delete files: uploads are refused")
    if free < _GIB // 10:
        return fail("disk", found, "free some space: uploads are refused when the disk is full")
    return warn("disk", found, "free some space: a round keeps every upload") if free < _GIB else ok("disk", found)


def _sync(folder: Path) -> DoctorCheck:
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".crowdfl-doctor-") as place:
            started = time.monotonic()
            write_private(Path(place) / "probe", b"probe")
            took = time.monotonic() - started
    except OSError as problem:
        return fail("fsync", f"{folder}: {problem.strerror}", "state needs a folder that can be written and synced")
    return ok("fsync", f"a durable file takes {took * 1000:.1f} ms")
