"""The steps of a `shares` round, declared: sender, fields with their sizes, what each is bound to, what its answer shows.

CSP's guard, SP's order, the limits of both languages and the tables of docs/formats.md are read off `STEPS`. Sizes follow from
the task and from what both servers know by then (`Facts`); neither asks the other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from crowdfl.crypto.leaves import leaves_bytes
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.shares.ring import Ring
from crowdfl.errors import OutOfTurn
from crowdfl.protocols.claims import RewardForm
from crowdfl.protocols.messages import HEADER_BYTES, LENGTH_BYTES
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.chain import HASH_BYTES, ROUND_BYTES
from crowdfl.protocols.shares.reference import square_bits
from crowdfl.protocols.shares.rule_widths import RuleWidths
from crowdfl.protocols.shares.widths import SAMPLE_BITS, SharesWidths
from crowdfl.protocols.steps import Condition, FieldForm, Size, StepForm, in_bits, longest, message_size

SIGNATURE_BYTES = 64
SALT_BYTES = 32
MASK_BYTES = 32  # of the seed of a mask
SEAL_BYTES = 32 + 16  # HPKE: the encapsulated key, and the tag
SEALED_BYTES = SEED_BYTES + SEAL_BYTES
NAME_BYTES = 20  # of a participant's name, as roles give them
SAMPLES_BYTES = SAMPLE_BITS // 8  # of a share of a number of samples, and of a reward
BITS = "who is within the bounds, to both servers"


class SizedTask(Protocol):
    """What of a task the sizes of its messages follow from."""

    @property
    def spec(self) -> TaskSpec: ...
    @property
    def widths(self) -> SharesWidths: ...
    @property
    def rule_widths(self) -> RuleWidths: ...
    @property
    def ring(self) -> Ring: ...
    @property
    def count_bytes(self) -> int: ...
    @property
    def is_reward_hidden(self) -> bool: ...
    @property
    def is_reward_computed(self) -> bool: ...
    @property
    def reward_form(self) -> RewardForm: ...
    @property
    def bonus(self) -> int: ...


@dataclass
class Facts:
    """What sizes follow from: the task, and what both servers have found out about a cohort."""

    shape: SizedTask
    listed: int  # in the manifest
    opened: int = 0  # of those, whose seal opens
    kept: int | None = None  # lanes; None before they are opened
    is_unusable: bool = False  # too few are
    accepted: int | None = None  # None before that is shown; of the round, for its sum
    audiences: int = 2

    @classmethod
    def most(cls, shape: SizedTask) -> "Facts":
        """Of the largest round that a task can have."""
        cohort = shape.widths.cohort
        people = shape.spec.settings.most_in_round
        return cls(shape, listed=cohort, opened=cohort, kept=shape.widths.lanes, accepted=people)


_Size = Size[Facts]
_Field = FieldForm[Facts]
_Is = Condition[Facts]


def _number(text: str, words: str, of: Callable[[Facts], int]) -> _Size:
    return Size(text, of, words)


def _bytes(count: int) -> _Size:
    return Size(str(count), lambda _: count)


PARAMETERS = _number("parameters", "weights of the model", lambda of: of.shape.spec.parameters)
RING = _number("ring", "bytes of a number of the ring of uploads, k / 8", lambda of: of.shape.ring.bytes)
COUNT = _number("count", "bytes of a share of a number of samples: 16, or 0", lambda of: of.shape.count_bytes)
COUNTED = _number(
    "counted",
    '1, or 0 where `weighting` is "equal" and everyone counts once',
    lambda of: int(of.shape.widths.has_counts),
)
LEAVES = _number(
    "leaves",
    "32 for each piece of the shares",
    lambda of: leaves_bytes(of.shape.spec.parameters * of.shape.ring.bytes),
)
LANES = _number("lanes", "lanes of the sketch", lambda of: of.shape.widths.lanes)
SCALAR = _number("scalar", "bytes of a scalar, R / 8", lambda of: of.shape.widths.R // 8)
SQUARE = _number("square", "bytes of a number modulo the ring of squares", lambda of: square_bits(of.shape.widths) // 8)
PEOPLE = _number("people", "most that a round can have", lambda of: of.shape.spec.settings.most_in_round)
ENROLLED = _number("enrolled", "most devices that a task can have", lambda of: of.shape.spec.settings.most_devices)
LISTED = _number("listed", "names in the manifest", lambda of: of.listed)
REFERENCE = _number("reference", "1 in a task with a reference, else 0", lambda of: int(of.shape.widths.has_reference))
UPLOADS = _number(
    "uploads",
    "those of the manifest whose seal opens, and the reference",
    lambda of: of.opened + of.shape.widths.has_reference,
)
KEPT = _number("kept", "lanes that are used", lambda of: of.kept or 0)
ACCEPTED = _number("accepted", "names that are in", lambda of: of.accepted or 0)
HIDDEN = _number("hidden", "1 where rewards are hidden, else 0", lambda of: int(of.shape.is_reward_hidden))
REWARD = _number("reward", "bytes of a reward's share: 16, or 32", lambda of: of.shape.reward_form.width)
AUDIENCES = _number("audiences", "2; in the last round 1, the requester", lambda of: of.audiences)
OPERAND = _number("operand", "bytes of an operand of `distance`", lambda of: of.shape.rule_widths.distance_bits // 8)
DIVISOR = _number("divisor", "bytes of a masked divisor", lambda of: of.shape.rule_widths.distance.modulus // 8)
ADDEND = _number("addend", "bytes of CSP's masked share of one", lambda of: of.shape.rule_widths.distance.f_bits // 8)
WEIGHT = _number("weight", "bytes of a weight", lambda of: of.shape.rule_widths.weight_bits // 8)
TOTAL_DIVISOR = _number(
    "total_divisor", "bytes of the masked sum of weights", lambda of: of.shape.rule_widths.payout.modulus // 8
)
TOTAL_ADDEND = _number(
    "total_addend", "bytes of CSP's masked share of it", lambda of: of.shape.rule_widths.payout.f_bits // 8
)
PRODUCT = _number("product", "bytes of a reward times its scale", lambda of: of.shape.rule_widths.product_bits // 8)

_TASK, _NAME, _NUMBER, _CODE = (_bytes(most).up_to() for most in (64, 64, 16, 32))
_HASH, _SIGNATURE, _SEALED, _SALT = (
    _bytes(HASH_BYTES),
    _bytes(SIGNATURE_BYTES),
    _bytes(SEALED_BYTES),
    _bytes(SALT_BYTES),
)
_PLACE = (_Field("task", _TASK), _Field("number", _NUMBER), _Field("base", _HASH))


def _list(name: str, each: _Size, count: _Size, words: str = "") -> _Field:
    return FieldForm(name, each, count, words)


def _bits(name: str, count: _Size, words: str) -> _Field:
    return FieldForm(name, in_bits(count), None, words)


def _long(name: str, words: str, parts: Sequence[_Field]) -> _Field:
    """A message inside another."""
    return FieldForm(name, message_size(parts).up_to(), None, words, is_message=True)


VERDICT = (
    *_PLACE,
    _Field("manifest", _HASH),
    _list("accepted", _NAME, LISTED.up_to()),
    _list("rejected", _NAME, LISTED.up_to()),
    _list("reasons", _CODE, LISTED.up_to()),
    _Field("void", _CODE),
    _Field("signature", _SIGNATURE),
)
"""CSP's word on a cohort (kind 56)."""

