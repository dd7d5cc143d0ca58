"""The average: one sum of the accepted uploads, opened to readers by both servers together, neither after the other.

Each server adds the expansion of a fresh seed to the sum of its shares: SP's t_S makes X of it, CSP's t_C makes Y. In one
exchange SP sends X and the hashes of t_S and of what t_S is sealed in. CSP spends the base, then answers Y, its own sealed
t_C, and a signed record of all of it: whose sum it is, the hashes of X + Y, of both seeds and of all seals. The sealed t_S
leaves SP in the publication alone. So SP has fixed its part before it sees CSP's; CSP has fixed its own before anyone can
open SP's; and readers take nothing that is not in the record.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from crowdfl.crypto.long_bytes import Long, Wire, blocks_of, gathered
from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes
from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.crypto.shares.expansion import Expansion, expand
from crowdfl.crypto.shares.noise import discrete_gaussian
from crowdfl.crypto.shares.ring import RunningSum, Words
from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import (
    ChainBroken,
    LengthMismatch,
    NothingToAverage,
    ProtocolError,
    RolledBack,
    SealBroken,
    SeedReused,
    TooFewParticipants,
)
from crowdfl.protocols.common.binding import bind
from crowdfl.protocols.messages import Message
from crowdfl.protocols.shares.chain import (
    Integers,
    ModelChain,
    RoundPlace,
    next_base,
    next_secret,
    rounded_quotient,
    sha256,
)
from crowdfl.protocols.shares.dealing.keys import PARTICIPANTS, REQUESTER
from crowdfl.protocols.shares.round.manifest import AcceptedSet
from crowdfl.protocols.shares.round.steps import MASK_BYTES, SAMPLES_BYTES, SUM, Facts
from crowdfl.protocols.shares.shape import REWARD_MODULUS, SharesShape
from crowdfl.protocols.steps import require_fields
from crowdfl.reasons import Reason

SP, CSP = "SP", "CSP"
_SERVERS = (SP, CSP)


class SumOffer(Message, kind=65, repr=False):
    """SP to CSP: X, and the hashes that fix the rest of SP's part. The seals themselves stay with SP."""

    sums: Long
    total: bytes
    mask: bytes  # the hash of t_S
    seals: tuple[bytes, ...]  # the hashes of t_S as it is sealed to each audience
    commitments: bytes = b""  # to SP's shares of hidden rewards, in the order of the accepted names


class RoundRecord(Message, kind=57):
    """CSP's signed word about the one sum of a base: of whom it is, and the hashes of everything that was published for it."""

    task: str
    number: int
    base: bytes
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    reasons: tuple[Reason, ...]
    opened: bytes  # the hash of X + Y
    masks: tuple[bytes, ...]  # the hashes of t_S and t_C
    seals: tuple[bytes, ...]  # the hashes of t_S, then of t_C, as sealed to each audience
    signature: bytes

    @cached_property
    def statement(self) -> bytes:
        return b"crowdfl record 2" + self.unsigned()

    @property
    def members(self) -> AcceptedSet:
        return AcceptedSet(self.accepted, dict(zip(self.rejected, self.reasons, strict=True)))


class SharesPublication(Message, kind=59, repr=False):
    """SP to the audience: X + Y, which is uniform to either server, and the seals of both seeds, SP's first."""

    sums: Long
    total: bytes
    seals: tuple[bytes, ...]
    record: bytes


class SumReply(SharesPublication, kind=58, repr=False):
    """CSP to SP: Y, t_C as it is sealed to each audience, the record; and its shares of hidden rewards, signed and sealed."""

    rewards: tuple[bytes, ...] = ()


@dataclass
class ShareSums:
    """One server's sum of its shares, one upload after the other: memory for one model, however many uploads there are."""

    shape: SharesShape
    _sums: RunningSum = field(init=False, repr=False)
    _total: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self._sums = RunningSum(self.shape.ring, self.shape.spec.parameters)

    def add(self, shares: Long, samples: int) -> None:
        self._sums.add(shares)
        self._total = (self._total + samples) % REWARD_MODULUS

    def add_row(self, row: Words, samples: int) -> None:
        """Of an upload that is elements of the ring already."""
        self._sums.add_row(row)
        self._total = (self._total + samples) % REWARD_MODULUS

    def merge(self, other: "ShareSums") -> None:
        """The other one is used up."""
        self._sums.merge(other._sums)
        self._total = (self._total + other._total) % REWARD_MODULUS

    def result(self) -> "ShareSum":
        return ShareSum(self._sums.encoded(), self._total)

    def subtract(self, other: "ShareSum") -> None:
        """What was added up and is not to count."""
        self._sums.subtract(other.sums)
        self._total = (self._total - other.total) % REWARD_MODULUS

    def to_bytes(self) -> bytes:
        return b"".join((self._total.to_bytes(SAMPLES_BYTES, "little"), self._sums.encoded()))

    def add_kept(self, kept: bytes) -> None:
        """What `to_bytes` gave."""
        self.add(memoryview(kept)[SAMPLES_BYTES:], int.from_bytes(kept[:SAMPLES_BYTES], "little"))


