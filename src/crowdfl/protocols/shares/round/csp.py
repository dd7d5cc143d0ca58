"""CSP of a `shares` task. It believes nothing that SP says about a round: its own program says what comes next.

A step is reserved durably for the hash of one request before anything is answered; another request for it is refused, as is one
that does not follow from everything said before. After a restart CSP runs its program again with the payloads it kept:
the same bytes. Once a round has begun, every failure is one and the same error and ends it: nothing is ever computed
without the checks that the task asks for.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from crowdfl.crypto.compute import Backend, default_backend, run_work
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import ReaderKey, SigningKey
from crowdfl.crypto.shares.ring import Long, expand
from crowdfl.errors import (
    BackendUnavailable,
    Cancelled,
    DealtMaterialDamaged,
    FormatError,
    LengthMismatch,
    OutOfTurn,
    ProtocolError,
    RoundsExhausted,
)
from crowdfl.protocols import claims
from crowdfl.protocols.common.paid import Roster
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import Party, View
from crowdfl.protocols.profile import CspMemory, Identity, InProcessMemory
from crowdfl.protocols.shares.chain import HASH_BYTES, RoundPlace, bind, next_base, sha256
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
    ShareSums,
    SumOffer,
    open_sum,
)
from crowdfl.protocols.shares.round.checks import CheckInputs, CheckVerdict, check_program, shown_in
from crowdfl.protocols.shares.round.csp_state import CspState, SumOpened
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
from crowdfl.protocols.shares.round.rewards import equal_part, kept_openly, reward_shares
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
    reserve_part: Callable[[bytes], bytes]  # of the sum: durable; the first one stands
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
    rewards: dict[str, bytes] = field(default_factory=dict)
    products: Mapping[str, int] = field(default_factory=dict)  # of those who are in, with the reference


class _CspCohort:
    """CSP's half of a cohort, from a manifest that was found in order, to its verdict and its hidden rewards."""

    def __init__(self, shape: SharesShape, manifest: RoundManifest, keys: CspKeys, inputs: CspInputs) -> None:
        self._shape, self.manifest, self._keys, self._inputs = shape, manifest, keys, inputs
        self._seeds = open_seals(manifest, keys.sealing, inputs.closed)
        self._quorum, self.place = quorum_in(manifest, shape), manifest.place
        listed = [*manifest.names, *([REQUESTER_NAME] if manifest.reference else ())]
        self._broken = tuple(who for who in listed if who not in self._seeds)
        self._reference = self._seeds.pop(REQUESTER_NAME, b"")
        self.members = AcceptedSet.without(manifest.names, self._broken, self._quorum)
        self._coins = expand(inputs.seed, bind("crowdfl csp cohort 1", str(manifest.cohort).encode()), SEED_BYTES)
        self._nonce = expand(self._coins, b"crowdfl csp nonce 1", 32)
        self._sums = ShareSums(shape)  # over those whose seal opens, once their shares were expanded for the lanes
        self._now = CspAnswer()
        self._run = CspRun(self._program)
        self.rewards: list[int] = []  # CSP's shares of those that are hidden

    def begin(self) -> CspAnswer:
        """The answer to the manifest."""
        members, is_checked = self.members, self._shape.widths.is_checked
        word = sign_verdict(self.manifest, members, self._keys.signing) if members.void else b""
        verdict = None if is_checked and not members.void else verdict_on(self.manifest, members)
        return CspAnswer(ManifestReply(self._nonce, self._broken, word).to_bytes(), verdict)

    def answer(self, payload: bytes) -> CspAnswer | None:
        """None if the cohort was through with its last answer: this payload is what follows in the round."""
        self._now = CspAnswer()
        answered = None if self.members.void else self._run.answer(payload)
        if answered is None:
            return None
        self._now.payload = answered
        return self._now

    def _program(self, side: CspSide) -> Half[None]:
        if not self._shape.widths.is_checked:
            return
        dealt, inputs = self._inputs.dealt(self.manifest.cohort), self._check_inputs()
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
        self._now.verdict, self._now.judged = verdict_on(self.manifest, self.members), tuple(self._seeds)
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
        rest = self._sums.result().minus(self._shape, left_out.result())
        sums.add(rest.sums, rest.total)


