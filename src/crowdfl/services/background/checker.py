"""A process beside SP that checks received numbers, so that SP's own interpreter is free for requests meanwhile.

SP writes a public modulus and the ciphertexts to its standard input and reads one byte for each: the process is given no key
and no secret of SP's. It ends when its input does, however SP ends. While there is no such process, SP checks the numbers
itself.

`python -m crowdfl.services.background.checker`
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
from crowdfl.crypto.compute import Backend, Kernel, Progress, Threads
from crowdfl.crypto.paillier.kernels import CheckUnits
from crowdfl.errors import Truncated
from crowdfl.retry import Backoff

_HEADER = struct.Struct(">IIQ")  # bytes of the modulus, bytes of a number, numbers; a reply begins with its request's
_PIECE = 4096  # numbers of a request: a large upload does not keep small ones waiting
_PAUSE = Backoff.steady(30.0)  # after a failure, in which no other process is started
_PATIENCE = 60.0  # seconds for a piece, which takes a thousandth of that


class Checker:
    """A backend that has received numbers checked beside this process, and leaves everything else to another backend."""

    name = "checker"

    def __init__(self, others: Backend, pause: Backoff = _PAUSE) -> None:
        self.others = others
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._starts = pause.start()

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        rows = len(blocks[0])
        if not isinstance(kernel, CheckUnits) or out is not None or not rows:
            return self.others.map(kernel, *blocks, out=out, progress=progress)
        pieces = [blocks[0][start : start + _PIECE] for start in range(0, rows, _PIECE)]
        return np.concatenate([self._check(kernel, piece) for piece in pieces])

    def start(self) -> None:
        """Start the process before the first upload has to wait for it."""
        with self._lock, contextlib.suppress(OSError):
            self._process = _started()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._end()

    def _check(self, kernel: CheckUnits, block: Block) -> Block:
        """In the other process if possible, else here. The lock is released after each piece: others wait for it."""
        with self._lock:
            if not self._closed and (self._process is not None or not self._starts.is_resting):
                try:
                    return self._ask(kernel, block)
                except (OSError, Truncated) as failure:
                    self._starts.fail()
                    from crowdfl.services.http import logs  # the process itself needs none, and starts sooner

                    logs.get("sp").warning("checker failed", error=type(failure).__name__)
        return self.others.map(kernel, block)

    def _ask(self, kernel: CheckUnits, block: Block) -> Block:
        rows, width = block.shape
        modulus = kernel.n.to_bytes((kernel.n.bit_length() + 7) // 8, "big")
        data = np.ascontiguousarray(block).data
        self._process = process = self._process or _started()
        if process.stdin is None or process.stdout is None:
            raise Truncated("the process has no pipes")
        watchdog = threading.Timer(_PATIENCE, process.kill)  # a stopped process does not answer either
        watchdog.start()
        try:
            process.stdin.write(_HEADER.pack(len(modulus), width, rows) + modulus)
            process.stdin.write(data)
            process.stdin.flush()
            if _HEADER.unpack(_exactly(process.stdout, _HEADER.size)) != (len(modulus), width, rows):
                raise Truncated("the process answered something else")
            return from_bytes(_exactly(process.stdout, rows), 1)
        except BaseException:  # whatever it was: what is left in the pipes is of no use to the next batch
            self._end()
            raise
        finally:
            watchdog.cancel()

    def _end(self) -> None:
        process = self._process
        self._process = None
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError):
                process.communicate()


def _started() -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "crowdfl.services.background.checker",
    ]  # -P: nothing from the working directory
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603


def _exactly(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise Truncated(f"{len(data)} bytes where {length} were expected")
    return data


def _serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    alone = Threads(1)
    with contextlib.suppress(Truncated, BrokenPipeError):
        while True:
            asked = _exactly(requests, _HEADER.size)
            modulus_bytes, width, rows = _HEADER.unpack(asked)
            kernel = CheckUnits(mpz.from_bytes(_exactly(requests, modulus_bytes), "big"))
            replies.write(asked + alone.map(kernel, from_bytes(_exactly(requests, width * rows), width)).tobytes())
            replies.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in SP's terminal is for SP: this one's input ends soon
    _serve(sys.stdin.buffer, sys.stdout.buffer)
