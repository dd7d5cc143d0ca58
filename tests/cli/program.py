"""The command line as a user meets it: the entry point itself, in this process or in one of its own."""

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from crowdfl.cli import main
from crowdfl.cli.role_folder import PEERS, read_part
from tests import subprocesses


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


def call(*args: object) -> Result:
    """`crowdfl` in this process; anything but a named error or an exit code is the caller's to see."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["crowdfl", *map(str, args)]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main.run()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    assert isinstance(code, int), code
    return Result(code, out.getvalue(), err.getvalue())


def start(*args: object, log: Path) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with log.open("a") as file:
        return subprocesses.start(
            [sys.executable, "-m", "crowdfl", *map(str, args)], stdout=file, stderr=file, text=True, env=environment
        )


def wait_or_kill(process: "subprocess.Popen[str]", timeout: float = 60.0) -> None:
    """After SIGTERM: whoever does not end in time is killed, and that is a failure."""
    try:
        process.wait(timeout)
    finally:
        process.kill()
        process.wait(timeout)


def finish(*args: object, timeout: float = 300.0) -> Result:
    """`crowdfl` as a process of its own, to its end."""
    done = subprocesses.run(
        [sys.executable, "-m", "crowdfl", *map(str, args)], capture_output=True, text=True, timeout=timeout, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


ROLES = ("kgc", "sp", "csp", "requester")


def settings(place, role):
    return place / role / "settings.toml"


def public(place, role):
    return place / role / f"{role}.public.json"


def accept(place, own, peer, *more):
    """As an operator does who was told the right digits."""
    told = read_part(public(place, peer)).fingerprint
    return call("exchange", "accept", settings(place, own), public(place, peer), "--fingerprint", told, *more)


def accept_all(place):
    for own, peers in PEERS.items():
        for peer in peers:
            assert accept(place, own, peer).code == 0, (own, peer)


def refused(result, *said):
    assert result.code == 3, result
    for words in said:
        assert words in result.err, result.err