class CspRound:
    """CSP's half of a round: it is sent manifests and SP's payloads, and gives answers. Run again, it gives the same ones.

    It starts after the cohorts whose verdicts and sum it is given.
    """

    def __init__(
        self, shape: SharesShape, keys: CspKeys, inputs: CspInputs, tally: RoundTally, sums: ShareSums
    ) -> None:
        self._shape, self._keys, self._inputs, self.tally, self._sums = shape, keys, inputs, tally, sums
        self._cohort: _CspCohort | None = None

    @property
    def cohort(self) -> _CspCohort:
        """The last one that has begun."""
        if self._cohort is None:
            raise ProtocolError("the round has no manifest yet")
        return self._cohort

    def close(self) -> bytes:
        """Add up the cohort that is through, if there is one; the sum of all so far, to be kept."""
        if self._cohort is None:
            return b""
        self._cohort.add_to(self._sums)
        self._cohort.drop()
        return self._sums.to_bytes()

    def begin(self, manifest: RoundManifest) -> CspAnswer:
        self.tally.begin(manifest.names, manifest.cohorts)
        self._cohort = _CspCohort(self._shape, manifest, self._keys, self._inputs)
        return self._noted(self._cohort.begin())

    def answer(self, payload: bytes) -> CspAnswer:
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
        """The one sum of the round."""
        answer, members = CspAnswer(), self.tally.members
        if members.void:  # nothing is asked for after that was said
            raise ProtocolError(f"nothing of this round is opened: {members.void.words}")
        self.close()
        own, part = self._sums.result(), self._part(members)
        reply = open_sum(self._shape, self.place, members, own, offer, part, self._keys.signing)
        rewards = tuple(self._sealed(answer, members, offer.commitments))
        answer.record, answer.payload = reply.record, replace(reply, rewards=rewards).to_bytes()
        return answer

    def _part(self, members: AcceptedSet) -> MaskedPart:
        drawn = MaskedPart.drawn(members, self._shape, self.place, CSP, self._keys.audiences)
        return MaskedPart.from_bytes(self._inputs.reserve_part(drawn.to_bytes()), self._shape.limits())

    def _sealed(self, answer: CspAnswer, members: AcceptedSet, commitments: bytes) -> Iterator[bytes]:
        """Rewards, which are kept with the answer; none where they are not hidden."""
        shares = self.cohort.rewards
        if len(commitments) != HASH_BYTES * len(shares):
            raise LengthMismatch(f"commitments of {len(commitments)} bytes to {len(shares)} rewards")
        context, pieces = self._shape.spec.context(self.place.number), Pieces(commitments)
        for who, share in zip(members.accepted, shares, strict=False):
            commitment, own = pieces.take(HASH_BYTES), share.to_bytes(self._shape.reward_form.width, "big")
            answer.rewards[who] = commitment + own
            yield claims.seal_reward(self._keys.signing, self._inputs.reading[who], context, who, commitment, own)

    @property
    def place(self) -> RoundPlace:
        return self.cohort.place


