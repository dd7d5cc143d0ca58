"""`crowdfl doctor`: what is wrong on this machine or with a role, and what to do about it."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crowdfl.cli.output import Json, show, waiting
from crowdfl.errors import LearningError
from crowdfl.storage.atomic import write_private

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    settings: Annotated[
        list[Path] | None,
        typer.Argument(help="Settings files of roles, as `crowdfl init` makes them; without, the machine alone."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where state would be kept: its disk is checked.")] = Path(),
    as_json: Json = False,
) -> None:
    """Check this machine, and each role whose settings are given. Exits with 1 if something fails."""
    with waiting("checking", quiet=as_json):
        found = list(machine_checks(folder))
        for path in settings or []:
            from crowdfl.cli.doctor.role import role_checks  # the services' packages may be what is missing

            found += role_checks(path)
    failed = any(check.verdict == "fail" for check in found)
    table = Table("", "what", "found", "what to do", show_lines=False)
    for check in found:
        colour = _COLOURS[check.verdict]
        mark = f"[{colour}]{check.verdict}[/{colour}]"
        table.add_row(mark, escape(check.what), escape(check.found), escape(check.advice))
    show({"ok": not failed, "findings": [asdict(check) for check in found]}, table, as_json=as_json)
    if failed:
        raise typer.Exit(1)


_GIB = 2**30
# package: what is missing without it, and how to get it
_OPTIONAL = {
    "torch": ("tasks with a network cannot be trained here", "pip install 'crowdfl[learning]'"),
    "fastapi": ("no service can run here", "pip install 'crowdfl[services]'"),
    "matplotlib": ("the demo's report has no plots", "pip install 'crowdfl[plots]'"),
}


@dataclass(frozen=True)
class DoctorCheck:
    """What was checked, what was found, and what to do about it."""

    verdict: str
    what: str
    found: str
    advice: str = ""


ok = partial(DoctorCheck, "ok")
warn = partial(DoctorCheck, "warn")  # usable, with a limit that the advice removes
fail = partial(DoctorCheck, "fail")


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
    yield _space(folder)
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


def _space(folder: Path) -> DoctorCheck:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as problem:
        return fail("disk", f"{folder}: {problem.strerror}", "name an existing folder with --folder")
    found = f"{free / _GIB:.1f} GiB free"
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
