"""SMUL: SP holds [[x]] and [[y]] and obtains [[x * y]] with CSP's help. Implements Alg. 2, twice.

`PaperSmulSp` and `PaperSmulCsp` follow the print; the masks' width is the caller's (the printed 80 bits cover too little).

`PolynomialsSp` and `PolynomialsCsp` are the hardened, batched form, and do more than products: SP obtains encryptions of any
*polynomials* in its operands in one exchange. Every operand x_j is masked once, x'_j = x_j + a_j, a_j uniform modulo N: what
CSP opens is uniform whatever x_j is, even where CSP has made x_j large on purpose by an earlier false reply. CSP returns
encrypted products of the x'_j that occur; SP substitutes x_j = x'_j - a_j, which turns each polynomial into a linear
combination of those products with coefficients SP knows. Both derive the products from the polynomials: none is asked for.
"""

from collections.abc import Generator, Sequence
from itertools import combinations
from math import prod

from gmpy2 import mpz

from crowdfl.crypto.blocks import products as multiplied
from crowdfl.crypto.blocks import to_ints, widened
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector, signed_values
from crowdfl.errors import LengthMismatch, ProtocolError
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.messages import Message, RoundRequest
from crowdfl.protocols.party import KeyedParty

Polynomial = dict[tuple[int, ...], int]
"""Coefficients by monomial; a monomial is the sorted tuple of its operands' numbers, () the constant."""

Computation = Generator[bytes, Reply, CipherVector]
"""SP's side of a step that gives it a vector of ciphertexts."""


class SmulRequest(Message, kind=3):
    """SP to CSP: masked factors with SP's half of the decryption."""

    x: CipherVector
    x_1: PartialVector
    y: CipherVector
    y_1: PartialVector


class SmulReply(Message, kind=4):
    """CSP to SP: the encrypted products of the masked factors."""

    products: CipherVector


class PaperSmulSp:
    """SP's side of Alg. 2, for many products at a time."""

    def __init__(self, party: KeyedParty, *, mask_bits: int) -> None:
        self.party, self.mask_bits = party, mask_bits

    def run(self, x: CipherVector, y: CipherVector, coins: Coins) -> Computation:
        """Line 1: X = [[x]] * [[r_1]], Y = [[y]] * [[r_2]]. Line 3: take r_2*x, r_1*y and r_1*r_2 off."""
        if len(x) != len(y):
            raise LengthMismatch(f"{len(x)} and {len(y)} factors")
        party = self.party
        with party.costs.inside("SMUL", len(x)):
            r_1, r_2 = (coins.rows(len(x), self.mask_bits) for _ in range(2))
            wide = party.public.plaintext_bytes
            big_x = party.add(x, party.encrypt(widened(r_1, wide), coins))
            big_y = party.add(y, party.encrypt(widened(r_2, wide), coins))
            request = SmulRequest(big_x, party.partial_decrypt(big_x), big_y, party.partial_decrypt(big_y))
        reply = (yield party.send(request))()
        with party.costs.continuing("SMUL"):
            products = SmulReply.from_bytes(reply, party.limits(len(x))).products
            r_1r_2 = party.encrypt(multiplied(r_1, r_2, party.public.n))
            crossed = party.add(party.scale_each(x, r_2), party.scale_each(y, r_1))
            return party.subtract(products, party.add(crossed, r_1r_2))


class PaperSmulCsp:
    """CSP's side of Alg. 2."""

    def __init__(self, party: KeyedParty, *, max_count: int) -> None:
        self.party, self.max_count = party, max_count

    def answer(self, request: bytes) -> bytes:
        """Line 2: open x' and y', return [[x' * y']]."""
        party = self.party
        message = SmulRequest.from_bytes(request, party.limits(self.max_count))
        with party.costs.inside("SMUL", len(message.x)):
            x, y = party.finish(message.x, message.x_1), party.finish(message.y, message.y_1)
            if party.view.keep:
                party.view.saw("SMUL x'", signed_values(x, party.public))
                party.view.saw("SMUL y'", signed_values(y, party.public))
            reply = SmulReply(party.encrypt(multiplied(x, y, party.public.n)))
        return party.send(reply)