RECORD = (
    *_PLACE,
    _list("accepted", _NAME, PEOPLE.up_to()),
    _list("rejected", _NAME, PEOPLE.up_to()),
    _list("reasons", _CODE, PEOPLE.up_to()),
    _Field("opened", _HASH),
    _list("masks", _HASH, _bytes(2)),
    _list("seals", _HASH, AUDIENCES * 2),
    _Field("signature", _SIGNATURE),
)
"""CSP's word on the one sum of a base (kind 57)."""

END = (
    _Field("task", _TASK),
    _Field("number", _NUMBER),
    _list("shown", _NAME, PEOPLE.up_to()),
    _list("rejected", _NAME, PEOPLE.up_to()),
    _list("reasons", _CODE, PEOPLE.up_to()),
    _Field("signature", _SIGNATURE),
)
"""CSP's word on a round that was given up (kind 69)."""

SUM = (_Field("sums", PARAMETERS * RING), _Field("total", COUNT))
_RECORD = _long("record", "record", RECORD)
PUBLICATION = (*SUM, _list("seals", _SEALED, AUDIENCES * 2), _RECORD)
"""What readers get (kind 59)."""

ENVELOPE = (_Field("mask", REWARD.up_to()), _Field("salt", _SALT.up_to()), _long("sealed", "record, or a seal", RECORD))
"""What one participant gets (kind 18)."""

