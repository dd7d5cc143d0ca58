"""Every branch of a participant on SP's word, with what overrules that word, or why nothing does. One that is missing fails."""

import ast
from collections.abc import Iterator
from pathlib import Path

from crowdfl import errors
from crowdfl.roles import participant
from crowdfl.roles.participant.participant import ParticipantSp

FOLDER = Path(participant.__file__).parent
TOLD = {"status", "entry", "answer", "outcome"}  # what SP's answers are called
CATCHES = ("except ", "isinstance ")

RECORD = "CSP's record of the round, which is read whatever SP says of it"
ENDED = "CSP's record of each round, and its end of one that was given up: nothing is sent without them"
SIGNED = "it is signed by whoever it comes from, or named by its hash in what is"
OWN = "not SP's word: this device's own"
TIME = "none: SP may stay silent as well; it is looked at again, by this device's own clock"
JOINING = "none: SP lets nobody in whom it does not want; nothing is made before"
DRAWN = "none: SP chooses who is drawn, as stated; nothing is made before"
PAID = "the claim, kept as it was sent, and the rewards, by what CSP has signed; SP keeps the books"
CLAIMED = "none: SP may refuse a claim as well; it is kept, and made again until the signed last day"
LOST = "the first receipt, which is kept, and CSP's record; the same bytes are sent"
TICKET = "it names the key that this device has made, and SP's is in the signed definition; that SP lets in only itself: none"
TOLD_OF_PAY = (
    "none: SP, or whoever pays, hands the money over; what was earned and claimed is kept, by what CSP has signed"
)
BONUS = "CSP's signed word; one that does not come is looked for until the last day of claims"
PLACE = "none: this device sends no more; CSP's records of what it has made are read and paid"

# By file and function: the words that it hears, and what overrules them.
BRANCHES: dict[str, tuple[str, str]] = {
    "agent._claim": ("except ClaimRefused, except NotReady, except TooLate", PAID),
    "agent._claim_early": ("except ClaimRefused, except NotReady, except TooLate", PAID),
    "agent._patiently": ("except CrowdFLError, isinstance NotAuthenticated", TIME),
    "chain.catch_up": ("entry.number, entry.state", ENDED),
    "chain.require_forward": ("entry.number, entry.state, status.rounds, status.state", RECORD),
    "claims.ask_pay": ("sp.pay_words", TOLD_OF_PAY),
    "claims._attested_alone": ("except WrongAmount", PAID),
    "claims._epoch": ("status.epoch", PAID),
    "claims._is_under_way": ("entry.state, status.rounds", CLAIMED),
    "claims._may_be_shown": ("status.state", TIME),
    "claims._missing": ("entry.number, entry.state, status.rounds", RECORD),
    "claims._read_last": ("entry.number, entry.state, status.rounds", RECORD),
    "claims._require_open": ("status.state", CLAIMED),
    "claims._send": ("outcome.disputed, outcome.paid, outcome.unused, sp.claim", PAID),
    "claims.claim": ("except ClaimRefused, isinstance MasksDoNotFit, isinstance WrongAmount, status.state", PAID),
    "claims.is_due": ("except NotReady, status.state", CLAIMED),
    "claims.waits": ("status.state", TIME),
    "participant._come_back": (
        "entry.number, entry.state, status.dropped, status.epoch, status.rounds",
        LOST,
    ),
    "participant._enrol": ("except Replaced, sp.enrol", PLACE),
    "participant._has_caught_up": (
        "except CrowdFLError, isinstance RolledBack, isinstance ServiceError",
        ENDED,
    ),
    "participant._has_words": (
        "entry.number, entry.state, entry.unused, status.rounds, status.state",
        ENDED,
    ),
    "participant._hear_end": ("except CrowdFLError, sp.end", SIGNED),
    "participant._initial_weights": ("sp.initial_weights", SIGNED),
    "participant._is_drawn": ("sp.is_drawn", DRAWN),
    "participant._is_lost": ("entry.number, entry.uploads, sp.uploaded", LOST),
    "participant._open_reward": (
        "except CrowdFLError, except RewardOutOfRange, except RolledBack, isinstance ServiceError",
        "equal parts follow from CSP's record; another reward is looked for until the last day of claims",
    ),
    "participant._papers": ("sp.papers", SIGNED),
    "participant._publication": ("sp.average", SIGNED),
    "participant._read": ("except CrowdFLError, isinstance RolledBack, isinstance ServiceError", ENDED),
    "participant._read_record": ("except CrowdFLError, except RolledBack", ENDED),
    "participant._platform_time": ("sp.status", "the owner, who reads the time in the copy of the consent"),
    "participant._recruited": ("sp.recruit", TICKET),
    "participant._require_room": ("sp.status", JOINING),
    "participant._reward_envelope": (
        "except RewardOutOfRange, except UploadRejected, sp.reward",
        "CSP's record, where equal parts follow from it; else what CSP has signed inside: SP's word for it is not heard",
    ),
    "participant._send_as_enrolled": (
        "except NotAuthenticated, except PlaceFreed, except UnknownParticipant, sp.send",
        RECORD,
    ),
    "participant._send_leave": ("answer.deleted, sp.leave", RECORD),
    "participant._send_place": (
        "sp.pay_to",
        "CSP's signature of the place, where its records say what was earned; else the claim, which names the place",
    ),
    "participant._step": ("entry.drawn, entry.number, entry.state, entry.unused, status.rounds", ENDED),
    "participant._step_left": ("entry.number, entry.state, entry.unused, status.rounds, status.state", ENDED),
    "participant._take_part": ("except NothingToContribute", OWN),
    "participant.look_again": ("entry.number, sp.status, status.rounds", OWN),
    "participant.open_bonus": ("except CrowdFLError, except UploadRejected, isinstance ServiceError", BONUS),
    "participant.open_reward": ("except UploadRejected", "none: it is CSP's signed word"),
    "participant.send": (
        "except AlreadyCounted, except Forbidden, except NotDrawn, except Replaced, except RoundNotOpen, "
        "except TaskFull, except TaskNotRunning, except TooLate, except WrongBase",
        RECORD,
    ),
    "participant.claims_until": ("status.claims_extended", SIGNED),
    "participant.step": ("except RolledBack, status.come_back, status.state", RECORD),
    "participant.take": ("except PoolExhausted", OWN),
}


