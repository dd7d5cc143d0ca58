"""CSP of a `hardened` task. It believes nothing that SP says about a round: one order of steps, each answered once.

A round has steps once CSP holds its manifest, in which everyone has signed an upload for it, and until a later one has one, or
the requester cancels the task. What belongs into each step follows from the task's definition and from CSP's own records.
A second request for a step is refused, and so is a step before its turn. From the opening on, every failure is one and the same
error, after the same work, and ends the round.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import AudienceKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import (
    BackendUnavailable,
    BadSignature,
    Cancelled,
    FormatError,
    OutOfTurn,
    ProtocolError,
    RoundsExhausted,
    SealBroken,
)
from crowdfl.protocols import claims
from crowdfl.protocols.common.keyed import KeyedSide
from crowdfl.protocols.common.paid import Roster
from crowdfl.protocols.common.sdiv import (
    DivideRequest,
    GuardRequest,
    HardenedSdivCsp,
    SdivWidths,
    guard_polynomials,
    guard_tops,
)
from crowdfl.protocols.common.smul import PolynomialsCsp, PolynomialsRequest, products_in
from crowdfl.protocols.hardened import steps
from crowdfl.protocols.hardened.closing import CancelReply, CancelRequest, sign_cancelled
from crowdfl.protocols.hardened.manifest import CoinsReply, ManifestRequest, check_manifest
from crowdfl.protocols.hardened.opening import OpeningCsp, OpenRequest
from crowdfl.protocols.hardened.order import (
    HardenedRound,
    HardenedSum,
    HardenedTask,
    Places,
    RoundOrder,
    Step,
    Worked,
    end_round,
)
from crowdfl.protocols.hardened.prifedavg import TOTAL, HiddenAverageCsp, ScaleRequest, hidden_widths
from crowdfl.protocols.hardened.prirwd import (
    DISTANCES,
    WEIGHTS,
    InnerRequest,
    InnerSums,
    LanesRequest,
    RewardCsp,
    RewardReply,
    RewardRequest,
    distance_polynomials,
)
from crowdfl.protocols.hardened.record import HardenedRecord, RecordReply, RecordRequest, sign_record
from crowdfl.protocols.hardened.shape import Shape
from crowdfl.protocols.hardened.steps import INNER, LANES, MANIFEST, OPEN_REWARDS, SCALE
from crowdfl.protocols.messages import Limits, Message, RoundRequest
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import Identity
from crowdfl.protocols.records import Look, Outcome

_ENVIRONMENT = (BackendUnavailable, Cancelled, OSError, MemoryError)  # no plaintext brings these about: try again


class HardenedCsp(KeyedSide):
    """The computation server: answers the next step of a round, and claims."""

    def __init__(
        self, party: KeyedParty, shape: Shape, audiences: Mapping[int, AudienceKey], signing: SigningKey
    ) -> None:
        self.party, self._shape, self.signing = party, shape, signing
        self.roster = Roster()
        self._parsed: tuple[bytes, RoundRequest] | None = None  # the last request, by its hash
        self._opening = OpeningCsp(party, audiences)
        self._hidden = HiddenAverageCsp(party, shape.budget, shape.packing)
        self._sdiv, self._polynomials = HardenedSdivCsp(party), PolynomialsCsp(party)
        self._takes: dict[int, tuple[type[RoundRequest], Callable[..., Step]]] = {
            ManifestRequest.kind: (ManifestRequest, self._begin),
            OpenRequest.kind: (OpenRequest, self._open),
        }
        self.rewards: RewardCsp | None = None  # open to the laboratory, which weakens its widths on purpose
        if shape.task.settings.total == "hidden":
            self._takes |= {ScaleRequest.kind: (ScaleRequest, self._scale)} | self._divisions()
        if shape.task.settings.lanes != 0:
            self.rewards = RewardCsp(party, shape.packing, shape.widths())
            self._takes |= self._reward_steps() | self._divisions()
        order = partial(steps.order_of, shape)
        numbers = {step.name: place for place, step in enumerate(steps.STEPS)}
        self._order = RoundOrder(lambda pays: order(pays=pays), self._places(), numbers)

    @property
    def task_key(self) -> SigningKey:
        return self.signing

    def enrol(self, identity: Identity) -> None:
        self.roster.add(identity)

    def answer(self, records: Look, request: bytes) -> Outcome:
        """What is raised changes nothing; from the opening on, a failure ends the round."""
        kind = Message.kind_of(request)
        beside = self._beside_steps(records, kind, request)
        if beside is not None:
            return self.party.send(beside)
        if kind not in self._takes:
            raise FormatError(f"CSP does not answer messages of kind {kind} in this task")
        message_type, take = self._takes[kind]
        asked = hashlib.sha256(request).digest()
        if (
            self._parsed is None or self._parsed[0] != asked
        ):  # numbers are checked once, though a request is looked at twice
            self._parsed = asked, message_type.from_bytes(request, self._limits())
        message = self._parsed[1]
        number = self._number_of(message)
        now = records.get(HardenedRound, number)
        steps.require(self._shape, message, len(now.participants) if now is not None and now.participants else None)
        step = take(records, message)
        pays = (now.payment if now is not None else 0) > 0
        if not self._order.is_for(records, number, step, asked, pays=pays):
            return None
        self._parsed = None
        try:
            worked = step.work()
        except _ENVIRONMENT:
            raise
        except Exception:  # noqa: BLE001 -- whatever it is, it may depend on what was opened
            return end_round(records, number)
        if not worked.fits:
            return end_round(records, number)
        self._order.finish(records, number, step, asked, worked.kept)
        return self.party.send(worked.reply)

    def reward(self, records: Look, round_number: int, who: str) -> claims.Earned | None:
        """What is kept of a participant's reward, unless the round is void."""
        kept = records.get(claims.KeptReward, round_number, who=who)
        now = records.get(HardenedRound, round_number)
        if kept is None or now is None or now.is_void:
            return None
        return claims.Earned(kept.masked, kept.commitment, now.payment)

    def shown(
        self, records: Look, round_number: int, who: str, commitment: bytes, signed: bytes
    ) -> claims.Earned | None:
        """By CSP's own signature, of a round that no record calls void."""
        budget = self._shape.budget_of_a_round
        now = records.get(HardenedRound, round_number)
        if budget is None or self.rewards is None or (now is not None and now.ended):
            return None
        context = self._shape.task.context(round_number)
        form = self.rewards.widths.form(self.party.public)
        try:
            masked = claims.signed_reward(signed, self.signing.public, context, who, commitment, form)
        except (BadSignature, SealBroken):
            return None
        return claims.Earned(masked, commitment, budget)

    def _number_of(self, message: RoundRequest) -> int:
        number = message.round_number
        rounds = self._shape.task.settings.rounds
        if not 1 <= number <= rounds:
            raise RoundsExhausted(f"round {number} of {rounds}")
        return number

    def _beside_steps(self, records: Look, kind: int, request: bytes) -> Message | None:
        """What has no turn: claims, CSP's word on a round, the end of the task."""
        if claims.is_claim(request) and self.rewards is not None:
            form = self.rewards.widths.form(self.party.public)
            side = claims.ClaimsCsp(self._shape.task, form, self.signing, self.roster.signing, self)
            return side.answer(records, request)
        if kind == RecordRequest.kind:
            return self._word(records, RecordRequest.from_bytes(request, Limits.plain()))
        if kind == CancelRequest.kind:
            return self._cancel(records, CancelRequest.from_bytes(request, Limits.plain()))
        return None

    def _word(self, records: Look, message: RecordRequest) -> RecordReply:
        """CSP's signed word on a round. One of which nothing was opened is void from here on: there is no second word."""
        number = self._number_of(message)
        now = records.get(HardenedRound, number) or HardenedRound()
        if not now.record:
            now = replace(now, ended=now.ended or int(not now.opened))
            word = HardenedRecord(self._shape.task.name, number, now.manifest, now.participants, int(now.is_void), b"")
            now = replace(now, record=sign_record(word, self.signing))
            records.put(now, number)
        return RecordReply(now.record)

    def _cancel(self, records: Look, message: CancelRequest) -> CancelReply:
        """From here on no step of any round is taken."""
        task = self._shape.task
        message.require_of(task.name, task.requester)
        records.put(replace(records.get(HardenedTask) or HardenedTask(), cancelled=1))
        return sign_cancelled(task.name, self.signing)

    # Steps: each checks what it can before anything is opened, and says what is to be done.

    def _open(self, records: Look, message: OpenRequest) -> Step:
        number = message.round_number
        masked = HardenedSum(hashlib.sha256(message.masked.to_bytes()).digest())
        before = records.get(HardenedSum, number, part=message.start)
        if (before or masked) != masked:
            raise OutOfTurn("another sum of this round was opened already")

        def work() -> Worked:
            records.put(masked, number, part=message.start)
            records.put(replace(records.get(HardenedRound, number) or HardenedRound(), opened=1), number)
            return Worked(self._opening.answer(message, self._shape.task.context(number)))

        return Step(steps.name_of(message), message.start, work, is_again=before is not None)

    def _scale(self, records: Look, message: ScaleRequest) -> Step:
        self._hidden.check(message)
        factor = hashlib.sha256(message.factor.to_bytes()).digest()
        now = records.get(HardenedRound, message.round_number) or HardenedRound()
        if now.factor not in (b"", factor):
            raise OutOfTurn("this round's sums are scaled by another factor already")

        def work() -> Worked:
            if now.factor != factor:
                records.put(replace(now, factor=factor), message.round_number)
            return Worked(self._hidden.answer(message))

        return Step(SCALE, message.start, work)

    def _begin(self, records: Look, message: ManifestRequest) -> Step:
        """Whose uploads the round has and how much it pays is fixed here, for all that follows. Earlier rounds are over."""
        check_manifest(message, self._shape.task, self.roster.signing, self.party.backend)
        self.roster.require_apart(message.participants)
        self._check_payment(message.payment)

        def work() -> Worked:
            number = message.round_number
            task = records.get(HardenedTask) or HardenedTask()
            records.put(replace(task, latest=number))
            begun = HardenedRound(payment=message.payment, participants=message.participants, manifest=message.digest)
            records.put(begun, number)
            return Worked(CoinsReply(records.fresh(SEED_BYTES)))

        return Step(MANIFEST, 0, work)

    def _check_payment(self, payment: int) -> None:
        agreed = self._shape.budget_of_a_round
        if agreed is not None and payment != agreed:
            raise ProtocolError(f"a round of this task pays {agreed} millionths, not {payment}")
        largest = 0 if self.rewards is None else self._shape.widths().largest_payment
        if not 0 <= payment <= largest:
            raise ProtocolError(f"a round pays at most {largest} millionths, not {payment}")

    def _lanes(self, records: Look, message: LanesRequest) -> Step:
        n = self._require_count(records, message.round_number)
        rewards = self._rewards_on()

        def work() -> Worked:
            reply, sums, fits = rewards.lanes(message, n)
            return Worked(reply, fits, sums.to_bytes())

        return Step(LANES, message.start, work)

    def _inner(self, records: Look, message: InnerRequest) -> Step:
        number = message.round_number
        rewards = self._rewards_on()
        n = self._require_count(records, number)

        def work() -> Worked:
            starts = steps.KeyedFacts(self._shape, n).starts[LANES]
            kept = [self._order.kept(records, number, LANES, start) or b"" for start in starts]
            return Worked(*rewards.inner(message, [InnerSums.from_bytes(piece, self._limits()) for piece in kept]))

        return Step(INNER, 0, work)

    def _multiply(self, records: Look, message: PolynomialsRequest) -> Step:
        """The polynomials of the distances, or the squares of a division's guard."""
        if message.purpose == DISTANCES:
            n = self._require_count(records, message.round_number)
            products = products_in(distance_polynomials(n, self._shape.widths().epsilon_units))
        else:
            products = products_in(guard_polynomials(len(message.masked)))
        return Step(steps.name_of(message), 0, lambda: Worked(self._polynomials.answer(message, products)))

    def _guard(self, records: Look, message: GuardRequest) -> Step:
        del records
        divisors = 1 if message.purpose != WEIGHTS else len(message.masked) // 2
        tops = guard_tops(self._widths(message.purpose), len(message.masked) - divisors, divisors)
        return Step(steps.name_of(message), 0, lambda: Worked(self._sdiv.guard(message, tops)))

    def _divide(self, records: Look, message: DivideRequest) -> Step:
        del records
        widths = self._widths(message.purpose)
        return Step(steps.name_of(message), 0, lambda: Worked(*self._sdiv.divide(message, widths)))

    def _reward(self, records: Look, message: RewardRequest) -> Step:
        """Open v_i, keep it for the claim, sign it and seal it to its owner, whom SP does not choose."""
        names = self._require_begun(records, message.round_number)
        rewards = self._rewards_on()

        def work() -> Worked:
            rows = list(zip(names, message.commitments, rewards.open(message), strict=True))
            for who, commitment, value in rows:
                records.put(claims.KeptReward(commitment, int(value)), message.round_number, who=who)
            return Worked(RewardReply(tuple(self._sealed(message, *row) for row in rows)))

        return Step(OPEN_REWARDS, 0, work)

    def _sealed(self, message: RewardRequest, who: str, commitment: bytes, value: int) -> bytes:
        context = self._shape.task.context(message.round_number)
        width = self.party.public.plaintext_bytes
        body = int(value).to_bytes(width, "big")
        return claims.seal_reward(self.signing, self.roster.reading[who], context, who, commitment, body)

    # What CSP knows by itself.

    def _widths(self, purpose: str) -> SdivWidths:
        return hidden_widths(self._shape.budget) if purpose == TOTAL else self._rewards_on().widths.of(purpose)

    def _places(self) -> dict[str, Places]:
        def starts(name: str, participants: int) -> Sequence[int]:
            return steps.KeyedFacts(self._shape, participants).starts[name]

        return {name: partial(starts, name) for name in steps.KeyedFacts(self._shape).starts}

    def _limits(self) -> Limits:
        return self.party.limits(steps.most_numbers(self._shape))

    def _require_begun(self, records: Look, number: int) -> tuple[str, ...]:
        """Whose uploads a round has."""
        now = records.get(HardenedRound, number)
        if now is None or not now.participants:
            raise OutOfTurn(f"round {number} has no manifest yet")
        return now.participants

    def _require_count(self, records: Look, number: int) -> int:
        return len(self._require_begun(records, number))

    def _rewards_on(self) -> RewardCsp:
        if self.rewards is None:
            raise FormatError("this task has no rewards")
        return self.rewards

    def _reward_steps(self) -> dict[int, tuple[type[RoundRequest], Callable[..., Step]]]:
        return {
            LanesRequest.kind: (LanesRequest, self._lanes),
            InnerRequest.kind: (InnerRequest, self._inner),
            RewardRequest.kind: (RewardRequest, self._reward),
        }

    def _divisions(self) -> dict[int, tuple[type[RoundRequest], Callable[..., Step]]]:
        return {
            GuardRequest.kind: (GuardRequest, self._guard),
            PolynomialsRequest.kind: (PolynomialsRequest, self._multiply),
            DivideRequest.kind: (DivideRequest, self._divide),
        }
