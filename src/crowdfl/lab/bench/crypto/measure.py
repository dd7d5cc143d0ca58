"""CrowdFL's own figures under a fresh key, one function per quantity. Comparing comes later."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import gmpy2
import numpy as np

from crowdfl.crypto import blocks, pctd
from crowdfl.crypto.blocks import Block
from crowdfl.crypto.budget import WidthBudget
from crowdfl.crypto.compute import Progress, Threads
from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.randomizers import FreshRandomizers
from crowdfl.crypto.vector import CipherVector, encrypt
from crowdfl.lab.bench.workload import BenchSettings, best_window, made_up_weights, packed_model
from crowdfl.lab.timing import Timing, timed_call, turns
from crowdfl.storage.pools import RandomizerPool

__all__ = [
    "PAPER",
    "QUICK",
    "CryptoSettings",
    "FreshEncryption",
    "Replayed",
    "Workload",
    "encrypt_fresh",
    "encrypt_from_pool",
    "partial_decrypt",
]


@dataclass(frozen=True, kw_only=True)
class CryptoSettings(BenchSettings):
    """The paper's model, with the budgets of a task with and without rewards."""

    lanes: int = 4096
    samples: int = 100
    rounds: int = 5
    sigma: int = 40
    repetitions: int = 7
    decryptions: int = 12
    decryption_turns: int = 15  # many short turns: on a busy machine some fall into quiet moments
    uploads: int = 100
    phe_sample: int = 100

    def budget(self, *, rewards: bool) -> WidthBudget:
        return WidthBudget(
            2 * self.prime_bits,
            self.parameters,
            self.participants,
            self.samples,
            rounds=self.rounds,
            sigma=self.sigma,
            lanes=self.lanes if rewards else 0,
        )


PAPER = CryptoSettings()
QUICK = CryptoSettings(parameters=10_000, repetitions=2, decryptions=4, decryption_turns=2, uploads=5, phe_sample=5)


@dataclass(frozen=True)
class Workload:
    """A key, a made-up model and how an upload of it is laid out."""

    settings: CryptoSettings

    @cached_property
    def keys(self) -> pctd.KeyPair:
        return pctd.keygen(self.settings.prime_bits, insecure_test_key=self.settings.insecure_test_key)

    @property
    def public(self) -> PublicKey:
        return self.keys.public

    @cached_property
    def share(self) -> pctd.KeyShare:
        """One of the key's two shares."""
        return self.keys.private.split()[0]

    def plaintexts(self, *, rewards: bool) -> Block:
        weights = made_up_weights(self.settings.parameters, 2021)
        return packed_model(self.settings.budget(rewards=rewards), self.public, weights, self.settings.samples)


@dataclass
class Replayed:
    """Randomizers handed out again and again. Never outside a benchmark: twice the same one gives the plaintexts away."""

    public: PublicKey
    block: Block
    _next: int = field(default=0, repr=False)

    def take(self, count: int, *, progress: Progress | None = None) -> Block:
        del progress
        rows = np.arange(self._next, self._next + count) % len(self.block)
        self._next += count
        return self.block[rows]


@dataclass(frozen=True)
class FreshEncryption:
    """A model encrypted from nothing on one core, and its randomizers for what follows."""

    seconds: float
    window: int
    upload: CipherVector
    randomizers: Replayed


def encrypt_fresh(work: Workload) -> FreshEncryption:
    """Build the table, make the randomizers, encode, pack, encrypt; rewards on; once, it takes long enough."""
    one_core, count = Threads(1), work.settings.budget(rewards=True).ciphertexts + 1
    source = FreshRandomizers(work.public, best_window(work.public, count), one_core)
    making, made = timed_call(lambda: source.take(count))
    randomizers = Replayed(work.public, made)
    using, upload = timed_call(lambda: encrypt(randomizers, work.plaintexts(rewards=True), backend=one_core))
    return FreshEncryption(making + using, source.window, upload, randomizers)


def encrypt_from_pool(work: Workload, randomizers: Replayed, folder: Path, cores: int) -> dict[int, Timing]:
    """Encode, pack, take durably from the disk, encrypt; rewards on. The pool is filled beforehand, as in use."""
    need = (work.settings.budget(rewards=True).ciphertexts + 1) * 2 * work.settings.repetitions
    pool = RandomizerPool.open(folder / "bench.pool", work.public)
    pool.fill(need, randomizers, batch=4096)

    def model(workers: int) -> Callable[[], object]:
        return lambda: encrypt(pool, work.plaintexts(rewards=True), backend=Threads(workers))

    seconds = turns({"one": model(1), "all": model(cores)}, work.settings.repetitions)
    return {1: seconds["one"], cores: seconds["all"]}


def partial_decrypt(work: Workload, upload: CipherVector) -> dict[str, Timing]:
    """Some ciphertexts of an upload under one share, in turn with a bare loop over GMP's powmod and with two cores."""
    some = upload.part(0, work.settings.decryptions)
    bases, exponent, modulus = blocks.to_ints(some.block), work.share.exponent, work.public.n_squared
    one, two = Threads(1), Threads(2)
    variants: dict[str, Callable[[], object]] = {
        "one": lambda: some.partial_decrypt(work.share, backend=one),
        "bare": lambda: [gmpy2.powmod(base, exponent, modulus) for base in bases],
        "two": lambda: some.partial_decrypt(work.share, backend=two),
    }
    return turns(variants, work.settings.decryption_turns)
