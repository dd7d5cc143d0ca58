"""CSP of a `shares` task. It believes nothing that SP says about a round: its own program says what comes next.

A request is answered by the records as they stand. One that is not the next step, or that does not follow from everything said
before, is refused. After a restart CSP runs its program again with the payloads it kept: the same bytes. Once a round has
begun, every failure is one and the same error and ends it: nothing is ever computed without the checks that the task asks for.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice

from crowdfl.crypto.compute import Backend, default_backend, run_work
from crowdfl.crypto.long_bytes import Long, whole
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.shares.expansion import expand
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    BackendUnavailable,
    BadSignature,
    Cancelled,
    DealtMaterialDamaged,
    FormatError,
    OutOfTurn,
    ProtocolError,
    RoundsExhausted,
    SealBroken,
)
from crowdfl.protocols import claims
from crowdfl.protocols.common.binding import bind
from crowdfl.protocols.common.paid import Roster
from crowdfl.protocols.messages import Message, RoundRequest
from crowdfl.protocols.party import Party, View
from crowdfl.protocols.profile import Identity
from crowdfl.protocols.records import Look, Outcome
from crowdfl.protocols.shares.chain import HASH_BYTES, RoundPlace, next_base, sha256
from crowdfl.protocols.shares.circuits.lanes import coins
from crowdfl.protocols.shares.circuits.program import CspRun, CspSide, Half
from crowdfl.protocols.shares.circuits.reciprocal import CspDivider
from crowdfl.protocols.shares.circuits.scalars import Pieces
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle
from crowdfl.protocols.shares.dealing.rounds import CSP_ROLE, DealtRound, received
from crowdfl.protocols.shares.reference import REQUESTER_NAME, RunningSums, added
from crowdfl.protocols.shares.round.average import (
    CSP,
    MaskedPart,
    RoundRecord,
    ShareSum,
    ShareSums,
    SumOffer,
    open_sum,
    parse_record,
    sum_facts,
)
from crowdfl.protocols.shares.round.bonus import (
    Attendance,
    BonusWord,
    KeptOpened,
    KeptVoid,
    RoundOpened,
    bonus_people,
    open_bonus,
)
from crowdfl.protocols.shares.round.checks import CheckInputs, CheckVerdict, check_program
from crowdfl.protocols.shares.round.csp_records import CspRecords, KeptRound, Phase, over, spent_rounds
from crowdfl.protocols.shares.round.ends import EndRequest, RoundEnd
from crowdfl.protocols.shares.round.manifest import (
    AcceptedSet,
    ManifestReply,
    RoundManifest,
    RoundTally,
    RoundVerdict,
    StepReply,
    StepRequest,
    Transcript,
    check_manifest,
    open_seals,
    quorum_in,
    sign_verdict,
    verdict_on,
)
from crowdfl.protocols.shares.round.rewards import earned_openly, open_part, reward_shares
from crowdfl.protocols.shares.round.steps import BONUS, GIVE_UP, OFFER, OPENED, CohortCourse, Facts, shown_in
from crowdfl.protocols.shares.round.work import Findings, ShareWork, Sown
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.reasons import Reason

_ENVIRONMENT = (BackendUnavailable, OSError, MemoryError)  # no secret brings these about: try again


@dataclass(frozen=True, repr=False)
class CspKeys:
    """CSP's own, and the public keys of those who read averages."""

    signing: SigningKey
    sealing: ReaderKey
    audiences: Mapping[str, bytes]
    dealt: bytes  # the seed of its correlations

    @classmethod
    def of(cls, bundle: SharesCspBundle) -> "CspKeys":
        return cls(SigningKey(bundle.signing), ReaderKey(bundle.sealing), bundle.audiences, bundle.seed)


@dataclass(frozen=True, repr=False)
class CspInputs:
    """What a round takes from elsewhere, when it needs it."""

    seed: bytes  # all of CSP's coins of this round come from it
    dealt: Callable[[int], DealtRound]  # of a cohort
    reading: Mapping[str, bytes]  # the participants' keys, which rewards are sealed to
    view: View  # told what CSP sees
    backend: Backend  # where the work on uploads is done
    closed: Collection[str]  # of whom SP may learn no further bit
    alignments: Mapping[str, int]  # sums of products with references, over the rounds whose record is kept


