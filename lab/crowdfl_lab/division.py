"""CSP's side of a single division or of single products, without the order of a round: what is timed, and what is attacked."""

from dataclasses import dataclass

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


@dataclass
class DivisionCsp:
    """Answers guard, squares and division, as often as asked."""

    party: KeyedParty
    widths: SdivWidths
    dividends: int
    divisors: int

    def answer(self, request: bytes) -> bytes:
        limits, kind = self.party.limits(self.dividends + self.divisors), Message.kind_of(request)
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