@dataclass(frozen=True)
class ShareSum:
    """A server's share of a sum of updates and of its number of samples."""

    sums: Long = field(repr=False)
    total: int = field(repr=False)

    def plus(self, shape: SharesShape, sums: Long, total: int) -> "Opened":
        """Added to other shares, as it travels."""
        added = (self.total + total) % shape.count_modulus
        return Opened(shape, self.sums, sums, added.to_bytes(shape.count_bytes, "little"))


@dataclass(frozen=True)
class Opened:
    """Two servers' shares, added up a block at a time when somebody looks: they are as long as a model each."""

    shape: SharesShape
    mine: Long = field(repr=False)
    theirs: Long = field(repr=False)
    total: bytes = field(repr=False)

    def blocks(self) -> Iterator[bytes]:
        return self.shape.ring.added(self.mine, self.theirs)

    def sums(self) -> bytes:
        return gathered(self.blocks())

    def hash(self) -> bytes:
        return _hash_of(self.shape.share_bytes, self.blocks(), self.total)


def mask_of(t: bytes, place: RoundPlace, shape: SharesShape) -> tuple[Long, int]:
    """What hides a server's sums and its total; where everyone counts once, there is no total."""
    total = expand(t, place.bind("crowdfl mask 1 total"), shape.count_bytes)
    return Expansion(t, place.bind("crowdfl mask 1 sums"), shape.share_bytes), int.from_bytes(total, "little")


def audiences_of(shape: SharesShape, number: int) -> tuple[str, ...]:
    """Who reads a round. The last one of the settings is the requester's alone."""
    return (REQUESTER,) if number == shape.spec.settings.rounds else (PARTICIPANTS, REQUESTER)


class MaskedPart(Message, kind=66, repr=False):
    """A server's part of the sum, which it keeps to itself: whose sum it is, the seeds of its mask and of its noise, and the
    first as sealed to each audience. Nobody else ever has the second. **They never serve two sums.**"""

    t: bytes
    noise: bytes
    bound: bytes
    seals: tuple[bytes, ...]

    @classmethod
    def drawn(
        cls, members: AcceptedSet, shape: SharesShape, place: RoundPlace, server: str, audiences: Mapping[str, bytes]
    ) -> "MaskedPart":
        """Other seeds each time: whoever sends it keeps it first."""
        t, noise = secret_bytes(MASK_BYTES), secret_bytes(SEED_BYTES)
        seals = (
            seal_to(audiences[name], t, _seal_context(place, server, name))
            for name in audiences_of(shape, place.number)
        )
        return cls(t, noise, sum_name(place, members), tuple(seals))

    @property
    def seal_hashes(self) -> tuple[bytes, ...]:
        return tuple(map(sha256, self.seals))

    def masked(self, shape: SharesShape, place: RoundPlace, members: AcceptedSet, own: ShareSum) -> tuple[bytes, bytes]:
        """The server's sums, with its noise, and its total, as they travel."""
        if self.bound != sum_name(place, members):
            raise SeedReused(
                "the seeds of this round's sum were drawn for other people's uploads, and serve those alone"
            )
        masked = own.plus(shape, *mask_of(self.t, place, shape))
        sums, sigma = masked.sums(), shape.spec.settings.sigma
        if sigma is not None:
            noise = discrete_gaussian(self.noise, place.bind("crowdfl noise 1"), sigma, shape.spec.parameters)
            sums = gathered(shape.ring.added(sums, shape.ring.encode(noise.view(np.uint64))))
        return sums, masked.total


def sum_name(place: RoundPlace, members: AcceptedSet) -> bytes:
    """Of the one sum over these people, by the verdicts that put them in."""
    return sha256(place.bind("crowdfl sum 2", members.verdicts, *map(str.encode, members.accepted)))


def _seal_context(place: RoundPlace, server: str, audience: str) -> bytes:
    return place.bind("crowdfl mask seed 2", server.encode(), audience.encode())


