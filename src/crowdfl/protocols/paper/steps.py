"""The steps of a `paper` round, as printed: how many numbers are in each, and what CSP reads off it; and the step of claims.

The printed CSP knows no rounds: it answers whatever comes, in any order, and as often as it is asked. Claims it answers once.
"""

from collections.abc import Callable
from dataclasses import dataclass

from crowdfl.crypto.paillier.vector import VECTOR_HEADER_BYTES
from crowdfl.protocols import claims
from crowdfl.protocols.claim_steps import STATEMENT_BYTES, claim_bytes
from crowdfl.protocols.common.sdiv import SdivReply, SdivRequest
from crowdfl.protocols.common.smul import SmulReply, SmulRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import KeyedTask
from crowdfl.protocols.steps import Condition, FieldForm, Size, StepForm


@dataclass(frozen=True)
class PaperFacts:
    """What sizes follow from: the task, how many are rewarded, and how many rounds are claimed."""

    task: KeyedTask
    participants: int
    claimed: int = 0


def _number(text: str, words: str, of: Callable[[PaperFacts], int]) -> Size[PaperFacts]:
    return Size(text, of, words)


PARAMETERS = _number("parameters", "weights of the model", lambda of: of.task.parameters)
PEOPLE = _number("people", "uploads of the round", lambda of: of.participants)
CIPHERTEXT = _number("ciphertext", "bytes of one number, w", lambda of: of.task.public.ciphertext_bytes)
CLAIMED = _number("claimed", "rounds that a claim names", lambda of: of.claimed)
CLAIM_BYTES = _number(
    "claim",
    "bytes of a claim of them",
    lambda of: claim_bytes(of.claimed, of.task.public.plaintext_bytes),
)
_HASH, _SIGNATURE, _STATEMENT = (
    _number("32", "", lambda _: 32),
    _number("64", "", lambda _: 64),
    _number(str(STATEMENT_BYTES), "", lambda _: STATEMENT_BYTES),
)

_ALWAYS = Condition[PaperFacts]("always", lambda of: True)
_REWARDED = Condition[PaperFacts]("`lanes` is not 0", lambda of: of.task.settings.lanes != 0)


def _step(
    name: str,
    when: Condition[PaperFacts],
    request: type[Message],
    reply: type[Message],
    count: Size[PaperFacts],
    shows: str,
) -> StepForm[PaperFacts]:
    numbers = tuple(FieldForm(part, CIPHERTEXT, count, head=VECTOR_HEADER_BYTES) for part in ("x", "x_1", "y", "y_1"))
    answer = FieldForm("quotients" if reply is SdivReply else "products", CIPHERTEXT, count, head=VECTOR_HEADER_BYTES)
    return StepForm(name, "SP", "CSP", when, numbers, (answer,), "nothing", shows, request.kind, reply.kind)


def _divide(name: str, when: Condition[PaperFacts], count: Size[PaperFacts], shows: str) -> StepForm[PaperFacts]:
    return _step(name, when, SdivRequest, SdivReply, count, shows)


def _multiply(name: str, count: Size[PaperFacts], shows: str) -> StepForm[PaperFacts]:
    return _step(name, _REWARDED, SmulRequest, SmulReply, count, shows)


CLAIM = StepForm[PaperFacts](
    "claim",
    "SP",
    "CSP",
    _REWARDED,
    (
        FieldForm("claim", CLAIM_BYTES.up_to(), words="of kind 19, signed by its owner"),
        FieldForm("mu", CIPHERTEXT, CLAIMED, "the encrypted rewards", VECTOR_HEADER_BYTES),
        FieldForm("differences_1", CIPHERTEXT, CLAIMED, head=VECTOR_HEADER_BYTES),
    ),
    (
        FieldForm("claim", _HASH),
        FieldForm("statement", _STATEMENT.up_to(), words="of kind 89, to the payer"),
        FieldForm("signature", _SIGNATURE),
    ),
    "the hash of each ciphertext and the integer claimed of it, as their owner has signed them; one of a person and round",
    "whether each difference is zero",
    claims.OpenedClaim.kind,
    claims.Attestation.kind,
)
"""At any time after the last round."""

STEPS: tuple[StepForm[PaperFacts], ...] = (
    _divide("average", _ALWAYS, PARAMETERS, "sums over totals to CSP, up to a short mask"),
    _multiply("squares", PEOPLE * PARAMETERS, "differences from the average to CSP, up to a short mask"),
    _multiply("lower halves", PEOPLE, "distances to CSP, up to a short mask"),
    _multiply("upper halves", PEOPLE, "samples to CSP, up to a short mask"),
    _divide("weights", _REWARDED, PEOPLE, "weights to CSP, up to a short mask"),
    _multiply("paid", PEOPLE, "weights to CSP, up to a short mask"),
    _divide("rewards", _REWARDED, PEOPLE, "rewards to CSP, up to a short mask"),
    CLAIM,
)
"""In the order of Alg. 3 and Alg. 4; then claims."""


def most_numbers(task: KeyedTask) -> int:
    """In one vector of any message of a task."""
    most = PaperFacts(task, task.settings.most_in_round)  # of a round: claims have limits of their own
    return max(part.count.of(most) for step in STEPS for part in step.request if part.count is not None)


def longest_reply(task: KeyedTask, kind: int) -> int:
    """Of CSP, to a request of this kind."""
    most = PaperFacts(task, task.settings.most_in_round)
    return max(step.longest_reply(most) for step in STEPS if step.kind == kind)
