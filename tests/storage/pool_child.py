"""A process that works on a pool and tells what it was handed.

`python pool_child.py PATH N H_S` takes one entry at a time until the pool is empty, and prints each in hexadecimal digits.
"""

import os
import sys

from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, from_ints
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.errors import PoolExhausted
from crowdfl.storage.pools import RandomizerPool


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


def main(path: str, n: str, h_s: str) -> None:
    drain(RandomizerPool.open(path, PublicKey(mpz(n), mpz(h_s), insecure_test_key=True)))


if __name__ == "__main__":
    main(*sys.argv[1:])
