"""The steps of a `hardened` round, declared: what comes after what, how many numbers are in each, what the answer shows.

Numbers are ciphertexts under the task's key, each with SP's half of its decryption.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.protocols.common.sdiv import DivideRequest, GuardReply, GuardRequest, SdivReply, guard_polynomials
from crowdfl.protocols.common.smul import PolynomialsReply, PolynomialsRequest, products_in
from crowdfl.protocols.common.steps import Condition, Part, Size, StepForm
from crowdfl.protocols.hardened import opening, prirwd
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
    NonceReply,
    NonceRequest,
    RewardReply,
    RewardRequest,
    distance_polynomials,
)

if TYPE_CHECKING:
    from crowdfl.protocols.hardened.shape import Shape

NONCE, LANES, INNER, OPEN_REWARDS, SCALE = "nonce", "lanes", "inner products", "open rewards", "scale"
_SEAL_BYTES = 32 + 16  # a salt, and the tag
_REWARD_SEAL_BYTES = 32 + 16 + 64  # HPKE's encapsulated key and tag, and CSP's signature


@dataclass(frozen=True)
class KeyedFacts:
    """What sizes follow from: the task, how many are rewarded, and which message of a step it is."""

    shape: "Shape"
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
        chunks, budget = range(0, self.rows, opening.CHUNK), self.shape.budget
        lanes = range(0, budget.buckets, prirwd.rows_a_message(max(1, self.participants), budget.slots))
        return {LANES: lanes, SCALE: chunks, **{open_to(audience): chunks for audience in (PARTICIPANTS, REQUESTER)}}


_Size = Size[KeyedFacts]
_Part = Part[KeyedFacts]
_Is = Condition[KeyedFacts]


def open_to(audience: int) -> str:
    return f"open to audience {audience}"


def _number(text: str, words: str, of: Callable[[KeyedFacts], int]) -> _Size:
    return Size(text, of, words)


def _count(value: int) -> _Size:
    return Size(str(value), lambda _: value)


PEOPLE = _number("people", "names that the rewards began with", lambda of: of.participants)
CIPHERTEXT = _number("ciphertext", "bytes of one number, w", lambda of: of.shape.task.public.ciphertext_bytes)
PLAINTEXT = _number("plaintext", "bytes of a number modulo N", lambda of: of.shape.task.public.plaintext_bytes)
CHUNK = _number("chunk", "ciphertexts of the sum in this message, at most 512", lambda of: of.chunk)
LANE_ROWS = _number("rows", "rows of lanes of each in this message", lambda of: of.lane_rows)
SLOTS = _number("slots", "lanes in a ciphertext", lambda of: of.shape.budget.slots)
DISTANCE_PRODUCTS = _number(
    "products",
    "products of operands in the distances",
    lambda of: len(products_in(distance_polynomials(of.participants, of.shape.widths().epsilon_units))),
)

_ROUND, _START, _PURPOSE = (
    _Part(name, _count(most).up_to()) for name, most in (("round_number", 8), ("start", 8), ("purpose", 16))
)
_HASH = _count(SEED_BYTES)


def _vector(name: str, count: _Size, words: str = "") -> _Part:
    return Part(name, CIPHERTEXT, count, words)


def _masked(count: _Size, name: str = "masked", words: str = "") -> tuple[_Part, _Part]:
    """Ciphertexts, and SP's half of their decryption."""
    return _vector(name, count, words), _vector(f"{name}_1", count)


_REWARDED = _Is("`lanes` is not 0", lambda of: of.shape.task.settings.lanes != 0)
_SCALED = _Is('`total` is "hidden"', lambda of: of.shape.task.settings.total == "hidden")
_ALWAYS = _Is("always", lambda of: True)
_BEGUN = "the names and the payment that the rewards began with"
_MASKED = "nothing: uniform numbers to CSP, ciphertexts to SP"


def _step(
    name: str,
    when: _Is,
    request: tuple[type, tuple[_Part, ...]],
    reply: tuple[type, tuple[_Part, ...]],
    bound_to: str,
    shows: str = _MASKED,
) -> StepForm[KeyedFacts]:
    parts = (_ROUND, *request[1])
    return StepForm(name, "SP", "CSP", when, parts, reply[1], bound_to, shows, request[0].kind, reply[0].kind)


