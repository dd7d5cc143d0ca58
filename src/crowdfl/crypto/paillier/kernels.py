"""The row-wise functions that backends run: modular arithmetic on blocks, one class each.

`run` is the reference on one core of the CPU; a backend with a faster way for a kernel must give the same bytes.
"""

from dataclasses import dataclass, field
from functools import cached_property

import gmpy2
import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, from_ints, to_ints, width_of
from crowdfl.errors import NotAUnit, SharesDoNotMatch

VALID, OUT_OF_RANGE, NON_UNIT = 0, 1, 2
_LIGHT = 256  # rows of a chunk when a row costs a few multiplications: small, so that its temporaries stay small


def _chunk_of_powers(exponent_bits: int) -> int:
    """Rows worth about a quarter of a second: a 4096-bit power takes some 25 to 60 ms."""
    return max(1, 6 * 4096 // max(1, exponent_bits))


class _ModularKernel:
    """Its result is a number below `modulus`."""

    modulus: mpz

    @property
    def out_width(self) -> int:
        return width_of(self.modulus)


@dataclass(frozen=True)
class PowMod(_ModularKernel):
    """Each row to the one exponent; a negative one inverts. It may be a key share: it never shows in a repr."""

    exponent: mpz = field(repr=False)
    modulus: mpz
    constant_time: bool = False

    @property
    def chunk(self) -> int:
        return min(_LIGHT, _chunk_of_powers(self.exponent.bit_length()))

    def run(self, *blocks: Block) -> Block:
        bases = to_ints(blocks[0])
        if self.constant_time and self.exponent:  # powmod_sec takes no exponent 0
            powers = [gmpy2.powmod_sec(base, self.exponent, self.modulus) for base in bases]
        else:
            powers = gmpy2.powmod_base_list(bases, self.exponent, self.modulus)
        return from_ints(powers, self.out_width)


class PartialDecrypt(PowMod):
    """PDec: the exponent is a key share."""


@dataclass(frozen=True)
class PowEach(_ModularKernel):
    """Each row of the first block to the exponent in the same row of the second."""

    modulus: mpz
    exponent_bits: int

    @property
    def chunk(self) -> int:
        return min(_LIGHT, _chunk_of_powers(self.exponent_bits))

    def run(self, *blocks: Block) -> Block:
        pairs = zip(to_ints(blocks[0]), to_ints(blocks[1]), strict=True)
        return from_ints([gmpy2.powmod(base, exponent, self.modulus) for base, exponent in pairs], self.out_width)


@dataclass(frozen=True)
class MulMod(_ModularKernel):
    """Row times row."""

    modulus: mpz
    chunk: int = _LIGHT

    def run(self, *blocks: Block) -> Block:
        m = self.modulus
        pairs = zip(to_ints(blocks[0]), to_ints(blocks[1]), strict=True)
        return from_ints([a * b % m for a, b in pairs], self.out_width)


@dataclass(frozen=True)
class InvMod(_ModularKernel):
    """The inverse of each row, by one inversion and three multiplications a row (Montgomery's trick)."""

    modulus: mpz
    chunk: int = _LIGHT

    def run(self, *blocks: Block) -> Block:
        return from_ints(inverses(to_ints(blocks[0]), self.modulus), self.out_width)


@dataclass(frozen=True)
class Encrypt:
    """Enc with the randomizers at hand: plaintext residues modulo N in the first block, randomizers in the second."""

    n: mpz
    chunk: int = _LIGHT

    @property
    def out_width(self) -> int:
        return width_of(self.n * self.n)

    def run(self, *blocks: Block) -> Block:
        """(1 + m*N) * r mod N^2, computed as r + N*(m*r mod N), which needs no division by N^2."""
        n = self.n
        n_squared = self.n * self.n
        rows = []
        for m, r in zip(to_ints(blocks[0]), to_ints(blocks[1]), strict=True):
            c = r + n * (m * r % n)
            rows.append(c if c < n_squared else c - n_squared)
        return from_ints(rows, self.out_width)


class AddPlain(Encrypt):
    """A known plaintext added to a ciphertext: Enc with the ciphertext in the randomizer's place."""


@dataclass(frozen=True)
class Combine:
    """TDec of two blocks of partial decryptions: residues modulo N."""

    n: mpz
    chunk: int = _LIGHT

    @property
    def out_width(self) -> int:
        return width_of(self.n)

    def run(self, *blocks: Block) -> Block:
        """L(M_1 * M_2 mod N^2) for each row."""
        n = self.n
        n_squared = self.n * self.n
        rows = []
        for a, b in zip(to_ints(blocks[0]), to_ints(blocks[1]), strict=True):
            quotient, remainder = gmpy2.f_divmod(a * b % n_squared - 1, n)
            if remainder:
                raise SharesDoNotMatch("these do not decrypt together: take the two shares of one key, on one vector")
            rows.append(quotient)
        return from_ints(rows, self.out_width)


@dataclass(frozen=True)
class CheckUnits:
    """One byte a row: VALID, OUT_OF_RANGE (zero, or not below N^2) or NON_UNIT."""

    n: mpz
    chunk: int = _LIGHT
    out_width: int = 1

    def run(self, *blocks: Block) -> Block:
        """Multiply the rows, one gcd for the chunk; only a chunk that fails is searched row by row."""
        n = self.n
        above = self.n * self.n
        rows = to_ints(blocks[0])
        verdict = np.zeros((len(rows), 1), dtype=np.uint8)
        product = mpz(1)
        for row in rows:
            product = product * (row % n) % n
        # A zero row makes the product zero, so that only numbers above the range are left to look for.
        if gmpy2.gcd(product, n) != 1 or max(rows, default=product) >= above:
            verdict[:, 0] = [self._judge(row, above) for row in rows]
        return verdict

    def _judge(self, row: mpz, above: mpz) -> int:
        if not 0 < row < above:
            return OUT_OF_RANGE
        return VALID if gmpy2.gcd(row, self.n) == 1 else NON_UNIT


@dataclass(frozen=True)
class BucketProduct(_ModularKernel):
    """Signed products: a row of the first block is `size` numbers side by side, of the second their signs (1 means minus)."""

    modulus: mpz
    size: int
    all_plus: bool = False  # a plain product, of one multiplication less than it has factors

    @property
    def chunk(self) -> int:
        return max(1, _LIGHT // self.size)

    def run(self, *blocks: Block) -> Block:
        """The product of the plus numbers over that of the minus numbers; one inversion for the chunk."""
        m, width = self.modulus, self.out_width
        plus, minus = [], []
        for row, signs in zip(blocks[0], blocks[1], strict=True):
            sides = [mpz(1), mpz(1)]
            for number, sign in zip(to_ints(row.reshape(self.size, width)), signs.tolist(), strict=True):
                sides[sign] = sides[sign] * number % m
            plus.append(sides[0])
            minus.append(sides[1])
        return from_ints([p * q % m for p, q in zip(plus, inverses(minus, m), strict=True)], width)


@dataclass(frozen=True)
class MultiPow(_ModularKernel):
    """Products of powers: a row of the first block is `size` bases side by side, of the second their exponents.

    Pippenger's buckets: a base costs one multiplication per window of its exponent, and no squaring of its own.
    """

    modulus: mpz
    size: int
    exponent_bits: int

    @property
    def chunk(self) -> int:
        return max(1, 32 * 1024 // (self.size * -(-self.exponent_bits // self._window)))

    @property
    def _window(self) -> int:
        return max(1, min(12, self.size.bit_length() - 2))

    def run(self, *blocks: Block) -> Block:
        exponent_width = blocks[1].shape[1] // self.size
        rows = []
        for numbers, exponents in zip(blocks[0], blocks[1], strict=True):
            bases = to_ints(numbers.reshape(self.size, self.out_width))
            rows.append(self._product(bases, to_ints(exponents.reshape(self.size, exponent_width))))
        return from_ints(rows, self.out_width)

    def _product(self, bases: list[mpz], exponents: list[mpz]) -> mpz:
        m, window = self.modulus, self._window
        mask = (1 << window) - 1
        result = mpz(1)
        for place in reversed(range(-(-self.exponent_bits // window))):
            for _ in range(window):
                result = result * result % m
            buckets: dict[int, mpz] = {}
            for base, exponent in zip(bases, exponents, strict=True):
                if digit := int((exponent >> (window * place)) & mask):
                    buckets[digit] = buckets[digit] * base % m if digit in buckets else base
            running, total = mpz(1), mpz(1)
            for digit in range(max(buckets, default=0), 0, -1):
                if digit in buckets:
                    running = running * buckets[digit] % m
                total = total * running % m
            result = result * total % m
        return result


@dataclass(frozen=True, eq=False)
class FixedBase:
    """One base for many exponents: base^(d * 2^(window*i)) for every digit d, built on first use.

    A power is then one multiplication per digit and no squaring.
    """

    base: mpz
    modulus: mpz
    exponent_bits: int
    window: int = 8

    @property
    def digits(self) -> int:
        return -(-self.exponent_bits // self.window)

    @property
    def exponent_width(self) -> int:
        return (self.exponent_bits + 7) // 8

    @property
    def table_bytes(self) -> int:
        return self.digits * (1 << self.window) * (width_of(self.modulus) + 32)

    @cached_property
    def table(self) -> list[list[mpz]]:
        """Row i holds base^(d * 2^(window*i)) for d = 0 .. 2^window - 1."""
        rows = []
        step = self.base
        for _ in range(self.digits):
            row = [mpz(1), step]
            for _ in range((1 << self.window) - 2):
                row.append(row[-1] * step % self.modulus)
            rows.append(row)
            step = row[-1] * step % self.modulus
        return rows

    def split(self, exponents: Block) -> list[list[int]]:
        """The digits of each exponent, lowest first."""
        bits = np.unpackbits(exponents[:, ::-1], axis=1, bitorder="little")[:, : self.exponent_bits]
        padded = np.zeros((len(bits), self.digits * self.window), dtype=np.uint32)
        padded[:, : bits.shape[1]] = bits
        weights = (1 << np.arange(self.window, dtype=np.uint32)).astype(np.uint32)
        digits: list[list[int]] = (padded.reshape(len(bits), self.digits, self.window) @ weights).tolist()
        return digits


@dataclass(frozen=True)
class FixedBasePower:
    """The fixed base to the exponent in each row."""

    fixed: FixedBase

    @property
    def out_width(self) -> int:
        return width_of(self.fixed.modulus)

    @property
    def chunk(self) -> int:
        return max(1, 32 * 1024 // self.fixed.digits)

    def run(self, *blocks: Block) -> Block:
        m, table = self.fixed.modulus, self.fixed.table
        powers = []
        for digits in self.fixed.split(blocks[0]):
            power = table[0][digits[0]]
            for row, digit in zip(table[1:], digits[1:], strict=True):
                power = power * row[digit] % m
            powers.append(power)
        return from_ints(powers, self.out_width)


def inverses(numbers: list[mpz], modulus: mpz) -> list[mpz]:
    """Of units, by one inversion and three multiplications each (Montgomery's trick)."""
    prefixes = [mpz(1)]
    for number in numbers:
        prefixes.append(prefixes[-1] * number % modulus)
    try:
        inverse = gmpy2.invert(prefixes[-1], modulus)
    except ZeroDivisionError:
        raise NotAUnit("a number has no inverse modulo N^2: validate what was received first") from None
    found = []
    for before, number in zip(reversed(prefixes[:-1]), reversed(numbers), strict=True):
        found.append(inverse * before % modulus)
        inverse = inverse * number % modulus
    return found[::-1]
