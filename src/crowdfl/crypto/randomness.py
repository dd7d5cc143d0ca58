"""Secret random numbers from the operating system.

Nothing here is seeded by the clock or by Python's `random`: a mask or a randomizer that can be guessed protects nothing.
"""

import base64
from collections.abc import Sequence
from typing import TypeVar

import gmpy2
from cryptography.hazmat.primitives.asymmetric import ec
from gmpy2 import mpz

from crowdfl.crypto.entropy import SOURCE

SEED_BYTES = 32

_PRIMALITY_ROUNDS = 40  # on top of GMP's Baillie-PSW test


_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_Item = TypeVar("_Item")


def secret_bytes(count: int) -> bytes:
    """Every secret of this package is made of these."""
    return SOURCE.get()(count)


def secret_hex(count: int) -> str:
    """So many bytes, two letters each."""
    return secret_bytes(count).hex()


def secret_text(count: int) -> str:
    """So many bytes, as a URL can hold them."""
    return base64.urlsafe_b64encode(secret_bytes(count)).rstrip(b"=").decode()


def random_below(bound: int) -> mpz:
    """A secret number, uniform in [0, bound)."""
    if bound <= 0:
        raise ValueError(f"there is no number from 0 to below {bound}")
    while True:
        candidate = random_bits((int(bound) - 1).bit_length())
        if candidate < bound:
            return candidate


def random_bits(bits: int) -> mpz:
    return mpz.from_bytes(secret_bytes((bits + 7) // 8), "big") >> (-bits % 8)


def random_between(low: float, high: float) -> float:
    return low + (high - low) * int(random_bits(53)) / 2**53


def random_sample(items: Sequence[_Item], count: int) -> list[_Item]:
    """So many of them, each at most once, in any order."""
    left = list(items)
    return [left.pop(int(random_below(len(left)))) for _ in range(count)]


def random_p256() -> ec.EllipticCurvePrivateKey:
    """A fresh key on the curve P-256."""
    return ec.derive_private_key(1 + int(random_below(_P256_ORDER - 1)), ec.SECP256R1())


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
