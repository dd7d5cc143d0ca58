"""Two servers with the halves of a key, for a single division or single products without the order of a round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crowdfl.crypto.compute import Backend, default_backend
from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.pctd import PrivateKey, PublicKey
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.errors import NothingToAverage
from crowdfl.protocols.common.sdiv import (
    DivideRequest,
    GuardRequest,
    HardenedSdivCsp,
    SdivWidths,
    guard_polynomials,
    guard_tops,
)
from crowdfl.protocols.common.smul import PolynomialsCsp, PolynomialsRequest, products_in
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import KeyedParty


class Pair(NamedTuple):
    """SP and CSP with their shares of one key, and the whole key to look with."""

    private: PrivateKey
    sp: KeyedParty
    csp: KeyedParty

    @classmethod
    def fresh(cls, prime_bits: int, *, as_printed: bool = False, backend: Backend | None = None) -> "Pair":
        """Under a test key."""
        private = pctd.keygen(prime_bits, insecure_test_key=True).private
        shares = zip(("SP", "CSP"), private.split_as_printed() if as_printed else private.split(), strict=True)
        made = [KeyedParty(name, one.public, one, backend=backend or default_backend()) for name, one in shares]
        return cls(private, *made)

    @property
    def public(self) -> PublicKey:
        return self.private.public

    def encrypt(self, numbers: Sequence[int]) -> CipherVector:
        return self.sp.encrypt(numbers)

    def read(self, vector: CipherVector) -> list[int]:
        return [self.private.decrypt(vector[i]) for i in range(len(vector))]


@dataclass
class DivisionCsp:
    """Answers guard, squares and division, as often as asked."""

    party: KeyedParty
    widths: SdivWidths
    dividends: int
    divisors: int

    def answer(self, request: bytes) -> bytes:
        limits = self.party.limits(self.dividends + self.divisors)
        kind = Message.kind_of(request)
        if kind == GuardRequest.kind:
            return self.party.send(self.guard(GuardRequest.from_bytes(request, limits)))
        if kind == PolynomialsRequest.kind:
            products = products_in(guard_polynomials(self.dividends + self.divisors))
            squares = PolynomialsRequest.from_bytes(request, limits)
            return self.party.send(PolynomialsCsp(self.party).answer(squares, products))
        return self.party.send(self.divide(DivideRequest.from_bytes(request, limits)))

    def guard(self, message: GuardRequest) -> Message:
        tops = guard_tops(self.widths, self.dividends, self.divisors)
        return HardenedSdivCsp(self.party).guard(message, tops)

    def divide(self, message: DivideRequest) -> Message:
        reply, fits = HardenedSdivCsp(self.party).divide(message, self.widths)
        if not fits:
            raise NothingToAverage("a divisor is not one that honest parties make")
        return reply