BONUS_WORD = (
    _Field("task", _TASK),
    _list("names", _NAME, ENROLLED.up_to()),
    _Field("signature", _SIGNATURE),
)
"""CSP's word who gets the bonus (kind 95)."""

BONUS_ENVELOPE = (*ENVELOPE[:2], _long("sealed", "word about the bonus", BONUS_WORD))
"""What one participant gets of it (kind 18)."""

UPLOAD = (
    _Field("task", _TASK),
    _Field("number", _bytes(ROUND_BYTES)),
    _Field("base", _HASH),
    _Field("who", _NAME),
    _Field("digest", _HASH),
    _Field("sealed", _SEALED),
    _Field("signature", _SIGNATURE),
    _Field("salt", _SALT),
    _Field("samples", COUNT),
    _Field("leaves", LEAVES),
    _Field("shares", PARAMETERS * RING),
)
"""What one participant sends (kind 53)."""

LEFT = (
    _Field("number", _NUMBER),
    _Field("base", _HASH),
    _long(
        "sums", "sum of products for everyone", (_list("names", _NAME, ENROLLED), _Field("shares", ENROLLED * SCALAR))
    ),
)
"""What SP keeps of a round for the next one (kind 63)."""

_ALWAYS = _Is("always", lambda of: True)
_CHECKED = _Is('`check` is "bounds"', lambda of: of.shape.widths.is_checked)
_USABLE = _Is(
    "checked, without a reference, lanes usable",
    lambda of: of.shape.widths.is_checked and not of.shape.widths.has_reference and not of.is_unusable,
)
_COMPARED = _Is(
    "checked, with a reference, lanes usable", lambda of: of.shape.widths.has_reference and not of.is_unusable
)
_JUDGED = _Is("checked, lanes usable", lambda of: of.shape.widths.is_checked and not of.is_unusable)
_UNUSABLE = _Is("checked, too few lanes usable", lambda of: of.shape.widths.is_checked and of.is_unusable)
_BONUS = _Is("the task has a bonus", lambda of: of.shape.bonus > 0)
_DISTANCE = _Is('`pay` is "distance"', lambda of: of.shape.is_reward_computed and not of.is_unusable)


def _swapped(name: str, when: _Is, parts: tuple[_Field, ...], bound_to: str, shows: str) -> StepForm[Facts]:
    """Both servers send the same."""
    return StepForm(name, "SP", "CSP", when, parts, parts, bound_to, shows)


_DEALT = "the dealt file of the cohort, whose masks serve once"
_MASKED = "nothing: both halves are behind dealt masks"

