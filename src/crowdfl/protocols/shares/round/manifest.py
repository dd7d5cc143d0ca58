"""The manifest: SP's word which uploads a cohort of a round has, and the signed answers of CSP about who is in.

It fixes everything: names in order, so that a name's place is its slot in what KGC dealt, and the coins of the sketch, which
come from its hash and from a nonce that CSP draws afterwards. CSP takes one manifest for each cohort of a round, ever; a round
of a few thousand people is one cohort. A void cohort is left out alone, and one sum is opened for all the others.
"""

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from crowdfl.crypto.compute import Backend
from crowdfl.crypto.long_bytes import Long, whole
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import AlreadyCounted, FormatError, ProtocolError, SealBroken
from crowdfl.protocols.common.manifest import require_listed, require_signed
from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.messages import Limits, Message, RoundRequest
from crowdfl.protocols.party import Party
from crowdfl.protocols.shares.chain import HASH_BYTES, RoundPlace, sha256
from crowdfl.protocols.shares.circuits.program import Half
from crowdfl.protocols.shares.reference import REQUESTER_NAME
from crowdfl.protocols.shares.round.checks import CheckVerdict
from crowdfl.protocols.shares.round.steps import MANIFEST, SEALED_BYTES, CohortCourse, Facts
from crowdfl.protocols.shares.round.upload import UploadBody, open_seed, upload_statement
from crowdfl.protocols.shares.shape import Quorum, SharesShape
from crowdfl.reasons import Reason


class RoundManifest(Message, kind=54):
    """SP to CSP: the uploads of a cohort by everything but SP's shares, in the order of their names."""

    task: str
    number: int
    base: bytes
    payment: int  # millionths; 0 in a round that pays nothing
    cohort: int  # from 1 on
    cohorts: int  # of this round
    names: tuple[str, ...]
    digests: tuple[bytes, ...]
    sealed: tuple[bytes, ...]
    signatures: tuple[bytes, ...]
    reference: bytes = b""  # of a task that has one: hash, seal and signature of the requester's upload

    @property
    def place(self) -> RoundPlace:
        return RoundPlace(self.task, self.number, self.base)

    @cached_property  # asked for several times; a thousand people's takes milliseconds
    def digest(self) -> bytes:
        return sha256(b"crowdfl manifest 1" + self.to_bytes())

    @property
    def reference_digest(self) -> bytes:
        return sha256(self.reference) if self.reference else b""


class ManifestReply(Message, kind=55):
    """CSP to SP: its part of the coins, whose seal does not open, and its word if the cohort is void for that."""

    nonce: bytes
    broken: tuple[str, ...]
    word: bytes


def manifest_of(
    place: RoundPlace,
    payment: int,
    entries: Mapping[str, "ManifestEntry"],
    cohort: int = 1,
    cohorts: int = 1,
    reference: "ManifestEntry | None" = None,
) -> RoundManifest:
    names = tuple(sorted(entries))
    return RoundManifest(
        place.task,
        place.number,
        place.base,
        payment,
        cohort,
        cohorts,
        names,
        tuple(entries[who].digest for who in names),
        tuple(entries[who].sealed for who in names),
        tuple(entries[who].signature for who in names),
        b"" if reference is None else reference.packed,
    )


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """What the manifest says of one upload, in one piece: SP holds those of everyone in a round."""

    packed: bytes

    @classmethod
    def of(cls, body: UploadBody) -> "ManifestEntry":
        return cls(body.digest + body.sealed + body.signature)

    @property
    def digest(self) -> bytes:
        return self.packed[:HASH_BYTES]

    @property
    def sealed(self) -> bytes:
        return self.packed[HASH_BYTES : HASH_BYTES + SEALED_BYTES]

    @property
    def signature(self) -> bytes:
        return self.packed[HASH_BYTES + SEALED_BYTES :]


