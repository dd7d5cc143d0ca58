"""PriFedAvg, hardened: the average of encrypted models. Implements Alg. 3 for the profile `hardened`.

An upload is one vector: the packed [[delta_i * w_i]] and, last, [[delta_i]]. SP multiplies uploads into running products, in
any order, as they come: a late upload extends the products and gives bit for bit the sum that an on-time one gives.

With the total shown, the products themselves are opened to the audience (`opening.py`), who divides. With the total hidden,
[[Q]] = SDIV(2^k, Y) and CSP turns the masked products into [[X * Q]], the encrypted average at scale 10^L * 2^k; both servers
add a dither of k bits to every slot, and that is opened: a reader sees the average to within a unit, and no more.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import gmpy2
import numpy as np
import numpy.typing as npt

from crowdfl.crypto import randomness
from crowdfl.crypto.blocks import Block, from_ints, to_ints
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.paillier.budget import WidthBudget, bits
from crowdfl.crypto.paillier.kernels import PowEach
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.crypto.paillier.wide_ints import WideInts
from crowdfl.crypto.public_coins import public_permutation, public_stream
from crowdfl.errors import NothingToAverage, ProtocolError
from crowdfl.protocols.common.sdiv import HardenedSdivSp, SdivWidths
from crowdfl.protocols.exchange import Reply, pipelined
from crowdfl.protocols.hardened.opening import CHUNK, mask_chunk, mask_rows
from crowdfl.protocols.messages import Message, RoundRequest
from crowdfl.protocols.party import KeyedParty

TOTAL = "total"  # what the division of a hidden total is for
_BLIND = 128  # bits of the multiple of N that hides an exponent


@dataclass(frozen=True)
class ModelCodec:
    """Weights to plaintexts and back, for one task: clip, fixed point, public permutation and signs, packing."""

    budget: WidthBudget
    packing: Packing
    seed: bytes

    @cached_property
    def order(self) -> npt.NDArray[np.int64]:
        """The public permutation of the parameters: without it the order of a model's weights would reach the sketch."""
        return _order(self.seed, self.budget.parameters)

    @cached_property
    def signs(self) -> npt.NDArray[np.int64]:
        """Public signs, 1 or -1, of the permuted parameters: without them a drift common to all weights would (D11)."""
        coins = np.frombuffer(public_stream(self.seed, "parameter signs", self.budget.parameters), dtype=np.uint8)
        return 1 - 2 * (coins & 1).astype(np.int64)

    def pack(self, weights: npt.NDArray[np.float64], samples: int) -> tuple[Block, int]:
        """delta * [w], permuted and packed; and how many weights were clipped."""
        encoded = self.budget.encoding.encode(weights)
        weighted = self.budget.weigh(encoded.values, samples)
        return self.packing.pack(weighted[self.order] * self.signs), encoded.clipped

    def average(self, residues: Block, total: int) -> npt.NDArray[np.float64]:
        if total <= 0:
            raise NothingToAverage("the uploads hold no sample between them")
        sums = self.budget.check_sum(self.packing.unpack(residues, self.budget.parameters))
        return self._restore(self.budget.encoding.decode(sums, total))

    def average_of_scaled(self, residues: Block) -> npt.NDArray[np.float64]:
        """The average from opened values at scale 10^L * 2^k, dither and all."""
        values = self.packing.unpack_wide(residues, self.budget.parameters)
        unit = 1 << self.budget.dither_bits
        if any(abs(v) > (self.budget.encoding.bound + 2) * unit for v in values):
            raise NothingToAverage("not an average: the uploads hold no sample between them, or one was out of bounds")
        return self._restore(np.array([v / unit for v in values]) / self.budget.encoding.scale)

    def _restore(self, permuted: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        weights = np.empty_like(permuted)
        weights[self.order] = permuted * self.signs
        return weights


@lru_cache(maxsize=2)
def _order(seed: bytes, parameters: int) -> npt.NDArray[np.int64]:
    """Sorted once per task in a process, whoever packs or reads."""
    order = public_permutation(seed, "parameters", parameters)
    order.flags.writeable = False
    return order


@lru_cache(maxsize=16)
def hidden_widths(budget: WidthBudget) -> SdivWidths:
    ybits = bits(budget.max_participants * budget.max_samples)
    # A division is within 6 * 2^-sigma: all of the task together within 2^-sigma.
    sigma = budget.sigma + 3 + bits(budget.rounds)
    return SdivWidths(budget.key_bits, ybits, budget.dither_bits + 1, sigma, precision=1)


class ScaleRequest(RoundRequest, kind=21):
    """SP to CSP: masked sums with SP's half of the decryption, and [[Q]]."""

    start: int
    masked: CipherVector
    masked_1: PartialVector
    factor: CipherVector


class ScaleReply(Message, kind=22):
    """CSP to SP: [[Q * (X + R)]] with CSP's dither in every slot."""

    scaled: CipherVector


class HiddenAverageSp:
    """SP's side of a hidden total: yields requests, returns the dithered [[X * Q]]."""

    def __init__(self, party: KeyedParty, budget: WidthBudget, packing: Packing, round_number: int) -> None:
        self.party = party
        self.budget = budget
        self.packing = packing
        self.round_number = round_number

    def run(self, sums: CipherVector, total: CipherVector, seed: bytes) -> Generator[bytes, Reply, CipherVector]:
        """Once per sum: `seed` is bound to `sums` by the caller."""
        coins = Coins(seed)
        factor = yield from self._reciprocal(total, coins.child("reciprocal"))
        parts: list[CipherVector] = []

        def take(reply: bytes, start: int) -> None:
            scaled = ScaleReply.from_bytes(reply, self.party.limits(CHUNK)).scaled
            if len(scaled) != min(CHUNK, len(sums) - start):
                raise ProtocolError(f"{len(scaled)} scaled sums for {min(CHUNK, len(sums) - start)}")
            parts.append(self._unmask(scaled, factor, start, seed))

        starts = range(0, len(sums), CHUNK)
        requests = ((self._request(sums.part(s, s + CHUNK), factor, s, seed), s) for s in starts)
        yield from pipelined(requests, take)
        return CipherVector.concat(parts)

    def _reciprocal(self, total: CipherVector, coins: Coins) -> Generator[bytes, Reply, CipherVector]:
        sdiv = HardenedSdivSp(self.party, hidden_widths(self.budget), self.round_number, TOTAL)
        unit = self.party.encrypt([1 << self.budget.dither_bits], coins)
        return self.party.rerandomise((yield from sdiv.run(unit, total, coins)), coins)

    def _request(self, chunk: CipherVector, factor: CipherVector, start: int, seed: bytes) -> bytes:
        party = self.party
        masked = mask_chunk(party, chunk, start, masks=seed, blinds=seed)
        return party.send(ScaleRequest(self.round_number, start, masked, party.partial_decrypt(masked), factor))

    def _unmask(self, scaled: CipherVector, factor: CipherVector, start: int, seed: bytes) -> CipherVector:
        party = self.party
        masks = mask_rows(seed, start, len(scaled), party.public)
        removed = power_of_one(party, factor, masks)
        dithers = dither(Coins(seed).child(f"dither {start}"), len(scaled), self.budget, self.packing)
        # What this holds of [[Q]]^R is blinded once more at the opening, by coins that no reader has.
        return party.subtract(scaled, removed).add_plain(dithers, backend=party.compute)


class HiddenAverageCsp:
    """CSP's side of a hidden total."""

    def __init__(self, party: KeyedParty, budget: WidthBudget, packing: Packing) -> None:
        self.party, self.budget, self.packing = party, budget, packing

    def check(self, message: ScaleRequest) -> None:
        """Before anything is opened."""
        n = self.party.public.n
        # Honest ciphertexts have Jacobi symbol 1; with another, the symbol of [[Q]]^(X + R) would show SP its last bit.
        if gmpy2.jacobi(message.factor[0].value % n, n) != 1:
            raise ProtocolError("the factor is not one that an honest SP sends")

    def answer(self, message: ScaleRequest) -> ScaleReply:
        """Open X + R, return [[Q]]^(X + R), dithered."""
        party = self.party
        opened = party.finish(message.masked, message.masked_1)
        party.view.saw("opened", opened)
        scaled = power_of_one(party, message.factor, _of_one_length(opened, party.public))
        dithers = dither(Coins.fresh(), len(scaled), self.budget, self.packing)
        reply = party.rerandomise(scaled.add_plain(dithers, backend=party.compute))
        return ScaleReply(reply)


def _of_one_length(exponents: Block, public: PublicKey) -> Block:
    """The same modulo N, all of one length and in random digits: how long a power takes then says nothing about them.

    A uniform multiple of N is added, of those that set the same top bit whatever is added to; [[Q]] to it encrypts 0.
    """
    n = public.n
    length = public.n.bit_length() + _BLIND
    least = ((1 << (length - 1)) + n - 1) // n
    most = (1 << length) // n - 1
    multiples = (n * (least + randomness.random_below(most - least)) for _ in range(len(exponents)))
    return from_ints((e + m for e, m in zip(to_ints(exponents), multiples, strict=True)), (length + 7) // 8)


def power_of_one(party: KeyedParty, factor: CipherVector, exponents: Block) -> CipherVector:
    """[[Q * e]] for every row e, from the one [[Q]]."""
    bases = np.repeat(factor.block, len(exponents), axis=0)
    kernel = PowEach(party.public.n_squared, 8 * exponents.shape[1])
    return CipherVector(party.public, party.compute.map(kernel, bases, exponents, progress=party.progress))


def dither(coins: Coins, rows: int, budget: WidthBudget, packing: Packing) -> Block:
    """Uniform over 2^k values around zero in every slot, padding slots included."""
    k = budget.dither_bits
    drawn = WideInts.from_block(coins.residues(rows * packing.slots, 1 << k))
    return packing.pack_wide(drawn.plus(-(1 << (k - 1))))
