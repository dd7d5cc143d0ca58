"""The steps of a `hardened` round, declared: what comes after what, how many numbers are in each, what the answer shows.

Numbers are ciphertexts under the task's key, each with SP's half of its decryption.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from crowdfl.crypto.paillier.vector import VECTOR_HEADER_BYTES
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.errors import OutOfTurn
from crowdfl.protocols.common.sdiv import DivideRequest, GuardReply, GuardRequest, SdivReply
from crowdfl.protocols.common.smul import PolynomialsReply, PolynomialsRequest
from crowdfl.protocols.hardened import opening, prirwd
from crowdfl.protocols.hardened.closing import CancelReply, CancelRequest
from crowdfl.protocols.hardened.manifest import SIGNATURE_BYTES, CoinsReply, ManifestRequest
from crowdfl.protocols.hardened.opening import PARTICIPANTS, REQUESTER, OpenReply, OpenRequest
from crowdfl.protocols.hardened.prifedavg import TOTAL, ScaleReply, ScaleRequest
from crowdfl.protocols.hardened.prirwd import (
    DISTANCES,
    REWARDS,
    WEIGHTS,
    InnerReply,
    InnerRequest,
    LanesReply,
    LanesRequest,
    RewardReply,
    RewardRequest,
)
from crowdfl.protocols.hardened.record import RecordReply, RecordRequest
from crowdfl.protocols.hardened.shape import Shape
from crowdfl.protocols.messages import Message, RoundRequest
from crowdfl.protocols.steps import Condition, FieldForm, Size, StepForm

ANSWERS: Mapping[type[Message], type[Message]] = {
    OpenRequest: OpenReply,
    ScaleRequest: ScaleReply,
    ManifestRequest: CoinsReply,
    LanesRequest: LanesReply,
    InnerRequest: InnerReply,
    PolynomialsRequest: PolynomialsReply,
    GuardRequest: GuardReply,
    DivideRequest: SdivReply,
    RewardRequest: RewardReply,
    RecordRequest: RecordReply,
}
"""What CSP answers to each request."""

MANIFEST, LANES, INNER, OPEN_REWARDS, SCALE = "manifest", "lanes", "inner products", "open rewards", "scale"
RECORD, CANCEL = "record", "cancel"
_TASK_BYTES, _NAME_BYTES = 64, 64
_SEAL_BYTES = 32 + 16  # a salt, and the tag
_REWARD_SEAL_BYTES = 32 + 16 + 64  # HPKE's encapsulated key and tag, and CSP's signature


@dataclass(frozen=True)
class KeyedFacts:
    """What sizes follow from: the task, how many the manifest names, and which message of a step it is."""

    shape: Shape
    participants: int = 0
    start: int = 0

    @property
    def chunk(self) -> int:
        """Ciphertexts of a sum in this message."""
        return min(opening.CHUNK, max(0, self.rows - self.start))

    @property
    def rows(self) -> int:
        """Ciphertexts of a sum that is opened: the model, and the total where it is shown."""
        return self.shape.budget.ciphertexts + (self.shape.task.settings.total != "hidden")

    @property
    def lane_rows(self) -> int:
        budget = self.shape.budget
        most = prirwd.rows_a_message(max(1, self.participants), budget.slots)
        return min(most, max(0, budget.buckets - self.start))

    @property
    def starts(self) -> dict[str, range]:
        """The messages of the steps that have several, by where they start."""
        chunks = range(0, self.rows, opening.CHUNK)
        budget = self.shape.budget
        lanes = range(0, budget.buckets, prirwd.rows_a_message(max(1, self.participants), budget.slots))
        return {LANES: lanes, SCALE: chunks, **{open_to(audience): chunks for audience in (PARTICIPANTS, REQUESTER)}}


_Size = Size[KeyedFacts]
_Field = FieldForm[KeyedFacts]
_Is = Condition[KeyedFacts]


def open_to(audience: int) -> str:
    return f"open to audience {audience}"


def _number(text: str, words: str, of: Callable[[KeyedFacts], int]) -> _Size:
    return Size(text, of, words)


def _count(value: int) -> _Size:
    return Size(str(value), lambda _: value)


PEOPLE = _number("people", "names in the manifest", lambda of: of.participants)
CIPHERTEXT = _number("ciphertext", "bytes of one number, w", lambda of: of.shape.task.public.ciphertext_bytes)
PLAINTEXT = _number("plaintext", "bytes of a number modulo N", lambda of: of.shape.task.public.plaintext_bytes)
CHUNK = _number("chunk", "ciphertexts of the sum in this message, at most 512", lambda of: of.chunk)
LANE_ROWS = _number("rows", "rows of lanes of each in this message", lambda of: of.lane_rows)
_RECORD: _Size = Size("(64 + 4) * people + 256", lambda of: (_NAME_BYTES + 4) * of.participants + 256)
SLOTS = _number("slots", "lanes in a ciphertext", lambda of: of.shape.budget.slots)

_ROUND, _START, _PURPOSE = (
    _Field(name, _count(most).up_to()) for name, most in (("round_number", 8), ("start", 8), ("purpose", 16))
)
_HASH = _count(SEED_BYTES)


def _vector(name: str, count: _Size, words: str = "") -> _Field:
    return FieldForm(name, CIPHERTEXT, count, words, VECTOR_HEADER_BYTES)


def _masked(count: _Size, name: str = "masked", words: str = "") -> tuple[_Field, _Field]:
    """Ciphertexts, and SP's half of their decryption."""
    return _vector(name, count, words), _vector(f"{name}_1", count)


