"""SDIV: SP holds [[x]] and [[y]] and obtains [[x / y]] with CSP's help. Implements Alg. 1, twice.

`PaperSdivSp` and `PaperSdivCsp` follow the print (Y = [[y]]^r, where the paper misprints [[x]]^r), with signed x and an r large
enough that the floor is exact. CSP can read the quotient and the divisor off what it opens: `crowdfl audit` shows how.

`HardenedSdivSp` and `HardenedSdivCsp` close that. The divisor is multiplied by a *log-uniform* rho, which shifts log y' without
changing its distribution by more than |log2(y1/y2)| / (hi - lo), and a remainder s breaks divisibility; the quotient is shifted
by alpha and its fraction blurred by e. With s subtracted (not added) and g wider by `precision` bits, the result R satisfies
floor(x/y) <= R < x/y + 1 + 2^-precision, for x >= 0.

These masks cover numbers of the expected size only, and x and y may come from earlier replies of CSP, which could make them as
large as it likes. A *guard* therefore goes first: CSP opens k*z + m (k secret and short, m uniform modulo N) and returns all
but its last t bits; of an honest z this leaves W = 0 or 1 above m's, and W (W - 1), times a uniform number, is added to what
CSP opens next. Whoever sent a false reply must guess W, or else sees uniform numbers. CSP in turn ends the round unless y' and
the quotient have the lengths of honest ones: a participant that fails a guard on purpose makes the round void, and no reward
of it noise. Proofs in docs/security.md.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log2

from gmpy2 import mpz

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.coins import Coins, log_uniform
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.errors import LengthMismatch, NothingToAverage, ProtocolError, WidthBudgetExceeded
from crowdfl.protocols.common.smul import Computation, Polynomial, PolynomialsSp
from crowdfl.protocols.messages import Message, RoundRequest
from crowdfl.protocols.party import KeyedParty

_SMALLEST_RANGE = 64  # bits between lo and hi below which the divisor's hiding is not worth the name
_GUARD = 40  # bits of k: a number of the wrong size passes a guard with probability at most 2^-39


class SdivRequest(Message, kind=1):
    """SP to CSP, as printed: masked dividends and divisors with SP's half of the decryption."""

    x: CipherVector
    x_1: PartialVector
    y: CipherVector
    y_1: PartialVector


class SdivReply(Message, kind=2):
    """CSP to SP: the encrypted quotients."""

    quotients: CipherVector


class GuardRequest(RoundRequest, kind=26):
    """SP to CSP: k*z + m of the dividends and then of the divisors of one division, with SP's half of the decryption."""

    purpose: str
    masked: CipherVector
    masked_1: PartialVector


class GuardReply(Message, kind=27):
    """CSP to SP: each without its last t bits, encrypted."""

    tops: CipherVector


class DivideRequest(RoundRequest, kind=28):
    """SP to CSP: masked dividends and divisors with SP's half of the decryption. One divisor may serve all dividends."""

    purpose: str
    x: CipherVector
    x_1: PartialVector
    y: CipherVector
    y_1: PartialVector