def offer_sum(shape: SharesShape, place: RoundPlace, members: AcceptedSet, own: ShareSum, part: MaskedPart) -> SumOffer:
    """SP: X, before it knows anything of Y."""
    return SumOffer(*part.masked(shape, place, members, own), sha256(part.t), part.seal_hashes)


def open_sum(
    shape: SharesShape,
    place: RoundPlace,
    members: AcceptedSet,
    own: ShareSum,
    offer: SumOffer,
    part: MaskedPart,
    signing: SigningKey,
) -> SumReply:
    """CSP: Y and the record of the one sum of this base, which must be spent before this leaves."""
    sums, total = part.masked(shape, place, members, own)
    opened = _opened(shape, offer, sums, total).hash()
    record = _record(place, members, opened, offer, sha256(part.t), part.seal_hashes)
    record = replace(record, signature=signing.sign(record.statement))
    return SumReply(sums, total, part.seals, record.to_bytes())


def sum_facts(shape: SharesShape, number: int, members: AcceptedSet) -> Facts:
    """What the sizes of a round's last step follow from."""
    listed = len(members.accepted) + len(members.rejected)
    return Facts(shape, listed, accepted=len(members.accepted), audiences=len(audiences_of(shape, number)))


def _opened(shape: SharesShape, offer: SumOffer, sums: Long, total: bytes) -> Opened:
    """X + Y."""
    theirs = ShareSum(offer.sums, int.from_bytes(offer.total, "little"))
    return theirs.plus(shape, sums, int.from_bytes(total, "little"))


def _record(
    place: RoundPlace,
    members: AcceptedSet,
    opened: bytes,
    offer: SumOffer,
    mask: bytes,
    seals: tuple[bytes, ...],
) -> RoundRecord:
    """Unsigned; `opened`, `mask` and `seals` are hashes, the last two of CSP's."""
    return RoundRecord(
        place.task,
        place.number,
        place.base,
        members.accepted,
        tuple(members.rejected),
        tuple(members.rejected.values()),
        opened,
        (offer.mask, mask),
        offer.seals + seals,
        b"",
    )


def _hash_of(length: int, sums: Iterable[Wire], total: bytes) -> bytes:
    """Of what `bind` makes of the two, of which the first comes in blocks."""
    found = hashlib.sha256(b"crowdfl opened 1" + length.to_bytes(4, "big"))
    for block in sums:
        found.update(block)
    found.update(bind("", total))
    return found.digest()


def publish_sum(
    shape: SharesShape,
    place: RoundPlace,
    members: AcceptedSet,
    offer: SumOffer,
    part: MaskedPart,
    reply: SumReply,
    csp_key: bytes,
) -> SharesPublication:
    """SP: X + Y and all seals, once CSP's record says what SP knows itself. Till then the sealed t_S does not leave SP."""
    record = parse_record(reply.record, shape, csp_key)
    if len(record.masks) != len(_SERVERS):
        raise LengthMismatch(f"CSP's record of round {place.number} has {len(record.masks)} hashes of seeds")
    both = _opened(shape, offer, reply.sums, reply.total)
    sums = both.sums()
    opened = _hash_of(len(sums), [sums], both.total)
    seals = tuple(map(sha256, reply.seals))
    if (record.task, record.number, record.base) != (place.task, place.number, place.base):
        raise RolledBack(f"CSP's record of round {place.number} is of another round or model: the task cannot go on")
    if replace(record, signature=b"") != _record(place, members, opened, offer, record.masks[1], seals):
        raise ProtocolError(f"CSP's record of round {place.number} is not about what this SP sent, got and computed")
    return SharesPublication(sums, both.total, part.seals + reply.seals, reply.record)


@lru_cache(maxsize=4)  # it names everyone: where many readers are in one process, each would read all names again
def parse_record(data: bytes, shape: SharesShape, csp_key: bytes) -> RoundRecord:
    record = RoundRecord.from_bytes(data, shape.limits())
    if len(record.rejected) != len(record.reasons):
        raise ProtocolError("a record whose reasons are not as many as those left out")
    verify(csp_key, record.statement, record.signature)
    return record


@dataclass(frozen=True)
class OpenedAverage:
    """What a reader gets out of a publication: the next model, the average that it comes from, the total, and who is in."""

    chain: ModelChain
    average: Integers = field(repr=False)
    total: int | None  # of samples; None where everyone counts once
    members: AcceptedSet
    record: bytes = field(repr=False)  # as CSP has signed it


