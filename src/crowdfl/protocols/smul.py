"""SMUL: SP holds [[x]] and [[y]] and obtains [[x * y]] with CSP's help. Implements Alg. 2, twice.

`PaperSmulSp` and `PaperSmulCsp` follow the print; the masks' width is the caller's (the printed 80 bits cover too little).

`PolynomialsSp` and `PolynomialsCsp` are the hardened, batched form, and do more than products: SP obtains encryptions of any
*polynomials* in its operands in one exchange. Every operand x_j is masked once, x'_j = x_j + a_j, and masked operands are
packed side by side, so that one opening serves a dozen. CSP returns encrypted products of the x'_j that occur; SP substitutes
x_j = x'_j - a_j, which turns each polynomial into a linear combination of those products with coefficients SP knows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import prod

from gmpy2 import mpz

from crowdfl.crypto.blocks import to_ints
from crowdfl.crypto.budget import bits
from crowdfl.crypto.randomness import Coins
from crowdfl.crypto.vector import CipherVector, PartialVector
from crowdfl.errors import FormatError, LengthMismatch, ProtocolError
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import Party

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

    def __init__(self, party: Party, *, mask_bits: int) -> None:
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

    def __init__(self, party: Party, *, max_count: int) -> None:
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


class PolynomialsRequest(Message, kind=5):
    """SP to CSP: packed masked operands with SP's half of the decryption, their widths, and the products asked for."""

    packed: CipherVector
    packed_1: PartialVector
    widths: tuple[int, ...]
    products: tuple[bytes, ...]


class PolynomialsReply(Message, kind=6):
    """CSP to SP: the encrypted products, in the order asked for."""

    products: CipherVector


@dataclass(frozen=True)
class PolynomialsPending:
    """What SP keeps until the reply."""

    operands: CipherVector = field(repr=False)
    masks: tuple[mpz, ...] = field(repr=False)
    substituted: tuple[Polynomial, ...] = field(repr=False)
    products: tuple[tuple[int, ...], ...]


class PolynomialsSp:
    """SP's side. `masks_in_task` is the number of operands the task ever masks, over which sigma holds."""

    def __init__(self, party: Party, *, sigma: int, masks_in_task: int) -> None:
        self.party, self.slack = party, 1 + sigma + bits(masks_in_task)

    def begin(
        self, operands: CipherVector, widths: Sequence[int], polynomials: Sequence[Polynomial], coins: Coins
    ) -> tuple[PolynomialsPending, bytes]:
        """Mask operand j, |x_j| < 2^widths[j], with a_j in [2^w, 2^w + 2^(w + slack)); pack; say which products occur."""
        party = self.party
        masks = tuple((mpz(1) << w) + coins.bits(w + self.slack) for w in widths)
        fields = [w + self.slack + 1 for w in widths]
        substituted = tuple(_substitute(p, masks) for p in polynomials)
        products = tuple(sorted({m for p in substituted for m in p if len(m) > 1}))
        with party.costs.inside("SMUL", len(products)):
            packed = self._pack(operands, masks, fields, coins)
            request = PolynomialsRequest(
                packed, party.partial_decrypt(packed), tuple(fields), tuple(_monomial_bytes(m) for m in products)
            )
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
        n = self.party.public.n
        constant = polynomial.get((), 0)
        terms, factors = [], []
        for monomial, coefficient in polynomial.items():
            if len(monomial) == 1:  # x'_j = x_j + a_j: no need to ask
                terms.append(pending.operands.part(monomial[0], monomial[0] + 1))
                factors.append(coefficient)
                constant += coefficient * int(pending.masks[monomial[0]])
            elif monomial:
                terms.append(products[monomial])
                factors.append(coefficient)
        scaled = self.party.scale_each(CipherVector.concat(terms), [_centred(f, n) for f in factors])
        return self.party.add_plain(self.party.sum(scaled), [constant])

    def _pack(self, operands: CipherVector, masks: Sequence[mpz], fields: Sequence[int], coins: Coins) -> CipherVector:
        party = self.party
        rows = _layout(fields, party.public.bits - 2)
        offsets = [0] * len(fields)
        for row in rows:
            for left, right in pairwise(row):
                offsets[right] = offsets[left] + fields[left]
        shifted = party.scale_each(operands, [mpz(1) << offset for offset in offsets])
        sums = [party.sum(shifted.part(row[0], row[-1] + 1)) for row in rows]
        packed_masks = [sum(masks[j] << offsets[j] for j in row) for row in rows]
        return party.rerandomise(party.add_plain(CipherVector.concat(sums), packed_masks), coins)


class PolynomialsCsp:
    """CSP's side."""

    def __init__(self, party: Party, *, max_count: int) -> None:
        self.party, self.max_count = party, max_count

    def answer(self, request: bytes) -> bytes:
        party = self.party
        message = PolynomialsRequest.from_bytes(request, party.limits(self.max_count))
        with party.costs.inside("SMUL", len(message.products)):
            opened = to_ints(party.finish(message.packed, message.packed_1))
            operands = _unpack(opened, message.widths, party.public.bits - 2)
            party.view.saw("SMUL x'", operands)
            monomials = [_monomial(data, len(operands)) for data in message.products]
            products = [_centred(prod(operands[j] for j in m), party.public.n) for m in monomials]
            reply = PolynomialsReply(party.encrypt(products))
        return party.send(reply)


def _substitute(polynomial: Polynomial, masks: Sequence[mpz]) -> Polynomial:
    """The polynomial in x'_j = x_j + a_j: every monomial multiplied out."""
    result: Polynomial = {}
    for monomial, coefficient in polynomial.items():
        for size in range(len(monomial) + 1):
            for kept in combinations(range(len(monomial)), size):
                dropped = [masks[monomial[i]] for i in range(len(monomial)) if i not in kept]
                key = tuple(sorted(monomial[i] for i in kept))
                result[key] = result.get(key, 0) + coefficient * int(prod(-a for a in dropped))
    return {monomial: coefficient for monomial, coefficient in result.items() if coefficient}


def _layout(fields: Iterable[int], room: int) -> list[list[int]]:
    """Which operands share a plaintext: in order, as many as fit."""
    rows: list[list[int]] = []
    used = room + 1
    for index, width in enumerate(fields):
        if width > room:
            raise ProtocolError(f"a masked operand of {width} bits does not fit a plaintext of {room}")
        if used + width > room:
            rows.append([])
            used = 0
        rows[-1].append(index)
        used += width
    return rows


def _unpack(plaintexts: Sequence[mpz], fields: Sequence[int], room: int) -> list[mpz]:
    rows = _layout(fields, room)
    if len(rows) != len(plaintexts):
        raise ProtocolError(f"{len(plaintexts)} plaintexts where the widths make {len(rows)}")
    operands = []
    for plaintext, row in zip(plaintexts, rows, strict=True):
        rest = plaintext
        for index in row:
            operands.append(rest & ((1 << fields[index]) - 1))
            rest >>= fields[index]
    return operands


def _monomial_bytes(monomial: tuple[int, ...]) -> bytes:
    return b"".join(index.to_bytes(4, "big") for index in monomial)


def _monomial(data: bytes, operands: int) -> tuple[int, ...]:
    indices = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4))
    if len(data) % 4 or not 2 <= len(indices) <= 8 or max(indices) >= operands:
        raise FormatError("a product must be of 2 to 8 operands that were sent")
    return indices


def _centred(value: int, n: mpz) -> int:
    residue = int(value % n)
    return residue if 2 * residue < n else int(residue - n)
