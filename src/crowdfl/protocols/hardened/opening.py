"""Masked opening: SP and CSP open ciphertexts to an audience, and neither of the two sees a thing.

SP adds R, uniform in Z_N, to each plaintext; CSP finishes the decryption and sees uniform numbers, whatever was encrypted; it
seals them to a key that SP does not have; a reader who gets the seed of R from SP and unseals CSP's numbers subtracts. This
replaces lines 11-12 of the paper's Alg. 3, where every phone holds a key share (deviation D9).

**A seed never serves two sums**: their difference would be a late participant's update in the clear. `MaskSeed` binds the seed
to the hash of what it masks; a caller keeps it durably before the first request leaves, and a retry makes the same bytes again.
"""

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from crowdfl.crypto.blocks import Block, at_least, from_bytes, subtract_mod
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.crypto.randomness import SEED_BYTES, Coins
from crowdfl.crypto.sealing import AudienceKey
from crowdfl.errors import FormatError, ProtocolError, SeedReused
from crowdfl.protocols.messages import Limits, Message, RoundRequest
from crowdfl.protocols.party import KeyedParty

PARTICIPANTS, REQUESTER = 1, 2  # the audiences of a task
CHUNK = 512  # ciphertexts a request: bounds the memory of both servers and lets them work at the same time


@dataclass(frozen=True)
class MaskSeed:
    """The state that SP makes durable before it sends anything: which seed masks which sum."""

    seed: bytes = field(repr=False)
    digest: bytes

    @classmethod
    def fresh_for(cls, sums: CipherVector) -> "MaskSeed":
        return cls.bound_to(digest(sums))

    @classmethod
    def bound_to(cls, bound: bytes) -> "MaskSeed":
        return cls(secrets.token_bytes(SEED_BYTES), bound)

    @property
    def shown(self) -> bytes:
        """The seed of R, which readers are given. The blinds come from `seed` itself, which nobody is: else a reader together
        with CSP could strip them off."""
        return Coins(self.seed).child("shown").take(SEED_BYTES)

    def to_bytes(self) -> bytes:
        return self.seed + self.digest

    @classmethod
    def from_bytes(cls, data: bytes) -> "MaskSeed":
        if len(data) != 2 * SEED_BYTES:
            raise FormatError(f"a mask seed has {2 * SEED_BYTES} bytes, not {len(data)}")
        return cls(data[:SEED_BYTES], data[SEED_BYTES:])

    def require(self, sums: CipherVector) -> None:
        """Refuse to mask anything but the ciphertexts this seed is bound to."""
        if digest(sums) != self.digest:
            raise SeedReused("this mask seed is bound to another sum; take a fresh one for this sum")


def digest(sums: CipherVector) -> bytes:
    return hashlib.sha256(sums.to_bytes()).digest()


class OpenRequest(RoundRequest, kind=7):
    """SP to CSP: masked ciphertexts with SP's half of the decryption."""

    audience: int
    start: int
    masked: CipherVector
    masked_1: PartialVector


class OpenReply(Message, kind=8):
    """CSP to SP: the masked plaintexts, sealed to the audience."""

    sealed: bytes


class Publication(Message, kind=9):
    """SP to the audience: the seed and the sealed values. Never shown to CSP."""

    seed: bytes = field(repr=False)
    count: int
    sealed: tuple[bytes, ...] = field(repr=False)


class OpeningSp:
    """SP's side."""

    def __init__(self, party: KeyedParty) -> None:
        self.party = party

    def requests(self, state: MaskSeed, sums: CipherVector, round_number: int, audience: int) -> Iterator[bytes]:
        """One request a chunk; the same state and sums give the same bytes."""
        state.require(sums)
        for start in range(0, len(sums), CHUNK):
            chunk = sums.part(start, start + CHUNK)
            masked = mask_chunk(self.party, chunk, start, masks=state.shown, blinds=state.seed)
            request = OpenRequest(round_number, audience, start, masked, self.party.partial_decrypt(masked))
            yield self.party.send(request)

    def publication(self, state: MaskSeed, sums: CipherVector, replies: list[bytes]) -> Publication:
        limits = Limits(self.party.public, max_count=2 * CHUNK)
        sealed = tuple(OpenReply.from_bytes(reply, limits).sealed for reply in replies)
        if len(sealed) != -(-len(sums) // CHUNK):
            raise ProtocolError(f"{len(sealed)} replies for {-(-len(sums) // CHUNK)} requests")
        return Publication(state.shown, len(sums), sealed)


class OpeningCsp:
    """CSP's side: it holds the key of every audience."""

    def __init__(self, party: KeyedParty, audiences: Mapping[int, AudienceKey]) -> None:
        self.party, self.audiences = party, audiences

    def answer(self, message: OpenRequest, context: bytes) -> OpenReply:
        values = self.party.finish(message.masked, message.masked_1)
        self.party.view.saw("opened", values)
        return OpenReply(self.audiences[message.audience].seal(values.tobytes(), _place(context, message.start)))


def read(publication: Publication, audience: AudienceKey, context: bytes, public: PublicKey) -> Block:
    """A member of the audience: unseal, subtract R modulo N. No modular exponentiation."""
    parts = []
    for index, sealed in enumerate(publication.sealed):
        start = index * CHUNK
        values = from_bytes(audience.open(sealed, _place(context, start)), public.plaintext_bytes)
        masks = mask_rows(publication.seed, start, len(values), public)
        if at_least(values, public.n).any():
            raise ProtocolError("an opened value is not below N")
        parts.append(subtract_mod(values, masks, int(public.n)))
    opened = np.concatenate(parts) if parts else from_bytes(b"", public.plaintext_bytes)
    if len(opened) != publication.count:
        raise ProtocolError(f"{len(opened)} values where {publication.count} were published")
    return opened


def mask_rows(seed: bytes, start: int, count: int, public: PublicKey) -> Block:
    return Coins(seed).child(f"mask {start}").residues(count, public.n)


def mask_chunk(party: KeyedParty, chunk: CipherVector, start: int, *, masks: bytes, blinds: bytes) -> CipherVector:
    """[[x + R]], unlinkable to [[x]]: R by one seed, the blinds by another, or the same where no reader gets it."""
    rows = mask_rows(masks, start, len(chunk), party.public)
    return party.rerandomise(chunk.add_plain(rows, backend=party.compute), Coins(blinds).child(f"blind {start}"))


def _place(context: bytes, start: int) -> bytes:
    return b"crowdfl opening 1" + start.to_bytes(8, "big") + context
