"""The reciprocal of shared numbers: 2^F / y to within 2, as shares, in two exchanges. CSP sees y' = y*m - s and nothing else.

SP draws m so that log2(m) has the density (2/W) sin^2(pi x / W) on an interval of W bits. A factor of 2^d between two divisors
then changes the distribution of log2(y') by a squared Hellinger distance of at most (pi d / W)^2 / 2, and k divisions of a task
together by a statistical distance of at most pi * sqrt(k) * d / W; a plain log-uniform m would give k * d / W. The remainder
s, uniform below m / 2^g, is there because a multiple of y tells by what y can be divided.

    1   SP: e = m - a                    CSP: f = y_csp + b, which is short
    2   SP: its share of y*m - s         CSP: I + b2, with I = floor(2^P / y')

a, b, b2 are dealt to whom they belong, a*b and a*b2 to both as shares. m*I, without its last P - F bits, is the result.

The length of f is a guard. A CSP that would add a large number to its share, to find m in the upper half of y', needs a
longer f. With one that fits it shifts y by a number that it knows and sees m*(y + shift) - s: the sign of y + shift, which
is one bit, and of its size no more than before.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Protocol

import gmpy2
from gmpy2 import mpz

from crowdfl.crypto.coins import Coins, log_uniform
from crowdfl.errors import LengthMismatch, WidthBudgetExceeded
from crowdfl.protocols.party import View
from crowdfl.protocols.shares.circuits.program import CspSide, Half, Side, SpSide
from crowdfl.protocols.shares.circuits.scalars import SPARE, pack, truncate, unpack, whole_bytes
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt

LEAK = 0.01  # of all divisions of a task together
_HIDING = 64  # bits by which b is longer than what it hides
_WIDEST = 1 << 20
_COIN = 53
_PRECISION = 128  # bits, of the chance that a coin is compared with


def span_for(divisions: Iterable[tuple[int, int]]) -> int:
    """W, for so many divisions each of so many bits of range, all with masks of one width."""
    return max(8, math.ceil(leak_of(divisions, 1) / LEAK))


def leak_of(divisions: Iterable[tuple[int, int]], span: int) -> float:
    """By how much CSP can tell apart any two tasks of these divisions, by all that it sees of them."""
    return math.pi * math.sqrt(sum(count * bits**2 for count, bits in divisions)) / span


@dataclass(frozen=True)
class ReciprocalWidths:
    """Divisors in [2^low, 2^high), whose shares over the integers stay below 2^share; result 2^precision / y."""

    low: int
    high: int
    share: int
    precision: int
    span: int

    def require_computable(self) -> None:
        """Refuse, with the numbers, masks that are too long."""
        if self.modulus > _WIDEST:
            raise WidthBudgetExceeded(
                f"to hide divisors of {self.range} bits of range, masks of {self.span} bits are needed, and numbers of "
                f"{self.modulus} bits, more than {_WIDEST}: lower rounds, max_participants, max_norm, decimals or "
                'max_samples, or take pay = "equal"'
            )

    @cached_property
    def range(self) -> int:
        return self.high - self.low

    @cached_property
    def b_bits(self) -> int:
        return whole_bytes(self.share + _HIDING)

    @cached_property
    def f_bits(self) -> int:
        """Of what CSP sends of its share; no shift of a divisor is longer."""
        return self.b_bits + 8

    @cached_property
    def g(self) -> int:
        """s < m / 2^g changes the result by less than 1/2."""
        return max(1, self.precision + 2 - 2 * self.low)

    @cached_property
    def lo(self) -> int:
        """m >= 2^lo leaves s enough bits to blur y, or y with any shift, modulo anything."""
        return self.g + self.f_bits + 1 + SPARE

    @cached_property
    def hi(self) -> int:
        return self.lo + self.span

    @cached_property
    def P(self) -> int:  # noqa: N802 -- as above
        """Rounding I changes the result by less than 1/4."""
        return self.hi + self.precision + 2

    @cached_property
    def modulus(self) -> int:
        """Bits: no y' wraps, whatever f was, and m*I has its spare bits."""
        return whole_bytes(max(self.hi + self.f_bits + 2, self.P - self.low + 2 + SPARE))

    @cached_property
    def drop(self) -> int:
        return self.P - self.precision

    @cached_property
    def result(self) -> int:
        """Bits that a share of a result has at most, over the integers."""
        return self.modulus - self.drop + 1


@dataclass(frozen=True)
class DealtReciprocals:
    """a of SP; b and b2 of CSP; the products of both, shared."""

    a: Dealt = field(repr=False)
    b: Dealt = field(repr=False)
    b2: Dealt = field(repr=False)
    ab: Dealt = field(repr=False)
    ab2: Dealt = field(repr=False)


def deal(cards: Cards, widths: ReciprocalWidths, count: int) -> DealtReciprocals:
    bits = widths.modulus
    a = cards.private_sp(count, bits)
    b = cards.private_csp(count, widths.b_bits)
    b2 = cards.private_csp(count, bits)
    ab = cards.derived(count, bits, lambda: _products(a, b, bits))
    return DealtReciprocals(a, b, b2, ab, cards.derived(count, bits, lambda: _products(a, b2, bits)))