@dataclass(repr=False)
class CspAnswer:
    """The answer to one step, and what must be kept with it."""

    payload: bytes = b""
    verdict: RoundVerdict | None = None  # on the cohort, once it is known
    judged: tuple[str, ...] = ()  # of whom this answer shows a bit
    record: bytes = b""  # of the one sum, which this answer opens
    rewards: dict[str, claims.KeptReward] = field(default_factory=dict)
    products: Mapping[str, int] = field(default_factory=dict)  # of those who are in, with the reference


class CspCohort:
    """CSP's half of a cohort, from a manifest that was found in order, to its verdict and its hidden rewards."""

    def __init__(self, shape: SharesShape, manifest: RoundManifest, keys: CspKeys, inputs: CspInputs) -> None:
        self._shape = shape
        self.manifest = manifest
        self._keys = keys
        self._inputs = inputs
        self._seeds = self._opened_seals()
        self._quorum = quorum_in(manifest, shape)
        self.place = manifest.place
        listed = [*manifest.names, *([REQUESTER_NAME] if manifest.reference else ())]
        self._broken = tuple(who for who in listed if who not in self._seeds)
        self._reference = self._seeds.pop(REQUESTER_NAME, b"")
        self.members = AcceptedSet.without(manifest.names, self._broken, self._quorum)
        self._coins = expand(inputs.seed, bind("crowdfl csp cohort 1", str(manifest.cohort).encode()), SEED_BYTES)
        self._nonce = expand(self._coins, b"crowdfl csp nonce 1", 32)
        self._sums = ShareSums(shape)  # over those whose seal opens, once their shares were expanded for the lanes
        self._now = CspAnswer()
        course = CohortCourse(Facts(shape, len(manifest.names), len(self._seeds)))
        self._run = CspRun(self._program, course)
        self.rewards: list[int] = []  # CSP's shares of those that are hidden

    def _opened_seals(self) -> dict[str, bytes]:
        """The seeds of those whose seal opens."""
        return open_seals(self.manifest, self._keys.sealing, self._inputs.closed)

    def begin(self) -> CspAnswer:
        """The answer to the manifest."""
        members = self.members
        is_checked = self._shape.widths.is_checked
        word = sign_verdict(self.manifest, members, self._keys.signing) if members.void else b""
        verdict = None if is_checked and not members.void else verdict_on(self.manifest, members)
        return CspAnswer(ManifestReply(self._nonce, self._broken, word).to_bytes(), verdict)

    def answer(self, payload: Long) -> CspAnswer | None:
        """None if the cohort was through with its last answer: this payload is what follows in the round."""
        self._now = CspAnswer()
        is_through = self.members.void or self._run.is_over or not self._shape.widths.is_checked
        answered = None if is_through else self._run.answer(whole(payload))
        if answered is None:
            return None
        self._now.payload = answered
        return self._now

    def _program(self, side: CspSide) -> Half[None]:
        if not self._shape.widths.is_checked:
            return
        dealt = self._inputs.dealt(self.manifest.cohort)
        inputs = self._check_inputs()
        checked = yield from check_program(side, dealt.lanes, self._shape.widths, inputs, self._attached)
        if checked.verdict.void is None and self._shape.is_reward_hidden:
            divider = CspDivider(side, self._inputs.view)
            self.rewards = yield from reward_shares(divider, self._shape, dealt, checked)

    def _check_inputs(self) -> CheckInputs:
        names = self.manifest.names
        drawn = coins(self.manifest.digest, self._nonce)
        reference = [Sown(REQUESTER_NAME, self._reference)] if self._reference else []
        found = self._work([*self._sown(self._seeds), *reference], drawn)
        self._sums.merge(found.sums)
        return CheckInputs(
            slots=[slot for slot, who in enumerate(names) if who in self._seeds]
            + [self._shape.widths.cohort for _ in reference],
            lanes=found.lanes,
            samples=found.samples,
            listed=len(names),
            quorum=self._quorum,
            context=drawn,
            salt=expand(self._coins, b"crowdfl csp accept salt 1", 32),
            sums=[self._inputs.alignments.get(who, 0) for who in (*self._seeds, REQUESTER_NAME)],
        )

    def _attached(self, verdict: CheckVerdict) -> bytes:
        self.members = self.members.judged(self.manifest.names, verdict, self._quorum)
        self._now.products = dict(zip(self.members.accepted, verdict.products, strict=False))
        self._now.verdict = verdict_on(self.manifest, self.members)
        self._now.judged = tuple(self._seeds)
        return sign_verdict(self.manifest, self.members, self._keys.signing)

    def _work(self, seeds: Sequence[Sown], coins: bytes = b"", backend: Backend | None = None) -> Findings:
        """On CSP's cluster, where it has one."""
        return run_work(backend or self._inputs.backend, ShareWork(seeds, self._shape, self.place, coins))

    def _sown(self, names: Iterable[str]) -> list[Sown]:
        return [Sown(who, self._seeds[who]) for who in names]

    def drop(self) -> None:
        """What was dealt for it and computed with it: the next cohort needs the room."""
        self._run.close()

    def add_to(self, sums: ShareSums) -> None:
        """CSP's shares of those who are in; where everyone was added up for the lanes, the others are taken out."""
        if self.members.void:
            return
        accepted = set(self.members.accepted)
        if not self._shape.widths.is_checked:
            sums.merge(self._work(self._sown(self._seeds.keys() & accepted)).sums)
            return
        # Here: CSP has seen who is in, and must not fail for want of a cluster.
        left_out = self._work(self._sown(self._seeds.keys() - accepted), backend=default_backend()).sums
        if self._seeds.keys() - accepted:
            self._sums.subtract(left_out.result())
        sums.merge(self._sums)


