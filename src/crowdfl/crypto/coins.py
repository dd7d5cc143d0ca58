"""Secret coins that a seed can replay."""

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, at_least, empty, from_bytes, width_of
from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes


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

    def rows(self, count: int, bits: int) -> Block:
        """`count` numbers of so many bits, as a block."""
        rows = from_bytes(self.take(count * ((bits + 7) // 8)), (bits + 7) // 8).copy()
        rows[:, 0] &= 0xFF >> (-bits % 8)
        return rows

    def below(self, bound: int) -> mpz:
        size = int(bound - 1).bit_length()
        while True:
            candidate = self.bits(size)
            if candidate < bound:
                return candidate

    def residues(self, count: int, n: int) -> Block:
        """`count` rows uniform in [0, n), by rejection, so that nothing is biased."""
        width = width_of(n)
        kept = [empty(0, width)]
        have = 0
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
