"""The average: CSP opens one sum of the accepted uploads, masked so that SP sees nothing in it and readers everything.

CSP sends the sum of its shares plus the expansion of a fresh seed t; SP adds the sum of its own, which gives the publication;
t is sealed to those who may read. CSP's signed record says whose sum it is. A t serves one sum ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from crowdfl.crypto.sealing import AudienceKey, SigningKey, verify
from crowdfl.crypto.shares.ring import RunningSum, expand
from crowdfl.errors import ChainBroken, LengthMismatch, NothingToAverage, ProtocolError, SealBroken, TooFewParticipants
from crowdfl.protocols.messages import Message
from crowdfl.protocols.shares.chain import (
    Integers,
    ModelChain,
    RoundPlace,
    bind,
    next_base,
    next_secret,
    rounded_quotient,
    sha256,
)
from crowdfl.protocols.shares.round.manifest import AcceptedSet
from crowdfl.protocols.shares.round.upload import SALT_BYTES
from crowdfl.protocols.shares.shape import REWARD_MODULUS, SharesShape

PARTICIPANTS, REQUESTER = "participants", "requester"


class RoundRecord(Message, kind=57):
    """CSP's signed word about what it has opened: of whom, to which model, and the hash of what it sent."""

    task: str
    number: int
    base: bytes
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    reasons: tuple[str, ...]
    sent: bytes
    signature: bytes

    @property
    def statement(self) -> bytes:
        return b"crowdfl record 1" + replace(self, signature=b"").to_bytes()

    @property
    def members(self) -> AcceptedSet:
        return AcceptedSet(self.accepted, dict(zip(self.rejected, self.reasons, strict=True)))


class AverageReply(Message, kind=58, repr=False):
    """CSP to SP: its masked sums, and the seed of the masks, sealed to each audience."""

    sums: bytes
    total: bytes
    participants: bytes  # empty after the last round: its average is the requester's alone
    requester: bytes
    record: bytes


class SharesPublication(AverageReply, kind=59, repr=False):
    """SP to the audience: the masked sums of both, which are uniform to SP, and what CSP gave with them.

    CSP knows the masks and is told the publication's hash: without the salt it could test any guess at an average.
    """

    salt: bytes  # 32 fresh bytes of SP's, which CSP never sees


@dataclass
class ShareSums:
    """One server's sum of its shares, one upload after the other: memory for one model, however many uploads there are."""

    shape: SharesShape
    _sums: RunningSum = field(init=False, repr=False)
    _total: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self._sums = RunningSum(self.shape.ring, self.shape.spec.parameters)

    def add(self, shares: bytes, samples: int) -> None:
        self._sums.add(shares)
        self._total = (self._total + samples) % REWARD_MODULUS

    def subtract(self, shares: bytes, samples: int) -> None:
        self._sums.subtract(shares)
        self._total = (self._total - samples) % REWARD_MODULUS

    def result(self) -> "ShareSum":
        return ShareSum(self.shape.ring.encode(self._sums.result()), self._total)


@dataclass(frozen=True)
class ShareSum:
    """A server's share of a sum of updates and of its number of samples."""

    sums: bytes = field(repr=False)
    total: int = field(repr=False)

    def plus(self, shape: SharesShape, sums: bytes, total: int) -> tuple[bytes, bytes]:
        """Added to other shares, as it travels."""
        added = shape.ring.encode(shape.ring.eights(self.sums) + shape.ring.eights(sums))
        return added, ((self.total + total) % shape.count_modulus).to_bytes(shape.count_bytes, "little")

    def minus(self, shape: SharesShape, other: "ShareSum") -> "ShareSum":
        rest = shape.ring.encode(shape.ring.eights(self.sums) - shape.ring.eights(other.sums))
        return ShareSum(rest, (self.total - other.total) % REWARD_MODULUS)


def mask_of(t: bytes, place: RoundPlace, shape: SharesShape) -> tuple[bytes, int]:
    """What hides the sums and the total; where everyone counts once, there is no total."""
    total = expand(t, place.bind("crowdfl mask 1 total"), shape.count_bytes)
    return expand(t, place.bind("crowdfl mask 1 sums"), shape.share_bytes), int.from_bytes(total, "little")


def open_sum(
    shape: SharesShape,
    place: RoundPlace,
    members: AcceptedSet,
    own: ShareSum,
    coins: "AverageCoins",
    audiences: Mapping[str, AudienceKey],
    signing: SigningKey,
) -> AverageReply:
    """CSP: the one sum of this round. The last round of the settings is for the requester alone."""
    sums, total = own.plus(shape, *mask_of(coins.t, place, shape))
    sealed = {
        name: audiences[name].seal(coins.t, _audience_context(place, name), coins.salts[name]) for name in audiences
    }
    if place.number == shape.spec.settings.rounds:
        sealed[PARTICIPANTS] = b""
    parts = sums, total, sealed[PARTICIPANTS], sealed[REQUESTER]
    record = _signed(place, members, sha256(bind("crowdfl sent 1", *parts)), signing)
    return AverageReply(*parts, record.to_bytes())


