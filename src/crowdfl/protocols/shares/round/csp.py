"""CSP of a `shares` task. It believes nothing that SP says about a round: its own program says what comes next.

A step is reserved durably for the hash of one request before anything is answered; another request for it is refused, as is one
that does not follow from everything said before. After a restart CSP runs its program again with the payloads it kept:
the same bytes. Once a round has begun, every failure is one and the same error and ends it: nothing is ever computed
without the checks that the task asks for.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from crowdfl.crypto.sealing import ReaderKey, SigningKey
from crowdfl.crypto.shares.ring import expand
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
from crowdfl.protocols.shares.chain import HASH_BYTES, RoundPlace, next_base, sha256
from crowdfl.protocols.shares.circuits.lanes import LaneMaker, coins
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
)
from crowdfl.protocols.shares.round.checks import Checked, CheckInputs, CheckVerdict, check_program, shown_in
from crowdfl.protocols.shares.round.csp_state import CspState, SumOpened
from crowdfl.protocols.shares.round.manifest import (
    FAILED,
    AcceptedSet,
    ManifestReply,
    RoundManifest,
    StepReply,
    StepRequest,
    Transcript,
    check_manifest,
    open_seals,
    sign_verdict,
)
from crowdfl.protocols.shares.round.rewards import equal_part, kept_openly, reward_shares
from crowdfl.protocols.shares.round.upload import expanded_samples, expanded_update
from crowdfl.protocols.shares.shape import SharesShape

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
    dealt: Callable[[], DealtRound]
    reading: Mapping[str, bytes]  # the participants' keys, which rewards are sealed to
    view: View  # told what CSP sees
    closed: Collection[str]  # of whom SP may learn no further bit
    sums: Mapping[str, int]  # of products with references, over the rounds whose record is kept


@dataclass(repr=False)
class CspAnswer:
    """The answer to one step, and what must be kept with it."""

    payload: bytes = b""
    is_void: bool = False
    judged: tuple[str, ...] = ()  # of whom this answer shows a bit
    record: bytes = b""  # of the one sum, which this answer opens
    rewards: dict[str, bytes] = field(default_factory=dict)
    sums: bytes = b""  # of products with references, those of this round included


class CspRound:
    """CSP's half of a round, from a manifest that was found in order: it is sent SP's payloads and gives answers.

    Run again, it gives the same ones.
    """

    def __init__(self, shape: SharesShape, manifest: RoundManifest, keys: CspKeys, inputs: CspInputs) -> None:
        self._shape, self._manifest, self._keys, self._inputs = shape, manifest, keys, inputs
        self._seeds = open_seals(manifest, keys.sealing, inputs.closed)
        listed = [*manifest.names, *([REQUESTER_NAME] if manifest.reference else ())]
        self._broken = tuple(who for who in listed if who not in self._seeds)
        self._reference = self._seeds.pop(REQUESTER_NAME, b"")
        self._products: dict[str, int] = {}  # shares, with the reference
        self._members = AcceptedSet.without(manifest.names, self._broken, shape.quorum)
        self._nonce = expand(inputs.seed, b"crowdfl csp nonce 1", 32)
        self._sums = ShareSums(shape)  # over those whose seal opens, once their shares were expanded for the lanes
        self._now = CspAnswer()
        self._run = CspRun(self._program)

    def begin(self) -> CspAnswer:
        """The answer to the manifest."""
        members = self._members
        word = sign_verdict(self._manifest, members, self._keys.signing) if members.void else b""
        return CspAnswer(ManifestReply(self._nonce, self._broken, word).to_bytes(), is_void=bool(word))

    def answer(self, payload: bytes) -> CspAnswer:
        self._now = CspAnswer()
        self._now.payload = self._run.answer(payload)
        return self._now

    def _program(self, side: CspSide) -> Half[None]:
        shares: list[int] = []
        if self._shape.widths.is_checked:
            checked = yield from self._check(side)
            if checked.verdict.void is not None:
                return
            self._products = dict(zip(self._members.accepted, checked.products, strict=False))
            if self._shape.is_reward_hidden:
                divider = CspDivider(side, self._inputs.view)
                shares = yield from reward_shares(divider, self._shape, self._dealt, checked)
        side.finish(self._average(SumOffer.from_bytes(side.heard(), self._shape.limits()), shares))

    def _check(self, side: CspSide) -> Half[Checked]:
        self._dealt = self._inputs.dealt()
        inputs = self._check_inputs()
        return (yield from check_program(side, self._dealt.lanes, self._shape.widths, inputs, self._attached))

    def _check_inputs(self) -> CheckInputs:
        names = self._manifest.names
        drawn = coins(self._manifest.digest, self._nonce)
        maker, last = LaneMaker(self._shape, drawn), [self._shape.widths.participants] if self._reference else []
        return CheckInputs(
            slots=[slot for slot, who in enumerate(names) if who in self._seeds] + last,
            lanes=maker.lanes(chain(self._expanded(), self._expanded_reference())),
            samples=[self._samples_of(who) for who in self._seeds],
            listed=len(names),
            quorum=self._shape.quorum,
            context=drawn,
            salt=expand(self._inputs.seed, b"crowdfl csp accept salt 1", 32),
            sums=[self._inputs.sums.get(who, 0) for who in (*self._seeds, REQUESTER_NAME)],
        )

    def _sealed(self, shares: list[int], commitments: bytes) -> Iterator[bytes]:
        """Rewards, which are kept with the answer; none where they are not hidden."""
        if len(commitments) != HASH_BYTES * len(shares):
            raise LengthMismatch(f"commitments of {len(commitments)} bytes to {len(shares)} rewards")
        context, pieces = self._shape.spec.context(self.place.number), Pieces(commitments)
        for who, share in zip(self._members.accepted, shares, strict=False):
            commitment, own = pieces.take(HASH_BYTES), share.to_bytes(self._shape.reward_form.width, "big")
            self._now.rewards[who] = commitment + own
            yield claims.seal_reward(self._keys.signing, self._inputs.reading[who], context, who, commitment, own)

    def _attached(self, verdict: CheckVerdict) -> bytes:
        self._members = self._members.judged(self._manifest.names, verdict, self._shape.quorum)
        self._now.is_void, self._now.judged = verdict.void is not None, tuple(self._seeds)
        return sign_verdict(self._manifest, self._members, self._keys.signing)

    def _expanded(self) -> Iterator[bytes]:
        """CSP's shares one after the other, in the order of the names; what was expanded is added up too."""
        for who in self._seeds:
            shares, samples = self._share_of(who)
            self._sums.add(shares, samples)
            yield shares

    def _expanded_reference(self) -> Iterator[bytes]:
        """It is compared with, and never added up."""
        if self._reference:
            yield expanded_update(self._reference, self.place, REQUESTER_NAME, self._shape.share_bytes)

    def _share_of(self, who: str) -> tuple[bytes, int]:
        return expanded_update(self._seeds[who], self.place, who, self._shape.share_bytes), self._samples_of(who)

    def _samples_of(self, who: str) -> int:
        return expanded_samples(self._seeds[who], self.place, who, self._shape.count_bytes)

    def _average(self, offer: SumOffer, shares: list[int]) -> bytes:
        reply = open_sum(
            self._shape, self.place, self._members, self._own_sum(), offer, self._part(), self._keys.signing
        )
        self._now.record = reply.record
        if self._reference:
            self._now.sums = added(self._inputs.sums, self._products, self._shape.widths.R)
        return replace(reply, rewards=tuple(self._sealed(shares, offer.commitments))).to_bytes()

    def _part(self) -> MaskedPart:
        drawn = MaskedPart.drawn(self._members, self._shape, self.place, CSP, self._keys.audiences)
        return MaskedPart.from_bytes(self._inputs.reserve_part(drawn.to_bytes()), self._shape.limits())

    def _own_sum(self) -> ShareSum:
        """Of those who are in; where everyone was added up for the lanes, the others are taken out."""
        accepted = set(self._members.accepted)
        if not self._shape.widths.is_checked:
            return sum_of(self._shape, self.place, {who: self._seeds[who] for who in self._seeds if who in accepted})
        for who in self._seeds.keys() - accepted:
            self._sums.subtract(*self._share_of(who))
        return self._sums.result()

    @property
    def place(self) -> RoundPlace:
        return self._manifest.place


