"""The profile `hardened`: packed uploads, masked openings, no key share on any phone."""

import hashlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.pctd import KeyShare
from crowdfl.crypto.paillier.vector import CipherVector, Unchecked
from crowdfl.crypto.sealing import AudienceKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    CrowdFLError,
    FormatError,
    ProtocolError,
    RewardsOff,
    RoundsExhausted,
    SeedReused,
    TooFewParticipants,
)
from crowdfl.protocols import claims
from crowdfl.protocols.claim_steps import claim_bytes
from crowdfl.protocols.common.keyed import BaseSp, KeyedProfile, KeyedSide, upload_digest
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.common.paid import PaidParticipant, PaidSp
from crowdfl.protocols.exchange import Exchange, Reply, pipelined
from crowdfl.protocols.hardened import steps
from crowdfl.protocols.hardened.bundles import CspBundle, ReaderBundle, SpBundle, deal
from crowdfl.protocols.hardened.closing import CancelRequest
from crowdfl.protocols.hardened.csp import HardenedCsp
from crowdfl.protocols.hardened.manifest import (
    CoinsReply,
    HardenedUpload,
    ManifestRequest,
    manifest_of,
    upload_bytes,
)
from crowdfl.protocols.hardened.opening import PARTICIPANTS, REQUESTER, OpeningSp, Publication, digest, read
from crowdfl.protocols.hardened.order import HardenedRound
from crowdfl.protocols.hardened.prifedavg import HiddenAverageSp, ModelCodec, hidden_widths
from crowdfl.protocols.hardened.prirwd import RewardSp, RewardWidths
from crowdfl.protocols.hardened.record import HardenedRecord, RecordReply, RecordRequest, parse_record
from crowdfl.protocols.hardened.shape import Shape, hardened_budget, reward_widths
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import (
    Average,
    Dealing,
    ParticipantKeys,
    RoundWord,
    SpRecord,
    Stage,
    TaskSpec,
    Tools,
    whole_samples,
)
from crowdfl.protocols.records import Look
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings, to_millionths


