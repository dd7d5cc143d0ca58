"""PriRwd, hardened: rewards from the very ciphertexts that were averaged. Implements Alg. 4 for the profile `hardened`.

mu_i = b * (delta_i / (d_i + eps)) / sum_k (delta_k / (d_k + eps)): the factors of Eq. 10 that are common to all cancel.

With u_i the lanes of upload i (delta_i * w_i at scale 10^L, sketched or not), U their sum and Y the total of the samples:

    A_i = <u_i, u_i>     B_i = <u_i, U>     <U, U> = sum of B_i
    G_i = Y^2 A_i - 2 Y delta_i B_i + delta_i^2 <U, U>  =  |Y u_i - delta_i U|^2  =  Y^2 delta_i^2 10^2L d_i
    weight_i = delta_i^3 2^S / (G_i + eps_i + 1),  eps_i = Y^2 delta_i^2 10^2L eps
    mu_i = (2^h b - 2n) weight_i / (sum of weights + 1), in millionths / 2^h; the participant drops the last h bits

The +1 in the divisor makes a participant without samples weigh nothing; the h bits make it earn exactly nothing, and keep the
sum within b although a division may come out one too high (deviation D12).

CSP tests that 0 <= delta_i <= max_samples, on [[delta_i]] as it was uploaded, which no reply of CSP can alter: one count
outside makes the round void. A negative weight would raise the rewards of others above b together.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, to_ints
from crowdfl.crypto.coins import Coins, log_uniform
from crowdfl.crypto.commitment import commit
from crowdfl.crypto.paillier.budget import WidthBudget, bits
from crowdfl.crypto.paillier.kernels import MultiPow
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.crypto.paillier.wide_ints import WideInts
from crowdfl.crypto.public_coins import public_permutation, public_stream
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.errors import ProtocolError, SettingsError
from crowdfl.protocols.claims import RewardEnvelope, RewardForm
from crowdfl.protocols.common.sdiv import HardenedSdivSp, SdivWidths, mask_sizes
from crowdfl.protocols.common.smul import Polynomial, PolynomialsSp
from crowdfl.protocols.exchange import Reply, pipelined
from crowdfl.protocols.hardened.manifest import ManifestRequest
from crowdfl.protocols.messages import Message, RoundRequest
from crowdfl.protocols.party import KeyedParty

DISTANCES, WEIGHTS, REWARDS = "distances", "weights", "rewards"  # what polynomials and divisions are for
_LANES_A_MESSAGE = 16384  # products of powers are cheaper over more bases
_Exchange = Generator[bytes, Reply, CipherVector]


@dataclass(frozen=True)
class RewardWidths:
    """What follows from a task's bounds for its rewards; refuses what does not fit under the key."""

    budget: WidthBudget
    epsilon_units: int
    largest_payment: int  # millionths

    def __post_init__(self) -> None:
        _ = self.counts, self.weights, self.rewards  # SdivWidths refuses what does not fit

    def require_payment(self, payment: int) -> None:
        if not 0 < payment <= self.largest_payment:
            raise SettingsError(f"a round pays 1 to {self.largest_payment} millionths, not {payment}")

    def form(self, public: PublicKey) -> RewardForm:
        return RewardForm(int(public.n), public.plaintext_bytes, self.fraction, self.largest_payment)

    @cached_property
    def lanes(self) -> int:
        return self.budget.buckets * self.budget.slots

    @cached_property
    def total(self) -> int:
        """Largest Y."""
        return self.budget.max_participants * self.budget.max_samples

    @cached_property
    def g(self) -> int:
        """Largest G_i."""
        coordinate = 2 * self.total * self.budget.lane_bound
        return self.lanes * coordinate**2

    @cached_property
    def divisor(self) -> int:
        """Largest G_i + eps_i + 1."""
        return self.g + (self.total * self.budget.max_samples) ** 2 * self.epsilon_units + 1

    @cached_property
    def shift(self) -> int:
        """S: scales the weights, so that the least of them exceeds the largest payment: a last unit does not matter."""
        return bits(self.divisor) + bits(self.largest_payment << self.fraction) + bits(self.budget.max_participants)

    @cached_property
    def weight(self) -> int:
        """Largest weight, with the division's excess."""
        return (self.budget.max_samples**3 << self.shift) + 2

    @cached_property
    def fraction(self) -> int:
        """h: bits of a reward below the millionth."""
        return bits(3 * self.budget.max_participants) + 1

    @cached_property
    def counts(self) -> SdivWidths:
        """Of delta_i + 1 and of max_samples + 1 - delta_i, whose sizes are masked like a divisor's."""
        return self._sdiv(bits(self.budget.max_samples + 1), 1)

    @cached_property
    def weights(self) -> SdivWidths:
        return self._sdiv(bits(self.divisor), bits(self.weight))

    @cached_property
    def rewards(self) -> SdivWidths:
        divisor = self.budget.max_participants * self.weight + 1
        return self._sdiv(bits(divisor), bits(self.largest_payment << self.fraction))

    def of(self, purpose: str) -> SdivWidths:
        """Of the division that makes these."""
        return {WEIGHTS: self.weights, REWARDS: self.rewards}[purpose]

    def _sdiv(self, ybits: int, qbits: int) -> SdivWidths:
        precision = bits(self.budget.max_participants) + 1
        divisions = 2 * self.budget.max_participants * self.budget.rounds
        # Each is within 6 * 2^-sigma, all of the task together within 2^-sigma.
        sigma = self.budget.sigma + 3 + bits(divisions)
        return SdivWidths(self.budget.key_bits, ybits, qbits, sigma, precision)