MANIFEST = StepForm(
    "manifest",
    "SP",
    "CSP",
    _ALWAYS,
    (
        *_PLACE,
        _Field("payment", _NUMBER),
        _Field("cohort", _NUMBER),
        _Field("cohorts", _NUMBER),
        _list("names", _NAME, LISTED, "sorted, each once: the place of a name is its slot"),
        _list("digests", _HASH, LISTED),
        _list("sealed", _SEALED, LISTED),
        _list("signatures", _SIGNATURE, LISTED),
        FieldForm(
            "reference", REFERENCE * (HASH_BYTES + SEALED_BYTES + SIGNATURE_BYTES), None, "its digest, seal, signature"
        ),
    ),
    (
        _Field("nonce", _HASH),
        _list("broken", _NAME, (LISTED + REFERENCE).up_to(), "whose seal does not open"),
        _long("word", "verdict if the cohort is void, else nothing", VERDICT),
    ),
    "everyone's signature of task, round, base, name, digest and seal; the base that the last record left",
    "whose seal does not open",
    kind=54,
    answer=55,
)
OPEN_LANES = _swapped(
    "lanes",
    _CHECKED,
    (
        _list("lanes", RING, UPLOADS * LANES, "z + bound + a"),
        _list("counts", _bytes(SAMPLES_BYTES), COUNTED * UPLOADS, "numbers of samples behind a mask"),
        _list("roots", SCALAR, COUNTED * UPLOADS, "the same behind another"),
    ),
    f"the coins SHA-256(manifest, nonce); {_DEALT}",
    _MASKED,
)
GIVEN_UP = StepForm(
    "given up",
    "SP",
    "CSP",
    _UNUSABLE,
    (),
    (_long("word", "verdict: void", VERDICT),),
    "the lanes that were opened",
    "that a server has altered its shares",
)
LENGTHS = _swapped(
    "lengths",
    _USABLE,
    (
        _list("short", SCALAR, UPLOADS, "what a squared length falls short of its bound by"),
        _bits("gate", COUNTED * UPLOADS, "whether samples are in range, behind dealt bits"),
    ),
    _DEALT,
    _MASKED,
)
CONDITIONS = _swapped(
    "conditions",
    _COMPARED,
    (
        _list("numbers", SCALAR, UPLOADS * 4, "bound, length, sum over all rounds, product, each of everyone"),
        _list("operands", SQUARE, UPLOADS * 2, "squared length and product of everyone"),
    ),
    _DEALT,
    _MASKED,
)
OPPOSED = _swapped("cosines", _COMPARED, (_list("squares", SQUARE, UPLOADS),), _DEALT, _MASKED)
ANSWERS = _swapped(
    "answers", _COMPARED, (_bits("bits", UPLOADS * 5, "five answers of each, behind dealt bits"),), _DEALT, _MASKED
)
COMMIT = _swapped(
    "commit",
    _JUDGED,
    (_Field("commitment", _HASH),),
    "the coins, and which server it is: a copy of the other's is none",
    "nothing: each has fixed its bits before it sees the other's",
)
SHOW = StepForm(
    "show",
    "SP",
    "CSP",
    _JUDGED,
    (_Field("salt", _SALT), _bits("bits", UPLOADS, "this server's shares of the answers")),
    (_Field("salt", _SALT), _bits("bits", UPLOADS, "CSP's"), _long("word", "verdict", VERDICT)),
    "the commitment of the step before",
    BITS,
)
_SUMS = _swapped(
    "sum of lanes",
    _DISTANCE,
    (_list("lanes", SCALAR, KEPT), _Field("samples", SCALAR)),
    f"who is in; {_DEALT}",
    _MASKED,
)
_OPERANDS = _swapped("operands", _DISTANCE, (_list("numbers", OPERAND, ACCEPTED * 5 + 2),), _DEALT, _MASKED)


def _division(name: str, count: _Size, divisor: _Size, addend: _Size) -> tuple[StepForm[Facts], StepForm[Facts]]:
    first = StepForm(
        f"masks of {name}",
        "SP",
        "CSP",
        _DISTANCE,
        (_list("masks", divisor, count, "m - a"),),
        (_list("addends", addend, count, "CSP's share of y, masked; its length is a guard"),),
        _DEALT,
        "nothing",
    )
    second = _swapped(
        f"divisors of {name}", _DISTANCE, (_list("numbers", divisor, count),), _DEALT, "y * m - s to CSP, nothing to SP"
    )
    return first, second


_WEIGHTS = _swapped("weights", _DISTANCE, (_list("factors", WEIGHT, ACCEPTED * 2),), _DEALT, _MASKED)
_REWARDS = _swapped("rewards", _DISTANCE, (_list("numbers", PRODUCT, ACCEPTED + 1),), _DEALT, _MASKED)
OFFER = StepForm(
    "sum",
    "SP",
    "CSP",
    _ALWAYS,
    (
        *SUM,
        _Field("mask", _HASH),
        _list("seals", _HASH, AUDIENCES),
        FieldForm("commitments", HIDDEN * ACCEPTED * HASH_BYTES, None, "to SP's shares of hidden rewards"),
    ),
    (
        *SUM,
        _list("seals", _SEALED, AUDIENCES),
        _RECORD,
        _list("rewards", REWARD + (SEAL_BYTES + SIGNATURE_BYTES), HIDDEN * ACCEPTED),
    ),
    "the verdicts of all cohorts and the names in them; one sum for a base, ever",
    "the sum of everyone who is in, to readers; to neither server",
    kind=65,
    answer=58,
)

