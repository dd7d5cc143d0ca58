"""The bonus of pay `fixed`: whom a round asked, who was there, and CSP's signed word who gets it.

A person is asked in a round that draws people if any of its devices was drawn, else in every round that opened after it had
enrolled: SP says when a round opens and whom it has drawn, before CSP hears of any upload, and what CSP was not told asks
nobody. A person was there if CSP's record accepts one of its devices, or a manifest of which nothing was opened names one. Who
was there in every round that asked them, and in one at least, gets the bonus once, with the newest device.

A round that was given up before all its manifests had come asks nobody. CSP says its word once, and takes no step of a round
after it. It tells what the records of all rounds tell.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import ProtocolError
from crowdfl.protocols.messages import Message, RoundRequest
from crowdfl.protocols.shares.round.steps import BONUS_WORD, Facts, SizedTask
from crowdfl.protocols.steps import limits


class RoundOpened(RoundRequest, kind=93, repr=False):
    """SP to CSP: this round takes uploads. `drawn`: of these people; of a task that draws nobody, of all who have enrolled."""

    drawn: tuple[str, ...]


class BonusWord(Message, kind=95, repr=False):
    """CSP's signed word: these get the bonus, each once."""

    task: str
    names: tuple[str, ...]
    signature: bytes

    @property
    def statement(self) -> bytes:
        return b"crowdfl bonus 1" + self.unsigned()

    def sign(self, signing: SigningKey) -> "BonusWord":
        return replace(self, signature=signing.sign(self.statement))


class KeptOpened(Message, kind=96, repr=False):
    """CSP's record of whom a round asks: by name, or the first so many that had enrolled."""

    drawn: tuple[str, ...]
    enrolled: int


class KeptVoid(Message, kind=97, repr=False):
    """CSP's record of the names in manifests of which nothing was opened; `whole`: all manifests of the round had come."""

    names: tuple[str, ...]
    whole: int


@dataclass(frozen=True)
class Attendance:
    """Of one round: who was asked, and who was there."""

    asked: Collection[str]
    there: Collection[str]


def bonus_people(rounds: Iterable[Attendance], order: Sequence[str], places: Mapping[str, str]) -> tuple[str, ...]:
    """In the order in which their newest devices enrolled."""
    newest, missed, came = dict[str, str](), set[str](), set[str]()
    for who in order:
        newest[places.get(who, who)] = who
    for one in rounds:
        there = {places.get(who, who) for who in one.there}
        came |= there
        missed |= {places.get(who, who) for who in one.asked} - there
    rank = {who: place for place, who in enumerate(order)}
    found = [who for place, who in newest.items() if place in came and place not in missed]
    return tuple(sorted(found, key=rank.__getitem__))


def open_bonus(data: bytes, shape: SizedTask, csp_key: bytes) -> BonusWord:
    word = BonusWord.from_bytes(data, limits(BONUS_WORD, Facts.most(shape)))
    verify(csp_key, word.statement, word.signature)
    if word.task != shape.spec.name:
        raise ProtocolError("what was shown is CSP's word about the bonus of another task")
    return word