def _division(purpose: str, when: _Is, x: _Size, y: _Size) -> tuple[StepForm[KeyedFacts], ...]:
    """Guard, squares of the guard, division."""
    both = x + y
    tops = GuardReply, (_vector("tops", both),)
    squares = Size(f"products of {both.text} squares", lambda of: len(products_in(guard_polynomials(both.of(of)))))
    guard = _step(
        f"guard of {purpose}", when, (GuardRequest, (_PURPOSE, *_masked(both))), tops, f"{_BEGUN}; k and m are fresh"
    )
    products = PolynomialsReply, (_vector("products", squares),)
    multiply = _step(
        f"squares of {purpose}", when, (PolynomialsRequest, (_PURPOSE, *_masked(both))), products, "the guard"
    )
    numbers = (_PURPOSE, *_masked(x, "x", "dividends"), *_masked(y, "y", "divisors"))
    quotients = SdivReply, (_vector("quotients", x),)
    divide = _step(
        f"divide {purpose}",
        when,
        (DivideRequest, numbers),
        quotients,
        "the guard, which spoils what is too long",
        "masked divisors to CSP, blurred; whether all are in range",
    )
    return guard, multiply, divide


def _open(audience: int) -> StepForm[KeyedFacts]:
    sealed = Part("sealed", CHUNK * PLAINTEXT + _SEAL_BYTES)
    return _step(
        open_to(audience),
        _ALWAYS,
        (OpenRequest, (_Part("audience", _count(1).up_to()), _START, *_masked(CHUNK))),
        (OpenReply, (sealed,)),
        "the sum that was first opened in this round",
        "the average to the audience, uniform numbers to CSP, nothing to SP",
    )


STEPS: tuple[StepForm[KeyedFacts], ...] = (
    _step(
        NONCE,
        _REWARDED,
        (
            NonceRequest,
            (
                _Part("payment", _count(16).up_to()),
                Part("participants", _count(64).up_to(), PEOPLE, "sorted, each once"),
                _Part("digest", _HASH),
            ),
        ),
        (NonceReply, (_Part("nonce", _HASH),)),
        "certified names, and the payment that the task promises",
        "coins of the sketch, once the uploads are closed",
    ),
    _step(
        LANES,
        _REWARDED,
        (LanesRequest, (_START, *_masked(PEOPLE * LANE_ROWS))),
        (LanesReply, (_vector("lanes", PEOPLE * LANE_ROWS * SLOTS),)),
        f"{_BEGUN}; the coins",
        "masked lanes to CSP; whether all are in range",
    ),
    _step(
        INNER,
        _REWARDED,
        (InnerRequest, _masked(PEOPLE * 2, words="counts from below, then from above")),
        (InnerReply, (_vector("own", PEOPLE), _vector("cross", PEOPLE))),
        "all lanes",
        "whether every number of samples is within its bounds",
    ),
    _step(
        DISTANCES,
        _REWARDED,
        (PolynomialsRequest, (_PURPOSE, *_masked(PEOPLE * 3 + 2))),
        (PolynomialsReply, (_vector("products", DISTANCE_PRODUCTS),)),
        _BEGUN,
    ),
    *_division(WEIGHTS, _REWARDED, PEOPLE, PEOPLE),
    *_division(REWARDS, _REWARDED, PEOPLE, _count(1)),
    _step(
        OPEN_REWARDS,
        _REWARDED,
        (RewardRequest, (*_masked(PEOPLE), Part("commitments", _HASH, PEOPLE))),
        (RewardReply, (Part("sealed", PLAINTEXT + _REWARD_SEAL_BYTES, PEOPLE),)),
        f"{_BEGUN}; a commitment to every mask",
        "its reward to each owner, masked numbers to CSP",
    ),
    *_division(TOTAL, _SCALED, _count(1), _count(1)),
    _step(
        SCALE,
        _SCALED,
        (ScaleRequest, (_START, *_masked(CHUNK), _vector("factor", _count(1)))),
        (ScaleReply, (_vector("scaled", CHUNK),)),
        "the factor of the first message, whose Jacobi symbol is 1",
    ),
    _open(PARTICIPANTS),
    _open(REQUESTER),
)
"""In the order of a round that pays, with its total hidden. Messages of one step may come in any order."""

BY_NAME = {step.name: step for step in STEPS}


def order_of(shape: "Shape") -> dict[str, str | None]:
    """What each step comes after. In a task that pays, nothing is opened to readers before the rewards are."""
    facts = KeyedFacts(shape)
    names = [step.name for step in STEPS if step.when.holds(facts)]
    after = dict(zip(names, [None, *names], strict=False))
    rewards = {step.name for step in STEPS if step.when is _REWARDED}
    is_paid = shape.budget_of_a_round is not None
    first = next(name for name in names if name not in rewards)
    after[first] = OPEN_REWARDS if is_paid else None
    after[open_to(REQUESTER)] = after[open_to(PARTICIPANTS)]  # the two have no order between them
    return after


def name_of(kind: int, purpose: str = "", audience: int = 0) -> str:
    """Which step a message of this kind asks for."""
    names = {
        OpenRequest.kind: open_to(audience),
        GuardRequest.kind: f"guard of {purpose}",
        DivideRequest.kind: f"divide {purpose}",
        PolynomialsRequest.kind: DISTANCES if purpose == DISTANCES else f"squares of {purpose}",
    }
    return names.get(kind) or next(step.name for step in STEPS if step.kind == kind)
