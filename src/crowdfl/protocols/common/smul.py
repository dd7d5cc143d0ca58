"""SMUL: SP holds [[x]] and [[y]] and obtains [[x * y]] with CSP's help. Implements Alg. 2, twice.

`PaperSmulSp` and `PaperSmulCsp` follow the print; the masks' width is the caller's (the printed 80 bits cover too little).

`PolynomialsSp` and `PolynomialsCsp` are the hardened, batched form, and do more than products: SP obtains encryptions of any
*polynomials* in its operands in one exchange. Every operand x_j is masked once, x'_j = x_j + a_j, a_j uniform modulo N: what
CSP opens is uniform whatever x_j is, even where CSP has made x_j large on purpose by an earlier false reply. CSP returns
encrypted products of the x'_j that occur; SP substitutes x_j = x'_j - a_j, which turns each polynomial into a linear
combination of those products with coefficients SP knows. Both derive the products from the polynomials: none is asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod

from gmpy2 import mpz

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.crypto.randomness import Coins
from crowdfl.errors import LengthMismatch, ProtocolError
from crowdfl.protocols.messages import Message, RoundRequest
from crowdfl.protocols.party import KeyedParty

Polynomial = dict[tuple[int, ...], int]
"""Coefficients by monomial; a monomial is the sorted tuple of its operands' numbers, () the constant."""


class SmulRequest(Message, kind=3):
    """SP to CSP: masked factors with SP's half of the decryption."""

    x: CipherVector
    x_1: PartialVector
    y: CipherVector
    y_1: PartialVector


class SmulReply(Message, kind=4):
    """CSP to SP: the encrypted products of the masked factors."""

    products: CipherVector


@dataclass(frozen=True)
class SmulPending:
    """What SP keeps until the reply."""

    x: CipherVector = field(repr=False)
    y: CipherVector = field(repr=False)
    r_1: tuple[mpz, ...] = field(repr=False)
    r_2: tuple[mpz, ...] = field(repr=False)


class PaperSmulSp:
    """SP's side of Alg. 2, for many products at a time."""

    def __init__(self, party: KeyedParty, *, mask_bits: int) -> None:
        self.party, self.mask_bits = party, mask_bits

    def begin(self, x: CipherVector, y: CipherVector, coins: Coins) -> tuple[SmulPending, bytes]:
        """Line 1: X = [[x]] * [[r_1]], Y = [[y]] * [[r_2]]."""
        if len(x) != len(y):
            raise LengthMismatch(f"{len(x)} and {len(y)} factors")
        party = self.party
        with party.costs.inside("SMUL", len(x)):
            r_1 = tuple(coins.bits(self.mask_bits) for _ in range(len(x)))
            r_2 = tuple(coins.bits(self.mask_bits) for _ in range(len(x)))
            big_x = party.add(x, party.encrypt(r_1, coins))
            big_y = party.add(y, party.encrypt(r_2, coins))
            request = SmulRequest(big_x, party.partial_decrypt(big_x), big_y, party.partial_decrypt(big_y))
        return SmulPending(x, y, r_1, r_2), party.send(request)

    def finish(self, pending: SmulPending, reply: bytes) -> CipherVector:
        """Line 3: take r_2*x, r_1*y and r_1*r_2 off."""
        party = self.party
        with party.costs.continuing("SMUL"):
            products = SmulReply.from_bytes(reply, party.limits(len(pending.x))).products
            r_2x = party.scale_each(pending.x, pending.r_2)
            r_1y = party.scale_each(pending.y, pending.r_1)
            r_1r_2 = party.encrypt([a * b for a, b in zip(pending.r_1, pending.r_2, strict=True)])
            return party.subtract(products, party.add(party.add(r_2x, r_1y), r_1r_2))


class PaperSmulCsp:
    """CSP's side of Alg. 2."""

    def __init__(self, party: KeyedParty, *, max_count: int) -> None:
        self.party, self.max_count = party, max_count

    def answer(self, request: bytes) -> bytes:
        """Line 2: open x' and y', return [[x' * y']]."""
        party = self.party
        message = SmulRequest.from_bytes(request, party.limits(self.max_count))
        with party.costs.inside("SMUL", len(message.x)):
            x = [party.public.signed(v) for v in to_ints(party.finish(message.x, message.x_1))]
            y = [party.public.signed(v) for v in to_ints(party.finish(message.y, message.y_1))]
            party.view.saw("SMUL x'", x)
            party.view.saw("SMUL y'", y)
            reply = SmulReply(party.encrypt([a * b for a, b in zip(x, y, strict=True)]))
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


