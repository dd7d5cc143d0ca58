"""The command line as a user meets it: the entry point itself, in this process or in one of its own."""

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from crowdfl.cli import main
from crowdfl.services.folders.public_part import read_part
from crowdfl.services.folders.role_folder import PEERS
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


@dataclass
class Processes:
    """Commands that run beside a test, each with a log in a folder."""

    folder: Path
    processes: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)
    task: str = ""

    def start(self, name: str, *args: object) -> None:
        self.processes[name] = start(*args, log=self.folder / f"{name}.log")

    def logs(self) -> str:
        """The end of every log, to explain a failure."""
        return "\n".join(f"{path.name}: {path.read_text()[-800:]}" for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            wait_or_kill(process)


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
    """A named error, exit code 3, no traceback, and each of these words in the message."""
    assert result.code == 3, result
    assert "Traceback" not in result.err
    for words in said:
        assert words in result.err, result.err
