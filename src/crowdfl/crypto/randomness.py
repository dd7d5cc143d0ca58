"""Secret random numbers from the operating system, secret coins that a seed can replay, and public coins.

Nothing here is seeded by the clock or by Python's `random`: a mask or a randomizer that can be guessed protects nothing.
"""

import base64
import hashlib
from collections.abc import Sequence
from typing import TypeVar

import gmpy2
import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, at_least, empty, from_bytes, width_of
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


def public_stream(seed: bytes, purpose: str, length: int) -> bytes:
    """The first `length` bytes of SHAKE-256(len(purpose) || purpose || seed): coins that anyone can recompute."""
    label = purpose.encode()
    return hashlib.shake_256(len(label).to_bytes(2, "big") + label + seed).digest(length)


def public_permutation(seed: bytes, purpose: str, count: int) -> npt.NDArray[np.int64]:
    """A permutation of range(count): positions ordered by big-endian 64-bit keys from `public_stream`, ties by position."""
    keys = np.frombuffer(public_stream(seed, purpose, 8 * count), dtype=">u8")
    return np.argsort(keys, kind="stable").astype(np.int64)


class Coins:
    """A secret stream of coins from a 32-byte seed (ChaCha20). The same seed gives the same coins.

    A party that may crash keeps the seed, not the coins: started again, it sends the same bytes and uses no second mask.
    """

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        self._seed = bytes(seed)
        self._stream = Cipher(ChaCha20(self._seed, bytes(16)), mode=None).encryptor()

    @classmethod
    def fresh(cls) -> "Coins":
        return cls(secret_bytes(SEED_BYTES))

    def child(self, label: str) -> "Coins":
        """Independent coins for one purpose; taking them does not advance these."""
        return Coins(hashlib.sha256(b"crowdfl coins 1" + self._seed + label.encode()).digest())

    def take(self, length: int) -> bytes:
        return self._stream.update(bytes(length))

    def bits(self, bits: int) -> mpz:
        return mpz.from_bytes(self.take((bits + 7) // 8), "big") >> (-bits % 8)

    def below(self, bound: int) -> mpz:
        size = int(bound - 1).bit_length()
        while True:
            candidate = self.bits(size)
            if candidate < bound:
                return candidate

    def residues(self, count: int, n: int) -> Block:
        """`count` rows uniform in [0, n), by rejection, so that nothing is biased."""
        width = width_of(n)
        kept, have = [empty(0, width)], 0
        while have < count:
            rows = from_bytes(self.take((count - have) * width), width)
            if (spare := 8 * width - int(n).bit_length()) > 0:
                rows = rows.copy()
                rows[:, 0] &= 0xFF >> spare
            kept.append(rows[~at_least(rows, n)])
            have += len(kept[-1])
        return np.concatenate(kept)

    def __repr__(self) -> str:
        return "Coins(secret)"


def log_uniform(coins: Coins, lo: int, hi: int) -> mpz:
    """An integer m in [2^lo, 2^hi) with probability proportional to 1/m, exactly.

    Draw the octave, draw m in it, accept with probability 2^octave / m; a draw that is not accepted starts over.
    """
    while True:
        octave = lo + int(coins.below(hi - lo))
        floor = mpz(1) << octave
        m = floor | coins.bits(octave)
        if coins.below(m) < floor:
            return m
