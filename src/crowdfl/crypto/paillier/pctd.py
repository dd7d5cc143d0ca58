"""PCTD: the Paillier cryptosystem with threshold decryption. Implements the paper, section 2.3.2.

Scalar and readable: one number at a time, in the paper's names. Batches live in `paillier.vector`, and must agree
with this module; the randomizers of a batch come from a source at the end of it. Deviations from the paper, each listed in
docs/deviations.md:

* D1  KeyGen takes p = q = 3 mod 4 with gcd(p-1, q-1) = 2, so that h_s below exists.
* D2  Enc blinds with h_s^a, a fresh of |N|/2 bits, in place of r^N; `printed_randomizer` is the paper's.
* D3  Split is uniform modulo lambda*N; `split_as_printed` is the paper's.
* D4  Subtraction multiplies by the inverse, where the paper raises to N-1: the same plaintext, much cheaper.
* D5  TDec refuses partial decryptions that do not fit together; the paper would divide with a remainder.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Protocol

import gmpy2
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, as_mpz, from_bytes
from crowdfl.crypto.compute import Backend, Progress, run_batch
from crowdfl.crypto.paillier.kernels import FixedBase, FixedBasePower
from crowdfl.crypto.randomness import random_below, random_bits, random_prime, random_unit, secret_bytes
from crowdfl.errors import (
    CiphertextOutOfRange,
    InsecureKeyRefused,
    InvalidKey,
    KeyMismatch,
    NotAUnit,
    PlaintextOutOfRange,
    SharesDoNotMatch,
)

__all__ = [
    "SECURE_PRIME_BITS",
    "Ciphertext",
    "FreshRandomizers",
    "KeyPair",
    "KeyShare",
    "PartialDecryption",
    "PrivateKey",
    "PublicKey",
    "RandomizerSource",
    "combine",
    "keygen",
]

SECURE_PRIME_BITS = 1024
_SMALLEST_PRIME_BITS = 16
_LARGEST_PRIME_BITS = 8192


@dataclass(frozen=True)
class PublicKey:
    """pk = (g, N) with g = N+1, and h_s, the base of the randomizers."""

    n: mpz
    h_s: mpz
    insecure_test_key: bool = field(default=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        bits = self.n.bit_length()
        if self.n < 3 or self.n % 2 == 0 or bits % 2:
            raise InvalidKey(f"N must be odd and of an even number of bits, not of {bits} bits")
        if not _SMALLEST_PRIME_BITS <= bits // 2 <= _LARGEST_PRIME_BITS:
            raise InvalidKey(f"N of {bits} bits is outside {2 * _SMALLEST_PRIME_BITS}..{2 * _LARGEST_PRIME_BITS}")
        if not 0 < self.h_s < self.n_squared or gmpy2.gcd(self.h_s, self.n) != 1:
            raise InvalidKey("h_s must be a unit modulo N^2")
        _refuse_short(bits // 2, self.insecure_test_key)

    @cached_property
    def n_squared(self) -> mpz:
        return self.n * self.n

    @property
    def bits(self) -> int:
        return self.n.bit_length()

    @property
    def is_secure(self) -> bool:
        """False for the short keys that tests use."""
        return self.bits >= 2 * SECURE_PRIME_BITS

    @property
    def plaintext_bytes(self) -> int:
        return (self.bits + 7) // 8

    @property
    def ciphertext_bytes(self) -> int:
        return (2 * self.bits + 7) // 8

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponents of h_s: half of |N|."""
        return self.bits // 2

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that name this key."""
        numbers = b"".join(x.to_bytes(self.ciphertext_bytes, "big") for x in (self.n, self.h_s))
        return hashlib.sha256(b"crowdfl public key 1" + numbers).digest()

    def encrypt(self, m: int, *, randomizer: mpz | None = None) -> "Ciphertext":
        """Enc: [[m]] = (1 + m*N) * randomizer mod N^2, for m in (-N/2, N/2)."""
        blind = self.randomizer() if randomizer is None else randomizer
        return Ciphertext((1 + self.residue(m) * self.n) * blind % self.n_squared, self)

    def randomizer(self) -> mpz:
        """A fresh h_s^a mod N^2, a of |N|/2 bits (D2). Use it once."""
        return gmpy2.powmod(self.h_s, random_bits(self.exponent_bits), self.n_squared)

    def printed_randomizer(self) -> mpz:
        """A fresh r^N mod N^2, r a unit modulo N, as the paper prints it. Use it once."""
        return gmpy2.powmod(random_unit(self.n), self.n, self.n_squared)

    def residue(self, m: int) -> mpz:
        """The number modulo N that stands for the signed m."""
        m = as_mpz(m)
        if not -self.n < 2 * m < self.n:
            raise PlaintextOutOfRange(f"a plaintext must lie in (-N/2, N/2) with |N| = {self.bits}; scale it down")
        return m % self.n

    def signed(self, residue: int) -> int:
        """The number in (-N/2, N/2) that a residue modulo N stands for."""
        residue = as_mpz(residue)
        return int(residue) if 2 * residue < self.n else int(residue - self.n)

    def ciphertext(self, value: int) -> "Ciphertext":
        """A received number as a ciphertext, checked: 0 < value < N^2 and gcd(value, N) = 1."""
        value = as_mpz(value)
        if not 0 < value < self.n_squared:
            raise CiphertextOutOfRange("a ciphertext must lie in (0, N^2)")
        if gmpy2.gcd(value, self.n) != 1:
            raise NotAUnit("a ciphertext must have no factor in common with N")
        return Ciphertext(value, self)

    def require_same(self, other: "PublicKey") -> None:
        if self.fingerprint != other.fingerprint:
            raise KeyMismatch(f"key {self.fingerprint.hex()[:16]} and key {other.fingerprint.hex()[:16]} do not mix")

    def __repr__(self) -> str:
        warning = "" if self.is_secure else ", INSECURE TEST KEY"
        return f"PublicKey({self.bits} bits, {self.fingerprint.hex()[:16]}{warning})"


@dataclass(frozen=True)
class _UnderKey:
    value: mpz
    public: PublicKey

    def __repr__(self) -> str:
        return f"{type(self).__name__}(key {self.public.fingerprint.hex()[:16]})"


@dataclass(frozen=True, repr=False)
class Ciphertext(_UnderKey):
    """[[m]]: a unit modulo N^2, bound to its key."""

    def __add__(self, other: "Ciphertext") -> "Ciphertext":
        self.public.require_same(other.public)
        return Ciphertext(self.value * other.value % self.public.n_squared, self.public)

    def __neg__(self) -> "Ciphertext":
        return Ciphertext(gmpy2.invert(self.value, self.public.n_squared), self.public)

    def __sub__(self, other: "Ciphertext") -> "Ciphertext":
        return self + -other

    def __mul__(self, k: int) -> "Ciphertext":
        self.public.residue(k)
        return Ciphertext(gmpy2.powmod(self.value, as_mpz(k), self.public.n_squared), self.public)

    __rmul__ = __mul__


@dataclass(frozen=True, repr=False)
class PartialDecryption(_UnderKey):
    """M_i = [[m]]^lambda_i mod N^2: useless without the other share's."""


