"""SDIV: SP holds [[x]] and [[y]] and obtains [[x / y]] with CSP's help. Implements Alg. 1, twice.

`PaperSdivSp` and `PaperSdivCsp` follow the print (Y = [[y]]^r, where the paper misprints [[x]]^r), with signed x and an r large
enough that the floor is exact. CSP can read the quotient and the divisor off what it opens: `crowdfl audit` shows how.

`HardenedSdivSp` and `HardenedSdivCsp` close that. The divisor is multiplied by a *log-uniform* rho, which shifts log y' without
changing its distribution by more than |log2(y1/y2)| / (hi - lo), and a remainder s breaks divisibility; the quotient is shifted
by alpha and its fraction blurred by e. With s subtracted (not added) and g wider by `precision` bits, the result R satisfies
floor(x/y) <= R < x/y + 1 + 2^-precision, for x >= 0. Proof in docs/security.md.
"""

from dataclasses import dataclass, field
from math import log2

import gmpy2
from gmpy2 import mpz

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.randomness import Coins, log_uniform
from crowdfl.crypto.vector import CipherVector, PartialVector
from crowdfl.errors import LengthMismatch, NothingToAverage, ProtocolError, WidthBudgetExceeded
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import Party

_SMALLEST_RANGE = 64  # bits between lo and hi below which the divisor's hiding is not worth the name


class SdivRequest(Message, kind=1):
    """SP to CSP: masked dividends and divisors with SP's half of the decryption. One divisor may serve all dividends."""

    x: CipherVector
    x_1: PartialVector
    y: CipherVector
    y_1: PartialVector
    shift: int


class SdivReply(Message, kind=2):
    """CSP to SP: the encrypted quotients."""

    quotients: CipherVector


@dataclass(frozen=True)
class SdivPending:
    """What SP keeps until the reply: the masks to take off."""

    corrections: tuple[int, ...] = field(repr=False)