class LanesRequest(RoundRequest, kind=12):
    """SP to CSP: masked lanes of all participants, some rows of each, one participant after the other."""

    start: int
    masked: CipherVector
    masked_1: PartialVector


class LanesReply(Message, kind=13):
    """CSP to SP: every masked lane encrypted on its own."""

    lanes: CipherVector


class InnerRequest(RoundRequest, kind=14):
    """SP to CSP: all lanes are in. Masked delta_i + 1 of everyone, then max_samples + 1 - delta_i: all are above zero."""

    masked: CipherVector
    masked_1: PartialVector


class InnerReply(Message, kind=15):
    """CSP to SP: [[<e_i, e_i>]] and [[<e_i, E>]], E the sum of the e_i."""

    own: CipherVector
    cross: CipherVector


class RewardRequest(RoundRequest, kind=16):
    """SP to CSP: rewards masked modulo N, in the order of the names that opened the rewards, and a commitment to each mask."""

    masked: CipherVector
    masked_1: PartialVector
    commitments: tuple[bytes, ...]


class RewardReply(Message, kind=17):
    """CSP to SP: each masked reward with CSP's signature, sealed to its owner."""

    sealed: tuple[bytes, ...]


def rows_a_message(participants: int, slots: int) -> int:
    """Rows of lanes of each participant in one message, but for the last."""
    return max(1, _LANES_A_MESSAGE // (participants * slots))


def distance_polynomials(participants: int, epsilon_units: int) -> list[Polynomial]:
    """G_i + eps_i + 1 and delta_i^3 of each, in Y, <U, U> and every A_i, B_i, delta_i."""
    polynomials: list[Polynomial] = []
    for i in range(participants):
        y = 0
        uu = 1
        a_i = 2 + 3 * i
        b_i = 3 + 3 * i
        d = 4 + 3 * i
        polynomials.append({(y, y, a_i): 1, (y, b_i, d): -2, (uu, d, d): 1, (y, y, d, d): epsilon_units, (): 1})
        polynomials.append({(d, d, d): 1})
    return polynomials


def sketch_coins(manifest: ManifestRequest, nonce: bytes) -> bytes:
    """From the hash of all uploads, and from what CSP draws once it has that: nobody can fit an upload to them."""
    return hashlib.sha256(b"crowdfl sketch 2" + manifest.digest + nonce).digest()


def sketch(upload: CipherVector, coins: bytes, budget: WidthBudget, party: KeyedParty) -> CipherVector:
    """A balanced count sketch: ciphertexts dealt into buckets by a public permutation, with public signs, one sum each.

    With as many buckets as ciphertexts nothing is summed: the lanes are the upload itself and the distances exact.
    """
    if budget.buckets >= len(upload):
        return upload
    order = public_permutation(coins, "sketch order", len(upload))
    signs = np.frombuffer(public_stream(coins, "sketch signs", len(upload)), dtype=np.uint8) & 1
    return upload.bucket_sums(order, signs.astype(np.bool_), budget.buckets, backend=party.compute)


class RewardSp:
    """SP's side: a generator that yields requests for CSP and is sent the replies. Same seed, same bytes."""

    def __init__(self, party: KeyedParty, widths: RewardWidths, packing: Packing, round_number: int) -> None:
        self.party = party
        self.widths = widths
        self.packing = packing
        self.round_number = round_number
        self.budget = widths.budget

    def run(
        self, manifest: ManifestRequest, nonce: bytes, upload_of: Callable[[str], CipherVector], seed: bytes
    ) -> Generator[bytes, Reply, dict[str, RewardEnvelope]]:
        """All of Alg. 4, for those in the manifest that CSP answered with this nonce. An upload is its packed ciphertexts and,
        last, [[delta_i]]; the manifest's payment is b in millionths."""
        payment, ids = manifest.payment, manifest.participants
        public_coins = sketch_coins(manifest, nonce)
        # Bound to the sketch: should CSP ever deal another nonce, the other lanes meet other masks.
        coins = Coins(seed).child("sketch " + public_coins.hex())
        lanes, samples = [], []
        for i in ids:  # an upload at a time: of a sketched one, only its lanes and [[delta_i]] stay
            upload = upload_of(i)
            lanes.append(sketch(upload.part(0, -1), public_coins, self.budget, self.party))
            samples.append(CipherVector(upload.public, upload.block[-1:].copy()))
        deltas = CipherVector.concat(samples)
        a, b = yield from self._inner_products(lanes, deltas, coins.child("lanes"))
        divisors, numerators = yield from self._distances(a, b, deltas, coins.child("operands"))
        weights = yield from self.divide(WEIGHTS, numerators, divisors, coins.child("weights"))
        mu = yield from self._shares(weights, payment, coins.child("rewards"))
        return (yield from self._open(mu, ids, coins.child("open")))

    def _inner_products(
        self, lanes: Sequence[CipherVector], deltas: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, tuple[CipherVector, CipherVector]]:
        """Steps 1-2: [[A_i]] and [[B_i]]. u = e - r, so <u,u> = <e,e> - 2<e,r> + <r,r>, and <u,U> likewise."""
        n = len(lanes)
        slots = self.budget.slots
        rows = rows_a_message(n, slots)
        cross = _CrossTerms(self.party, n, self.budget.lane_mask_bits)

        def requests() -> Iterator[tuple[bytes, WideInts]]:
            for start in range(0, len(lanes[0]), rows):
                parts = [lane.part(start, start + rows) for lane in lanes]
                masks = self._masks(n * len(parts[0]) * slots, coins)
                yield self.party.send(self._masked_lanes(parts, masks, start, coins)), masks

        def take(reply: bytes, masks: WideInts) -> None:
            cross.take(LanesReply.from_bytes(reply, self.party.limits(len(masks))).lanes, masks)

        yield from pipelined(requests(), take)
        counts = self._masked_counts(deltas, coins.child("counts"))
        request = InnerRequest(self.round_number, counts, self.party.partial_decrypt(counts))
        reply = (yield self.party.send(request))()
        return cross.remove(InnerReply.from_bytes(reply, self.party.limits(n)))

    def _masked_counts(self, deltas: CipherVector, coins: Coins) -> CipherVector:
        """rho is odd: modulo N a half is a number too, and an even rho would make it look like a whole one."""
        party = self.party
        w = self.widths.counts
        n = len(deltas)
        room = party.subtract(party.encrypt([self.budget.max_samples + 1] * n, coins), deltas)
        both = CipherVector.concat([party.add_plain(deltas, [1] * n), room])
        rho = [log_uniform(coins, w.lo, w.hi) | 1 for _ in range(2 * n)]
        return party.rerandomise(mask_sizes(party, both, rho, w, coins), coins)

    def _masks(self, lanes: int, coins: Coins) -> WideInts:
        """r in [V, 2^M - V), uniform: u + r is then never negative and never wraps."""
        v, m = self.budget.lane_bound, self.budget.lane_mask_bits
        return WideInts.from_block(coins.residues(lanes, (1 << m) - 2 * v)).plus(v)

    def _masked_lanes(self, parts: Sequence[CipherVector], masks: WideInts, start: int, coins: Coins) -> LanesRequest:
        masked = CipherVector.concat(parts).add_plain(self.packing.pack_wide(masks), backend=self.party.compute)
        masked = self.party.rerandomise(masked, coins)
        return LanesRequest(self.round_number, start, masked, self.party.partial_decrypt(masked))

    def _distances(
        self, a: CipherVector, b: CipherVector, deltas: CipherVector, coins: Coins
    ) -> Generator[bytes, Reply, tuple[CipherVector, CipherVector]]:
        """Step 3: [[G_i + eps_i + 1]] and [[delta_i^3 * 2^S]], in one exchange."""
        party = self.party
        n = len(a)
        operands = [party.sum(deltas), party.sum(b)]
        for i in range(n):
            operands += [a.part(i, i + 1), b.part(i, i + 1), deltas.part(i, i + 1)]
        sp = PolynomialsSp(party, self.round_number, DISTANCES)
        polynomials = distance_polynomials(n, self.widths.epsilon_units)
        result = yield from sp.run(CipherVector.concat(operands), polynomials, coins)
        divisors = CipherVector(result.public, result.block[0::2])
        cubes = CipherVector(result.public, result.block[1::2])
        return divisors, party.scale(cubes, 1 << self.widths.shift)

    def divide(self, purpose: str, x: CipherVector, y: CipherVector, coins: Coins) -> _Exchange:
        """[[x / y]]: the weights first, then the rewards."""
        sdiv = HardenedSdivSp(self.party, self.widths.of(purpose), self.round_number, purpose)
        quotients = yield from sdiv.run(x, y, coins)
        self.party.view.computed(purpose, (y, quotients))
        return quotients

    def _shares(self, weights: CipherVector, payment: int, coins: Coins) -> _Exchange:
        """Step 4: every division shares the one divisor, masked once."""
        party = self.party
        n = len(weights)
        total = party.add_plain(party.sum(weights), [1])
        share = max(0, (payment << self.widths.fraction) - 2 * n)
        return (yield from self.divide(REWARDS, party.scale(weights, share), total, coins))

    def _open(
        self, mu: CipherVector, ids: Sequence[str], coins: Coins
    ) -> Generator[bytes, Reply, dict[str, RewardEnvelope]]:
        party = self.party
        masks = to_ints(coins.residues(len(ids), party.public.n))
        salts = [coins.take(SEED_BYTES) for _ in ids]
        masked = party.rerandomise(party.add_plain(mu, masks), coins)
        commitments = tuple(commit(m, s) for m, s in zip(masks, salts, strict=True))
        request = RewardRequest(self.round_number, masked, party.partial_decrypt(masked), commitments)
        reply = (yield self.party.send(request))()
        sealed = RewardReply.from_bytes(reply, party.limits(len(ids))).sealed
        if len(sealed) != len(ids):
            raise ProtocolError(f"{len(sealed)} sealed rewards for {len(ids)} participants")
        triples = zip(ids, masks, salts, sealed, strict=True)
        return {i: RewardEnvelope(int(m), s, box) for i, m, s, box in triples}


class _CrossTerms:
    """What the masks add to the inner products, removed under encryption."""

    def __init__(self, party: KeyedParty, participants: int, mask_bits: int) -> None:
        self.party = party
        self.n = participants
        self._exponent_bits = mask_bits + bits(participants)
        self.products: list[CipherVector] = []  # [[<e_i, r_i>]], [[<e_i, R>]], [[<E, r_i>]]
        self.r_r = [0] * participants
        self.r_big_r = [0] * participants

    def take(self, lanes: CipherVector, masks: WideInts) -> None:
        size = len(masks) // self.n
        total = masks.columns(self.n)
        sums = lanes.bucket_sums(
            np.arange(len(lanes)), np.zeros(len(lanes), dtype=np.bool_), size, backend=self.party.compute
        )
        own = lanes.block.reshape(self.n, -1)
        everyone = np.repeat(sums.block.reshape(1, -1), self.n, axis=0)
        width = (self._exponent_bits + 7) // 8
        r = masks.to_block(width).reshape(self.n, -1)
        big_r = np.repeat(total.to_block(width).reshape(1, -1), self.n, axis=0)
        fresh = [self._powers(own, r, size), self._powers(own, big_r, size), self._powers(everyone, r, size)]
        both = zip(self.products, fresh, strict=True)
        self.products = [self.party.add(a, b) for a, b in both] if self.products else fresh
        self.r_r = _plus(self.r_r, masks.inner_products(masks, self.n))
        self.r_big_r = _plus(self.r_big_r, masks.inner_products(total, self.n))

    def remove(self, inner: InnerReply) -> tuple[CipherVector, CipherVector]:
        if not self.products:
            raise ProtocolError("no lanes were opened")
        party, (e_r, e_big_r, big_e_r) = self.party, self.products
        a = party.subtract(inner.own, party.scale(e_r, 2))
        b = party.subtract(inner.cross, party.add(e_big_r, big_e_r))
        return party.add_plain(a, self.r_r), party.add_plain(b, self.r_big_r)

    def _powers(self, bases: Block, exponents: Block, size: int) -> CipherVector:
        public = self.party.public
        kernel = MultiPow(public.n_squared, size, self._exponent_bits)
        return CipherVector(public, self.party.compute.map(kernel, bases, exponents))


def _plus(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(first, second, strict=True)]


@dataclass
class RewardCsp:
    """CSP's side of the steps that are PriRwd's own; divisions and polynomials have theirs.

    Each computes to the end, and tells by a flag whether what it opened was in range: how long it took says nothing.
    """

    party: KeyedParty
    packing: Packing
    widths: RewardWidths

    def lanes(self, message: LanesRequest, participants: int) -> tuple[LanesReply, "InnerSums", bool]:
        """Open masked lanes; each encrypted, and what they add to the inner products."""
        party = self.party
        n = self.party.public.n
        opened = party.finish(message.masked, message.masked_1)
        e, fits = self.packing.unpack_clamped(opened, 1 << self.widths.budget.lane_mask_bits)
        if party.view.keep:
            flat = e.to_ints()
            size = len(e) // participants
            party.view.saw("lanes", [flat[i * size : (i + 1) * size] for i in range(participants)])
        own = e.inner_products(e, participants)
        cross = e.inner_products(e.columns(participants), participants)
        sums = InnerSums(tuple(int(x % n) for x in own), tuple(int(x % n) for x in cross))
        return LanesReply(party.encrypt(e.residues(n, party.public.plaintext_bytes))), sums, fits

    def inner(self, message: InnerRequest, pieces: Sequence["InnerSums"]) -> tuple[InnerReply, bool]:
        """[[<e_i, e_i>]] and [[<e_i, E>]] over all the lanes opened; and whether every count is within its bounds."""
        counts = to_ints(self.party.finish(message.masked, message.masked_1))
        self.party.view.saw("counts", counts)
        own = [sum(column) for column in zip(*(piece.own for piece in pieces), strict=True)]
        cross = [sum(column) for column in zip(*(piece.cross for piece in pieces), strict=True)]
        party = self.party
        n = self.party.public.n
        signed = [[party.public.signed(total % n) for total in totals] for totals in (own, cross)]
        fits = [self.widths.counts.takes(count) for count in counts]
        return InnerReply(party.encrypt(signed[0]), party.encrypt(signed[1])), all(fits)

    def open(self, message: RewardRequest) -> list[mpz]:
        """v_i = mu_i + m_i."""
        opened = to_ints(self.party.finish(message.masked, message.masked_1))
        self.party.view.saw("rewards", opened)
        return opened


class InnerSums(Message, kind=25):
    """What one message of lanes adds to the inner products, modulo N, as CSP remembers it."""

    own: tuple[int, ...]
    cross: tuple[int, ...]

    def __repr__(self) -> str:
        return "InnerSums(secret)"
