"""A process beside SP that looks at received numbers, so that SP's own interpreter is free for requests meanwhile.

SP writes a modulus and the numbers to its standard input and reads one byte for each number: all of it is public. The process
ends when its input does, however SP ends. While it is not there, SP looks at the numbers itself.

`python -m crowdfl.services.checker`
"""

import contextlib
import signal
import struct
import subprocess
import sys
import threading
from typing import IO

import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, from_bytes
from crowdfl.crypto.compute import Backend, Kernel, Threads, Watch
from crowdfl.crypto.kernels import CheckUnits
from crowdfl.errors import Truncated

__all__ = ["Checker"]

_HEADER = struct.Struct(">IIQ")  # bytes of the modulus, bytes of a number, numbers


class Checker:
    """A backend that has received numbers checked beside this process, and leaves everything else to another backend."""

    name = "checker"

    def __init__(self, others: Backend) -> None:
        self.others = others
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, watch: Watch | None = None) -> Block:
        """Apply `kernel` to every row."""
        if isinstance(kernel, CheckUnits) and out is None and len(blocks[0]):
            with contextlib.suppress(OSError, Truncated), self._lock:
                return self._ask(kernel, blocks[0])
        return self.others.map(kernel, *blocks, out=out, watch=watch)

    def start(self) -> None:
        """Before the first upload has to wait for it."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._closed = True
            self._end()

    def _ask(self, kernel: CheckUnits, block: Block) -> Block:
        wire = self._running()
        if wire.stdin is None or wire.stdout is None:
            raise Truncated("the process has no pipes")
        rows, width = block.shape
        modulus = kernel.n.to_bytes((kernel.n.bit_length() + 7) // 8, "big")
        try:
            wire.stdin.write(_HEADER.pack(len(modulus), width, rows) + modulus)
            wire.stdin.write(np.ascontiguousarray(block).data)
            wire.stdin.flush()
            return from_bytes(_exactly(wire.stdout, rows), 1)
        except (OSError, Truncated):
            self._end()  # the next batch starts another
            raise

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise Truncated("it was closed")  # told to nobody
        if self._process is None:
            command = [sys.executable, "-m", "crowdfl.services.checker"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.communicate()


def _exactly(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise Truncated(f"{len(data)} bytes where {length} were expected")
    return data


def _serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Until the other end is gone."""
    alone = Threads(1)
    with contextlib.suppress(Truncated, BrokenPipeError):
        while True:
            modulus_bytes, width, rows = _HEADER.unpack(_exactly(requests, _HEADER.size))
            kernel = CheckUnits(mpz.from_bytes(_exactly(requests, modulus_bytes), "big"))
            replies.write(alone.map(kernel, from_bytes(_exactly(requests, width * rows), width)).tobytes())
            replies.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal that SP is stopped from: its input ends soon
    _serve(sys.stdin.buffer, sys.stdout.buffer)
