"""What `crowdfl doctor` looks at on any machine: interpreter, packages, cores, entropy, disk."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from crowdfl.cli.doctor.finding import Finding, fail, ok, warn
from crowdfl.errors import LearningError
from crowdfl.storage.atomic import write_private

__all__ = ["machine_checks"]

_OLDEST = (3, 11)
_GIB = 2**30
# package: what is missing without it, and how to get it
_OPTIONAL = {
    "torch": ("tasks with a network cannot be trained here", "pip install 'crowdfl[learning]'"),
    "fastapi": ("no service can run here", "pip install 'crowdfl[services]'"),
    "matplotlib": ("the demo's report has no plots", "pip install 'crowdfl[plots]'"),
}


def machine_checks(folder: Path) -> Iterator[Finding]:
    """Everything that needs no settings."""
    yield _python()
    yield _gmp()
    yield ok("cryptography", metadata.version("cryptography"))
    for package, (loss, advice) in _OPTIONAL.items():
        yield _package(package, loss, advice)
    yield _watch_data()
    yield _threads()
    yield _entropy()
    yield _space(folder)
    yield _sync(folder)


def _python() -> Finding:
    version = sys.version.split()[0]
    if sys.version_info < _OLDEST:
        return fail("Python", version, f"install Python {_OLDEST[0]}.{_OLDEST[1]} or later")
    return ok("Python", version)


def _gmp() -> Finding:
    import gmpy2

    return ok("gmpy2", f"{gmpy2.version()}, {gmpy2.mp_version()}")


def _package(name: str, loss: str, advice: str) -> Finding:
    try:
        return ok(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return warn(name, f"not installed: {loss}", advice)


def _watch_data() -> Finding:
    from crowdfl.learning.datasets import watch_data as watch

    try:
        watch.read_checked()
        return ok("watch data", str(watch.FILE))
    except LearningError as error:
        return warn("watch data", "not usable: the demo and watch:N cannot run", str(error))


def _threads() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = f"{cores} cores for this process; OMP_NUM_THREADS is {os.environ.get('OMP_NUM_THREADS', 'not set')}"
    if cores < 2:
        return warn("threads", found, "one core works, slowly")
    return ok("threads", found)


def _entropy() -> Finding:
    try:
        if hasattr(os, "getrandom"):
            os.getrandom(32, os.GRND_NONBLOCK)
        else:
            os.urandom(32)
    except (BlockingIOError, NotImplementedError):
        return fail("entropy", "the system has none yet", "wait until the machine has gathered some, then start")
    return ok("entropy", "the system's generator answers")


def _space(folder: Path) -> Finding:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as problem:
        return fail("disk", f"{folder}: {problem.strerror}", "name a folder that is there with --folder")
    found = f"{free / _GIB:.1f} GiB free"
    if free < _GIB // 10:
        return fail("disk", found, "make room: uploads are refused when the disk is full")
    return warn("disk", found, "make room: a round keeps every upload") if free < _GIB else ok("disk", found)


def _sync(folder: Path) -> Finding:
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".crowdfl-doctor-") as place:
            started = time.monotonic()
            write_private(Path(place) / "probe", b"probe")
            took = time.monotonic() - started
    except OSError as problem:
        return fail("fsync", f"{folder}: {problem.strerror}", "state needs a folder that can be written and synced")
    return ok("fsync", f"a durable file takes {took * 1000:.1f} ms")