@dataclass(frozen=True)
class KeyShare:
    """sk_i = lambda_i, one of the two parts of the private key."""

    public: PublicKey
    exponent: mpz = field(repr=False)

    def partial_decrypt(self, c: Ciphertext, *, constant_time: bool = False) -> PartialDecryption:
        """PDec: M_i = [[m]]^lambda_i mod N^2. `constant_time`: see docs/constant-time.md."""
        self.public.require_same(c.public)
        power = gmpy2.powmod_sec if constant_time and self.exponent else gmpy2.powmod  # powmod_sec takes no exponent 0
        return PartialDecryption(power(c.value, self.exponent, self.public.n_squared), self.public)


@dataclass(frozen=True)
class PrivateKey:
    """sk = (lambda, u)."""

    public: PublicKey
    lambda_: mpz = field(repr=False)
    u: mpz = field(repr=False)

    def __post_init__(self) -> None:
        if self.lambda_ <= 0 or self.lambda_ * self.u % self.public.n != 1:
            raise InvalidKey("u must be the inverse of lambda modulo N")

    def decrypt(self, c: Ciphertext, *, constant_time: bool = False) -> int:
        """Dec: m = L([[m]]^lambda mod N^2) * u mod N."""
        self.public.require_same(c.public)
        power = gmpy2.powmod_sec if constant_time else gmpy2.powmod
        m = _l(power(c.value, self.lambda_, self.public.n_squared), self.public) * self.u % self.public.n
        return self.public.signed(m)

    def split(self) -> tuple[KeyShare, KeyShare]:
        """lambda_1 uniform in [0, lambda*N), lambda_2 = (eps - lambda_1) mod lambda*N (D3)."""
        modulus = self.lambda_ * self.public.n
        lambda_1 = random_below(modulus)
        return KeyShare(self.public, lambda_1), KeyShare(self.public, (self._eps - lambda_1) % modulus)

    def split_as_printed(self) -> tuple[KeyShare, KeyShare]:
        """lambda_1 uniform in [1, eps], lambda_2 = eps - lambda_1, as the paper prints it."""
        lambda_1 = 1 + random_below(self._eps)
        return KeyShare(self.public, lambda_1), KeyShare(self.public, self._eps - lambda_1)

    @property
    def _eps(self) -> mpz:
        """eps = lambda*u: 0 modulo lambda and 1 modulo N."""
        return self.lambda_ * self.u


