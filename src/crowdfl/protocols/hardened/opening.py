"""Masked opening: SP and CSP open ciphertexts to an audience, and neither of the two sees a thing.

SP adds R, uniform in Z_N, to each plaintext; CSP finishes the decryption and sees uniform numbers, whatever was encrypted; it
seals them to a key that SP does not have; a reader who gets the seed of R from SP and unseals CSP's numbers subtracts. This
replaces lines 11-12 of the paper's Alg. 3, where every phone holds a key share (deviation D9).

A seed never serves two sums: `MaskSeed` binds it to the hash of what it masks. A caller keeps it durably before the first
request leaves, and a retry makes the same bytes again.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import field

import numpy as np

from crowdfl.crypto.blocks import Block, at_least, from_bytes, subtract_mod
from crowdfl.crypto.coins import Coins
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector
from crowdfl.crypto.sealing import AudienceKey
from crowdfl.errors import ProtocolError
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.messages import Limits, Message, RoundRequest
from crowdfl.protocols.party import KeyedParty

PARTICIPANTS, REQUESTER = 1, 2  # the audiences of a task
CHUNK = 512  # ciphertexts a request: bounds the memory of both servers and lets them work at the same time


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
    """SP to the audience: the seed, the sealed values, and CSP's record of whose sum it is. Never shown to CSP.

    To whom a round shows no average, it is the record alone.
    """

    seed: bytes = field(repr=False)
    count: int
    sealed: tuple[bytes, ...] = field(repr=False)
    record: bytes = b""

    @classmethod
    def of_record(cls, record: bytes) -> "Publication":
        return cls(b"", 0, (), record)


class OpeningSp:
    """SP's side."""

    def __init__(self, party: KeyedParty) -> None:
        self.party = party

    def requests(self, state: MaskSeed, sums: CipherVector, round_number: int, audience: int) -> Iterator[bytes]:
        """One request a chunk; the same state and sums give the same bytes."""
        state.require(digest(sums))
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