class PolynomialsRequest(RoundRequest, kind=5):
    """SP to CSP: masked operands with SP's half of the decryption. `purpose` says which polynomials they are for."""

    purpose: str
    masked: CipherVector
    masked_1: PartialVector


class PolynomialsReply(Message, kind=6):
    """CSP to SP: the encrypted products, in the order of `products_in`."""

    products: CipherVector


def products_in(polynomials: Sequence[Polynomial]) -> tuple[tuple[int, ...], ...]:
    """The products of masked operands that some polynomials multiply out to, sorted."""
    parts = (
        part
        for polynomial in polynomials
        for monomial in polynomial
        for size in range(2, len(monomial) + 1)
        for part in combinations(monomial, size)
    )
    return tuple(sorted(set(parts)))


class PolynomialsSp:
    """SP's side, for one purpose in one round."""

    def __init__(self, party: KeyedParty, round_number: int, purpose: str) -> None:
        self.party, self.round_number, self.purpose = party, round_number, purpose

    def run(self, operands: CipherVector, polynomials: Sequence[Polynomial], coins: Coins) -> Computation:
        """Each polynomial as a linear combination of operands and products."""
        party = self.party
        n = self.party.public.n
        masks = to_ints(coins.residues(len(operands), n))
        needed = products_in(polynomials)
        with party.costs.inside("SMUL", len(needed)):
            masked = party.rerandomise(party.add_plain(operands, masks), coins)
            request = PolynomialsRequest(self.round_number, self.purpose, masked, party.partial_decrypt(masked))
        reply = (yield party.send(request))()
        with party.costs.continuing("SMUL"):
            products = PolynomialsReply.from_bytes(reply, party.limits(len(needed))).products
            if len(products) != len(needed):
                raise ProtocolError(f"{len(products)} products where {len(needed)} were asked for")
            terms = {monomial: products.part(index, index + 1) for index, monomial in enumerate(needed)}
            terms |= {(j,): operands.part(j, j + 1) for j in range(len(operands))}  # no need to ask for those
            return CipherVector.concat([self._evaluate(substitute(p, masks, n), masks, terms) for p in polynomials])

    def _evaluate(
        self, polynomial: Polynomial, masks: Sequence[mpz], terms: dict[tuple[int, ...], CipherVector]
    ) -> CipherVector:
        """A term of one factor is x'_j = x_j + a_j."""
        constant = sum(c * (1 if not m else int(masks[m[0]])) for m, c in polynomial.items() if len(m) < 2)
        wanted = {m: c for m, c in polynomial.items() if m}
        scaled = self.party.scale_modulo(CipherVector.concat([terms[m] for m in wanted]), wanted.values())
        return self.party.add_plain(self.party.sum(scaled), [constant])


class PolynomialsCsp:
    """CSP's side."""

    def __init__(self, party: KeyedParty) -> None:
        self.party = party

    def answer(self, message: PolynomialsRequest, products: Sequence[tuple[int, ...]]) -> PolynomialsReply:
        party = self.party
        n = self.party.public.n
        with party.costs.inside("SMUL", len(products)):
            operands = to_ints(party.finish(message.masked, message.masked_1))
            party.view.saw("SMUL x'", operands)
            opened = [party.public.signed(prod(operands[j] for j in monomial) % n) for monomial in products]
            return PolynomialsReply(party.encrypt(opened))


def substitute(polynomial: Polynomial, masks: Sequence[mpz], n: mpz) -> Polynomial:
    """The polynomial in x'_j = x_j + a_j, modulo N: every monomial multiplied out."""
    result: Polynomial = {}
    for monomial, coefficient in polynomial.items():
        for size in range(len(monomial) + 1):
            for kept in combinations(range(len(monomial)), size):
                dropped = [masks[monomial[i]] for i in range(len(monomial)) if i not in kept]
                key = tuple(monomial[i] for i in kept)
                result[key] = int((result.get(key, 0) + coefficient * prod(-a for a in dropped)) % n)
    return result