@dataclass(frozen=True)
class KeyPair:
    """What KeyGen returns."""

    public: PublicKey
    private: PrivateKey


def keygen(prime_bits: int = SECURE_PRIME_BITS, *, insecure_test_key: bool = False) -> KeyPair:
    """KeyGen: p, q of `prime_bits` bits, N = p*q of exactly twice that, lambda = (p-1)(q-1), u = lambda^-1 mod N."""
    _refuse_short(prime_bits, insecure_test_key)
    if not _SMALLEST_PRIME_BITS <= prime_bits <= _LARGEST_PRIME_BITS:
        raise InvalidKey(f"prime_bits must lie in {_SMALLEST_PRIME_BITS}..{_LARGEST_PRIME_BITS}, not {prime_bits}")
    p, q = _two_primes(prime_bits)
    n = p * q
    lambda_ = (p - 1) * (q - 1)
    x = random_unit(n)
    h = -(x * x) % n
    public = PublicKey(n, gmpy2.powmod(h, n, n * n), insecure_test_key)
    return KeyPair(public, PrivateKey(public, lambda_, gmpy2.invert(lambda_, n)))


def combine(m_1: PartialDecryption, m_2: PartialDecryption) -> int:
    """TDec: m = L(M_1 * M_2 mod N^2), as a number in (-N/2, N/2)."""
    m_1.public.require_same(m_2.public)
    return m_1.public.signed(_l(m_1.value * m_2.value % m_1.public.n_squared, m_1.public))


def _l(x: mpz, public: PublicKey) -> mpz:
    """L(x) = (x-1)/N, which must come out even (D5)."""
    quotient, remainder = gmpy2.f_divmod(x - 1, public.n)
    if remainder:
        raise SharesDoNotMatch("these do not decrypt together: take the two shares of one key, on one ciphertext")
    return quotient


def _two_primes(prime_bits: int) -> tuple[mpz, mpz]:
    """p, q = 3 mod 4, far apart, gcd(p-1, q-1) = 2, gcd(N, lambda) = 1, |N| = 2*prime_bits (D1)."""
    p = random_prime(prime_bits)
    while True:
        q = random_prime(prime_bits)
        n = p * q
        far_apart = abs(p - q).bit_length() > prime_bits - min(100, prime_bits // 2)
        exact = n.bit_length() == 2 * prime_bits
        lambda_ = (p - 1) * (q - 1)
        if far_apart and exact and gmpy2.gcd(p - 1, q - 1) == 2 and gmpy2.gcd(n, lambda_) == 1:
            return p, q
        p = random_prime(prime_bits) if not exact else p


def _refuse_short(prime_bits: int, insecure_test_key: bool) -> None:
    if prime_bits < SECURE_PRIME_BITS and not insecure_test_key:
        raise InsecureKeyRefused(
            f"primes of {prime_bits} bits are for tests alone: use {SECURE_PRIME_BITS}, or say insecure_test_key=True"
        )


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
    entropy: Callable[[int], bytes] = secret_bytes

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