class HardenedProfile(KeyedProfile):
    """Deals one split of the key: lambda_c to CSP, lambda_sc to SP, nothing to phones, audience keys to readers and CSP."""

    name = "hardened"

    def explain(self, settings: TaskSettings, parameters: int) -> str:
        return hardened_budget(settings, parameters).explain()

    def claim_bytes(self, settings: TaskSettings, rounds: int) -> int:
        return claim_bytes(rounds, -(-settings.key_bits // 8))

    def claims_bundle(self, bundle: bytes) -> bytes:
        own = CspBundle.from_bytes(bundle, Limits.plain())
        participants, requester = bytes(len(own.participants)), bytes(len(own.requester))
        return replace(own, share=0, participants=participants, requester=requester).to_bytes()

    def attesting_key(self, bundle: bytes) -> SigningKey:
        return SigningKey(CspBundle.from_bytes(bundle, Limits.plain()).signing)

    def close_steps(self, spec: TaskSpec, records: Look) -> Collection[int]:
        """What is kept of steps is in records of its own."""
        del spec, records
        return HardenedRound.kind, claims.KeptReward.kind, claims.KeptClaim.kind

    def rewarded(self, spec: TaskSpec, records: Look) -> Iterator[tuple[int, str]]:
        for number in range(1, spec.settings.rounds + 1):
            now = records.get(HardenedRound, number)
            if now is None or now.is_void:
                continue
            paid = [who for who in now.participants if records.get(claims.KeptReward, number, who=who) is not None]
            yield from ((number, who) for who in paid)

    def check(self, settings: TaskSettings, parameters: int) -> None:
        self.check_settings(settings)
        budget = hardened_budget(settings, parameters)
        if settings.total == "hidden":
            hidden_widths(budget)
        if settings.lanes != 0:
            reward_widths(settings, parameters)
        elif settings.budget is not None and to_millionths(settings.budget) > 0:
            raise RewardsOff(
                "lanes=0 leaves no room for rewards, and there is a budget: set lanes, or leave the budget out"
            )

    def deal(self, spec: TaskSpec, *, insecure_test_key: bool) -> Dealing:
        self.check(spec.settings, spec.parameters)
        return deal(spec.settings.key_bits // 2, insecure_test_key=insecure_test_key)

    def sp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "HardenedSp":
        own = SpBundle.from_bytes(bundle, Limits.plain())
        public = own.public(insecure_test_key=tools.insecure_test_key)
        party = tools.keyed_party("SP", public, KeyShare(public, mpz(own.share)))
        return HardenedSp(party, Shape(spec.task(public), own.seed), own.csp_key)

    def csp(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "HardenedCsp":
        own = CspBundle.from_bytes(bundle, Limits.plain())
        public = own.public(insecure_test_key=tools.insecure_test_key)
        party = tools.keyed_party("CSP", public, KeyShare(public, mpz(own.share)))
        audiences = {PARTICIPANTS: AudienceKey(own.participants), REQUESTER: AudienceKey(own.requester)}
        return HardenedCsp(party, Shape(spec.task(public), own.seed), audiences, SigningKey(own.signing))

    def cancellation(self, spec: TaskSpec, signing: SigningKey) -> bytes:
        return CancelRequest.signed(spec.name, signing).to_bytes()

    def check_cancellation(self, spec: TaskSpec, data: bytes) -> None:
        CancelRequest.from_bytes(data, Limits.plain()).require_of(spec.name, spec.requester)

    def requester(self, spec: TaskSpec, bundle: bytes, tools: Tools) -> "HardenedRequester":
        own = ReaderBundle.from_bytes(bundle, Limits.plain())
        public = own.public(insecure_test_key=tools.insecure_test_key)
        shape = Shape(spec.task(public), own.seed)
        return HardenedRequester(tools.keyed_party("requester", public), shape, AudienceKey(own.audience), own.csp_key)

    def participant(self, spec: TaskSpec, bundle: bytes, keys: ParticipantKeys, tools: Tools) -> "HardenedParticipant":
        own = ReaderBundle.from_bytes(bundle, Limits.plain())
        public = own.public(insecure_test_key=tools.insecure_test_key)
        shape = Shape(spec.task(public), own.seed)
        party = tools.keyed_party("participant", public)
        return HardenedParticipant(party, shape, AudienceKey(own.audience), own.csp_key, keys)


class _Reader(KeyedSide):
    """Whoever may read averages: unseals and subtracts, computes no power. None counts without CSP's record of whose it is."""

    def __init__(self, party: KeyedParty, shape: Shape, audience: AudienceKey, csp_key: bytes) -> None:
        self.party = party
        self._shape = shape
        self.audience = audience
        self.record_key = csp_key

    def read(self, publication: bytes, round_number: int) -> Average:
        codec, task = self._shape.codec, self._shape.task
        message = self._published(publication)
        record = self._record(message.record, round_number)
        if record.void:
            raise ProtocolError(f"CSP says that nothing of round {round_number} was opened: this is not its average")
        opened = read(message, self.audience, task.context(round_number), task.public)
        total = None
        if task.settings.total == "hidden":
            weights = codec.average_of_scaled(opened)
        else:
            total = task.public.signed(int.from_bytes(opened[-1].tobytes(), "big"))
            weights = codec.average(opened[:-1], total)
        return Average(weights, total, record=message.record)

    def _published(self, publication: bytes) -> Publication:
        return Publication.from_bytes(publication, self.party.limits(self._shape.codec.budget.ciphertexts + 1))

    def _record(self, record: bytes, round_number: int) -> HardenedRecord:
        """Of enough people, or of nobody."""
        task = self._shape.task
        found = parse_record(record, task.name, round_number, self.record_key)
        least = task.settings.min_participants
        if not found.void and len(set(found.names)) < least:
            raise TooFewParticipants(f"an average of {len(found.accepted)} participants where {least} are the least")
        return found


class HardenedRequester(_Reader):
    """The requester reads the last average."""


class HardenedParticipant(_Reader, PaidParticipant):
    """A phone: encrypts, reads, opens its rewards, claims them."""

    def __init__(
        self, party: KeyedParty, shape: Shape, audience: AudienceKey, csp_key: bytes, keys: ParticipantKeys
    ) -> None:
        _Reader.__init__(self, party, shape, audience, csp_key)
        PaidParticipant.__init__(self, party, shape.task, keys, csp_key)
        self.clipped = 0

    def upload_randomizers(self) -> int:
        return self._shape.budget.ciphertexts + 1

    def encrypt_update(self, weights: npt.NDArray[np.float64], samples: int, round_number: int) -> bytes:
        """Packed [[delta * w]] and, last, [[delta]]."""
        codec = self._shape.codec
        samples = whole_samples(samples)
        plain, self.clipped = codec.pack(weights, samples)
        count = np.frombuffer(samples.to_bytes(plain.shape[1], "big"), dtype=np.uint8)[None, :]
        return self.sign_upload(self.party.encrypt(np.concatenate([plain, count])), round_number)

    def sign_upload(self, numbers: CipherVector, round_number: int) -> bytes:
        """For this round alone: CSP takes it into no other."""
        task = self._shape.task.name
        upload = HardenedUpload.signed(task, round_number, self.who, numbers.to_bytes(), self.signing)
        return self.party.send(upload)

    def read(self, publication: bytes, round_number: int) -> Average:
        average = super().read(publication, round_number)
        return replace(average, standing=self.standing_in(average.record))

    def read_record(self, publication: bytes, round_number: int) -> tuple[bytes, Reason | None]:
        record = self._published(publication).record
        self._record(record, round_number)
        return record, self.standing_in(record)

    def standing_in(self, record: bytes) -> Reason | None:
        """By a record that was checked."""
        found = HardenedRecord.from_bytes(record, Limits.plain(len(record)))
        return None if self.who in found.accepted else Reason.NOT_PASSED_ON

    def read_end(self, end: bytes, round_number: int) -> RoundWord:
        """Of a void round nobody is blamed; SP may have asked about those in its manifest."""
        record = RecordReply.from_bytes(end, Limits.plain(len(end))).record
        found = self._record(record, round_number)
        if found.void:
            return RoundWord(None, shown=self.who in found.names)
        return RoundWord(self.standing_in(record), shown=True, record=record)

    def _reward_form(self) -> claims.RewardForm:
        return self._shape.widths().form(self.party.public)


class HardenedSpRound(Message, kind=41, repr=False):
    """What SP has decided about a round: the hash of who uploaded what, what it pays, and mask seeds, each with the hash of
    what it masks."""

    uploads: bytes = b""
    payment: int = 0
    rewards: bytes = b""
    scaling: bytes = b""
    opening: bytes = b""


class HardenedSp(PaidSp, BaseSp):
    """The sensing platform: running products, openings, rewards, payment. Never holds an audience key."""

    stages: Sequence[Stage] = ("reward", "average")  # nothing is opened to readers of a round that cannot be rewarded
    answers = steps.ANSWERS

    def __init__(self, party: KeyedParty, shape: Shape, csp_key: bytes) -> None:
        PaidSp.__init__(self, shape.task, csp_key, shape.task.public.plaintext_bytes)
        self._shape = shape
        # For the laboratory, which watches PriRwd or weakens it on purpose; no setting leads here.
        self.reward_side: Callable[[KeyedParty, RewardWidths, Packing, int], RewardSp] = RewardSp
        self._csp_key = csp_key
        length = shape.budget.ciphertexts + 1
        BaseSp.__init__(self, party, shape.task, length, summed=length)

    def _longest_reply(self, kind: int) -> int:
        return steps.longest_reply(self._shape, kind)

    @property
    def codec(self) -> ModelCodec:
        """How an upload is laid out: known to every party of the task."""
        return self._shape.codec

    def open_round(self, round_number: int) -> None:
        rounds = self.task.settings.rounds
        if round_number > rounds:
            raise RoundsExhausted(f"round {round_number} of {rounds}: the masks were sized for those")
        super().open_round(round_number)
        self._kept = HardenedSpRound()
        self._signed: dict[str, tuple[bytes, bytes]] = {}  # by participant, hash and signature of what was counted

    def strangers(self, people: Collection[str]) -> Collection[str]:
        return set(people) - self.roster.signing.keys()

    def upload_bytes(self) -> int:
        return upload_bytes(self.party.public, self._length)

    def refusals(self, uploads: Sequence[tuple[str, bytes]], *, heads: bool = False) -> list[CrowdFLError | None]:
        del heads
        unsigned = [self._unsigned(who, upload) for who, upload in uploads]
        good = [pair for pair, refusal in zip(uploads, unsigned, strict=True) if refusal is None]
        others = iter(super().refusals(good))
        return [refusal or next(others) for refusal in unsigned]

    def _unsigned(self, who: str, upload: bytes) -> CrowdFLError | None:
        """Why this is no upload that somebody has signed for this round."""
        try:
            self._opened(who, upload)
        except CrowdFLError as refusal:
            return refusal
        return None

    def _opened(self, who: str, upload: bytes) -> HardenedUpload:
        if who not in self.roster.signing:
            raise ProtocolError(f"no certified keys of {who}")
        found = HardenedUpload.parse(upload)
        found.require_of(self.task.name, self.round_number, who, self.roster.signing[who])
        return found

    def _unchecked(self, upload: bytes) -> Unchecked:
        return super()._unchecked(HardenedUpload.parse(upload).numbers)

    @property
    def record(self) -> SpRecord:
        return SpRecord(round=b"" if self._kept == HardenedSpRound() else self._kept.to_bytes())

    @record.setter
    def record(self, record: SpRecord) -> None:
        kept = HardenedSpRound.from_bytes(record.round, Limits.plain()) if record.round else HardenedSpRound()
        self._kept = kept

    def add_all(self, uploads: Mapping[str, bytes], *, validated: bool = False) -> None:
        """Extend the running products by several as one batch; one that is refused keeps the others out too."""
        names = {who: upload_digest(upload) for who, upload in uploads.items()}
        fresh = {
            who: self._parse(uploads[who], validated=validated)
            for who, name in names.items()
            if not self._is_counted(who, name)
        }
        opened = {
            who: HardenedUpload.parse(uploads[who]) if validated else self._opened(who, uploads[who]) for who in fresh
        }
        self._products.add_all(list(fresh.values()))
        self._uploads |= {who: names[who] for who in fresh}
        self._signed |= {who: (upload.digest, upload.signature) for who, upload in opened.items()}
        if self._read is None:
            self._vectors |= fresh

    def sums(self) -> CipherVector:
        """The running products: encrypted sums of everything counted so far."""
        return self._products.result()

    def averaged(self, who: str) -> CipherVector:
        """An upload that was counted: from memory, or read again, and then it must be the same bytes."""
        if self._read is None:
            return self._vectors[who]
        upload = self._read(self._names[who])
        if upload_digest(upload) != self._uploads[who]:
            raise ProtocolError(f"the upload of {who} is not the one that was averaged: its file was altered")
        return self._unchecked(upload).trusted()

    def publish(self, *, final: bool) -> Exchange:
        """Open the average to its audience; neither server sees it."""
        self.check()
        self._close()
        manifest, _ = yield from self._begin()
        sums = self.sums()
        if self.task.settings.total == "hidden":
            sums = yield from self._scale(sums)
        state = MaskSeed.kept(self._kept.opening, digest(sums))
        self._kept = replace(self._kept, opening=state.to_bytes())
        opening = OpeningSp(self.party)
        replies: list[bytes] = []
        audience = REQUESTER if final else PARTICIPANTS
        requests = opening.requests(state, sums, self.round_number, audience)
        yield from pipelined(((request, None) for request in requests), lambda reply, _: replies.append(reply))
        asked = (yield self.party.send(RecordRequest(self.round_number)))()
        record = RecordReply.from_bytes(asked, Limits.plain(len(asked))).record
        found = self._recorded(record, self.round_number)
        if found.void or (found.manifest, found.names) != (manifest.digest, manifest.participants):
            raise ProtocolError(f"CSP's record of round {self.round_number} is not about what this SP sent")
        self._publication = replace(opening.publication(state, sums, replies), record=record)

    def _begin(self) -> Generator[bytes, Reply, tuple[ManifestRequest, bytes]]:
        """The manifest, and CSP's part of the coins: the same whatever of the round comes first."""
        manifest = manifest_of(self.round_number, self._kept.payment, self._signed)
        reply = (yield self.party.send(manifest))()
        return manifest, CoinsReply.from_bytes(reply, self.party.limits(1)).nonce

    def _recorded(self, record: bytes, number: int) -> HardenedRecord:
        return parse_record(record, self.task.name, number, self._csp_key)

    def record_publication(self) -> bytes:
        if not isinstance(self._publication, Publication):
            raise FormatError("nothing is published yet")
        return Publication.of_record(self._publication.record).to_bytes()

    def ask_end(self, round_number: int) -> tuple[bytes, int]:
        return RecordRequest(round_number).to_bytes(), self._longest_reply(RecordRequest.kind)

    def is_opened(self, reply: bytes, round_number: int) -> bool:
        return not self._recorded(RecordReply.from_bytes(reply, Limits.plain(len(reply))).record, round_number).void

    def _scale(self, products: CipherVector) -> Generator[bytes, Reply, CipherVector]:
        state = MaskSeed.kept(self._kept.scaling, digest(products))
        self._kept = replace(self._kept, scaling=state.to_bytes())
        side = HiddenAverageSp(self.party, self._shape.budget, self._shape.packing, self.round_number)
        return (yield from side.run(products.part(0, -1), products.part(-1, len(products)), state.seed))

    def reward(self, payment: int) -> Exchange:
        """Before anything is opened to readers: a round whose rewards cannot be computed gives nothing away."""
        widths = self._shape.widths()
        widths.require_payment(payment)
        self.check()
        self._close()
        bound = hashlib.sha256(str(payment).encode() + b"\0" + self._kept.uploads).digest()
        state = MaskSeed.kept(self._kept.rewards, bound)
        self._kept = replace(self._kept, payment=payment, rewards=state.to_bytes())
        manifest, nonce = yield from self._begin()
        side = self.reward_side(self.party, widths, self._shape.packing, self.round_number)
        self._envelopes = yield from side.run(manifest, nonce, self.averaged, state.seed)

    def _close(self) -> None:
        """From here on the round has these uploads: what is averaged is what is rewarded, also after a crash in between."""
        parts = [who.encode() + b"\0" + name for who, name in sorted(self._uploads.items())]
        uploads = hashlib.sha256(b"".join(parts)).digest()
        if self._kept.uploads not in (b"", uploads):
            raise SeedReused(
                "this round was begun with another set of uploads already: no other is averaged or rewarded"
            )
        self._kept = replace(self._kept, uploads=uploads)
