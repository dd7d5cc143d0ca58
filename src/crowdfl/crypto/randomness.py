"""Secret random numbers from the operating system, and public coins from a seed.

Nothing here is seeded by the clock or by Python's `random`: a mask or a randomizer that can be guessed protects nothing.
"""

import hashlib
import secrets

import gmpy2
import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

__all__ = ["public_permutation", "public_stream", "random_below", "random_bits", "random_prime", "random_unit"]

_PRIMALITY_ROUNDS = 40  # on top of GMP's Baillie-PSW test


def random_below(bound: int) -> mpz:
    """A secret number, uniform in [0, bound)."""
    return mpz(secrets.randbelow(int(bound)))


def random_bits(bits: int) -> mpz:
    """A secret number, uniform in [0, 2^bits)."""
    return mpz(secrets.randbits(bits))


def random_unit(n: int) -> mpz:
    """A secret number, uniform among the units modulo n."""
    while True:
        r = random_below(n)
        if gmpy2.gcd(r, n) == 1:
            return r


def random_prime(bits: int) -> mpz:
    """A secret prime of exactly `bits` bits that is 3 modulo 4, uniform among those."""
    top = mpz(1) << (bits - 1)
    while True:
        candidate = random_bits(bits) | top | 3
        if gmpy2.is_prime(candidate, _PRIMALITY_ROUNDS):
            return candidate


def public_stream(seed: bytes, purpose: str, length: int) -> bytes:
    """The first `length` bytes of SHAKE-256(len(purpose) || purpose || seed): coins that anyone can recompute."""
    label = purpose.encode()
    return hashlib.shake_256(len(label).to_bytes(2, "big") + label + seed).digest(length)


def public_permutation(seed: bytes, purpose: str, count: int) -> npt.NDArray[np.int64]:
    """A permutation of range(count): positions ordered by big-endian 64-bit keys from `public_stream`, ties by position."""
    keys = np.frombuffer(public_stream(seed, purpose, 8 * count), dtype=">u8")
    return np.argsort(keys, kind="stable").astype(np.int64)