def sum_of(shape: SharesShape, place: RoundPlace, seeds: Mapping[str, bytes]) -> ShareSum:
    """CSP's share of a sum: one expansion at a time."""
    sums = ShareSums(shape)
    for who, seed in seeds.items():
        samples = expanded_samples(seed, place, who, shape.count_bytes)
        sums.add(expanded_update(seed, place, who, shape.share_bytes), samples)
    return sums.result()


class SharesCsp:
    """The computation server: answers the next step of a round, and claims."""

    def __init__(self, party: Party, shape: SharesShape, bundle: SharesCspBundle) -> None:
        self.party, self.fingerprint, self._shape, self._keys = party, bundle.fingerprint, shape, CspKeys.of(bundle)
        self.roster = Roster()
        self._load: Callable[[int], bytes] | None = None
        self._running: _Running | None = None
        self.remember(InProcessMemory())

    def enrol(self, identity: Identity) -> None:
        self.roster.add(identity)

    def remember(self, memory: CspMemory) -> None:
        self._memory, self._state = memory, CspState(self._shape.spec.name, memory)

    def set_dealt_loader(self, load: Callable[[int], bytes]) -> None:
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
        """What can be refused without any harm is refused before the round has begun."""
        if message.step != 1:
            raise OutOfTurn(f"round {message.round_number} has no manifest yet")
        manifest = RoundManifest.from_bytes(message.payload, self._shape.limits())
        if manifest.number != message.round_number:
            raise ProtocolError(f"a manifest of another round in a request of round {message.round_number}")
        start = Transcript.start(manifest.place)
        if message.transcript != start.digest:
            raise ProtocolError(f"the manifest of round {manifest.number} does not begin its transcript")
        check_manifest(manifest, self._shape, self.roster.signing)
        self._state.check_base(manifest)
        self._state.reserve_step(manifest.number, 1, request)
        self._state.begin(manifest)
        return self._answered(message, request, start)

    def _answered(self, message: StepRequest, request: bytes, transcript: Transcript) -> bytes:
        number, running, self._running = message.round_number, self._running, None
        try:
            run, answer = self._computed(message, transcript, running)
        except (DealtMaterialDamaged, Cancelled):
            raise
        except _ENVIRONMENT:
            if not self._shape.widths.is_checked or message.step < shown_in(self._shape.widths):
                raise
            return self._failed(number, sha256(request))  # CSP has seen who is within the bounds: it must say so
        except Exception:  # noqa: BLE001 -- whatever it is, it may depend on what was opened
            raise self._state.end(number) from None
        self._keep(run.place, answer)
        asked = sha256(request)
        after = transcript.after(asked, sha256(answer.payload))
        self._state.keep_step(number, message.payload, after)
        self._running = _Running(number, after, run)
        return self.party.send(StepReply(asked, answer.payload, b""))

    def _failed(self, number: int, asked: bytes) -> bytes:
        """The end of the round, signed. A CSP that could be away after it has looked would leave no trace of that."""
        manifest = RoundManifest.from_bytes(next(self._state.payloads(number, 1)), self._shape.limits())
        self._state.abort(number)
        self._state.keep_judged(number, manifest.names)
        word = sign_verdict(manifest, AcceptedSet((), {}, FAILED), self._keys.signing)
        return self.party.send(StepReply(asked, b"", word))

    def _computed(
        self, message: StepRequest, transcript: Transcript, running: "_Running | None"
    ) -> tuple[CspRound, CspAnswer]:
        """The next answer of the program under way or, if that is not in this process, of the same run again."""
        number = message.round_number
        if transcript.step == 0:
            run = self._program(number, message.payload)
            return run, run.begin()
        if running is None or (running.number, running.transcript) != (number, transcript):
            run = self._again(number, transcript.step)
        else:
            run = running.run
        return run, run.answer(message.payload)

    def _again(self, number: int, steps: int) -> CspRound:
        payloads = self._state.payloads(number, steps)
        run = self._program(number, next(payloads))
        run.begin()
        for payload in payloads:
            run.answer(payload)
        return run

    def _program(self, number: int, manifest: bytes) -> CspRound:
        parsed = RoundManifest.from_bytes(manifest, self._shape.limits())
        inputs = CspInputs(
            self._state.seed(number),
            partial(self._state.reserve_part, number),
            lambda: self._dealt(number),
            self.roster.reading,
            self.party.view,
            set() if self._shape.widths.has_reference else self._state.closed(),
            self._sums(),
        )
        return CspRound(self._shape, parsed, self._keys, inputs)

    def _sums(self) -> dict[str, int]:
        return RunningSums.read(self._state.sums(), self._shape.widths.R, self._shape.spec.settings.max_participants)

    def _dealt(self, number: int) -> DealtRound:
        if self._load is None:
            raise DealtMaterialDamaged("nothing that KGC dealt has reached this CSP: the round is void")
        return received(self._shape, self._keys.dealt, CSP_ROLE, number, self._load(number))

    def _keep(self, place: RoundPlace, answer: CspAnswer) -> None:
        """What stands or falls with the answer; but a base is spent from here on, whatever becomes of it."""
        number, base = place.number, place.base
        if answer.record:
            self._state.spend(number, base)
            record = RoundRecord.from_bytes(answer.record, self._shape.limits())
            self._state.keep_opened(SumOpened(number, next_base(base, record.statement)), answer.record, answer.sums)
        for who, kept in answer.rewards.items():
            self._state.keep_reward(number, who, kept)
        if answer.judged:
            self._state.keep_judged(number, answer.judged)
        if answer.is_void:
            self._state.abort(number)

    def _claims(self) -> claims.ClaimsCsp:
        task, form, limits = self._shape.spec.name, self._shape.reward_form, self._shape.limits()
        return claims.ClaimsCsp(task, self, form, limits, self._keys.signing, self.roster.signing)


@dataclass(frozen=True, repr=False)
class _Running:
    """A program in this process: whose round, and what was said when it gave its last answer."""

    number: int
    transcript: Transcript
    run: CspRound