class CspRound:
    """CSP's half of a round: it is sent manifests and SP's payloads, and gives answers. Run again, it gives the same ones.

    It starts after the cohorts whose verdicts and sum it is given.
    """

    plays: type[CspCohort] = CspCohort

    def __init__(
        self, shape: SharesShape, keys: CspKeys, inputs: CspInputs, tally: RoundTally, sums: ShareSums
    ) -> None:
        self._shape = shape
        self._keys = keys
        self._inputs = inputs
        self.tally = tally
        self._sums = sums
        self._cohort: CspCohort | None = None

    @property
    def cohort(self) -> CspCohort:
        """The last one that has begun."""
        if self._cohort is None:
            raise ProtocolError("the round has no manifest yet")
        return self._cohort

    def close(self) -> bytes:
        """Add up the cohort that is through, if there is one; the sum of all so far, to be kept."""
        self._end_cohort()
        return b"" if self._cohort is None else self._sums.to_bytes()

    def _end_cohort(self) -> None:
        if self._cohort is not None:
            self._cohort.add_to(self._sums)
            self._cohort.drop()

    def begin(self, manifest: RoundManifest) -> CspAnswer:
        self.tally.begin(manifest.names, manifest.cohorts)
        self._cohort = self.plays(self._shape, manifest, self._keys, self._inputs)
        return self._noted(self._cohort.begin())

    def answer(self, payload: Long) -> CspAnswer:
        answer = self.cohort.answer(payload)
        if answer is None:
            return self._opened(SumOffer.from_bytes(payload, self._shape.limits()))
        return self._noted(answer)

    def _noted(self, answer: CspAnswer) -> CspAnswer:
        if answer.verdict is not None:
            self.tally.add(self.cohort.manifest.names, answer.verdict)
        return answer

    @property
    def is_void(self) -> bool:
        """Whether all cohorts have their verdict, and nothing may be opened."""
        over = self.tally.listed == len(self.tally.names) and self.cohort.manifest.cohort == self.tally.cohorts
        return over and bool(self.tally.void)

    def _opened(self, offer: SumOffer) -> CspAnswer:
        """The one sum of the round. A void round has ended with its last verdict: its sum is never asked for."""
        answer = CspAnswer()
        members = self.tally.members
        OFFER.require_message(offer, sum_facts(self._shape, self.place.number, members))
        self._end_cohort()
        part = MaskedPart.drawn(members, self._shape, self.place, CSP, self._keys.audiences)
        reply = open_sum(self._shape, self.place, members, self._used_up(), offer, part, self._keys.signing)
        rewards = tuple(self._sealed(answer, members, offer.commitments))
        answer.record = reply.record
        answer.payload = replace(reply, rewards=rewards).to_bytes()
        return answer

    def _used_up(self) -> ShareSum:
        """What was added up, which is not needed any more: memory need not hold it while it is masked."""
        sums, self._sums = self._sums, ShareSums(self._shape)
        return sums.result()

    def _sealed(self, answer: CspAnswer, members: AcceptedSet, commitments: bytes) -> Iterator[bytes]:
        """Rewards, which are kept with the answer; none where they are not hidden."""
        shares = self.cohort.rewards
        context = self._shape.spec.context(self.place.number)
        pieces = Pieces(commitments)
        for who, share in zip(members.accepted, shares, strict=False):
            commitment = pieces.take(HASH_BYTES)
            own = share.to_bytes(self._shape.reward_form.width, "big")
            answer.rewards[who] = claims.KeptReward(commitment, share)
            yield claims.seal_reward(self._keys.signing, self._inputs.reading[who], context, who, commitment, own)

    @property
    def place(self) -> RoundPlace:
        return self.cohort.place