def _products(first: Dealt, second: Dealt, bits: int) -> list[int]:
    pairs = zip(first.share, second.share, strict=True)
    return [int(mpz(x) * y % (1 << bits)) for x, y in pairs]  # reduced here: Python is slow at long remainders


def draw_mask(coins: Coins, lo: int, hi: int) -> mpz:
    """m in [2^lo, 2^hi) with probability proportional to sin^2(pi (log2 m - lo) / (hi - lo)) / m.

    Logarithm and sine are MPFR's, which are correctly rounded: an SP that moves to another machine in a round draws the same m.
    """
    with gmpy2.context(precision=_PRECISION):
        turn = gmpy2.const_pi() / (hi - lo)
        coin = mpz(1) << _COIN
        while True:
            m = log_uniform(coins, lo, hi)
            height = gmpy2.sin((gmpy2.log2(m) - lo) * turn)
            if coins.bits(_COIN) < height * height * coin:
                return m


class Divider(Protocol):
    """One server where it divides, and who looks on (`View`)."""

    @property
    def side(self) -> Side: ...
    @property
    def view(self) -> View: ...
    def reciprocals(
        self, purpose: str, widths: ReciprocalWidths, dealt: DealtReciprocals, y: Sequence[int]
    ) -> Half[list[int]]:
        """Shares, over the integers, of 2^F / y for each share of a y, given over the integers."""


@dataclass(frozen=True)
class SpDivider:
    side: SpSide
    coins: Coins
    view: View = field(default_factory=partial(View, keep=False))

    def reciprocals(
        self, purpose: str, widths: ReciprocalWidths, dealt: DealtReciprocals, y: Sequence[int]
    ) -> Half[list[int]]:
        _require_dealt(y, dealt.ab)
        coins = self.coins.child(purpose)
        bits = widths.modulus
        m = [draw_mask(coins, widths.lo, widths.hi) for _ in y]
        s = [coins.below(mask >> widths.g) for mask in m]
        e = [mask - a for mask, a in zip(m, dealt.a.share, strict=False)]
        f = unpack((yield from self.side.swap(_encode(e, bits))), widths.f_bits)
        masked = [
            mask * (mine + theirs - (1 << widths.share)) - ab - blur
            for mask, mine, theirs, ab, blur in zip(m, y, f, dealt.ab.share, s, strict=False)
        ]
        answer = unpack((yield from self.side.swap(_encode(masked, bits))), bits)
        products = [mask * h - ab2 for mask, h, ab2 in zip(m, answer, dealt.ab2.share, strict=False)]
        return _results(products, widths, self.side)


@dataclass(frozen=True)
class CspDivider:
    side: CspSide
    view: View = field(default_factory=partial(View, keep=False))

    def reciprocals(
        self, purpose: str, widths: ReciprocalWidths, dealt: DealtReciprocals, y: Sequence[int]
    ) -> Half[list[int]]:
        _require_dealt(y, dealt.ab)
        bits = widths.modulus
        e = unpack(self.side.heard(), bits)
        f = [mine + (1 << widths.share) + b for mine, b in zip(y, dealt.b.share, strict=False)]
        yield from self.side.answer(_encode(f, widths.f_bits))
        theirs = unpack(self.side.heard(), bits)
        masked = [
            int((sp - mpz(mask) * b - ab) % (1 << bits))
            for sp, mask, b, ab in zip(theirs, e, dealt.b.share, dealt.ab.share, strict=False)
        ]
        self.view.saw(purpose, masked)
        answer = [_inverse(value, widths) + b2 for value, b2 in zip(masked, dealt.b2.share, strict=False)]
        yield from self.side.answer(_encode(answer, bits))
        products = [-mpz(mask) * b2 - ab2 for mask, b2, ab2 in zip(e, dealt.b2.share, dealt.ab2.share, strict=False)]
        return _results(products, widths, self.side)


def _inverse(masked: int, widths: ReciprocalWidths) -> int:
    """floor(2^P / y'), or 0 where no honest SP sends this y'; the answer hides which."""
    least = 1 << (widths.lo + widths.low - 1)
    end = 1 << (widths.hi + widths.high)
    quotient = int((mpz(1) << widths.P) // max(masked, least))
    return quotient if least <= masked < end else 0


def _results(products: Sequence[int | mpz], widths: ReciprocalWidths, side: Side) -> list[int]:
    bits = widths.modulus
    return truncate([int(product % (1 << bits)) for product in products], widths.drop, bits, side.index)


def _encode(values: Sequence[int | mpz], bits: int) -> bytes:
    return pack([int(value) for value in values], bits)


def _require_dealt(y: Sequence[int], dealt: Dealt) -> None:
    if len(y) > len(dealt.share):
        raise LengthMismatch(f"{len(y)} divisors, and {len(dealt.share)} were dealt for")