def words_in(function: ast.FunctionDef) -> Iterator[str]:
    """What a function asks SP, reads of its answers, and hears of its refusals."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "sp":
            yield f"sp.{node.attr}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "outcome":
            yield f"outcome.{node.attr}"
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            yield from (f"except {name}" for name in errors_in(node.type))
        elif isinstance(node, ast.Subscript):
            yield from told_by(node.value, [node.slice])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            yield from told_by(node.func.value, node.args)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            yield from (f"isinstance {name}" for name in errors_in(node.args[1]))


def told_by(whose: ast.expr, keys: list[ast.expr]) -> Iterator[str]:
    if isinstance(whose, ast.Name) and whose.id in TOLD and keys and isinstance(keys[0], ast.Constant):
        yield f"{whose.id}.{keys[0].value}"


def errors_in(kinds: ast.expr) -> Iterator[str]:
    names = (node.id for node in ast.walk(kinds) if isinstance(node, ast.Name))
    return (name for name in names if hasattr(errors, name))


def branches() -> dict[str, str]:
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = sorted(set(words_in(node))) if isinstance(node, ast.FunctionDef) else []
            if words and isinstance(node, ast.FunctionDef):
                found[f"{path.stem}.{node.name}"] = ", ".join(words)
    return found


def test_every_branch_of_a_participant_on_sps_word_is_known_with_what_overrules_it() -> None:
    assert branches() == {place: words for place, (words, _) in BRANCHES.items()}


def test_everything_that_sp_is_asked_is_in_the_list() -> None:
    asked = {word.removeprefix("sp.") for words, _ in BRANCHES.values() for word in words.split(", ") if "sp." in word}
    assert asked == {name for name in vars(ParticipantSp) if not name.startswith("_")}