class SharesCsp:
    """The computation server: answers the next step of a round, and claims, by its records."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesCspBundle) -> None:
        self.party = party
        self.fingerprint = bundle.fingerprint
        self._shape = shape
        self._keys = CspKeys.of(bundle)
        self.roster = Roster()
        self._load: Callable[[int], Long] | None = None
        self._running: _Running | None = None

    @property
    def task_key(self) -> SigningKey:
        return self._keys.signing

    def enrol(self, identity: Identity) -> None:
        self.roster.add(identity)

    def set_dealt_loader(self, load: Callable[[int], Long]) -> None:
        self._load = load

    def spent_rounds(self, records: Look) -> Iterable[int]:
        return spent_rounds(records)

    def answer_long(self, records: Look, request: Long) -> Outcome:
        if Message.kind_of(request) == StepRequest.kind:
            return self._step(records, request)
        return self.answer(records, whole(request))

    def answer(self, records: Look, request: bytes) -> Outcome:
        """What can be refused without any harm is raised, and changes nothing; whatever ends the round is an outcome."""
        kind = Message.kind_of(request)
        if kind in self._answered_openly:
            return self._answered_openly[kind](records, request)
        if claims.is_claim(request) and self._shape.payment:
            return self.party.send(self._claims().answer(records, request))
        if kind == EndRequest.kind:
            return self._ended(records, GIVE_UP.read(EndRequest, request, Facts.most(self._shape)))
        if kind != StepRequest.kind:
            raise FormatError(f"CSP does not answer messages of kind {kind} in this task")
        return self._step(records, request)

    def _step(self, records: Look, request: Long) -> Outcome:
        message = StepRequest.from_bytes(request, self._shape.limits(self._shape.longest_payload))
        state = self._state(records, message)
        number = state.number
        state.require_under_way()
        asked = sha256(request)
        if state.round is None and message.step != 1:
            raise OutOfTurn(f"round {number} has no manifest yet")
        is_taken = state.round is not None and state.is_next(message, asked)
        manifest = RoundManifest.from_bytes(message.payload, self._shape.limits()) if state.expects_manifest else None
        if is_taken:
            return self._answered(state, message, asked, manifest)
        if manifest is not None:
            self._require_in_order(state, manifest)
        if state.round is None and manifest is not None:
            state.begin(manifest)
            state.is_next(message, asked)
        state.reserve(asked)
        return None

    def _state(self, records: Look, message: RoundRequest) -> CspRecords:
        return CspRecords(records, self._shape, self._number(message))

    def _number(self, message: RoundRequest) -> int:
        number = message.round_number
        rounds = self._shape.spec.settings.rounds
        if not 1 <= number <= rounds:
            raise RoundsExhausted(f"round {number} of {rounds}")
        return number

    def _ended(self, records: Look, message: EndRequest) -> bytes:
        """What became of a round that SP has given up, signed: its end, or its record, if its sum was opened."""
        kept = self._state(records, message).give_up()
        if kept.record:
            return self.party.send(RoundRecord.from_bytes(kept.record, self._shape.limits()))
        return self.party.send(RoundEnd.from_bytes(kept.end, self._shape.limits()).sign(self._keys.signing))

    def _note_opened(self, records: Look, request: bytes) -> bytes:
        """Whom a round asks, as long as nothing of it has come: who is drawn later is asked too."""
        message = OPENED.read(RoundOpened, request, Facts.most(self._shape))
        state = CspRecords(records, self._shape, self._number(message))
        state.require_under_way()
        if state.round is not None:
            raise OutOfTurn(f"round {state.number} has begun here: whom it asks was to be said before")
        before = records.get(KeptOpened, state.number)
        enrolled = len(self.roster.signing) if before is None else before.enrolled
        drawn = dict.fromkeys((*(before.drawn if before is not None else ()), *message.drawn))
        records.put(KeptOpened(tuple(drawn), enrolled), state.number)
        return self.party.send(message)

    def _bonus(self, records: Look, request: bytes) -> bytes:
        """Once: no step of a round is taken after it, so that nobody is in who stays away from now on."""
        message = BONUS.read(claims.BonusRequest, request, Facts.most(self._shape))
        if message.task != self._shape.spec.name:
            raise ProtocolError("a request for the bonus of another task")
        word = records.get(BonusWord)
        if word is None:
            CspRecords(records, self._shape, self._shape.spec.settings.rounds + 1).come()
            people = bonus_people(self._attendance(records), list(self.roster.signing), self.roster.places)
            word = BonusWord(self._shape.spec.name, people, b"").sign(self._keys.signing)
            records.put(word)
        return self.party.send(word)

    def _attendance(self, records: Look) -> Iterator[Attendance]:
        settings = self._shape.spec.settings
        order = list(self.roster.signing)
        for number in range(1, settings.rounds + 1):
            kept, void = records.get(KeptRound, number), records.get(KeptVoid, number)
            if kept is None or not (kept.record or void is not None):
                continue
            record = RoundRecord.from_bytes(kept.record, self._shape.limits()) if kept.record else None
            there = {*(record.accepted if record is not None else ()), *(void.names if void is not None else ())}
            opened = records.get(KeptOpened, number) or KeptOpened((), 0)
            is_whole = record is not None or (void is not None and bool(void.whole))
            asked = opened.drawn if settings.per_round is not None else order[: opened.enrolled]
            yield Attendance(asked if is_whole else (), there)

    def reward(self, records: Look, round_number: int, who: str) -> claims.Earned | None:
        """What is kept of a participant's reward, of a round whose sum this CSP has opened."""
        payment = self._shape.payment
        if round_number == claims.BONUS:
            word = records.get(BonusWord) if self._shape.bonus else None
            return self._bonus_earned(word, who)
        if self._shape.is_reward_hidden:
            kept = records.get(claims.KeptReward, round_number, who=who)
            return None if kept is None else claims.Earned(kept.masked, kept.commitment, payment)
        round_ = records.get(KeptRound, round_number)
        if round_ is None or not round_.record:
            return None
        amount = open_part(self._shape, RoundRecord.from_bytes(round_.record, self._shape.limits()), who)
        return None if amount is None else earned_openly(amount, payment)

    @cached_property
    def _answered_openly(self) -> Mapping[int, Callable[[Look, bytes], bytes]]:
        """By kind, what is answered where CSP's records say what everyone has earned; of a hidden reward nobody but its owner
        knows it."""
        if not self._shape.payment or self._shape.is_reward_hidden:
            return {}
        bonus = (
            {claims.BonusRequest.kind: self._bonus, RoundOpened.kind: self._note_opened} if self._shape.bonus else {}
        )
        return {claims.PlaceNote.kind: self._place, claims.UnclaimedRequest.kind: self._unclaimed} | bonus

    def _place(self, records: Look, request: bytes) -> bytes:
        note = claims.PlaceNote.from_bytes(request, self._shape.limits())
        return self.party.send(self._claims().keep_place(records, note))

    def _unclaimed(self, records: Look, request: bytes) -> bytes:
        message = claims.UnclaimedRequest.from_bytes(request, self._shape.limits())
        if message.task != self._shape.spec.name:
            raise ProtocolError("a request for what is unclaimed of another task")
        who, rounds = message.participant, self._shape.spec.settings.rounds
        found = {number: self.reward(records, number, who) for number in range(rounds + 1)}
        earned = {number: one.masked for number, one in found.items() if one is not None}
        return self.party.send(self._claims().unclaimed(records, who, earned))

    def _bonus_earned(self, word: BonusWord | None, who: str) -> claims.Earned | None:
        """A bonus is one item, of one device of a person."""
        bonus = self._shape.bonus
        return earned_openly(bonus, bonus) if word is not None and who in word.names else None

    def shown(
        self, records: Look, round_number: int, who: str, commitment: bytes, signed: bytes
    ) -> claims.Earned | None:
        """By CSP's own signature, which stands though CSP was set back."""
        del records
        payment = self._shape.payment
        own = self._keys.signing.public
        try:
            if self._shape.is_reward_hidden:
                context = self._shape.spec.context(round_number)
                masked = claims.signed_reward(signed, own, context, who, commitment, self._shape.reward_form)
                return claims.Earned(masked, commitment, payment)
            if round_number == claims.BONUS:
                word = open_bonus(signed, self._shape, own)
                return self._bonus_earned(word, who)
            record = parse_record(signed, self._shape, own)
        except (BadSignature, FormatError, ProtocolError, SealBroken):
            return None
        if (record.task, record.number) != (self._shape.spec.name, round_number):
            return None
        amount = open_part(self._shape, record, who)
        return None if amount is None else earned_openly(amount, payment)

    def _require_in_order(self, state: CspRecords, manifest: RoundManifest) -> None:
        """Of the next cohort: what can be refused without any harm is refused before it has begun."""
        number = state.number
        if manifest.number != number:
            raise ProtocolError(f"a manifest of another round in a request of round {number}")
        check_manifest(manifest, self._shape, self.roster.signing, self.party.backend)
        state.task.require_unspent(manifest)
        due = 1 if state.round is None else state.round.cohort + 1
        if manifest.cohort != due:
            raise OutOfTurn(f"a manifest of cohort {manifest.cohort} of round {number}, and cohort {due} comes next")
        state.require_reference(manifest)
        running = self._running
        is_known = running is not None and state.round is not None and running.is_at(number, state.round.transcript)
        tally = running.run.tally if running is not None and is_known else state.tally(due)
        tally.require_new(manifest.names, manifest.cohorts)
        self.roster.require_apart([*tally.names, *manifest.names])

    def _answered(
        self, state: CspRecords, message: StepRequest, asked: bytes, manifest: RoundManifest | None
    ) -> Outcome:
        said = state.now.transcript
        running = self._running
        self._running = None
        try:
            run = running.run if running is not None and running.is_at(state.number, said) else self._again(state)
            if manifest is None:
                answer = run.answer(message.payload)
            else:
                state.begin_cohort(manifest, run.close())
                answer = run.begin(manifest)
        except (DealtMaterialDamaged, Cancelled):
            raise
        except _ENVIRONMENT:
            step = message.step - state.now.first + 1
            if not self._shape.widths.is_checked or manifest is not None or step < shown_in(self._shape):
                raise
            return self._failed(state, asked)  # CSP has seen who is within the bounds: it must say so
        except Exception:  # noqa: BLE001 -- whatever it is, it may depend on what was opened
            state.finish(Phase.ENDED)
            return over(state.number, Phase.ENDED)
        after = said.after(asked, sha256(answer.payload))
        state.answered(b"" if answer.record else whole(message.payload), after)  # the last step is not run again
        self._keep(state, run, answer)
        self._running = _Running(state.number, after, run)
        return self.party.send(StepReply(asked, answer.payload, b""))

    def _failed(self, state: CspRecords, asked: bytes) -> bytes:
        """The end of the round, signed. A CSP that could be away after it has looked would leave no trace of that."""
        manifest = RoundManifest.from_bytes(next(state.payloads()), self._shape.limits())
        state.look.put(
            replace(state.cohort(manifest.cohort), judged=manifest.names), state.number, part=manifest.cohort
        )
        state.finish(Phase.VOID)
        word = sign_verdict(manifest, AcceptedSet((), {}, Reason.CSP_FAILED), self._keys.signing)
        return self.party.send(StepReply(asked, b"", word))

    def _again(self, state: CspRecords) -> CspRound:
        """The program of the cohort under way, with the payloads that were kept: the same answers."""
        run = self._program(state)
        payloads = state.payloads()
        for manifest in islice(payloads, 1):
            run.begin(RoundManifest.from_bytes(manifest, self._shape.limits()))
        for payload in payloads:
            run.answer(payload)
        return run

    def _program(self, state: CspRecords) -> CspRound:
        inputs = CspInputs(
            state.now.seed,
            partial(self._dealt, state.number),
            self.roster.reading,
            self.party.view,
            self.party.backend,
            set() if self._shape.widths.has_reference else state.task.closed,
            state.alignments(),
        )
        sums = ShareSums(self._shape)
        if state.now.sums:
            sums.add_kept(state.look.file(state.number, state.now.sums))
        return CspRound(self._shape, self._keys, inputs, state.tally(state.now.cohort), sums)

    def _dealt(self, number: int, cohort: int) -> DealtRound:
        if self._load is None:
            raise DealtMaterialDamaged("nothing that KGC dealt has reached this CSP: the round is void")
        file = self._shape.file_number(number, cohort)
        return received(self._shape, self._keys.dealt, CSP_ROLE, file, self._load(file))

    def _keep(self, state: CspRecords, run: CspRound, answer: CspAnswer) -> None:
        """What stands or falls with the answer."""
        cohort = state.now.cohort
        bits = self._shape.widths.R
        if answer.verdict is not None:
            kept = state.cohort(cohort)
            verdict = answer.verdict.to_bytes()
            state.look.put(replace(kept, judged=answer.judged, verdict=verdict), state.number, part=cohort)
        if answer.products and not run.cohort.members.void:
            state.look.put(RunningSums.of(answer.products, bits), state.number, part=cohort)
        if run.is_void:
            state.finish(Phase.VOID)
        if not answer.record:
            return
        if self._shape.widths.has_reference:  # a round without a record, and who is not in it, changes nothing
            products = {
                who: one for part in range(1, cohort + 1) for who, one in state.alignments(state.number, part).items()
            }
            state.look.put(added(state.alignments(), products, bits))
        for who, earned in answer.rewards.items():
            state.look.put(earned, state.number, who=who)
        record = RoundRecord.from_bytes(answer.record, self._shape.limits())
        following = next_base(run.place.base, record.statement)
        state.open_sum(run.place, following, answer.record, run.tally.void_cohorts)

    def _claims(self) -> claims.ClaimsCsp:
        form = self._shape.reward_form
        return claims.ClaimsCsp(self._shape.spec, form, self._keys.signing, self.roster.signing, self)


@dataclass(frozen=True, repr=False)
class _Running:
    """A program in this process: whose round, and what was said when it gave its last answer."""

    number: int
    transcript: Transcript
    run: CspRound

    def is_at(self, number: int, transcript: Transcript) -> bool:
        return (self.number, self.transcript) == (number, transcript)