@dataclass(frozen=True)
class PolynomialsPending:
    """What SP keeps until the reply."""

    operands: CipherVector = field(repr=False)
    masks: tuple[mpz, ...] = field(repr=False)
    substituted: tuple[Polynomial, ...] = field(repr=False)
    products: tuple[tuple[int, ...], ...]


class PolynomialsSp:
    """SP's side, for one purpose in one round."""

    def __init__(self, party: KeyedParty, round_number: int, purpose: str) -> None:
        self.party, self.round_number, self.purpose = party, round_number, purpose

    def begin(
        self, operands: CipherVector, polynomials: Sequence[Polynomial], coins: Coins
    ) -> tuple[PolynomialsPending, bytes]:
        party, n = self.party, self.party.public.n
        masks = tuple(to_ints(coins.residues(len(operands), n)))
        products = products_in(polynomials)
        with party.costs.inside("SMUL", len(products)):
            masked = party.rerandomise(party.add_plain(operands, masks), coins)
            request = PolynomialsRequest(self.round_number, self.purpose, masked, party.partial_decrypt(masked))
        substituted = tuple(_substitute(p, masks, n) for p in polynomials)
        return PolynomialsPending(operands, masks, substituted, products), party.send(request)

    def finish(self, pending: PolynomialsPending, reply: bytes) -> CipherVector:
        """Each polynomial as a linear combination of operands and products."""
        party = self.party
        with party.costs.continuing("SMUL"):
            products = PolynomialsReply.from_bytes(reply, party.limits(len(pending.products))).products
            if len(products) != len(pending.products):
                raise ProtocolError(f"{len(products)} products where {len(pending.products)} were asked for")
            product_of = {m: products.part(index, index + 1) for index, m in enumerate(pending.products)}
            return CipherVector.concat([self._evaluate(p, pending, product_of) for p in pending.substituted])

    def _evaluate(
        self, polynomial: Polynomial, pending: PolynomialsPending, products: dict[tuple[int, ...], CipherVector]
    ) -> CipherVector:
        constant = polynomial.get((), 0)
        terms, factors = [], []
        for monomial, coefficient in polynomial.items():
            if len(monomial) == 1:  # x'_j = x_j + a_j: no need to ask
                terms.append(pending.operands.part(monomial[0], monomial[0] + 1))
                constant += coefficient * int(pending.masks[monomial[0]])
            elif monomial:
                terms.append(products[monomial])
            if monomial:
                factors.append(coefficient)
        scaled = self.party.scale_modulo(CipherVector.concat(terms), factors)
        return self.party.add_plain(self.party.sum(scaled), [constant])


class PolynomialsCsp:
    """CSP's side."""

    def __init__(self, party: KeyedParty) -> None:
        self.party = party

    def answer(self, message: PolynomialsRequest, products: Sequence[tuple[int, ...]]) -> PolynomialsReply:
        party, n = self.party, self.party.public.n
        with party.costs.inside("SMUL", len(products)):
            operands = to_ints(party.finish(message.masked, message.masked_1))
            party.view.saw("SMUL x'", operands)
            opened = [party.public.signed(prod(operands[j] for j in monomial) % n) for monomial in products]
            return PolynomialsReply(party.encrypt(opened))


def _substitute(polynomial: Polynomial, masks: Sequence[mpz], n: mpz) -> Polynomial:
    """The polynomial in x'_j = x_j + a_j, modulo N: every monomial multiplied out."""
    result: Polynomial = {}
    for monomial, coefficient in polynomial.items():
        for size in range(len(monomial) + 1):
            for kept in combinations(range(len(monomial)), size):
                dropped = [masks[monomial[i]] for i in range(len(monomial)) if i not in kept]
                key = tuple(monomial[i] for i in kept)
                result[key] = int((result.get(key, 0) + coefficient * prod(-a for a in dropped)) % n)
    return result