_SIGNATURE = _count(SIGNATURE_BYTES)
_REWARDED = _Is("`lanes` is not 0, in a round that pays", lambda of: of.shape.task.settings.lanes != 0)
_SCALED = _Is('`total` is "hidden"', lambda of: of.shape.task.settings.total == "hidden")
_ALWAYS = _Is("always", lambda of: True)
_BEGUN = "the names and the payment of the manifest"
_MASKED = "nothing: uniform numbers to CSP, ciphertexts to SP"


def _step(
    name: str,
    when: _Is,
    asks: type[RoundRequest],
    request: tuple[_Field, ...],
    reply: tuple[_Field, ...],
    bound_to: str,
    shows: str = _MASKED,
) -> StepForm[KeyedFacts]:
    kinds = asks.kind, ANSWERS[asks].kind
    return StepForm(name, "SP", "CSP", when, (_ROUND, *request), reply, bound_to, shows, *kinds)


def _division(purpose: str, when: _Is, x: _Size, y: _Size) -> tuple[StepForm[KeyedFacts], ...]:
    """Guard, squares of the guard, division."""
    both = x + y
    tops = (_vector("tops", both),)
    guard = _step(
        f"guard of {purpose}", when, GuardRequest, (_PURPOSE, *_masked(both)), tops, f"{_BEGUN}; k and m are fresh"
    )
    products = (_vector("products", both),)
    multiply = _step(
        f"squares of {purpose}", when, PolynomialsRequest, (_PURPOSE, *_masked(both)), products, "the guard"
    )
    numbers = (_PURPOSE, *_masked(x, "x", "dividends"), *_masked(y, "y", "divisors"))
    quotients = (_vector("quotients", x),)
    divide = _step(
        f"divide {purpose}",
        when,
        DivideRequest,
        numbers,
        quotients,
        "the guard, which spoils what is too long",
        "masked divisors to CSP, blurred; whether all are in range",
    )
    return guard, multiply, divide


def _open(audience: int) -> StepForm[KeyedFacts]:
    sealed = FieldForm("sealed", CHUNK * PLAINTEXT + _SEAL_BYTES)
    return _step(
        open_to(audience),
        _ALWAYS,
        OpenRequest,
        (_Field("audience", _count(1).up_to()), _START, *_masked(CHUNK)),
        (sealed,),
        "the sum that was first opened in this round",
        "the average to the audience, uniform numbers to CSP, nothing to SP",
    )


