"""The GPU backend: the kernels of `crypto.paillier.kernels` for a modulus N^2, in large pieces, with the same bytes as result.

What it cannot do (a modulus that is not an odd square, or too long; a kernel it does not know) runs on threads, and so does
light work on a few rows.
"""

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import gmpy2
import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, empty, require_rows, to_ints
from crowdfl.crypto.compute import Kernel, Progress, Threads
from crowdfl.crypto.gpu.ring import CupyDevice, Device, DeviceRing, window_for
from crowdfl.crypto.paillier import kernels as k
from crowdfl.errors import BackendUnavailable, SharesDoNotMatch

_NUMBERS_A_PIECE = 1 << 19  # 256 MiB of numbers modulo a 4096-bit N^2
_SHORT_WINDOW = 4
_LONGEST = 4096  # bits of N whose kernels fit a block's shared memory with room to spare
_LIGHT = (k.MulMod, k.AddPlain, k.Encrypt, k.InvMod, k.Combine, k.CheckUnits)


class Cuda:
    """Batches on a GPU. One at a time: callers in other threads wait."""

    name = "cuda"

    def __init__(
        self, device: Device | None = None, others: Threads | None = None, *, table_window: int = 12, fewest: int = 32
    ) -> None:
        """`table_window`: of fixed bases, 12 is 180 MiB of table at |N| = 2048. `fewest`: rows of light work that are worth
        a trip to the device, where a row takes the CPU some 10 microseconds."""
        self.device: Device = device or CupyDevice()
        self._others = others or Threads()
        self._table_window, self._fewest = table_window, fewest
        self._lock = threading.Lock()
        self._ring = lru_cache(maxsize=8)(self._make_ring)
        self._table = lru_cache(maxsize=4)(self._make_table)
        self._ways: dict[type, Callable[..., Block | None]] = {
            k.PowMod: self._pow_mod,
            k.PartialDecrypt: self._pow_mod,
            k.PowEach: self._pow_each,
            k.MulMod: self._mul_mod,
            k.InvMod: self._inv_mod,
            k.Encrypt: self._encrypt,
            k.AddPlain: self._encrypt,
            k.Combine: self._combine,
            k.CheckUnits: self._check_units,
            k.BucketProduct: self._bucket_product,
            k.MultiPow: self._multi_pow,
            k.FixedBasePower: self._fixed_base_power,
        }

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        ring = self._ring_of(kernel)
        way = self._ways.get(type(kernel))
        rows = require_rows(blocks)
        few = rows < self._fewest and isinstance(kernel, _LIGHT)
        if ring is None or way is None or few or not rows:
            return self._others.map(kernel, *blocks, out=out, progress=progress)
        progress = progress or Progress()
        progress.report(0, rows)
        size = max(1, _NUMBERS_A_PIECE // int(getattr(kernel, "size", 1)))
        result = empty(rows, kernel.out_width) if out is None and rows > size else out
        for start in range(0, rows, size):
            progress.check()
            piece = slice(start, min(start + size, rows))
            parts = [block[piece] for block in blocks]
            done = self._on_device(way, ring, kernel, *parts)
            if done is None:
                done = self._others.map(kernel, *parts)
            if result is None:  # all in one piece
                result = done
            else:
                result[piece] = done
            progress.report(piece.stop, rows)
        return cast(Block, result)

    def _on_device(self, way: Callable[..., Block | None], *arguments: Any) -> Block | None:  # noqa: ANN401
        try:
            with self._lock:
                return way(*arguments)
        except self.device.failures as error:
            raise BackendUnavailable(f"the GPU failed ({error}): free its memory, or compute on threads") from error

    def _ring_of(self, kernel: Any) -> DeviceRing | None:  # noqa: ANN401 -- kernels name their modulus in three ways
        if isinstance(kernel, k.Encrypt | k.Combine | k.CheckUnits):
            return self._ring(kernel.n)
        modulus = kernel.fixed.modulus if isinstance(kernel, k.FixedBasePower) else getattr(kernel, "modulus", None)
        if modulus is None or not gmpy2.is_square(modulus):
            return None
        return self._ring(gmpy2.isqrt(modulus))

    def _make_ring(self, n: mpz) -> DeviceRing | None:
        return DeviceRing.of(self.device, n) if n > 1 and n % 2 and n.bit_length() <= _LONGEST else None

    # A way returns None where the CPU has to do it.

    def _pow_mod(self, ring: DeviceRing, kernel: k.PowMod, bases: Block) -> Block | None:
        exponent = abs(kernel.exponent)
        if not exponent or not ring.fits(bases):
            return None
        pairs = ring.power_of_all(ring.read(bases), int(exponent))
        return ring.write(pairs if kernel.exponent > 0 else ring.inverses(pairs))

    def _pow_each(self, ring: DeviceRing, kernel: k.PowEach, bases: Block, exponents: Block) -> Block | None:
        if not ring.fits(bases):
            return None
        bits = 8 * exponents.shape[1]
        window = window_for(bits)
        digits = ring.digits(exponents, bits, window, highest_first=True)
        return ring.write(ring.power(ring.read(bases), digits, 1, window))

    def _mul_mod(self, ring: DeviceRing, kernel: k.MulMod, left: Block, right: Block) -> Block | None:
        if not (ring.fits(left) and ring.fits(right)):
            return None
        return ring.write(ring.multiply(ring.read(left), ring.read(right)))

    def _inv_mod(self, ring: DeviceRing, kernel: k.InvMod, numbers: Block) -> Block | None:
        return ring.write(ring.inverses(ring.read(numbers))) if ring.fits(numbers) else None

    def _encrypt(self, ring: DeviceRing, kernel: k.Encrypt, plaintexts: Block, randomizers: Block) -> Block | None:
        if not ring.fits(randomizers) or plaintexts.shape[1] > 4 * ring.size:
            return None
        return ring.blinded(plaintexts, ring.read(randomizers))

    def _combine(self, ring: DeviceRing, kernel: k.Combine, first: Block, second: Block) -> Block | None:
        if not (ring.fits(first) and ring.fits(second)):
            return None
        quotients, wrong = ring.quotients(ring.multiply(ring.read(first), ring.read(second)))
        if wrong.any():
            raise SharesDoNotMatch("these do not decrypt together: take the two shares of one key, on one vector")
        return quotients

    def _check_units(self, ring: DeviceRing, kernel: k.CheckUnits, numbers: Block) -> Block | None:
        if not ring.fits(numbers):
            return None
        limbs = ring.limbs(numbers, 2 * ring.size)
        outside = ring.outside(limbs)
        product = ring.products(ring.enter(limbs), len(numbers), outside, 0)
        if gmpy2.gcd(to_ints(ring.write(product))[0], ring.n) != 1:
            return None  # somewhere a factor of N: the CPU finds it, chunk by chunk
        verdict: Block = self.device.host(outside)[:, None]
        return verdict

    def _bucket_product(self, ring: DeviceRing, kernel: k.BucketProduct, numbers: Block, signs: Block) -> Block | None:
        pairs = ring.read(numbers.reshape(-1, kernel.out_width))
        marks = self.device.xp.asarray(np.ascontiguousarray(signs).reshape(-1))
        plus, minus = (ring.products(pairs, kernel.size, marks, sign) for sign in (0, 1))
        return ring.write(ring.multiply(plus, ring.inverses(minus)))

    def _multi_pow(self, ring: DeviceRing, kernel: k.MultiPow, bases: Block, exponents: Block) -> Block | None:
        shaped = exponents.reshape(-1, exponents.shape[1] // kernel.size)
        digits = ring.digits(shaped, kernel.exponent_bits, _SHORT_WINDOW, highest_first=True)
        pairs = ring.read(bases.reshape(-1, kernel.out_width))
        return ring.write(ring.power_products(pairs, digits, kernel.size, _SHORT_WINDOW))

    def _fixed_base_power(self, ring: DeviceRing, kernel: k.FixedBasePower, exponents: Block) -> Block | None:
        fixed = kernel.fixed
        table = self._table(ring, fixed)
        digits = ring.digits(exponents, fixed.exponent_bits, self._table_window, highest_first=False)
        return ring.write(ring.fixed_power(table, digits, self._table_window))

    def _make_table(self, ring: DeviceRing, fixed: k.FixedBase) -> Any:  # noqa: ANN401
        return ring.fixed_table(fixed.base, fixed.exponent_bits, self._table_window)
