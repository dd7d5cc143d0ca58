"""SP of a `shares` task: adds up its shares as they come, closes a round with manifests, and asks CSP step by step.

All of SP's coins of a round come from its record, bound to a manifest and to whose sum is opened: with the replies that the
role keeps, a round that is run again sends the same bytes. Uploads that are rejected are taken out of the sum before anything
is opened. SP sends one sum for a base, ever: the task's record says so before it leaves, and a failure gives no base back.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from crowdfl.crypto.coins import Coins
from crowdfl.crypto.compute import Read, run_work
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes
from crowdfl.crypto.shares.expansion import expand
from crowdfl.errors import (
    AlreadyCounted,
    BadSignature,
    BaseSpent,
    CrowdFLError,
    DealtMaterialDamaged,
    FormatError,
    NotReady,
    ProtocolError,
    RoundEnded,
    RoundsExhausted,
    TooFewParticipants,
    UnknownParticipant,
)
from crowdfl.protocols import claims
from crowdfl.protocols.capabilities import no_reference
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.common.paid import PaidSp
from crowdfl.protocols.exchange import Exchange, Reply, ReplyForm
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.party import Party
from crowdfl.protocols.profile import SpRecord, Stage
from crowdfl.protocols.shares.chain import first_base, next_base, sha256
from crowdfl.protocols.shares.circuits.lanes import coins
from crowdfl.protocols.shares.circuits.program import SpSide
from crowdfl.protocols.shares.circuits.reciprocal import SpDivider
from crowdfl.protocols.shares.dealing.keys import SharesSpBundle
from crowdfl.protocols.shares.dealing.rounds import SP_ROLE, DealtRound, received
from crowdfl.protocols.shares.reference import REQUESTER_NAME, RunningSums, added
from crowdfl.protocols.shares.round.average import (
    SP,
    MaskedPart,
    RoundRecord,
    SharesPublication,
    ShareSum,
    ShareSums,
    SumOffer,
    SumReply,
    offer_sum,
    parse_record,
    publish_sum,
    sum_facts,
)
from crowdfl.protocols.shares.round.bonus import RoundOpened, open_bonus
from crowdfl.protocols.shares.round.checks import CheckInputs, check_program
from crowdfl.protocols.shares.round.ends import EndRequest, open_end
from crowdfl.protocols.shares.round.manifest import (
    AcceptedSet,
    ManifestEntry,
    ManifestReply,
    RoundManifest,
    RoundTally,
    SpConversation,
    StepReply,
    check_verdict,
    cohorts_of,
    manifest_of,
    quorum_in,
    verdict_on,
)
from crowdfl.protocols.shares.round.rewards import RewardMasks, open_envelope, reward_shares
from crowdfl.protocols.shares.round.steps import (
    BONUS,
    MANIFEST,
    OFFER,
    OPENED,
    CohortCourse,
    Facts,
    longest_answer,
    longest_end,
)
from crowdfl.protocols.shares.round.upload import (
    UploadBody,
    head_bytes,
    parse_head,
    parse_upload,
    require_leaves,
    require_signed,
    upload_bytes,
)
from crowdfl.protocols.shares.round.work import Findings, ShareWork, Stored
from crowdfl.protocols.shares.shape import Quorum, SharesShape
from crowdfl.reasons import Reason


class LeftOver(Message, kind=63, repr=False):
    """What the next round needs of a published one: its place in the chain."""

    number: int
    base: bytes  # after it
    sums: bytes = b""  # SP's shares of products with references, over all rounds so far


class SharesSpTask(Message, kind=42, repr=False):
    """Which sums SP has sent: of which base, in which round, entry by entry. It outlives the rounds, void ones too."""

    bases: tuple[bytes, ...] = ()
    rounds: tuple[int, ...] = ()


class SharesSpRound(Message, kind=43, repr=False):
    """What SP has drawn for a round."""

    cohorts: bytes = b""  # the seed by which people are dealt into cohorts, where there are several
    seeds: tuple[bytes, ...] = ()  # of the cohorts begun, in order, each with the hash of its manifest
    part: bytes = b""  # of the sum, a `MaskedPart`


@dataclass
class _SpCohort:
    """A cohort that CSP is asked about: what is known so far."""

    manifest: RoundManifest
    talk: SpConversation
    seed: bytes = field(repr=False)
    coins: bytes
    quorum: Quorum
    members: AcceptedSet
    course: CohortCourse
    rewards: list[int] = field(default_factory=list, repr=False)  # SP's shares of those that are hidden


class SharesSp(PaidSp):
    """The sensing platform: never holds a reader's key, nor anything that CSP's shares could be told from."""

    stages: Sequence[Stage] = ("average", "reward")  # they come together

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesSpBundle) -> None:
        super().__init__(shape.spec, bundle.csp_signing, shape.reward_form.width)
        self.party = party
        self.fingerprint = bundle.fingerprint
        self._shape = shape
        self._csp_key, self._seed, self._audiences = bundle.csp_signing, bundle.seed, bundle.audiences
        self._file: Callable[[int], Long] | None = None
        self._sent = SharesSpTask()
        self.open_round(1)

    def unclaimed(self, who: str, reply: bytes) -> tuple[Mapping[int, int], claims.PayStatement]:
        return self._claims.unclaimed(who, reply)

    # Uploads.

    def open_round(self, round_number: int) -> None:
        rounds = self._shape.spec.settings.rounds
        if round_number > rounds:
            raise RoundsExhausted(f"round {round_number} of {rounds}: the correlations were dealt for those")
        self.round_number = round_number
        self._counted: dict[str, ManifestEntry] = {}
        self._bodies: dict[str, bytes] = {}  # those that are in no store
        self._names: dict[str, str] = {}  # of the others, in this folder of it
        self._folder = ""
        self._read: Read = self._bodies.__getitem__
        self._reference: UploadBody | None = None
        self._products: dict[str, int] = {}  # SP's shares, with the reference, of those who are in
        self._sums: ShareSums | None = ShareSums(self._shape)  # None: used up, or half added up
        self._offer: tuple[bytes, SumOffer] | None = None  # what was made of it, by the part that masks it
        self._drawn = SharesSpRound()
        self._last: _SpCohort | None = None  # once all cohorts have their verdict
        self._tally = RoundTally(self._shape)
        self._publication: SharesPublication | None = None
        self._left: bytes | None = None
        self._envelopes: Mapping[str, bytes] = {}
        self.load_previous(None)

    @property
    def record(self) -> SpRecord:
        sent = b"" if self._sent == SharesSpTask() else self._sent.to_bytes()
        return SpRecord(sent, b"" if self._drawn == SharesSpRound() else self._drawn.to_bytes())

    @record.setter
    def record(self, record: SpRecord) -> None:
        limits = Limits.plain()
        self._sent = SharesSpTask.from_bytes(record.task, limits) if record.task else SharesSpTask()
        self._drawn = SharesSpRound.from_bytes(record.round, limits) if record.round else SharesSpRound()

    def load_previous(self, left: bytes | None) -> None:
        self._before = None if left is None else LeftOver.from_bytes(left, self._shape.limits())
        base = first_base(self._shape.spec.name) if self._before is None else self._before.base
        self._place = self._shape.place(self.round_number, base)

    def set_dealt_loader(self, load: Callable[[int], Long]) -> None:
        self._file = load

    def strangers(self, people: Collection[str]) -> Collection[str]:
        return set(people) - self.roster.signing.keys()

    def upload_bytes(self) -> int:
        return upload_bytes(self._shape)

    def head_bytes(self) -> int:
        return head_bytes(self._shape)

    def reply_form(self, request: Long) -> ReplyForm:
        """Of the step that was asked for last."""
        return ReplyForm(self._talk.longest_answer, partial(StepReply.opened, sha256(request)))

    def refusals(self, uploads: Sequence[tuple[str, bytes]], *, heads: bool = False) -> list[CrowdFLError | None]:
        found: list[CrowdFLError | None] = []
        for who, upload in uploads:
            try:
                if heads:
                    self._require_own(parse_head(upload, self._shape, self._place), who)
                else:
                    self._checked(who, upload, validated=False)
                found.append(None)
            except CrowdFLError as refusal:
                found.append(refusal)
        return found

    def _checked(self, who: str, upload: bytes, *, validated: bool) -> UploadBody:
        body = parse_upload(upload, self._shape, self._place)
        self._require_own(body, who, validated=validated)
        if not validated:
            require_leaves(body)
        return body

    def _require_own(self, body: UploadBody, who: str, *, validated: bool = False) -> None:
        """Signed by its sender, before anyone goes over its shares."""
        if body.who != who:
            raise BadSignature(f"{who} has sent an upload that is {body.who}'s, or says so")
        if validated:
            return
        if who not in self.roster.signing:
            raise UnknownParticipant(f"no certified keys of {who}")
        require_signed(body, self.roster.signing[who], self._shape)

    def add_all(self, uploads: Mapping[str, bytes], *, validated: bool = False) -> None:
        """Extend the sums; one that is refused keeps the others out too."""
        entries = {
            who: ManifestEntry.of(self._checked(who, upload, validated=validated)) for who, upload in uploads.items()
        }
        fresh = {who: upload for who, upload in uploads.items() if not self._is_counted(who, entries[who])}
        self._bodies |= fresh
        self._count({who: who for who in fresh})

    def add_stored(self, folder: str, names: Mapping[str, str], read: Read) -> None:
        if changed := [who for who in self._names.keys() & names.keys() if self._names[who] != names[who]]:
            raise AlreadyCounted(f"an upload of {min(changed)} is in this round already, with other contents")
        self._folder, self._read = folder, read
        self._count({who: name for who, name in names.items() if who not in self._counted})

    def _count(self, names: Mapping[str, str]) -> None:
        """In any order, and all or none."""
        found = self._added_up([Stored(who, self._folder + name) for who, name in names.items()])
        self._counted |= found.entries
        self._names |= names

    def _added_up(self, uploads: Sequence[Stored]) -> Findings:
        """Onto what there is, so that memory holds one sum; if one is refused, all are added up again when they are needed."""
        sums = self._taken_sums()
        found = self._work(uploads, onto=sums)
        if found.sums is not sums:
            sums.merge(found.sums)
        self._sums = sums
        return found

    def _taken_sums(self) -> ShareSums:
        """Of everyone who is counted; whoever takes it puts it back, or makes something else of it."""
        sums = self._sums or self._work(self._stored(self._counted)).sums
        self._sums = None
        return sums

    def _work(self, uploads: Sequence[Stored], coins: bytes = b"", onto: ShareSums | None = None) -> Findings:
        """On SP's cluster, where it has one; for the lanes nothing is added up again."""
        work = ShareWork(uploads, self._shape, self._place, coins, adds=not coins, onto=onto)
        return run_work(self.party.backend, work, self._read)

    def _stored(self, names: Iterable[str]) -> list[Stored]:
        """Uploads that were counted, to be read once more."""
        return [Stored(who, self._folder + self._names[who], self._counted[who]) for who in names]

    def take_reference(self, upload: bytes) -> None:
        """The requester's upload of this round, which the others are compared with; it is never added up."""
        if not self._shape.widths.has_reference:
            raise no_reference()
        body = parse_upload(upload, self._shape, self._place)
        if body.who != REQUESTER_NAME:
            raise BadSignature("a reference is the requester's, and this one does not say so")
        require_signed(body, self._shape.spec.requester, self._shape)
        require_leaves(body)
        self._reference = body

    def _is_counted(self, who: str, entry: ManifestEntry) -> bool:
        if self._counted.get(who, entry) != entry:
            raise AlreadyCounted(f"an upload of {who} is in this round already, with other contents")
        return who in self._counted

    def check(self) -> None:
        """Refuse a set of uploads that is too small to protect those in it."""
        fewest = self._shape.spec.settings.min_participants
        if len(self._counted) < fewest:
            raise TooFewParticipants(f"{len(self._counted)} uploads, {fewest} needed to protect those who took part")
        if self._shape.widths.has_reference and self._reference is None:
            raise NotReady(f"the requester's reference of round {self.round_number} is not here")

    # The round with CSP.

    def reward(self, payment: int) -> Exchange:
        self._shape.require_rewards()
        if payment != self._shape.payment:
            raise ProtocolError(f"a round of this task pays {self._shape.payment} millionths, not {payment}")
        yield from self._published()

    def publish(self, *, final: bool) -> Exchange:
        """One publication for participants and requester alike; rewards come with it."""
        del final
        yield from self._published()

    def _published(self) -> Exchange:
        """Once in this process; run again in another, it asks for the same and gets the same."""
        if self._publication is not None:
            return
        now = yield from self._prepared()
        self._last = None  # what is asked for now ends the round: if it fails, all of it is asked for again
        members = self._tally.members
        part = self._part(members)
        offer = self._offered(members, part)
        names = members.accepted if self._shape.is_reward_hidden else ()
        masks = RewardMasks.of(names, now.rewards, now.seed, self._shape.reward_form.n)
        offer = replace(offer, commitments=masks.commitments())
        facts = sum_facts(self._shape, self.round_number, members)
        answer = yield from now.talk.ask(offer.to_long(), longest_answer(OFFER, facts))
        reply = SumReply.from_bytes(answer, self._shape.limits())
        OFFER.require_answer(reply, facts)
        publication = publish_sum(self._shape, self._place, members, offer, part, reply, self._csp_key)
        self._envelopes = {who: self.party.send(shown) for who, shown in masks.envelopes(reply.rewards).items()}
        self._leave(publication)
        if self._shape.payment and not names:  # one envelope for all: the list of names is long
            shown = self.party.send(open_envelope(publication.record))
            self._envelopes = dict.fromkeys(self._counted, shown)

    def _prepared(self) -> Generator[Long, Reply, _SpCohort]:
        """Everything before the average; what this process has done of it already is not done again."""
        if self._last is None:
            self.check()
            self._require_unspent()
            self._tally = RoundTally(self._shape)
            talk = SpConversation(self.party, self._place)
            reference = None if self._reference is None else ManifestEntry.of(self._reference)
            most = self._shape.widths.cohort
            if len(self._counted) > most and not self._drawn.cohorts:
                self._drawn = replace(self._drawn, cohorts=secret_bytes(SEED_BYTES))
            cohorts = cohorts_of(self._counted, most, self._drawn.cohorts)
            for place, names in enumerate(cohorts, 1):
                entries = {who: self._counted[who] for who in names}
                manifest = manifest_of(self._place, self._shape.payment, entries, place, len(cohorts), reference)
                self._tally.begin(names, len(cohorts))
                now = yield from self._begun(talk, manifest)
                if self._shape.widths.is_checked and not now.members.void:
                    yield from self._judged(now)
                self._tally.add(manifest.names, verdict_on(manifest, now.members))
                talk = now.talk
            if self._tally.void:
                why = self._tally.void
                raise RoundEnded(f"round {self.round_number} is void, and nothing was opened: {why.words}", why)
            self._last = now
        return self._last

    def _begun(self, talk: SpConversation, manifest: RoundManifest) -> Generator[Long, Reply, _SpCohort]:
        """The manifest, and whose seals CSP can open."""
        if len(self._drawn.seeds) < manifest.cohort:  # they begin one after the other
            fresh = MaskSeed.bound_to(manifest.digest).to_bytes()
            self._drawn = replace(self._drawn, seeds=(*self._drawn.seeds, fresh))
        seed = MaskSeed.kept(self._drawn.seeds[manifest.cohort - 1], manifest.digest).seed
        self._talk = talk
        facts = Facts(self._shape, len(manifest.names))
        talk.heed = partial(self._heed_failure, manifest)
        answer = yield from talk.ask(manifest.to_bytes(), longest_answer(MANIFEST, facts))
        reply = ManifestReply.from_bytes(answer, self._shape.limits())
        MANIFEST.require_answer(reply, facts)
        if not set(reply.broken) <= {*manifest.names, *([REQUESTER_NAME] if manifest.reference else ())}:
            raise ProtocolError("CSP names seals that are not in the manifest")
        quorum = quorum_in(manifest, self._shape)
        members = AcceptedSet.without(manifest.names, reply.broken, quorum)
        if members.void or reply.word:
            check_verdict(reply.word, manifest, members, self._csp_key, self._shape)
        facts.opened = len(manifest.names) - sum(who != REQUESTER_NAME for who in reply.broken)
        drawn = coins(manifest.digest, reply.nonce)
        return _SpCohort(manifest, talk, seed, drawn, quorum, members, CohortCourse(facts))

    def _heed_failure(self, manifest: RoundManifest, word: bytes) -> None:
        check_verdict(word, manifest, AcceptedSet((), {}, Reason.CSP_FAILED), self._csp_key, self._shape)
        why = Reason.CSP_FAILED
        raise RoundEnded(f"round {self.round_number} is void, and nothing was opened: {why.words}", why)

    def _judged(self, now: _SpCohort) -> Generator[Long, Reply, None]:
        """Who is within the bounds, and what they get: both servers come to the same set, and CSP signs it."""
        dealt = self._dealt(self._shape.file_number(now.manifest.number, now.manifest.cohort))
        half = check_program(SpSide(now.course), dealt.lanes, self._shape.widths, self._inputs(now))
        checked = yield from now.talk.run(half, now.course)
        now.members = now.members.judged(now.manifest.names, checked.verdict, now.quorum)
        if not now.members.void:
            self._products |= zip(now.members.accepted, checked.verdict.products, strict=False)
        check_verdict(checked.attached, now.manifest, now.members, self._csp_key, self._shape)
        if now.members.void or not self._shape.is_reward_hidden:
            return
        divider = SpDivider(
            SpSide(now.course), Coins(expand(now.seed, b"crowdfl sp coins 1", SEED_BYTES)), self.party.view
        )
        now.rewards = yield from now.talk.run(reward_shares(divider, self._shape, dealt, checked), now.course)

    def _dealt(self, file: int) -> DealtRound:
        if self._file is None:
            raise DealtMaterialDamaged("nothing that KGC dealt has reached this SP: the round is void")
        return received(self._shape, self._seed, SP_ROLE, file, self._file(file))

    def _inputs(self, now: _SpCohort) -> CheckInputs:
        bodies = {who: slot for slot, who in enumerate(now.manifest.names) if who not in now.members.rejected}
        own = [] if self._reference is None else [Stored(REQUESTER_NAME, "", body=self._reference)]
        sums = self._sums_before()
        found = self._work([*self._stored(bodies), *own], now.coins)
        return CheckInputs(
            slots=[*bodies.values(), *(self._shape.widths.cohort for _ in own)],
            lanes=found.lanes,
            samples=found.samples,
            listed=len(now.manifest.names),
            quorum=now.quorum,
            context=now.coins,
            salt=expand(now.seed, b"crowdfl sp accept salt 1", 32),
            sums=[sums.get(who, 0) for who in (*bodies, REQUESTER_NAME)],
        )

    def _sums_before(self) -> dict[str, int]:
        kept = None if self._before is None else self._before.sums
        people = self._shape.spec.settings.most_devices
        return RunningSums.read(kept, self._shape.widths.R, people)

    def _offered(self, members: AcceptedSet, part: MaskedPart) -> SumOffer:
        """In place of the sum that it is made of: memory need not hold both while CSP is asked, once more if it is away."""
        if self._offer is None or self._offer[0] != part.to_bytes():
            self._offer = None
            offer = offer_sum(self._shape, self._place, members, self._own_sum(members), part)
            self._offer = part.to_bytes(), offer
        return self._offer[1]

    def _own_sum(self, members: AcceptedSet) -> ShareSum:
        """Of those who are in: the others are taken out of what was added up, which is used up."""
        sums = self._taken_sums()
        if others := self._counted.keys() - set(members.accepted):
            sums.subtract(self._work(self._stored(others)).sums.result())
        return sums.result()

    def _part(self, members: AcceptedSet) -> MaskedPart:
        """SP's part of the one sum of this base: of these people, and of no others."""
        self._require_unspent()
        if not self._drawn.part:
            part = MaskedPart.drawn(members, self._shape, self._place, SP, self._audiences)
            self._drawn = replace(self._drawn, part=part.to_bytes())
            sent = self._sent
            self._sent = SharesSpTask((*sent.bases, self._place.base), (*sent.rounds, self.round_number))
        return MaskedPart.from_bytes(self._drawn.part, Limits.plain())

    def _require_unspent(self) -> None:
        """A base's sum is sent by the one round whose record has a part of it."""
        spent = dict(zip(self._sent.bases, self._sent.rounds, strict=True)).get(self._place.base)
        if spent is not None and (spent != self.round_number or not self._drawn.part):
            raise BaseSpent(
                f"a sum of updates to this model was sent to CSP in round {spent}: no second one ever is, "
                "whatever became of the first, and the task cannot go on"
            )

    def _leave(self, publication: SharesPublication) -> None:
        self._publication, self._offer = publication, None
        record = parse_record(publication.record, self._shape, self._csp_key)
        following = next_base(self._place.base, record.statement)
        products = self._products
        bits = self._shape.widths.R
        sums = b"" if self._reference is None else added(self._sums_before(), products, bits).to_bytes()
        self._left = LeftOver(self.round_number, following, sums).to_bytes()

    # What is served.

    def publication(self) -> bytes:
        if self._publication is None:
            raise FormatError("nothing is published yet")
        return self.party.send(self._publication)

    def carry_over(self) -> bytes | None:
        return self._left

    def ask_end(self, round_number: int) -> tuple[bytes, int]:
        return self.party.send(EndRequest(round_number)), longest_end(self._shape)

    def is_opened(self, reply: bytes, round_number: int) -> bool:
        if Message.kind_of(reply) == RoundRecord.kind:
            record = parse_record(reply, self._shape, self._csp_key)
            if (record.task, record.number) != (self._shape.spec.name, round_number):
                raise ProtocolError(f"CSP answers what became of round {round_number} with the record of another")
            return True
        open_end(reply, self._shape.spec.name, round_number, self._shape.limits(), self._csp_key)
        return False

    def tell_opened(self, round_number: int, drawn: Collection[str]) -> tuple[bytes, int]:
        message = RoundOpened(round_number, tuple(sorted(drawn)))
        return self.party.send(message), OPENED.longest_reply(Facts.most(self._shape))

    def ask_bonus(self) -> tuple[bytes, int]:
        return self.party.send(claims.BonusRequest(self._shape.spec.name)), BONUS.longest_reply(Facts.most(self._shape))

    def bonus_people(self, word: bytes) -> Collection[str]:
        return open_bonus(word, self._shape, self._csp_key).names

    def bonus_envelope(self, word: bytes) -> bytes:
        return open_envelope(word).to_bytes()

    def rejected(self) -> Mapping[str, Reason]:
        return self._tally.left_out

    def envelopes(self) -> Mapping[str, bytes]:
        return self._envelopes
