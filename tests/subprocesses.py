"""Processes of tests: nobody waits for one without end, and none is left when the tests are over, however they ended."""

import contextlib
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

PATIENCE = 900.0  # seconds, for a process that is waited for to its end

_Found = TypeVar("_Found")
_started: list["subprocess.Popen[Any]"] = []


def start(command: Sequence[object], **options: Any) -> "subprocess.Popen[Any]":
    """A process that whoever starts it ends; what is forgotten is killed after the last test."""
    process = subprocess.Popen([str(word) for word in command], **options)  # noqa: S603 -- the tests' own commands
    _started[:] = [*(one for one in _started if one.poll() is None), process]
    return process


@contextlib.contextmanager
def running(command: Sequence[object], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """A process that is killed on the way out: leaving `Popen` itself would wait for it, for ever if a test has failed."""
    with start(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def run(command: Sequence[object], **options: Any) -> "subprocess.CompletedProcess[Any]":
    words = [str(word) for word in command]
    return subprocess.run(words, **{"timeout": PATIENCE, "check": False} | options)  # noqa: S603, PLW1510 -- the tests' own


def until(look: Callable[[], _Found], why: Callable[[], str] = lambda: "it never came") -> _Found:
    """What is found, as soon as it is something; a test waits long for what a busy machine does late."""
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < end, why()
        time.sleep(0.02)
    return found


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, and that the system gives to nobody who asks for any."""
    ports: set[int] = set()
    while len(ports) < count:
        port = 20_000 + secrets.randbelow(10_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)


def end_all() -> None:
    for process in _started:
        process.kill()
        process.wait(PATIENCE)