class PaperSdivSp:
    """SP's side of Alg. 1, for many dividends at a time, each with masks of its own."""

    def __init__(self, party: Party, *, kappa: int, sigma: int, decimals: int) -> None:
        self.party, self.kappa, self.sigma, self.scale = party, kappa, sigma, 10**decimals
        self.check(party.public.bits, kappa, sigma, decimals)
        self.r_low = self.scale << (2 * kappa)
        self.r_high = 1 << (party.public.bits - kappa - sigma - 2)

    @staticmethod
    def check(key_bits: int, kappa: int, sigma: int, decimals: int) -> None:
        """r must exceed 10^L * 2^(2*kappa), for an exact floor, and leave room for the masked dividend."""
        needed = (10**decimals << (2 * kappa)).bit_length() + kappa + sigma + 3
        if needed > key_bits:
            raise WidthBudgetExceeded(
                f"SDIV with kappa = {kappa} and sigma = {sigma} needs a key of {needed} bits; this one has {key_bits}"
            )

    def begin(self, x: CipherVector, y: CipherVector, coins: Coins) -> tuple[SdivPending, bytes]:
        """Line 1: X = [[x]]^r * [[y]]^(r*alpha + e), Y = [[y]]^r."""
        _require_divisors(x, y, shared=False)
        party = self.party
        with party.costs.inside("SDIV", len(x)):
            r = [self._composite(coins) for _ in range(len(x))]
            alpha = [(mpz(1) << (self.sigma - 1)) | coins.bits(self.sigma - 1) for _ in r]
            e = [coins.bits(self.kappa) for _ in r]
            shifts = [ri * ai + ei for ri, ai, ei in zip(r, alpha, e, strict=True)]
            big_x = party.add(party.scale_each(x, r), party.scale_each(y, shifts))
            big_y = party.scale_each(y, r)
            request = SdivRequest(big_x, party.partial_decrypt(big_x), big_y, party.partial_decrypt(big_y), 0)
        # [e / r] = floor(e * 10^L / r) is zero, because r exceeds 10^L * 2^kappa.
        return SdivPending(tuple(int(a) * self.scale for a in alpha)), party.send(request)

    def finish(self, pending: SdivPending, reply: bytes) -> CipherVector:
        """Line 3: [[x / y]] = [[x' / y']] * [[alpha]]^(-10^L) * [[e / r]]^(-1)."""
        party = self.party
        with party.costs.continuing("SDIV"):
            quotients = _quotients(party, reply, len(pending.corrections))
            alpha = party.encrypt([c // self.scale for c in pending.corrections])
            e_over_r = party.encrypt([0] * len(quotients))
            scaled = party.add(party.scale(alpha, self.scale), e_over_r)
            return party.subtract(quotients, scaled)

    def _composite(self, coins: Coins) -> mpz:
        while True:
            r = self.r_low + 1 + coins.below(self.r_high - self.r_low - 1)
            if not gmpy2.is_prime(r, 1):
                return mpz(r)


class PaperSdivCsp:
    """CSP's side of Alg. 1."""

    def __init__(self, party: Party, *, decimals: int, max_count: int) -> None:
        self.party, self.scale, self.max_count = party, 10**decimals, max_count

    def answer(self, request: bytes) -> bytes:
        """Line 2: open x' and y', return [[floor(10^L * x' / y')]]."""
        party = self.party
        message = SdivRequest.from_bytes(request, party.limits(self.max_count))
        with party.costs.inside("SDIV", len(message.x)):
            x, y = _open(party, message, shared=False)
            reply = SdivReply(party.encrypt([a * self.scale // b for a, b in zip(x, y, strict=True)]))
        return party.send(reply)


@dataclass(frozen=True)
class SdivWidths:
    """The widths of a hardened division: 0 <= x, 0 < y < 2^ybits, x / y < 2^qbits."""

    key_bits: int
    ybits: int
    qbits: int
    sigma: int
    precision: int

    def __post_init__(self) -> None:
        if self.hi - self.lo < _SMALLEST_RANGE:
            raise WidthBudgetExceeded(
                f"a division by {self.ybits} bits to a quotient of {self.qbits} bits with sigma = {self.sigma} leaves rho "
                f"the range 2^{self.lo}..2^{self.hi} in |N| = {self.key_bits}: take a longer key, or lower max_samples, clip, "
                "decimals or lanes"
            )

    @property
    def g(self) -> int:
        """Fraction bits of the quotient that CSP computes and drops."""
        return max(self.ybits + self.sigma, self.qbits) + 2 + self.precision

    @property
    def lo(self) -> int:
        """rho >= 2^lo leaves s, below rho / 2^g, enough bits to blur y modulo anything."""
        return self.g + self.ybits + self.sigma

    @property
    def hi(self) -> int:
        """rho < 2^hi keeps the masked dividend below N."""
        return self.key_bits - 2 - (self.ybits + self.qbits + self.g + self.sigma)

    def advantage(self, y1: int, y2: int) -> float:
        """The most by which CSP can tell divisor y1 from y2, for one division's masked divisor."""
        return abs(log2(y1) - log2(y2)) / (self.hi - self.lo) + 2.0**-self.sigma


class HardenedSdivSp:
    """SP's side: divisors y, one each or one for all; a divisor is masked once, whatever it divides."""

    def __init__(self, party: Party, widths: SdivWidths) -> None:
        self.party, self.widths = party, widths

    def begin(self, x: CipherVector, y: CipherVector, coins: Coins) -> tuple[SdivPending, bytes]:
        """y' = rho*y - s; V = x*rho*2^g + y'*alpha + e."""
        _require_divisors(x, y, shared=True)
        party, w = self.party, self.widths
        with party.costs.inside("SDIV", len(x)):
            rho = [log_uniform(coins, w.lo, w.hi) for _ in range(len(y))]
            s = [coins.below(r >> w.g) for r in rho]
            masked_y = party.rerandomise(party.add_plain(party.scale_each(y, rho), [-si for si in s]), coins)
            top = w.qbits + w.g + w.sigma - 1
            alpha = [(mpz(1) << top) | coins.bits(top) for _ in range(len(x))]
            rhos = rho if len(y) == len(x) else rho * len(x)
            e = [coins.bits(r.bit_length() + w.ybits + w.sigma) for r in rhos]
            spread_y = masked_y if len(y) == len(x) else CipherVector.concat([masked_y] * len(x))
            dividend = party.add(party.scale_each(x, [r << w.g for r in rhos]), party.scale_each(spread_y, alpha))
            big_v = party.rerandomise(party.add_plain(dividend, e), coins)
            request = SdivRequest(big_v, party.partial_decrypt(big_v), masked_y, party.partial_decrypt(masked_y), w.g)
        return SdivPending(tuple(int(a >> w.g) for a in alpha)), party.send(request)

    def finish(self, pending: SdivPending, reply: bytes) -> CipherVector:
        """Take alpha >> g off."""
        party = self.party
        with party.costs.continuing("SDIV"):
            quotients = _quotients(party, reply, len(pending.corrections))
            return party.add_plain(quotients, [-c for c in pending.corrections])


class HardenedSdivCsp:
    """CSP's side."""

    def __init__(self, party: Party, *, max_count: int) -> None:
        self.party, self.max_count = party, max_count

    def answer(self, request: bytes) -> bytes:
        """[[floor(V / y') >> g]]."""
        party = self.party
        message = SdivRequest.from_bytes(request, party.limits(self.max_count))
        with party.costs.inside("SDIV", len(message.x)):
            v, y = _open(party, message, shared=True)
            # y' = rho*0 - s wraps; honest divisors stay far below.
            if any(2 * divisor > party.public.n for divisor in y):
                raise NothingToAverage("a divisor is zero: nobody contributed a sample")
            reply = SdivReply(party.encrypt([(a // b) >> message.shift for a, b in zip(v, y, strict=True)]))
        return party.send(reply)


def _require_divisors(x: CipherVector, y: CipherVector, *, shared: bool) -> None:
    if len(y) != len(x) and not (shared and len(y) == 1):
        raise LengthMismatch(f"{len(x)} dividends and {len(y)} divisors")


def _open(party: Party, message: SdivRequest, *, shared: bool) -> tuple[list[mpz], list[mpz]]:
    _require_divisors(message.x, message.y, shared=shared)
    x = to_ints(party.finish(message.x, message.x_1))
    y = to_ints(party.finish(message.y, message.y_1))
    party.view.saw("SDIV x'", x)
    party.view.saw("SDIV y'", y)
    if any(divisor == 0 for divisor in y):
        raise NothingToAverage("a divisor is zero: nobody contributed a sample")
    return x, (y if len(y) == len(x) else y * len(x))


def _quotients(party: Party, reply: bytes, count: int) -> CipherVector:
    quotients = SdivReply.from_bytes(reply, party.limits(count)).quotients
    if len(quotients) != count:
        raise ProtocolError(f"{len(quotients)} quotients for {count} divisions")
    return quotients
