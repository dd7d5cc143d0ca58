"""A role in a process of its own, as the parent sees it: frames of bytes on its stdin and stdout, each after its length.

First an order (JSON; the role's bundle travels in it, through the pipe alone), then the protocol's messages, and last what was
measured (JSON).
"""

import json
import subprocess
import sys
from contextlib import suppress
from typing import IO, Any

from crowdfl.errors import ProtocolError
from crowdfl_lab.report.results import Figure

END = b""
_LENGTH = 8
STAGES = {"collect": "add", "check": "publish", "average": "publish"}  # as the tables name them


def write_frame(stream: IO[bytes], frame: bytes) -> None:
    stream.write(len(frame).to_bytes(_LENGTH, "big") + frame)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    return stream.read(int.from_bytes(stream.read(_LENGTH), "big"))


class ChildRole:
    """A role in a fresh process, which `module` is the program of."""

    def __init__(self, role: str, order: dict[str, Any], module: str) -> None:
        command = [sys.executable, "-m", module]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 -- our own
        self.name = role if role == "participant" else role.upper()
        self.sample = f"{order.get('rows')} powers"
        self.send(json.dumps(order).encode())

    def send(self, frame: bytes) -> None:
        """To the role; one that has died is found out when it is asked for its figures."""
        assert self.process.stdin is not None  # noqa: S101 -- a pipe was asked for
        with suppress(BrokenPipeError):
            write_frame(self.process.stdin, frame)

    def receive(self) -> bytes:
        assert self.process.stdout is not None  # noqa: S101
        return read_frame(self.process.stdout)

    def figures(self) -> dict[str, Figure]:
        said = self.receive()
        self.process.communicate()
        code = self.process.returncode
        if code or not said:
            raise ProtocolError(f"{self.name} ended with exit code {code}; its error output is above")
        measured = json.loads(said)
        seconds, sampled = measured["seconds"], measured["sampled"]
        found = {stage: Figure(s, "s", self.sample if stage in sampled else "") for stage, s in seconds.items()}
        found["memory, reading" if "read" in seconds else "memory, working"] = Figure(measured["memory"], "B")
        return {f"{self.name}: {name}": figure for name, figure in found.items()}
