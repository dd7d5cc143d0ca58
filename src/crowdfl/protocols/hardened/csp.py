"""CSP of a `hardened` task. It believes nothing that SP says about a round: one order of steps, each answered once.

The steps of a round, what belongs into each and how many numbers follow from the task's definition and from CSP's own records.
A step is reserved durably for the hash of one request before anything is opened; another request for it is refused, and so is
a step before its turn. From the opening on, every failure is one and the same error, after the same work, and ends the round.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from crowdfl.crypto.randomness import SEED_BYTES, Coins
from crowdfl.crypto.sealing import AudienceKey, SigningKey
from crowdfl.errors import (
    BackendUnavailable,
    Cancelled,
    FormatError,
    OutOfTurn,
    ProtocolError,
    RoundsExhausted,
    TooFewParticipants,
)
from crowdfl.protocols import claims
from crowdfl.protocols.common.keyed import KeyedCsp
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
from crowdfl.protocols.hardened.opening import OpeningCsp, OpenRequest
from crowdfl.protocols.hardened.prifedavg import TOTAL, HiddenAverageCsp, ScaleRequest, hidden_widths
from crowdfl.protocols.hardened.prirwd import (
    DISTANCES,
    WEIGHTS,
    InnerRequest,
    InnerSums,
    LanesRequest,
    NonceReply,
    NonceRequest,
    RewardCsp,
    RewardReply,
    RewardRequest,
    RewardWidths,
    distance_polynomials,
)
from crowdfl.protocols.hardened.shape import Places, RoundOrder, Shape, Step
from crowdfl.protocols.hardened.steps import INNER, LANES, NONCE, OPEN_REWARDS, SCALE
from crowdfl.protocols.messages import Limits, Message, RoundRequest
from crowdfl.protocols.party import KeyedParty
from crowdfl.protocols.profile import CspMemory, Identity, InProcessMemory

_ENVIRONMENT = (BackendUnavailable, Cancelled, OSError, MemoryError)  # no plaintext brings these about: try again


class HardenedCsp(KeyedCsp):
    """The computation server: answers the next step of a round, and claims."""

    def __init__(
        self, party: KeyedParty, shape: Shape, audiences: Mapping[int, AudienceKey], signing: SigningKey
    ) -> None:
        self.party, self._shape, self._signing = party, shape, signing
        self._memory: CspMemory = InProcessMemory()
        self.roster = Roster()
        self._opening = OpeningCsp(party, audiences)
        self._hidden = HiddenAverageCsp(party, shape.budget, shape.packing)
        self._sdiv, self._polynomials = HardenedSdivCsp(party), PolynomialsCsp(party)
        self._takes: dict[int, tuple[type[RoundRequest], Callable[..., Step]]] = {
            OpenRequest.kind: (OpenRequest, self._open)
        }
        self.rewards: RewardCsp | None = None  # open to the laboratory, which weakens its widths on purpose
        if shape.task.settings.total == "hidden":
            self._takes |= {ScaleRequest.kind: (ScaleRequest, self._scale)} | self._divisions()
        if shape.task.settings.lanes != 0:
            self.rewards = RewardCsp(party, shape.packing, shape.widths())
            self._takes |= self._reward_steps() | self._divisions()
        self._order = RoundOrder(steps.order_of(shape), self._places())

    def enrol(self, identity: Identity) -> None:
        self.roster.add(identity)

    def remember(self, memory: CspMemory) -> None:
        self._memory = memory

    def answer(self, request: bytes) -> bytes:
        kind = Message.kind_of(request)
        if kind == claims.Claim.kind and self.rewards is not None:
            return self.party.send(self._claims(self.rewards.widths).answer(request, self._memory))
        if kind not in self._takes:
            raise FormatError(f"CSP does not answer messages of kind {kind} in this task")
        message_type, take = self._takes[kind]
        message = message_type.from_bytes(request, self._limits())
        number = message.round_number
        if not 1 <= number <= self._shape.task.settings.rounds:
            raise RoundsExhausted(f"round {number} of {self._shape.task.settings.rounds}")
        begun = self._begun(number)
        steps.require(self._shape, message, None if begun is None else len(begun.participants))
        step = take(message)
        self._order.admit(self._memory, number, step, request, self._count(number))
        try:
            reply, fits = step.work()
        except _ENVIRONMENT:
            raise
        except Exception:  # noqa: BLE001 -- whatever it is, it may depend on what was opened
            fits = False
        if not fits:
            raise self._order.end(self._memory, number)
        self._order.finish(self._memory, number, step)
        return self.party.send(reply)

    def reward(self, round_number: int, who: str) -> claims.Kept | None:
        """What is kept of a participant's reward, unless the round is void."""
        kept, begun = self._memory.get("reward", round_number, who), self._begun(round_number)
        if kept is None or begun is None or self._order.has_ended(self._memory, round_number):
            return None
        return claims.Kept.parse(kept, begun.payment)

    # Steps: each checks what it can before anything is opened, and says what is to be done.

    def _open(self, message: OpenRequest) -> Step:
        masked = hashlib.sha256(message.masked.to_bytes()).digest()
        if self._known(message, f"masked {message.start}", masked) != masked:
            raise OutOfTurn("another sum of this round was opened already")

        def work() -> tuple[Message, bool]:
            self._fix(message, f"masked {message.start}", masked)
            return self._opening.answer(message, self._shape.task.context(message.round_number)), True

        return Step(steps.name_of(message), message.start, work)

    def _scale(self, message: ScaleRequest) -> Step:
        self._hidden.check(message)
        factor = hashlib.sha256(message.factor.to_bytes()).digest()
        if self._known(message, "factor", factor) != factor:
            raise OutOfTurn("this round's sums are scaled by another factor already")

        def work() -> tuple[Message, bool]:
            self._fix(message, "factor", factor)
            return self._hidden.answer(message), True

        return Step(SCALE, message.start, work)

    def _begin(self, message: NonceRequest) -> Step:
        """Who is rewarded with how much is fixed here, for all that follows."""
        settings, names = self._shape.task.settings, message.participants
        if list(names) != sorted(set(names)):
            raise ProtocolError("the participants are not in order, or one is named twice")
        if not settings.min_participants <= len(names) <= settings.most_in_round:
            raise TooFewParticipants(
                f"{len(names)} participants; expected {settings.min_participants} to {settings.most_in_round}"
            )
        strangers = sorted(set(names) - set(self.roster.reading))
        if strangers:
            raise ProtocolError(f"no certified keys of {', '.join(strangers)}")
        self._check_payment(message.payment)

        def work() -> tuple[Message, bool]:
            nonce = Coins.fresh().take(SEED_BYTES)
            self._keep(message, "begun", Begun(message.payment, names).to_bytes())
            return NonceReply(nonce), True

        return Step(NONCE, 0, work)

    def _check_payment(self, payment: int) -> None:
        agreed, largest = self._shape.budget_of_a_round, self._shape.widths().largest_payment
        if agreed is not None and payment != agreed:
            raise ProtocolError(f"a round of this task pays {agreed} millionths, not {payment}")
        if not 0 < payment <= largest:
            raise ProtocolError(f"a round pays 1 to {largest} millionths, not {payment}")

    def _lanes(self, message: LanesRequest) -> Step:
        n, rewards = self._require_count(message.round_number), self._rewards_on()

        def work() -> tuple[Message, bool]:
            reply, sums, fits = rewards.lanes(message, n)
            self._keep(message, f"sums {message.start}", sums.to_bytes())
            return reply, fits

        return Step(LANES, message.start, work)

    def _inner(self, message: InnerRequest) -> Step:
        n, rewards = self._require_count(message.round_number), self._rewards_on()

        def work() -> tuple[Message, bool]:
            starts = steps.KeyedFacts(self._shape, n).starts[LANES]
            kept = [self._known(message, f"sums {start}", b"") for start in starts]
            return rewards.inner(message, [InnerSums.from_bytes(piece, self._limits()) for piece in kept])

        return Step(INNER, 0, work)

    def _multiply(self, message: PolynomialsRequest) -> Step:
        """The polynomials of the distances, or the squares of a division's guard."""
        if message.purpose == DISTANCES:
            n = self._require_count(message.round_number)
            products = products_in(distance_polynomials(n, self._shape.widths().epsilon_units))
        else:
            products = products_in(guard_polynomials(len(message.masked)))
        return Step(steps.name_of(message), 0, lambda: (self._polynomials.answer(message, products), True))

    def _guard(self, message: GuardRequest) -> Step:
        tops = guard_tops(self._widths(message.purpose), *self._numbers(message.round_number, message.purpose))
        return Step(steps.name_of(message), 0, lambda: (self._sdiv.guard(message, tops), True))

    def _divide(self, message: DivideRequest) -> Step:
        widths = self._widths(message.purpose)
        return Step(steps.name_of(message), 0, lambda: self._sdiv.divide(message, widths))

    def _reward(self, message: RewardRequest) -> Step:
        """Open v_i, keep it for the claim, sign it and seal it to its owner, whom SP does not choose."""
        names, rewards = self._require_begun(message.round_number).participants, self._rewards_on()

        def work() -> tuple[Message, bool]:
            rows = zip(names, message.commitments, rewards.open(message), strict=True)
            return RewardReply(tuple(self._sealed(message, *row) for row in rows)), True

        return Step(OPEN_REWARDS, 0, work)

    def _sealed(self, message: RewardRequest, who: str, commitment: bytes, value: int) -> bytes:
        context, body = self._shape.task.context(message.round_number), int(value).to_bytes(self._width, "big")
        self._memory.keep("reward", commitment + body, message.round_number, who)
        return claims.seal_reward(self._signing, self.roster.reading[who], context, who, commitment, body)

    # What CSP knows by itself.

    @property
    def _width(self) -> int:
        return self.party.public.plaintext_bytes

    def _numbers(self, number: int, purpose: str) -> tuple[int, int]:
        """Dividends and divisors of a division."""
        if purpose == TOTAL:
            return 1, 1
        n = self._require_count(number)
        return n, n if purpose == WEIGHTS else 1

    def _widths(self, purpose: str) -> SdivWidths:
        return hidden_widths(self._shape.budget) if purpose == TOTAL else self._rewards_on().widths.of(purpose)

    def _places(self) -> dict[str, Places]:
        def starts(name: str, participants: int) -> Sequence[int]:
            return steps.KeyedFacts(self._shape, participants).starts[name]

        return {name: partial(starts, name) for name in steps.KeyedFacts(self._shape).starts}

    def _limits(self) -> Limits:
        return self.party.limits(steps.most_numbers(self._shape))

    def _begun(self, number: int) -> "Begun | None":
        kept = self._memory.get("begun", number)
        return None if kept is None else Begun.from_bytes(kept, Limits.plain())

    def _require_begun(self, number: int) -> "Begun":
        begun = self._begun(number)
        if begun is None:
            raise OutOfTurn(f"the rewards of round {number} have not begun")
        return begun

    def _require_count(self, number: int) -> int:
        return len(self._require_begun(number).participants)

    def _count(self, number: int) -> int:
        begun = self._begun(number)
        return 0 if begun is None else len(begun.participants)

    def _known(self, message: RoundRequest, name: str, otherwise: bytes) -> bytes:
        kept = self._memory.get(name, message.round_number)
        return otherwise if kept is None else kept

    def _keep(self, message: RoundRequest, name: str, value: bytes) -> None:
        self._memory.keep(name, value, message.round_number)

    def _fix(self, message: RoundRequest, name: str, value: bytes) -> None:
        """At once: two requests at the same moment must not both be the first."""
        if self._memory.reserve(name, value, message.round_number) != value:
            raise OutOfTurn(f"another {name} of this round is fixed already")

    def _rewards_on(self) -> RewardCsp:
        if self.rewards is None:
            raise FormatError("this task has no rewards")
        return self.rewards

    def _claims(self, widths: RewardWidths) -> claims.ClaimsCsp:
        task, form, limits = self._shape.task.name, widths.form(self.party.public), self.party.limits(1)
        return claims.ClaimsCsp(task, self, form, limits, self._signing, self.roster.signing)

    def _reward_steps(self) -> dict[int, tuple[type[RoundRequest], Callable[..., Step]]]:
        return {
            NonceRequest.kind: (NonceRequest, self._begin),
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


class Begun(Message, kind=29):
    """What CSP keeps when the rewards of a round begin: how much is paid, and to whom."""

    payment: int
    participants: tuple[str, ...]