STEPS: tuple[StepForm[Facts], ...] = (
    MANIFEST,
    OPEN_LANES,
    GIVEN_UP,
    LENGTHS,
    CONDITIONS,
    OPPOSED,
    ANSWERS,
    COMMIT,
    SHOW,
    _SUMS,
    _OPERANDS,
    *_division("distances", ACCEPTED, DIVISOR, ADDEND),
    _WEIGHTS,
    *_division("the total", _bytes(1), TOTAL_DIVISOR, TOTAL_ADDEND),
    _REWARDS,
    OFFER,
)
"""In the order of a round. From the manifest on, all but the last are those of one cohort, and come again for the next."""

_ROUND = _Field("round_number", _NUMBER)
_OPENED = (_ROUND, _list("drawn", _NAME, ENROLLED.up_to(), "whom the round asks, where it draws people"))
OPENED = StepForm(
    "round opened",
    "SP",
    "CSP",
    _BONUS,
    _OPENED,
    _OPENED,
    "the round, before its manifest",
    "nothing",
    kind=93,
    answer=93,
)
GIVE_UP = StepForm(
    "give up",
    "SP",
    "CSP",
    _ALWAYS,
    (_ROUND,),
    END,
    "the round, of which no step is answered after; of one whose sum was opened the answer is its record",
    "whose bits CSP has shown, and whom it has rejected",
    kind=68,
    answer=69,
)
BONUS = StepForm(
    "bonus",
    "SP",
    "CSP",
    _BONUS,
    (_Field("task", _TASK),),
    BONUS_WORD,
    "the records of all rounds; no step of any is answered after",
    "who was in every round that asked them",
    kind=94,
    answer=95,
)
BESIDE = (OPENED, GIVE_UP, BONUS)
"""What SP asks of whole rounds."""

_STEP_MESSAGES = (MANIFEST.request, MANIFEST.reply, OFFER.request, OFFER.reply)
MESSAGES = (*_STEP_MESSAGES, VERDICT, RECORD, END, PUBLICATION, ENVELOPE, UPLOAD, LEFT)
"""The fields of each message that holds no payload of a step."""


def steps_of(facts: Facts) -> list[StepForm[Facts]]:
    """Those that a round of one cohort has."""
    return [step for step in STEPS if step.when.holds(facts)]


def shown_in(shape: SizedTask) -> int:
    """The exchange of a cohort in which bits are shown, from 1 on."""
    steps = steps_of(Facts.most(shape))
    return 1 + next((place for place, step in enumerate(steps) if step.shows == BITS), len(steps))


class CohortCourse:
    """A cohort's way from its manifest on: each payload is that of the next step, as long as the table says."""

    def __init__(self, facts: Facts) -> None:
        self.facts, self.step = facts, MANIFEST
        self._steps = self._following()

    def _following(self) -> Iterator[StepForm[Facts]]:
        """What is next is looked up when it is asked for: it depends on what was found out meanwhile."""
        for step in STEPS:
            if step not in (MANIFEST, OFFER) and step.when.holds(self.facts):
                yield step

    def asked(self, payload: bytes) -> bytes:
        """SP's payload of the next step, before anybody computes with it."""
        try:
            self.step = next(self._steps)
        except StopIteration:
            raise OutOfTurn("the cohort is through: it has no further step") from None
        return self.step.require_payload(payload, self.facts)

    def answered(self, payload: bytes) -> bytes:
        """CSP's."""
        return self.step.require_reply(payload, self.facts)

    def longest_answer(self) -> int:
        """Of CSP, to what was asked last."""
        return longest_answer(self.step, self.facts)

    def opened(self, kept: int, *, is_usable: bool) -> None:
        self.facts.kept, self.facts.is_unusable = kept, not is_usable

    def judged(self, accepted: int) -> None:
        self.facts.accepted = accepted


def longest_answer(step: StepForm[Facts], facts: Facts) -> int:
    """Of CSP's reply (kind 61) to a step: the answer, or its word that the round is void."""
    return HEADER_BYTES + 3 * LENGTH_BYTES + HASH_BYTES + step.longest_reply(facts) + longest(VERDICT, facts)


def longest_end(shape: SizedTask) -> int:
    """Of CSP's word on a round that was given up, or of the record that it has of it."""
    most = Facts.most(shape)
    return max(GIVE_UP.longest_reply(most), longest(RECORD, most))
