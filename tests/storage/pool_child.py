"""A process that works on a pool, tells what it was handed, and may be killed at any of its writes.

    python pool_child.py PATH N H_S drain
    python pool_child.py PATH N H_S sweep

`drain` takes one entry at a time until the pool is empty, and prints each as a line of hexadecimal digits. `sweep` copies
the pool, starts a process of its own on the copy that takes and fills, and has it killed at its first call to the disk;
on a second copy halfway through that call; then at its second call, and so on, until one lives to the end. The copies are
PATH.1.whole, PATH.1.torn, ...; what each process was handed is in PATH.1.whole.handed, ...; how it ended is printed.
"""

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, from_ints
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.errors import PoolExhausted
from crowdfl.storage.pools import RandomizerPool

KILLED, ALIVE = -signal.SIGKILL, 0


class Numbered:
    """Stands in for a source of randomizers: numbers that count up, so that a repetition shows."""

    def __init__(self, public: PublicKey, first: int = 1) -> None:
        self.public = public
        self._next = first

    def take(self, count: int, *, watch: object = None) -> Block:
        """The next `count` numbers."""
        self._next += count
        return from_ints(range(self._next - count, self._next), self.public.ciphertext_bytes)


def tell(block: Block) -> None:
    """Print the entries, past every buffer of this process."""
    os.write(1, b"".join(row.tobytes().hex().encode() + b"\n" for row in block))


def die_at(step: int, torn: bool) -> None:
    """Have the process killed at its `step`-th call to the disk."""
    calls = 0

    def stepping(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                if torn and name == "pwrite":
                    descriptor, data, position = arguments
                    call(descriptor, data[: len(data) // 2], position)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments)

        return stepped

    for name in ("pwrite", "fsync", "ftruncate"):
        setattr(os, name, stepping(name, getattr(os, name)))


def drain(pool: RandomizerPool) -> None:
    """Take one at a time until there is none."""
    while True:
        try:
            tell(pool.take(1))
        except PoolExhausted:
            return


def work(pool: RandomizerPool) -> None:
    """Take, and fill when there is no room at the front, when there is, and when everything is taken."""
    source = Numbered(pool.public, first=1000)
    tell(pool.take(1))
    pool.fill(1, source)
    tell(pool.take(4))
    pool.fill(3, source, batch=2)
    tell(pool.take(3))
    tell(pool.take(pool.available))
    pool.fill(2, source)
    tell(pool.take(1))


def doomed(path: str, public: PublicKey, step: int, torn: bool) -> int:
    """Work on a pool in a process that is killed at `step`; how it ended."""
    process = os.fork()
    if process:
        _, status = os.waitpid(process, 0)
        return os.waitstatus_to_exitcode(status)
    os.dup2(os.open(path + ".handed", os.O_WRONLY | os.O_CREAT, 0o600), 1)
    pool = RandomizerPool.open(path, public)
    die_at(step, torn)
    work(pool)
    os._exit(ALIVE)


def sweep(path: str, public: PublicKey) -> None:
    """Kill a process at each of its calls to the disk, whole and torn."""
    endings = {KILLED}
    for step in itertools.count(1):
        if endings != {KILLED}:
            return
        endings = {doomed_copy(path, public, step, torn) for torn in (False, True)}


def doomed_copy(path: str, public: PublicKey, step: int, torn: bool) -> int:
    """Have a process killed at work on a copy of the pool, and print how it ended."""
    copy = f"{path}.{step}.{'torn' if torn else 'whole'}"
    shutil.copy(path, copy)
    ending = doomed(copy, public, step, torn)
    os.write(1, f"{copy} {ending}\n".encode())
    return ending


def main(path: str, n: str, h_s: str, task: str) -> None:
    public = PublicKey(mpz(n), mpz(h_s), insecure_test_key=True)
    if task == "sweep":
        sweep(path, public)
    else:
        drain(RandomizerPool.open(path, public))


if __name__ == "__main__":
    main(*sys.argv[1:])
