"""Randomizers: the numbers that make a ciphertext hide its plaintext. Each is used once.

Making one is the expensive part of encrypting (h_s to a fresh exponent); with one ready, encrypting is a multiplication. They
do not depend on what is encrypted, so they can be made ahead of time: `crowdfl.storage.pools` keeps them on disk.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from crowdfl.crypto.blocks import Block, from_bytes
from crowdfl.crypto.compute import Backend, Progress, run_batch
from crowdfl.crypto.paillier.kernels import FixedBase, FixedBasePower
from crowdfl.crypto.paillier.pctd import PublicKey


class RandomizerSource(Protocol):
    """Hands out randomizers for one key, never the same twice."""

    @property
    def public(self) -> PublicKey: ...
    def take(self, count: int, *, progress: Progress | None = None) -> Block: ...


@lru_cache(maxsize=4)
def _table(public: PublicKey, window: int) -> FixedBase:
    """One table per key and window in a process, whoever encrypts."""
    return FixedBase(public.h_s, public.n_squared, public.exponent_bits, window)


@dataclass(frozen=True, eq=False)
class FreshRandomizers:
    """h_s^a for fresh a of |N|/2 bits, by a fixed-base table (D2). `window` trades memory for speed.

    `entropy` gives the exponents' bytes: the operating system's by default, `Coins.take` where a run must be replayable.
    """

    public: PublicKey
    window: int = 8
    backend: Backend | None = None
    entropy: Callable[[int], bytes] = secrets.token_bytes

    @property
    def fixed(self) -> FixedBase:
        return _table(self.public, self.window)

    def prepare(self) -> None:
        """Build the table now rather than at the first use."""
        _ = self.fixed.table

    def take(self, count: int, *, progress: Progress | None = None) -> Block:
        self.prepare()
        width = self.fixed.exponent_width
        exponents = from_bytes(self.entropy(count * width), width)
        return run_batch(FixedBasePower(self.fixed), exponents, backend=self.backend, progress=progress)