def cohorts_of(names: Collection[str], most: int, seed: bytes) -> list[list[str]]:
    """Cohorts of nearly equal size, at most so large. Nobody chooses a neighbour: who is where follows from SP's seed."""
    count = -(-len(names) // most)
    drawn = sorted(names, key=lambda who: sha256(seed + who.encode())) if count > 1 else list(names)
    return [drawn[place::count] for place in range(count)]


def least_in(manifest: RoundManifest, shape: SharesShape) -> int:
    """That a cohort must have, and have left: of a round of one cohort all that it needs, else that is asked of all of them."""
    return shape.spec.settings.min_participants if manifest.cohorts == 1 else 1


def quorum_in(manifest: RoundManifest, shape: SharesShape) -> Quorum:
    return Quorum(least_in(manifest, shape), shape.widths.has_reference)


def check_manifest(manifest: RoundManifest, shape: SharesShape, keys: Mapping[str, bytes], backend: Backend) -> None:
    """CSP, before it does anything: everyone is certified, has signed this very upload, and there are enough."""
    settings = shape.spec.settings
    names = manifest.names
    if manifest.task != shape.spec.name:
        raise ProtocolError("this manifest is of another task")
    MANIFEST.require_message(manifest, Facts(shape, listed=len(names)))
    if not 1 <= manifest.cohort <= manifest.cohorts <= settings.most_cohorts:
        raise ProtocolError(
            f"cohort {manifest.cohort} of {manifest.cohorts}; at most {settings.most_cohorts} are dealt for"
        )
    require_listed(names, keys, least_in(manifest, shape), shape.widths.cohort)
    if manifest.payment != shape.payment:
        raise ProtocolError(f"a round of this task pays {shape.payment} millionths, not {manifest.payment}")
    signers = [keys[who] for who in names]
    rows = list(zip(signers, names, manifest.digests, manifest.sealed, manifest.signatures, strict=True))
    if settings.reference:
        entry = ManifestEntry(manifest.reference)
        rows.append((shape.spec.requester, REQUESTER_NAME, entry.digest, entry.sealed, entry.signature))
    place = manifest.place
    entries = [(key, who, upload_statement(place, who, digest, sealed), by) for key, who, digest, sealed, by in rows]
    require_signed(entries, backend)


def open_seals(manifest: RoundManifest, sealing: ReaderKey, closed: Collection[str] = ()) -> dict[str, bytes]:
    """The seeds in what was sealed to CSP; whose is missing has a broken seal, or one that stays closed."""
    opened: dict[str, bytes] = {}
    rows = [*zip(manifest.names, manifest.digests, manifest.sealed, strict=True)]
    if manifest.reference:
        entry = ManifestEntry(manifest.reference)
        rows.append((REQUESTER_NAME, entry.digest, entry.sealed))
    for who, digest, sealed in rows:
        if who in closed:
            continue
        try:
            opened[who] = open_seed(sealing, manifest.place, who, digest, sealed)
        except SealBroken:
            continue
    return opened


@dataclass(frozen=True)
class AcceptedSet:
    """Whose uploads count, and why others' do not; or why nothing is opened at all. Of a cohort, or of a round."""

    accepted: tuple[str, ...]
    rejected: Mapping[str, Reason] = field(default_factory=dict)  # by name
    void: Reason | None = None
    verdicts: bytes = b""  # of a round: the hashes of all verdicts that are added up

    @classmethod
    def without(cls, names: Sequence[str], broken: Collection[str], quorum: Quorum) -> "AcceptedSet":
        """Everyone whose seal opens; nobody, if that of the reference does not."""
        if REQUESTER_NAME in broken:
            return cls((), {}, Reason.REFERENCE_SEALED)
        seals = set(broken)
        rejected = {who: Reason.BROKEN_SEAL for who in names if who in seals}
        accepted = tuple(who for who in names if who not in rejected)
        return cls(accepted, rejected, quorum.why_void(len(accepted), len(names)))

    def judged(self, names: Sequence[str], verdict: CheckVerdict, quorum: Quorum) -> "AcceptedSet":
        """What the checks leave of it. Nobody is blamed for a round that is void for another reason."""
        accepted = tuple(names[slot] for slot in verdict.accepted)
        if verdict.void is not None and verdict.void != quorum.why_void(len(accepted), len(names)):
            return AcceptedSet((), self.rejected, verdict.void)
        taken = set(accepted)  # of many, a look into a tuple each would take the square
        found = Reason.NOT_IN_LINE if quorum.has_reference else Reason.OUT_OF_BOUNDS
        reasons = {who: self.rejected.get(who, found) for who in names if who not in taken}
        return AcceptedSet(accepted, reasons, verdict.void)


class RoundVerdict(Message, kind=56):
    """CSP's signed word about a cohort: who is in, or that nothing was and nothing will be opened for it."""

    task: str
    number: int
    base: bytes
    manifest: bytes  # its hash
    accepted: tuple[str, ...]
    rejected: tuple[str, ...]
    reasons: tuple[Reason, ...]
    void: Reason | None  # why nothing was sent for this cohort and nothing will be; empty if it goes on
    signature: bytes

    @property
    def statement(self) -> bytes:
        return b"crowdfl verdict 1" + self.unsigned()


def verdict_on(manifest: RoundManifest, members: AcceptedSet) -> RoundVerdict:
    names = tuple(members.rejected)
    reasons = tuple(members.rejected.values())
    fields = (manifest.task, manifest.number, manifest.base, manifest.digest)
    return RoundVerdict(*fields, members.accepted, names, reasons, members.void, b"")


def sign_verdict(manifest: RoundManifest, members: AcceptedSet, signing: SigningKey) -> bytes:
    verdict = verdict_on(manifest, members)
    return replace(verdict, signature=signing.sign(verdict.statement)).to_bytes()


def check_verdict(
    word: bytes, manifest: RoundManifest, members: AcceptedSet, csp_key: bytes, shape: SharesShape
) -> None:
    """SP: CSP's signed word must say what SP knows itself."""
    if not word:
        raise ProtocolError(f"CSP gives no signed word on who is in round {manifest.number}")
    verdict = RoundVerdict.from_bytes(word, shape.limits())
    verify(csp_key, verdict.statement, verdict.signature)
    if replace(verdict, signature=b"") != verdict_on(manifest, members):
        raise ProtocolError(f"CSP's verdict on round {manifest.number} is not about what this SP sent and computed")


@dataclass
class RoundTally:
    """The cohorts of a round that have come, and what their verdicts say of the round. Both servers keep the same one."""

    shape: SharesShape
    names: set[str] = field(default_factory=set)  # in any manifest so far
    listed: int = 0  # in those that have their verdict
    cohorts: int = 1
    _accepted: list[str] = field(default_factory=list)
    _rejected: dict[str, Reason] = field(default_factory=dict)
    _voids: dict[int, Reason] = field(default_factory=dict)  # by cohort, why
    _judged: int = 0  # cohorts
    _verdicts: list[bytes] = field(default_factory=list)
    _not_named: dict[str, Reason] = field(default_factory=dict)  # in a void cohort

    def require_new(self, names: Sequence[str], cohorts: int) -> None:
        """CSP: nobody is in two cohorts of a round, or an upload in very many of them could be read off the sum."""
        twice = self.names.intersection(names)
        if twice:
            raise AlreadyCounted(f"{min(twice)} is in an earlier cohort of this round already")
        if self.names and cohorts != self.cohorts:
            raise ProtocolError(f"a round of {self.cohorts} cohorts is now said to have {cohorts}")
        if len(self.names) + len(names) > self.shape.spec.settings.most_in_round:
            raise ProtocolError(f"a round of more than the {self.shape.spec.settings.most_in_round} people that fit")

    def begin(self, names: Sequence[str], cohorts: int) -> None:
        self.require_new(names, cohorts)
        self.names.update(names)
        self.cohorts = cohorts

    def add(self, names: Sequence[str], verdict: RoundVerdict) -> None:
        """What was decided about those in a manifest."""
        self.listed += len(names)
        self._judged += 1
        rejected = dict(zip(verdict.rejected, verdict.reasons, strict=True))
        if verdict.void:
            self._voids[self._judged] = verdict.void
            self._not_named |= (dict.fromkeys(names, Reason.VOID_COHORT) if self.cohorts > 1 else {}) | rejected
            return
        self._accepted += verdict.accepted
        self._rejected |= rejected
        self._verdicts.append(sha256(verdict.statement))

    @property
    def void(self) -> Reason | None:
        """Why nothing is opened: what voids a cohort voids a round, and a void cohort's people are not in."""
        if self._voids and not self._accepted:
            return next(iter(self._voids.values()))
        return self.shape.quorum.why_void(len(self._accepted), self.listed)

    @property
    def members(self) -> AcceptedSet:
        """Whom the round's one sum and its record are about."""
        return AcceptedSet(tuple(self._accepted), self._rejected, self.void, b"".join(self._verdicts))

    @property
    def void_cohorts(self) -> Collection[int]:
        return self._voids.keys()

    @property
    def left_out(self) -> dict[str, Reason]:
        """Whoever is not in, and why; the record names those of void cohorts nowhere."""
        return self._rejected | self._not_named


_Result = TypeVar("_Result")


class StepRequest(RoundRequest, kind=60, repr=False):
    """SP to CSP: the next step of a round."""

    step: int  # from 1 on
    transcript: bytes  # hash of all that was said in this round before
    payload: Long


class StepReply(Message, kind=61, repr=False):
    """CSP to SP: the answer to the request of this hash."""

    request: bytes
    payload: Long
    word: bytes  # signed, in the place of an answer: that the round is void

    @classmethod
    def opened(cls, request: bytes, reply: Long) -> "StepReply":
        """What answers the request of this hash."""
        message = cls.from_bytes(reply, Limits.plain(len(reply)))
        if message.request != request:
            raise FormatError("this is the answer to another step")
        return message


@dataclass(frozen=True)
class Transcript:
    """What was said in a round: how many steps, and a hash of them."""

    step: int
    digest: bytes

    @classmethod
    def start(cls, place: RoundPlace) -> "Transcript":
        return cls(0, sha256(place.bind("crowdfl transcript 1")))

    def after(self, request: bytes, reply: bytes) -> "Transcript":
        """By the hashes of both."""
        return Transcript(self.step + 1, sha256(self.digest + request + reply))

    def to_bytes(self) -> bytes:
        return self.step.to_bytes(4, "big") + self.digest

    @classmethod
    def from_bytes(cls, data: bytes) -> "Transcript":
        return cls(int.from_bytes(data[:4], "big"), data[4:])


class SpConversation:
    """SP's end: makes requests of payloads, one after the other."""

    def __init__(self, party: Party, place: RoundPlace) -> None:
        self._party, self._place = party, place
        self._said = Transcript.start(place)
        self.heed: Callable[[bytes], None] | None = None  # told of CSP's word that it has failed
        self.longest_answer = 0  # that CSP may give to what was asked last

    def ask(self, payload: Long, longest_answer: int) -> Generator[Long, Reply, Long]:
        """One exchange."""
        self.longest_answer = longest_answer
        following = StepRequest(self._place.number, self._said.step + 1, self._said.digest, payload)
        request = self._party.costs.sent(following.to_long())
        asked = sha256(request)
        del payload, following  # may be long: nothing of it is held while CSP works
        answer = yield request
        del request
        reply = StepReply.opened(asked, answer())
        if reply.word and self.heed is not None:
            self.heed(reply.word)
        self._said = self._said.after(asked, sha256(reply.payload))
        return reply.payload

    def run(self, half: Half[_Result], course: CohortCourse) -> Generator[Long, Reply, _Result]:
        """SP's half of a program to its end."""
        try:
            message = next(half)
            while True:
                message = half.send(whole((yield from self.ask(message, course.longest_answer()))))
        except StopIteration as end:
            result: _Result = end.value
            return result