class PaperSdivSp:
    """SP's side of Alg. 1, for many dividends at a time, each with masks of its own."""

    def __init__(self, party: KeyedParty, *, kappa: int, sigma: int, decimals: int) -> None:
        self.party = party
        self.kappa = kappa
        self.sigma = sigma
        self.scale = 10**decimals
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

    def run(self, x: CipherVector, y: CipherVector, coins: Coins) -> Computation:
        """Line 1: X = [[x]]^r * [[y]]^(r*alpha + e), Y = [[y]]^r. Line 3: [[x' / y']] * [[alpha]]^(-10^L) * [[e / r]]^(-1)."""
        _require_divisors(x, y, shared=False)
        party = self.party
        with party.costs.inside("SDIV", len(x)):
            r = [self._even(coins) for _ in range(len(x))]
            alpha = [(mpz(1) << (self.sigma - 1)) | coins.bits(self.sigma - 1) for _ in r]
            e = [coins.bits(self.kappa) for _ in r]
            shifts = [ri * ai + ei for ri, ai, ei in zip(r, alpha, e, strict=True)]
            big_x = party.add(party.scale_each(x, r), party.scale_each(y, shifts))
            big_y = party.scale_each(y, r)
            request = SdivRequest(big_x, party.partial_decrypt(big_x), big_y, party.partial_decrypt(big_y))
        reply = (yield party.send(request))()
        with party.costs.continuing("SDIV"):
            quotients = _quotients(party, reply, len(x))
            # [e / r] = floor(e * 10^L / r) is zero, because r exceeds 10^L * 2^kappa.
            e_over_r = party.encrypt([0] * len(quotients))
            return party.subtract(quotients, party.add(party.scale(party.encrypt(alpha), self.scale), e_over_r))

    def _even(self, coins: Coins) -> mpz:
        """The printed r is composite: even numbers are, and none has to be tested."""
        return mpz(self.r_low + 2 + 2 * coins.below((self.r_high - self.r_low - 2) // 2))


class PaperSdivCsp:
    """CSP's side of Alg. 1."""

    def __init__(self, party: KeyedParty, *, decimals: int, max_count: int) -> None:
        self.party = party
        self.scale = 10**decimals
        self.max_count = max_count

    def answer(self, request: bytes) -> bytes:
        """Line 2: open x' and y', return [[floor(10^L * x' / y')]]."""
        party = self.party
        message = SdivRequest.from_bytes(request, party.limits(self.max_count))
        with party.costs.inside("SDIV", len(message.x)):
            _require_divisors(message.x, message.y, shared=False)
            x, y = _open(party, message)
            if any(divisor == 0 for divisor in y):
                raise NothingToAverage("a divisor is zero: nobody contributed a sample")
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

    @cached_property
    def x_top(self) -> int:
        """t of a dividend's guard."""
        return self.ybits + self.qbits + _GUARD + 1

    @cached_property
    def y_top(self) -> int:
        """t of a divisor's guard. What passes has at most t + 1 bits, so that masks are made for those."""
        return self.ybits + _GUARD + 1

    @cached_property
    def g(self) -> int:
        """Fraction bits of the quotient that CSP computes and drops."""
        return max(self.y_top + 1 + self.sigma, self.qbits) + 2 + self.precision

    @cached_property
    def lo(self) -> int:
        """rho >= 2^lo leaves s, below rho / 2^g, enough bits to blur y modulo anything, rho modulo k known or not."""
        return self.g + self.y_top + 1 + self.sigma + _GUARD

    @cached_property
    def alpha(self) -> int:
        """Bits of alpha: it covers the quotient even where a false reply has made the divisor 1."""
        return self.x_top + 1 + self.g + self.sigma

    @cached_property
    def hi(self) -> int:
        """rho < 2^hi keeps the masked dividend below N."""
        return self.key_bits - 2 - (self.ybits + self.alpha)

    def takes(self, masked_y: mpz) -> bool:
        """Whether rho*y - s is what an honest y gives. One that was spoilt passes with a probability of 2^-(alpha + 1)."""
        return 0 < masked_y < mpz(1) << (self.hi + self.ybits)

    def gives(self, quotient: mpz) -> bool:
        """Whether floor(V / y') is what an honest x and y give."""
        return mpz(1) << (self.alpha - 1) <= quotient < (mpz(1) << self.alpha) + (mpz(1) << (self.qbits + self.g + 1))

    def advantage(self, y1: int, y2: int) -> float:
        """The most by which CSP can tell divisor y1 from y2, for one division's masked divisor."""
        return abs(log2(y1) - log2(y2)) / (self.hi - self.lo) + 2.0**-self.sigma


class HardenedSdivSp:
    """SP's side: divisors y, one each or one for all; a divisor is masked once, whatever it divides."""

    def __init__(self, party: KeyedParty, widths: SdivWidths, round_number: int, purpose: str) -> None:
        self.party = party
        self.widths = widths
        self.round_number = round_number
        self.purpose = purpose

    def run(self, x: CipherVector, y: CipherVector, coins: Coins) -> Computation:
        """[[x / y]]: guard, then divide, then take alpha >> g off."""
        _require_divisors(x, y, shared=True)
        with self.party.costs.inside("SDIV", len(x)):
            poison = yield from self._guard(x, y, coins.child("guard"))
            alpha, request = self._divide(x, y, poison, coins.child("divide"))
        reply = (yield self.party.send(request))()
        with self.party.costs.continuing("SDIV"):
            quotients = _quotients(self.party, reply, len(x))
            return self.party.add_plain(quotients, [-(a >> self.widths.g) for a in alpha])

    def _guard(self, x: CipherVector, y: CipherVector, coins: Coins) -> Computation:
        """[[W (W - 1)]] of each dividend and each divisor: zeros, unless a reply was false."""
        party = self.party
        tops = guard_tops(self.widths, len(x), len(y))
        k = [(mpz(1) << (_GUARD - 1)) | coins.bits(_GUARD - 1) for _ in tops]
        masks = to_ints(coins.residues(len(tops), party.public.n))
        scaled = party.scale_each(CipherVector.concat([x, y]), k)
        masked = party.rerandomise(party.add_plain(scaled, masks), coins)
        request = GuardRequest(self.round_number, self.purpose, masked, party.partial_decrypt(masked))
        reply = GuardReply.from_bytes((yield party.send(request))(), party.limits(len(tops)))
        if len(reply.tops) != len(tops):
            raise ProtocolError(f"{len(reply.tops)} guards for {len(tops)}")
        above = party.add_plain(reply.tops, [-(m >> t) for m, t in zip(masks, tops, strict=True)])
        squares = PolynomialsSp(party, self.round_number, self.purpose)
        return (yield from squares.run(above, guard_polynomials(len(tops)), coins))

    def _divide(
        self, x: CipherVector, y: CipherVector, poison: CipherVector, coins: Coins
    ) -> tuple[list[mpz], DivideRequest]:
        """y' = rho*y - s; V = x*rho*2^g + y'*alpha + e; both poisoned."""
        party, w = self.party, self.widths
        of_x = poison.part(0, len(x))
        of_y = poison.part(len(x), len(poison))
        rho = [log_uniform(coins, w.lo, w.hi) for _ in range(len(y))]
        masked_y = mask_sizes(party, y, rho, w, coins)
        masked_y = party.rerandomise(party.add(masked_y, self._spoil(of_y, coins)), coins)
        alpha = [(mpz(1) << (w.alpha - 1)) | coins.bits(w.alpha - 1) for _ in range(len(x))]
        rhos = _for_each(rho, len(x))
        e = [coins.bits(r.bit_length() + w.y_top + 1 + w.sigma) for r in rhos]
        spread_y, spread_poison = (_spread(v, len(x)) for v in (masked_y, of_y))
        dividend = party.add(party.scale_each(x, [r << w.g for r in rhos]), party.scale_each(spread_y, alpha))
        spoilt = party.add(self._spoil(of_x, coins), self._spoil(spread_poison, coins))
        big_v = party.rerandomise(party.add(party.add_plain(dividend, e), spoilt), coins)
        shares = party.partial_decrypt(big_v), party.partial_decrypt(masked_y)
        return alpha, DivideRequest(self.round_number, self.purpose, big_v, shares[0], masked_y, shares[1])

    def _spoil(self, poison: CipherVector, coins: Coins) -> CipherVector:
        n = self.party.public.n
        return self.party.scale_modulo(poison, [coins.below(n) for _ in range(len(poison))])


def mask_sizes(party: KeyedParty, y: CipherVector, rho: list[mpz], widths: SdivWidths, coins: Coins) -> CipherVector:
    """rho*y - s of each: its sign stays, and its size is blurred. Not rerandomised."""
    return party.add_plain(party.scale_each(y, rho), [-coins.below(r >> widths.g) for r in rho])


def guard_tops(widths: SdivWidths, dividends: int, divisors: int) -> list[int]:
    """t of every number that a division's guard looks at."""
    return [widths.x_top] * dividends + [widths.y_top] * divisors


def guard_polynomials(count: int) -> list[Polynomial]:
    """W (W - 1) of each."""
    return [{(j, j): 1, (j,): -1} for j in range(count)]


class HardenedSdivCsp:
    """CSP's side. It always computes to the end; what it cannot divide is told by the flag alone."""

    def __init__(self, party: KeyedParty) -> None:
        self.party = party

    def guard(self, message: GuardRequest, tops: list[int]) -> GuardReply:
        party = self.party
        with party.costs.continuing("SDIV"):
            opened = to_ints(party.finish(message.masked, message.masked_1))
            party.view.saw("SDIV guard", opened)
            return GuardReply(party.encrypt([value >> t for value, t in zip(opened, tops, strict=True)]))

    def divide(self, message: DivideRequest, widths: SdivWidths) -> tuple[SdivReply, bool]:
        """[[floor(V / y') >> g]], and whether every divisor and every quotient was one that honest parties make."""
        party = self.party
        with party.costs.inside("SDIV", len(message.x)):
            v, y = _open(party, message)
            fits = [widths.takes(divisor) for divisor in y]
            divisors = [divisor if fit else mpz(1) for divisor, fit in zip(y, fits, strict=True)]
            quotients = [a // b for a, b in zip(v, _for_each(divisors, len(v)), strict=True)]
            fits += [widths.gives(quotient) for quotient in quotients]
            return SdivReply(party.encrypt([quotient >> widths.g for quotient in quotients])), all(fits)


def _for_each(values: list[mpz], count: int) -> list[mpz]:
    return values if len(values) == count else values * count


def _spread(vector: CipherVector, count: int) -> CipherVector:
    return vector if len(vector) == count else CipherVector.concat([vector] * count)


def _require_divisors(x: CipherVector, y: CipherVector, *, shared: bool) -> None:
    if len(y) != len(x) and not (shared and len(y) == 1):
        raise LengthMismatch(f"{len(x)} dividends and {len(y)} divisors")


def _open(party: KeyedParty, message: SdivRequest | DivideRequest) -> tuple[list[mpz], list[mpz]]:
    x = to_ints(party.finish(message.x, message.x_1))
    y = to_ints(party.finish(message.y, message.y_1))
    party.view.saw("SDIV x'", x)
    party.view.saw("SDIV y'", y)
    return x, y


def _quotients(party: KeyedParty, reply: Long, count: int) -> CipherVector:
    quotients = SdivReply.from_bytes(reply, party.limits(count)).quotients
    if len(quotients) != count:
        raise ProtocolError(f"{len(quotients)} quotients for {count} divisions")
    return quotients