@dataclass(frozen=True, repr=False)
class AverageCoins:
    """What CSP draws for the one sum of a round: from its durable seed, so that the same sum gets the same bytes."""

    t: bytes
    salts: Mapping[str, bytes]

    @classmethod
    def of(cls, seed: bytes) -> "AverageCoins":
        salts = {name: expand(seed, b"crowdfl csp salt 1 " + name.encode(), 32) for name in (PARTICIPANTS, REQUESTER)}
        return cls(expand(seed, b"crowdfl csp mask 1", 32), salts)


def _signed(place: RoundPlace, members: AcceptedSet, sent: bytes, signing: SigningKey) -> RoundRecord:
    names, reasons = tuple(members.rejected), tuple(members.rejected.values())
    record = RoundRecord(place.task, place.number, place.base, members.accepted, names, reasons, sent, b"")
    return replace(record, signature=signing.sign(record.statement))


def _audience_context(place: RoundPlace, audience: str) -> bytes:
    return place.bind("crowdfl mask seed 1", audience.encode())


def publish_sum(
    shape: SharesShape,
    place: RoundPlace,
    members: AcceptedSet,
    own: ShareSum,
    reply: AverageReply,
    csp_key: bytes,
    salt: bytes,
) -> SharesPublication:
    """SP: its own sum added to what CSP sent, once CSP's record says what SP knows itself."""
    record = parse_record(reply.record, shape, csp_key)
    parts = reply.sums, reply.total, reply.participants, reply.requester
    if record.sent != sha256(bind("crowdfl sent 1", *parts)):
        raise ProtocolError(f"CSP's record of round {place.number} is not of what it sent")
    if (record.task, record.number, record.base) != (place.task, place.number, place.base) or record.members != members:
        raise ProtocolError(f"CSP's record of round {place.number} names another round, model or set of participants")
    _require_lengths(shape, reply.sums, reply.total)
    sums, total = own.plus(shape, reply.sums, int.from_bytes(reply.total, "little"))
    return SharesPublication(sums, total, reply.participants, reply.requester, reply.record, salt)


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


class AverageReader:
    """A member of an audience: checks CSP's record, unseals t, subtracts its expansion."""

    def __init__(self, shape: SharesShape, audience: str, key: AudienceKey, csp_key: bytes) -> None:
        self._shape, self._audience, self._key, self._csp_key = shape, audience, key, csp_key

    def read(self, publication: bytes, number: int, chain: ModelChain) -> OpenedAverage:
        message = SharesPublication.from_bytes(publication, self._shape.limits())
        record = parse_record(message.record, self._shape, self._csp_key)
        place = self._shape.place(number, chain.base)
        self._check(record, place)
        _require_lengths(self._shape, message.sums, message.total)
        if len(message.salt) != SALT_BYTES:
            raise LengthMismatch(f"a publication whose salt has {len(message.salt)} bytes")
        t = self._open_seed(message, place)
        sums, total = self._unmasked(message, t, place)
        total = total if self._shape.count_bytes else len(record.accepted)
        if not len(record.accepted) <= total <= len(record.accepted) * self._shape.widths.max_samples:
            raise NothingToAverage(
                "the total of the samples is not one of honest participants: an upload was out of bounds, or a server cheats"
            )
        base = next_base(chain.base, sha256(message.record), sha256(publication))
        change, secret = rounded_quotient(sums, total), next_secret(chain.secret, t, message.salt)
        following = chain.after(number, base, secret, change, self._shape.step)
        return OpenedAverage(
            following, chain.averaged(change), total if self._shape.count_bytes else None, record.members
        )

    def _check(self, record: RoundRecord, place: RoundPlace) -> None:
        if (record.task, record.number) != (place.task, place.number):
            raise ChainBroken(f"what was published for round {place.number} is of another round or task")
        if record.base != place.base:
            raise ChainBroken(
                f"the average of round {place.number} does not follow from the model here: read those before it first"
            )
        least = self._shape.spec.settings.min_participants
        if len(set(record.accepted)) != len(record.accepted) or len(record.accepted) < least:
            raise TooFewParticipants(f"an average of {len(record.accepted)} participants where {least} are the least")

    def _open_seed(self, message: SharesPublication, place: RoundPlace) -> bytes:
        sealed = message.participants if self._audience == PARTICIPANTS else message.requester
        t = self._key.open(sealed, _audience_context(place, self._audience))
        if len(t) != 32:
            raise SealBroken("a publication without the seed of its masks")
        return t

    def _unmasked(self, message: SharesPublication, t: bytes, place: RoundPlace) -> tuple[Integers, int]:
        mask, total = mask_of(t, place, self._shape)
        ring = self._shape.ring
        sums = ring.signed(ring.eights(message.sums) - ring.eights(mask))
        return sums, (int.from_bytes(message.total, "little") - total) % self._shape.count_modulus


def _require_lengths(shape: SharesShape, sums: bytes, total: bytes) -> None:
    if len(sums) != shape.share_bytes or len(total) != shape.count_bytes:
        raise LengthMismatch(f"sums of {len(sums)} and a total of {len(total)} bytes: not those of this task")