class SharesCsp:
    """The computation server: answers the next step of a round, and claims."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesCspBundle) -> None:
        self.party, self.fingerprint, self._shape, self._keys = party, bundle.fingerprint, shape, CspKeys.of(bundle)
        self.roster = Roster()
        self._load: Callable[[int], Long] | None = None
        self._running: _Running | None = None
        self.remember(InProcessMemory())

    def enrol(self, identity: Identity) -> None:
        self.roster.add(identity)

    def remember(self, memory: CspMemory) -> None:
        self._memory, self._state = memory, CspState(self._shape.spec.name, memory)

    def set_dealt_loader(self, load: Callable[[int], Long]) -> None:
        self._load = load

    def spent_rounds(self) -> Iterable[int]:
        return self._state.spent_rounds()

    def answer(self, request: bytes) -> bytes:
        kind = Message.kind_of(request)
        if kind == claims.Claim.kind and self._shape.payment:
            return self.party.send(self._claims().answer(request, self._memory))
        if kind != StepRequest.kind:
            raise FormatError(f"CSP does not answer messages of kind {kind} in this task")
        message = StepRequest.from_bytes(request, self._shape.limits(self._shape.longest_payload))
        number, rounds = message.round_number, self._shape.spec.settings.rounds
        if not 1 <= number <= rounds:
            raise RoundsExhausted(f"round {number} of {rounds}")
        self._state.require_under_way(number)
        transcript = self._state.transcript(number)
        if transcript is None:
            return self._begin(message, request)
        if message.step != transcript.step + 1 or message.transcript != transcript.digest:
            raise OutOfTurn(
                f"step {message.step} of round {number} is not the next one, or does not follow from the last"
            )
        if self._state.expects_manifest(number):
            self._admit(message, transcript)
        self._state.reserve_step(number, message.step, request)
        return self._answered(message, request, transcript)

    def reward(self, round_number: int, who: str) -> claims.Kept | None:
        """What is kept of a participant's reward, of a round that is through."""
        if not self._shape.is_reward_hidden:
            return self._openly(round_number, who)
        kept = self._state.reward(round_number, who)
        return None if kept is None else claims.Kept.parse(kept, self._shape.payment)

    def _openly(self, round_number: int, who: str) -> claims.Kept | None:
        """By the record of a sum that this CSP has opened."""
        kept, payment = self._state.record(round_number), self._shape.payment
        if kept is None:
            return None
        amount = equal_part(payment, RoundRecord.from_bytes(kept, self._shape.limits()), who)
        return None if amount is None else kept_openly(amount, payment)

    def _begin(self, message: StepRequest, request: bytes) -> bytes:
        """The round's first manifest."""
        if message.step != 1:
            raise OutOfTurn(f"round {message.round_number} has no manifest yet")
        manifest = self._admit(message)
        start = Transcript.start(manifest.place)
        if message.transcript != start.digest:
            raise ProtocolError(f"the manifest of round {manifest.number} does not begin its transcript")
        self._state.reserve_step(manifest.number, 1, request)
        self._state.begin(manifest)
        return self._answered(message, request, start)

    def _admit(self, message: StepRequest, said: Transcript | None = None) -> RoundManifest:
        """What can be refused without any harm is refused before a cohort has begun."""
        manifest, number = RoundManifest.from_bytes(message.payload, self._shape.limits()), message.round_number
        if manifest.number != number:
            raise ProtocolError(f"a manifest of another round in a request of round {number}")
        check_manifest(manifest, self._shape, self.roster.signing, self.party.backend)
        self._state.check_base(manifest)
        running, due = self._running, self._state.cohort(number)[0] + 1
        if manifest.cohort != due:
            raise OutOfTurn(f"a manifest of cohort {manifest.cohort} of round {number}, and cohort {due} comes next")
        is_known = running is not None and (running.number, running.transcript) == (number, said)
        tally = running.run.tally if running and is_known else self._state.tally(number, self._shape)
        tally.require_new(manifest.names, manifest.cohorts)
        return manifest

    def _answered(self, message: StepRequest, request: bytes, transcript: Transcript) -> bytes:
        number, running, self._running = message.round_number, self._running, None
        first, is_manifest = self._state.cohort(number)[1], self._state.expects_manifest(number)
        try:
            run, answer = self._computed(message, transcript, running)
        except (DealtMaterialDamaged, Cancelled):
            raise
        except _ENVIRONMENT:
            if (
                not self._shape.widths.is_checked
                or is_manifest
                or message.step - first + 1 < shown_in(self._shape.widths)
            ):
                raise
            return self._failed(number, sha256(request))  # CSP has seen who is within the bounds: it must say so
        except Exception:  # noqa: BLE001 -- whatever it is, it may depend on what was opened
            raise self._state.end(number) from None
        self._keep(run, answer)
        asked = sha256(request)
        after = transcript.after(asked, sha256(answer.payload))
        self._state.keep_step(number, message.payload, after)
        self._running = _Running(number, after, run)
        return self.party.send(StepReply(asked, answer.payload, b""))

    def _failed(self, number: int, asked: bytes) -> bytes:
        """The end of the round, signed. A CSP that could be away after it has looked would leave no trace of that."""
        first = self._state.cohort(number)[1]
        manifest = RoundManifest.from_bytes(next(self._state.payloads(number, first, first)), self._shape.limits())
        self._state.abort(number)
        self._state.keep_judged(number, manifest.cohort, manifest.names)
        word = sign_verdict(manifest, AcceptedSet((), {}, Reason.CSP_FAILED), self._keys.signing)
        return self.party.send(StepReply(asked, b"", word))

    def _computed(
        self, message: StepRequest, transcript: Transcript, running: "_Running | None"
    ) -> tuple[CspRound, CspAnswer]:
        """The next answer of the program under way or, if that is not in this process, of the same run again."""
        number = message.round_number
        if running is None or (running.number, running.transcript) != (number, transcript):
            run = self._again(number, transcript.step)
        else:
            run = running.run
        if not self._state.expects_manifest(number):
            return run, run.answer(message.payload)
        manifest = RoundManifest.from_bytes(message.payload, self._shape.limits())
        self._state.keep_cohort(manifest, message.step, run.close())
        return run, run.begin(manifest)

    def _again(self, number: int, steps: int) -> CspRound:
        """From the beginning of the cohort under way."""
        run, first = self._program(number), self._state.cohort(number)[1]
        payloads = self._state.payloads(number, first, steps)
        for manifest in islice(payloads, 1):
            run.begin(RoundManifest.from_bytes(manifest, self._shape.limits()))
        for payload in payloads:
            run.answer(payload)
        return run

    def _program(self, number: int) -> CspRound:
        inputs = CspInputs(
            self._state.seed(number),
            partial(self._state.reserve_part, number),
            partial(self._dealt, number),
            self.roster.reading,
            self.party.view,
            self.party.backend,
            set() if self._shape.widths.has_reference else self._state.closed(),
            self._alignments(),
        )
        sums, kept = ShareSums(self._shape), self._state.sums(number)
        if kept:
            sums.add_kept(kept)
        tally = self._state.tally(number, self._shape, before=self._state.cohort(number)[0])
        return CspRound(self._shape, self._keys, inputs, tally, sums)

    def _alignments(self, number: int = 0, cohort: int = 0) -> dict[str, int]:
        """Shares of sums as the last record left them; or those of a cohort, which its round's record adds."""
        most = self._shape.spec.settings.max_participants
        return RunningSums.read(self._state.alignments(number, cohort), self._shape.widths.R, most)

    def _dealt(self, number: int, cohort: int) -> DealtRound:
        if self._load is None:
            raise DealtMaterialDamaged("nothing that KGC dealt has reached this CSP: the round is void")
        file = self._shape.file_number(number, cohort)
        return received(self._shape, self._keys.dealt, CSP_ROLE, file, self._load(file))

    def _keep(self, run: CspRound, answer: CspAnswer) -> None:
        """What stands or falls with the answer; but a base is spent from here on, whatever becomes of it."""
        number, base = run.place.number, run.place.base
        if answer.record:
            self._state.spend(number, base)
            record = RoundRecord.from_bytes(answer.record, self._shape.limits())
            self._state.keep_opened(
                SumOpened(number, next_base(base, record.statement)), answer.record, run.tally.void_cohorts
            )
            if self._shape.widths.has_reference:
                self._align(number)
        for who, kept in answer.rewards.items():
            self._state.keep_reward(number, who, kept)
        if answer.judged:
            self._state.keep_judged(number, run.cohort.manifest.cohort, answer.judged)
        if answer.verdict is not None:
            self._state.keep_verdict(run.cohort.manifest.cohort, answer.verdict)
        if answer.products and not run.cohort.members.void:
            own = RunningSums.of(answer.products, self._shape.widths.R).to_bytes()
            self._state.keep_alignments(own, number, run.cohort.manifest.cohort)
        if run.is_void:
            self._state.abort(number)

    def _align(self, number: int) -> None:
        """With the record: a round that has none, and who is not in it, changes nothing."""
        cohorts = range(1, self._state.cohort(number)[0] + 1)
        products = {who: one for cohort in cohorts for who, one in self._alignments(number, cohort).items()}
        self._state.keep_alignments(added(self._alignments(), products, self._shape.widths.R))

    def _claims(self) -> claims.ClaimsCsp:
        task, form, limits = self._shape.spec.name, self._shape.reward_form, self._shape.limits()
        return claims.ClaimsCsp(task, self, form, limits, self._keys.signing, self.roster.signing)


@dataclass(frozen=True, repr=False)
class _Running:
    """A program in this process: whose round, and what was said when it gave its last answer."""

    number: int
    transcript: Transcript
    run: CspRound
