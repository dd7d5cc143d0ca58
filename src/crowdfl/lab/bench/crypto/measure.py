"""CrowdFL's own figures, one function per quantity. Each returns what it measured; comparing comes later."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import gmpy2
import numpy as np

from crowdfl.crypto import blocks
from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Backend, Progress, Threads
from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.randomizers import FreshRandomizers, RandomizerSource, best_window
from crowdfl.crypto.vector import CipherVector, encrypt
from crowdfl.lab.bench.crypto.setting import Workload
from crowdfl.lab.timing import Timing, timed, turns
from crowdfl.storage.pools import RandomizerPool

__all__ = [
    "FreshEncryption",
    "FromPool",
    "PartialDecryption",
    "Replayed",
    "encrypt_fresh",
    "encrypt_from_pool",
    "encrypt_without_rewards",
    "partial_decrypt",
    "sum_two",
]


@dataclass
class Replayed:
    """Randomizers handed out again and again. Never outside a benchmark: twice the same one gives the plaintexts away."""

    public: PublicKey
    block: Block
    _next: int = field(default=0, repr=False)

    def take(self, count: int, *, progress: Progress | None = None) -> Block:
        """The next `count`, from the start again after the last."""
        del progress
        rows = np.arange(self._next, self._next + count) % len(self.block)
        self._next += count
        return self.block[rows]


@dataclass
class _Kept:
    """Keeps what a source hands out, so that the dear randomizers need not be made twice in one run."""

    source: RandomizerSource
    block: Block | None = None

    @property
    def public(self) -> PublicKey:
        return self.source.public

    def take(self, count: int, *, progress: Progress | None = None) -> Block:
        self.block = self.source.take(count, progress=progress)
        return self.block


@dataclass(frozen=True)
class FreshEncryption:
    """A model encrypted from nothing on one core, and its randomizers for what follows."""

    seconds: float
    window: int
    upload: CipherVector
    randomizers: Replayed


def encrypt_fresh(work: Workload) -> FreshEncryption:
    """Encode, pack, build the table, make the randomizers, encrypt; rewards on; once, it takes long enough."""
    one_core = Threads(1)
    window = best_window(work.public, work.setting.budget(rewards=True).ciphertexts + 1)
    kept = _Kept(FreshRandomizers(work.public, window, one_core))
    done: list[CipherVector] = []
    seconds = timed(lambda: done.append(encrypt(kept, work.plaintexts(rewards=True), backend=one_core)))
    assert kept.block is not None  # noqa: S101 -- encrypt has taken them
    return FreshEncryption(seconds, window, done[0], Replayed(work.public, kept.block))


@dataclass(frozen=True)
class FromPool:
    """A model encrypted with randomizers from a pool on disk."""

    one_core: Timing
    all_cores: Timing
    cores: int


def encrypt_from_pool(work: Workload, randomizers: Replayed, folder: Path) -> FromPool:
    """Encode, pack, take durably from the disk, encrypt; rewards on. The pool is filled beforehand, as in use."""
    need = (work.setting.budget(rewards=True).ciphertexts + 1) * 2 * work.setting.repetitions
    pool = RandomizerPool.open(folder / "bench.pool", work.public)
    pool.fill(need, randomizers, batch=4096)

    def model(backend: Backend) -> Callable[[], object]:
        return lambda: encrypt(pool, work.plaintexts(rewards=True), backend=backend)

    seconds = turns({"one": model(Threads(1)), "all": model(Threads(_cores()))}, work.setting.repetitions)
    return FromPool(seconds["one"], seconds["all"], _cores())


def encrypt_without_rewards(work: Workload, randomizers: RandomizerSource) -> CipherVector:
    """The upload of a task without rewards, for its size."""
    return encrypt(randomizers, work.plaintexts(rewards=False))


def sum_two(work: Workload, first: CipherVector, second: CipherVector) -> Timing:
    """The homomorphic sum of two models on one core."""
    one_core = Threads(1)
    return turns({"sum": lambda: first.add(second, backend=one_core)}, work.setting.repetitions)["sum"]


@dataclass(frozen=True)
class PartialDecryption:
    """Partial decryption of some ciphertexts, in turn with a bare loop over GMP's powmod and with two cores."""

    count: int
    one_core: Timing
    bare: Timing
    two_cores: Timing
    cores: int

    @property
    def overhead(self) -> float:
        """Time over that of the bare loop."""
        return self.one_core.minimum / self.bare.minimum

    @property
    def speedup(self) -> float:
        """Of two cores over one."""
        return self.one_core.minimum / self.two_cores.minimum


def partial_decrypt(work: Workload, upload: CipherVector) -> PartialDecryption:
    """The first ciphertexts of an upload under one share, variants in turn."""
    some = CipherVector(work.public, upload.block[: work.setting.decryptions])
    bases, exponent, modulus = blocks.to_ints(some.block), work.share.exponent, work.public.n_squared
    one, two = Threads(1), Threads(2)
    variants: dict[str, Callable[[], object]] = {
        "one": lambda: some.partial_decrypt(work.share, backend=one),
        "bare": lambda: [gmpy2.powmod(base, exponent, modulus) for base in bases],
        "two": lambda: some.partial_decrypt(work.share, backend=two),
    }
    seconds = turns(variants, work.setting.decryption_turns)
    return PartialDecryption(len(some), seconds["one"], seconds["bare"], seconds["two"], _cores())


def _cores() -> int:
    return os.cpu_count() or 1
