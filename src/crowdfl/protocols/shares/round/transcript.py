"""Requests and replies of a round: numbered steps, each bound to everything that was said before it."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from crowdfl.protocols.exchange import Reply
from crowdfl.protocols.messages import RoundRequest
from crowdfl.protocols.party import Party
from crowdfl.protocols.shares.chain import RoundPlace, sha256
from crowdfl.protocols.shares.circuits.program import Half

_Result = TypeVar("_Result")


class StepRequest(RoundRequest, kind=60, repr=False):
    """SP to CSP: the next step of a round."""

    step: int  # from 1 on
    transcript: bytes  # hash of all that was said in this round before
    payload: bytes


@dataclass(frozen=True)
class Transcript:
    """What was said in a round: how many steps, and a hash of them."""

    step: int
    digest: bytes

    @classmethod
    def start(cls, place: RoundPlace) -> "Transcript":
        return cls(0, sha256(place.bind("crowdfl transcript 1")))

    def after(self, request: bytes, reply: bytes) -> "Transcript":
        """By the hashes of both."""
        return Transcript(self.step + 1, sha256(self.digest + request + reply))

    def to_bytes(self) -> bytes:
        return self.step.to_bytes(4, "big") + self.digest

    @classmethod
    def from_bytes(cls, data: bytes) -> "Transcript":
        return cls(int.from_bytes(data[:4], "big"), data[4:])


class SpConversation:
    """SP's end: makes requests of payloads, one after the other."""

    def __init__(self, party: Party, place: RoundPlace) -> None:
        self._party, self._place = party, place
        self._said = Transcript.start(place)

    def ask(self, payload: bytes) -> Generator[bytes, Reply, bytes]:
        """One exchange."""
        request = self._party.send(self._next(payload))
        asked = sha256(request)
        del payload  # may be long: nothing of it is held while CSP works
        reply = (yield request)()
        self._said = self._said.after(asked, sha256(reply))
        return reply

    def _next(self, payload: bytes) -> StepRequest:
        return StepRequest(self._place.number, self._said.step + 1, self._said.digest, payload)

    def run(self, half: Half[_Result]) -> Generator[bytes, Reply, _Result]:
        """SP's half of a program to its end."""
        try:
            message = next(half)
            while True:
                message = half.send((yield from self.ask(message)))
        except StopIteration as end:
            result: _Result = end.value
            return result
