"""Batches of each kind on a backend and on one core: numbers a second, bytes to bytes."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Backend, Kernel
from crowdfl.crypto.kernels import (
    BucketProduct,
    CheckUnits,
    Encrypt,
    FixedBase,
    FixedBasePower,
    MulMod,
    MultiPow,
    PartialDecrypt,
)
from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.randomness import Coins
from crowdfl.errors import ProtocolError
from crowdfl.lab.bench.rows import Figure, Grid
from crowdfl.lab.timing import timed

__all__ = ["Batch", "batches", "batches_grid", "decryption_batch", "measure"]

_MASK_BITS = 104  # of a mask's sum in a round of 36 with 4,096 lanes


@dataclass(frozen=True)
class Batch:
    """A kernel on random numbers; `each` numbers make a row."""

    name: str
    kernel: Kernel
    blocks: tuple[Block, ...]
    each: int = 1

    @property
    def numbers(self) -> int:
        """In all rows."""
        return len(self.blocks[0]) * self.each


def measure(batch: Batch, backend: Backend, sample: int, turns: int) -> tuple[float, float]:
    """Numbers a second on the backend and, from the first `sample` rows, on one core; the results compared."""
    few = [block[:sample] for block in batch.blocks]
    results: list[Block] = []
    best = min(timed(lambda: results.append(backend.map(batch.kernel, *batch.blocks))) for _ in range(turns))
    one_core = min(timed(lambda: results.append(batch.kernel.run(*few))) for _ in range(turns))
    if not np.array_equal(results[0][:sample], results[-1]):
        raise ProtocolError(f"{batch.name}: the backend's results are not those of one core")
    return batch.numbers / best, len(few[0]) * batch.each / one_core


def decryption_batch(key_bits: int, count: int) -> Batch:
    """Partial decryptions modulo the square of a random odd number, by an exponent as long as a key share."""
    n = mpz(secrets.randbits(key_bits)) | 1 | 3 << (key_bits - 2)
    share = mpz(secrets.randbits(2 * key_bits - 1)) | 1 << (2 * key_bits - 2)
    name = f"partial decryptions, |N| = {key_bits:,}"
    return Batch(name, PartialDecrypt(share, n * n), (Coins.fresh().residues(count, int(n * n)),))


def batches(public: PublicKey, count: int) -> list[Batch]:
    """What a round is made of, under one key: random numbers are units but for luck that nobody has."""
    coins, n, square = Coins.fresh(), public.n, public.n_squared
    numbers, others = (coins.residues(count, int(square)) for _ in range(2))
    size = 32
    exponents = coins.residues(count, 1 << _MASK_BITS)
    fixed = FixedBase(public.h_s, square, public.exponent_bits)
    signs = np.frombuffer(coins.take(count), dtype=np.uint8) & np.uint8(1)
    rows = numbers.reshape(count // size, -1)
    return [
        Batch("multiplications", MulMod(square), (numbers, others)),
        Batch("checks of received numbers", CheckUnits(n), (numbers,)),
        Batch("randomizers", FixedBasePower(fixed), (coins.residues(count, 1 << fixed.exponent_bits),)),
        Batch("encryptions, randomizers at hand", Encrypt(n), (coins.residues(count, int(n)), numbers)),
        Batch("numbers in signed bucket products", BucketProduct(square, size), (rows, signs.reshape(-1, size)), size),
        Batch(
            f"numbers in products of {_MASK_BITS}-bit powers",
            MultiPow(square, size, _MASK_BITS),
            (rows, exponents.reshape(count // size, -1)),
            size,
        ),
    ]


def batches_grid(
    backend: Backend,
    public: PublicKey,
    key_bits: tuple[int, ...],
    count: int,
    sample: int,
    say: Callable[[str], None],
) -> Grid:
    """One row a kind of batch: partial decryptions at several key sizes, everything else under one key."""
    kinds = [decryption_batch(bits, count) for bits in key_bits] + batches(public, count)
    rows = []
    for batch in kinds:
        say(batch.name)
        backend.map(batch.kernel, *batch.blocks)  # compiles, makes tables
        rate, core = measure(batch, backend, sample, 2)
        rows.append((batch.name, (Figure(rate, ""), Figure(core, ""), Figure(rate / core, ""))))
    return Grid(f"numbers a second, in batches of {count:,}", ("backend", "one core", "ratio"), tuple(rows))
