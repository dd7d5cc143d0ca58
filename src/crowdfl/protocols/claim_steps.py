"""The requests of a claim, declared as the steps of a round are: sender, fields with their sizes, what is bound, what is shown.

Each may come at any time that pays; none goes on with another. `paper` opens its claims, and declares that beside its rounds.
"""

from dataclasses import dataclass

from crowdfl.protocols.steps import Condition, FieldForm, Size, StepForm, longest, message_size


@dataclass(frozen=True)
class ClaimFacts:
    """What sizes follow from."""

    items: int
    reward: int = 0

    @classmethod
    def of(cls, rounds: int, reward: int = 0) -> "ClaimFacts":
        """Of a claim of so many rounds, where a reward is written in so many bytes."""
        return cls(rounds + 1, reward)


_Size = Size[ClaimFacts]
_Field = FieldForm[ClaimFacts]


def _bytes(count: int) -> _Size:
    return _Size(str(count), lambda _: count)


ITEMS = _Size("items", lambda of: of.items, "rounds of the task, and one for a bonus")
REWARD = _Size("reward", lambda of: of.reward, "bytes of a reward, as its task writes it")

_TASK, _NAME, _NUMBER, _AMOUNT, _SUM, _CURRENCY = (_bytes(most).up_to() for most in (64, 64, 4, 16, 32, 16))
_HASH, _SALT, _SIGNATURE = _bytes(32), _bytes(32), _bytes(64)
_WHOSE = (_Field("task", _TASK), _Field("participant", _NAME))
_PLACE = (*_WHOSE, _Field("destination", _HASH), _Field("counter", _NUMBER), _Field("signature", _SIGNATURE))


def _items(name: str, each: _Size, words: str = "") -> _Field:
    return FieldForm(name, each.up_to(), ITEMS.up_to(), words)


STATEMENT = (
    *_WHOSE,
    _Field("sequence", _bytes(8).up_to()),
    _Field("total", _SUM),
    _Field("currency", _CURRENCY),
    _Field("destination", _HASH.up_to()),
    _Field("counter", _NUMBER),
    _Field("signature", _SIGNATURE),
)
"""CSP's word to the payer (kind 89)."""
STATEMENT_BYTES = longest(STATEMENT, ClaimFacts(0))

_STATEMENT = FieldForm("statement", message_size(STATEMENT).up_to(), None, "word to the payer", is_message=True)

_ALWAYS = Condition[ClaimFacts]("the task pays, and no reward is a ciphertext", lambda _: True)
_OPENLY = Condition[ClaimFacts]("records say what everyone has earned, and the task has a payer", lambda _: True)

CLAIM = StepForm[ClaimFacts](
    "claim",
    "SP",
    "CSP",
    _ALWAYS,
    (
        *_WHOSE,
        _items("rounds", _NUMBER, "growing; 0 is the bonus"),
        _items("amounts", _AMOUNT, "millionths"),
        _items("masks", REWARD),
        _items("salts", _SALT),
        _items("shown", REWARD + 64, "what CSP has signed, of rewards that are hidden"),
        _items("unused", _NUMBER, "growing: rounds that SP owes for"),
        _Field("destination", _HASH.up_to()),
        _Field("counter", _NUMBER),
        _Field("signature", _SIGNATURE, words="the owner's"),
    ),
    (_Field("claim", _HASH), _STATEMENT, _Field("signature", _SIGNATURE)),
    "its owner's signature; the commitment to each mask, or CSP's record; one amount of a person and round",
    "the amounts, once they are right",
    kind=19,
    answer=20,
)
PLACE = StepForm[ClaimFacts](
    "place",
    "SP",
    "CSP",
    _OPENLY,
    _PLACE,
    _PLACE,
    "its owner's signature; none before it has a number as high",
    "nothing",
    kind=98,
    answer=99,
)
UNCLAIMED = StepForm[ClaimFacts](
    "unclaimed",
    "SP",
    "CSP",
    _OPENLY,
    _WHOSE,
    (
        _Field("participant", _NAME),
        _items("rounds", _NUMBER),
        _items("amounts", _AMOUNT),
        _STATEMENT,
        _Field("signature", _SIGNATURE),
    ),
    "CSP's records and the place that it keeps; in the last days of claims alone",
    "what a person has earned",
    kind=101,
    answer=102,
)
STEPS: tuple[StepForm[ClaimFacts], ...] = (CLAIM, PLACE, UNCLAIMED)


def claim_bytes(rounds: int, reward: int) -> int:
    """Of the longest claim of so many rounds."""
    return CLAIM.longest_request(ClaimFacts.of(rounds, reward))
