"""The end of a round that SP has given up: CSP's signed word that nothing of it will be opened, and of whom it had shown bits.

Phones send nothing for a later round before they hold it. So SP cannot say that nobody had looked at a round in which CSP has
shown it who is within the bounds, nor keep to itself whom the round has rejected.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import ProtocolError
from crowdfl.protocols.messages import Limits, Message, RoundRequest
from crowdfl.reasons import Reason


class EndRequest(RoundRequest, kind=68):
    """SP to CSP: this round is given up. No step of it is answered from now on."""


class RoundEnd(Message, kind=69):
    """CSP's signed word about a round without a sum. Kept unsigned with the round, from the moment that it is over."""

    task: str
    number: int
    shown: tuple[str, ...]  # whose bits CSP has shown
    rejected: tuple[str, ...]  # by any verdict of the round, those of void cohorts too
    reasons: tuple[Reason, ...]
    signature: bytes

    @classmethod
    def of(cls, task: str, number: int, shown: Iterable[str], rejected: Mapping[str, Reason]) -> "RoundEnd":
        return cls(task, number, tuple(shown), tuple(rejected), tuple(rejected.values()), b"")

    @property
    def statement(self) -> bytes:
        return b"crowdfl round end 1" + self.unsigned()

    def sign(self, signing: SigningKey) -> "RoundEnd":
        return replace(self, signature=signing.sign(self.statement))

    def standing(self, who: str) -> Reason | None:
        """Why somebody was rejected in it, if somebody was."""
        return dict(zip(self.rejected, self.reasons, strict=True)).get(who)


def open_end(data: bytes, task: str, number: int, limits: Limits, csp_key: bytes) -> RoundEnd:
    end = RoundEnd.from_bytes(data, limits)
    if len(end.rejected) != len(end.reasons):
        raise ProtocolError("an end of a round whose reasons are not as many as those left out")
    verify(csp_key, end.statement, end.signature)
    if (end.task, end.number) != (task, number):
        raise ProtocolError(f"what was shown for round {number} is the end of another round or task")
    return end