class AverageReader:
    """A member of an audience: checks CSP's record and everything that was published by it, and takes both masks off."""

    def __init__(self, shape: SharesShape, audience: str, key: ReaderKey, csp_key: bytes) -> None:
        self._shape = shape
        self._audience = audience
        self._key = key
        self._csp_key = csp_key

    def read(self, publication: Long, number: int, chain: ModelChain) -> OpenedAverage:
        message = SharesPublication.from_bytes(publication, self._shape.limits())
        record = parse_record(message.record, self._shape, self._csp_key)
        place = self._shape.place(number, chain.base)
        self._check(record, place)
        require_fields(SUM, message, sum_facts(self._shape, number, record.members))
        if _hash_of(len(message.sums), blocks_of(message.sums), message.total) != record.opened:
            raise ChainBroken(f"the sum that was published for round {number} is not the one of CSP's record")
        masks = self._open_seeds(message, record, place)
        sums, total = self._unmasked(message, masks, place)
        total = total if self._shape.count_bytes else len(record.accepted)
        if not len(record.accepted) <= total <= len(record.accepted) * self._shape.widths.max_samples:
            raise NothingToAverage(
                "the total of the samples is not one of honest participants: an upload was out of bounds, or a server cheats"
            )
        change = rounded_quotient(sums, total)
        secret = next_secret(chain.secret, masks)
        base = next_base(chain.base, record.statement)
        following = chain.after(number, base, secret, change, self._shape.step)
        return OpenedAverage(
            following,
            chain.averaged(change),
            total if self._shape.count_bytes else None,
            record.members,
            message.record,
        )

    def read_record(self, publication: bytes, number: int, chain: ModelChain) -> tuple[bytes, AcceptedSet]:
        """Of a round that others open: CSP's record of it, as signed, and whom it names. What is sealed is not looked at."""
        message = SharesPublication.from_bytes(publication, self._shape.limits())
        record = parse_record(message.record, self._shape, self._csp_key)
        self._check(record, self._shape.place(number, chain.base))
        return message.record, record.members

    def _check(self, record: RoundRecord, place: RoundPlace) -> None:
        if (record.task, record.number) != (place.task, place.number):
            raise ChainBroken(f"what was published for round {place.number} is of another round or task")
        if record.base != place.base:
            raise RolledBack(
                f"CSP's record of round {place.number} does not follow from the model here, which its records have led to: "
                "a server was set back, or hides a round. Take no further part in this task"
            )
        least = self._shape.spec.settings.min_participants
        if len(set(record.accepted)) != len(record.accepted) or len(record.accepted) < least:
            raise TooFewParticipants(f"an average of {len(record.accepted)} participants where {least} are the least")

    def _open_seeds(self, message: SharesPublication, record: RoundRecord, place: RoundPlace) -> tuple[bytes, ...]:
        """t_S and t_C."""
        audiences = audiences_of(self._shape, place.number)
        count = len(_SERVERS) * len(audiences)
        if self._audience not in audiences or [len(record.masks), len(message.seals)] != [len(_SERVERS), count]:
            raise SealBroken("a publication without the seeds of its masks")
        if tuple(map(sha256, message.seals)) != record.seals:
            raise ChainBroken(f"the seals that were published for round {place.number} are not those of CSP's record")
        seals = message.seals[audiences.index(self._audience) :: len(audiences)]
        return tuple(
            self._open_seed(server, sealed, mask, place)
            for server, sealed, mask in zip(_SERVERS, seals, record.masks, strict=True)
        )

    def _open_seed(self, server: str, sealed: bytes, mask: bytes, place: RoundPlace) -> bytes:
        t = self._key.open(sealed, _seal_context(place, server, self._audience))
        if len(t) != MASK_BYTES or sha256(t) != mask:
            raise SealBroken(f"{server} has sealed another seed than the one that it took for its mask: it cheats")
        return t

    def _unmasked(self, message: SharesPublication, masks: Sequence[bytes], place: RoundPlace) -> tuple[Integers, int]:
        ring = self._shape.ring
        total = int.from_bytes(message.total, "little")
        sums: Integers = np.empty(self._shape.spec.parameters, dtype=np.int64)
        hidden = [mask_of(t, place, self._shape) for t in masks]
        for piece in ring.blocks(len(message.sums)):
            words = ring.eights(message.sums[piece])
            for mask, _ in hidden:
                ring.accumulate(np.subtract, words, mask[piece])
            sums[piece.start // ring.bytes : piece.stop // ring.bytes] = ring.signed(words)
        for _, of_total in hidden:
            total = total - of_total
        return sums, total % self._shape.count_modulus