STEPS: tuple[StepForm[KeyedFacts], ...] = (
    _step(
        MANIFEST,
        _ALWAYS,
        ManifestRequest,
        (
            _Field("payment", _count(16).up_to()),
            FieldForm("participants", _count(_NAME_BYTES).up_to(), PEOPLE, "sorted, each once"),
            FieldForm("digests", _HASH, PEOPLE, "of the uploads' ciphertexts"),
            FieldForm("signatures", _SIGNATURE, PEOPLE, "each one's, for this round"),
        ),
        (_Field("nonce", _HASH),),
        "certified names, their signatures, and the payment that the task promises; ends every earlier round",
        "coins of the sketch, once the uploads are closed",
    ),
    _step(
        LANES,
        _REWARDED,
        LanesRequest,
        (_START, *_masked(PEOPLE * LANE_ROWS)),
        (_vector("lanes", PEOPLE * LANE_ROWS * SLOTS),),
        f"{_BEGUN}; the coins",
        "masked lanes to CSP; whether all are in range",
    ),
    _step(
        INNER,
        _REWARDED,
        InnerRequest,
        _masked(PEOPLE * 2, words="counts from below, then from above"),
        (_vector("own", PEOPLE), _vector("cross", PEOPLE)),
        "all lanes",
        "whether every number of samples is within its bounds",
    ),
    _step(
        DISTANCES,
        _REWARDED,
        PolynomialsRequest,
        (_PURPOSE, *_masked(PEOPLE * 3 + 2)),
        (_vector("products", PEOPLE * 13 + 1),),
        _BEGUN,
    ),
    *_division(WEIGHTS, _REWARDED, PEOPLE, PEOPLE),
    *_division(REWARDS, _REWARDED, PEOPLE, _count(1)),
    _step(
        OPEN_REWARDS,
        _REWARDED,
        RewardRequest,
        (*_masked(PEOPLE), FieldForm("commitments", _HASH, PEOPLE)),
        (FieldForm("sealed", PLAINTEXT + _REWARD_SEAL_BYTES, PEOPLE),),
        f"{_BEGUN}; a commitment to every mask",
        "its reward to each owner, masked numbers to CSP",
    ),
    *_division(TOTAL, _SCALED, _count(1), _count(1)),
    _step(
        SCALE,
        _SCALED,
        ScaleRequest,
        (_START, *_masked(CHUNK), _vector("factor", _count(1))),
        (_vector("scaled", CHUNK),),
        "the factor of the first message, whose Jacobi symbol is 1",
    ),
    _open(PARTICIPANTS),
    _open(REQUESTER),
    _step(
        RECORD,
        _ALWAYS,
        RecordRequest,
        (),
        (FieldForm("record", _RECORD.up_to(), words="of kind 35, signed"),),
        "what was opened, if anything; else the round is void from here on. At any time",
        "whom CSP has averaged, or that the round is void",
    ),
    StepForm(
        CANCEL,
        "SP",
        "CSP",
        _ALWAYS,
        (_Field("task", _count(_TASK_BYTES).up_to()), FieldForm("signature", _SIGNATURE, words="the requester's")),
        (_Field("signature", _SIGNATURE),),
        "the requester's key; ends all rounds. At any time",
        "nothing",
        CancelRequest.kind,
        CancelReply.kind,
    ),
)
"""In the order of a round that pays, with its total hidden. Messages of one step may come in any order."""

BY_NAME = {step.name: step for step in STEPS}
ANY_TIME = (RECORD, CANCEL)


def order_of(shape: Shape, *, pays: bool) -> dict[str, str | None]:
    """What each step comes after: the one before it. A round that pays opens nothing to readers before its rewards, and after
    the first opening there is no step of them left; a round that does not pay has none."""
    facts = KeyedFacts(shape)
    steps = [step for step in STEPS if step.when.holds(facts) and step.name not in ANY_TIME]
    names = [step.name for step in steps if pays or step.when is not _REWARDED]
    after = dict(zip(names, [None, *names], strict=False))
    after[open_to(REQUESTER)] = after[open_to(PARTICIPANTS)]  # the two have no order between them
    return after


def require(shape: Shape, message: RoundRequest, participants: int | None) -> None:
    """CSP, before it looks at what a request holds: its step is one of the task, and its fields are as many and as long as the
    table says. `participants` is None before the round has its manifest."""
    step = next((step for step in STEPS if step.name == name_of(message)), None)
    if step is None or not step.when.holds(KeyedFacts(shape)):
        raise OutOfTurn(f"the rounds of this task have no step {name_of(message)!r}")
    if isinstance(message, ManifestRequest):
        participants = len(message.participants)
    elif participants is None:
        raise OutOfTurn(f"round {message.round_number} has no manifest yet")
    step.require_message(message, KeyedFacts(shape, participants, getattr(message, "start", 0)))


def name_of(message: RoundRequest) -> str:
    """The step that a request asks for."""
    if isinstance(message, OpenRequest):
        return open_to(message.audience)
    if isinstance(message, GuardRequest):
        return f"guard of {message.purpose}"
    if isinstance(message, DivideRequest):
        return f"divide {message.purpose}"
    if isinstance(message, PolynomialsRequest):
        return DISTANCES if message.purpose == DISTANCES else f"squares of {message.purpose}"
    return next(step.name for step in STEPS if step.kind == message.kind)


@lru_cache(maxsize=16)
def most_numbers(shape: Shape) -> int:
    """In one vector of any message of a task."""
    return max(
        part.count.of(facts)
        for facts in _extremes(shape)
        for step in STEPS
        if step.when.holds(facts)
        for part in (*step.request, *step.reply)
        if part.count is not None
    )


@lru_cache(maxsize=64)
def longest_reply(shape: Shape, kind: int) -> int:
    """Of CSP, to a request of this kind."""
    return max(
        step.longest_reply(facts)
        for facts in _extremes(shape)
        for step in STEPS
        if step.kind == kind and step.when.holds(facts)
    )


def _extremes(shape: Shape) -> tuple[KeyedFacts, ...]:
    """Of few, a message has more rows of lanes of each."""
    return KeyedFacts(shape, 1), KeyedFacts(shape, shape.task.settings.most_in_round)
