"""The order of the steps of a round, as CSP keeps it: each message once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from crowdfl.errors import OutOfTurn, RoundEnded
from crowdfl.protocols.messages import Message
from crowdfl.protocols.records import Look

Work = Callable[[], "Worked"]
Places = Callable[[int], Sequence[int]]


@dataclass(frozen=True)
class Worked:
    """What came of a step: the reply, whether what was opened was in range, and what a later step needs."""

    reply: Message
    fits: bool = True
    kept: bytes = b""


@dataclass(frozen=True)
class Step:
    """A request in its place: the step it takes, which of the step's messages it is, and what to do."""

    name: str
    place: int
    work: Work
    is_again: bool = False  # what it opens was opened before, to others


class HardenedTask(Message, kind=88):
    """CSP's record of a task: the last round that has a manifest, and whether its requester has cancelled it."""

    latest: int = 0
    cancelled: int = 0


class HardenedRound(Message, kind=85, repr=False):
    """CSP's record of a round: whether it has ended, its manifest, the factor that its sums are scaled by, whether a piece of
    its sum was opened, and CSP's signed word about it."""

    ended: int = 0
    payment: int = 0
    participants: tuple[str, ...] = ()  # in a round that has its manifest
    manifest: bytes = b""  # its hash
    factor: bytes = b""  # its hash, once the first sum was scaled
    opened: int = 0
    record: bytes = b""  # once it was asked for

    @property
    def is_void(self) -> bool:
        """Whether nothing of it was opened to readers, nor will be."""
        return bool(self.ended and not self.opened)


class HardenedStep(Message, kind=86, repr=False):
    """CSP's record of one message of a step: the hash of its request, and once it is answered, what a later step needs."""

    asked: bytes
    is_done: int = 0
    kept: bytes = b""


class HardenedSum(Message, kind=87):
    """CSP's record of a piece of the one sum that a round opens, to whomever: the hash of its masked ciphertexts."""

    masked: bytes


class RoundOrder:
    """The order of a round's steps: `after` names what must be done before each, in a round that pays and in one that does not,
    `places` the messages of each, `numbers` where a step stands in records.

    Several messages of one step may come in any order; every other step has one.
    """

    def __init__(
        self,
        after: Callable[[bool], Mapping[str, str | None]],
        places: Mapping[str, Places],
        numbers: Mapping[str, int],
    ) -> None:
        self._after = {pays: after(pays) for pays in (False, True)}
        self._places, self._numbers = places, numbers

    def is_for(self, records: Look, number: int, step: Step, asked: bytes, *, pays: bool) -> bool:
        """Whether this message of a step is this request's; else it is from now on, or it is said why it is not its turn."""
        now = records.get(HardenedRound, number) or HardenedRound()
        if now.ended:
            raise RoundEnded(_ENDED.format(number))
        self._require_live(records, number, step)
        after = self._after[pays]
        if step.name not in after:
            raise OutOfTurn(f"round {number} pays nothing: it has no step {step.name!r}")
        before = after[step.name]
        participants = len(now.participants)
        if before is not None and not self._is_done(records, number, before, participants):
            raise OutOfTurn(f"step {step.name!r} of round {number} comes after {before!r}, which is not done")
        if step.place not in self._places_of(step.name, participants):
            raise OutOfTurn(f"step {step.name!r} of round {number} has no message {step.place}")
        taken = records.get(HardenedStep, number, step=self._numbers[step.name], part=step.place)
        if taken is not None and (taken.asked != asked or taken.is_done):
            raise OutOfTurn(f"step {step.name!r} of round {number} was asked for with other contents")
        if taken is None:
            records.put(HardenedStep(asked), number, step=self._numbers[step.name], part=step.place)
        return taken is not None

    def _require_live(self, records: Look, number: int, step: Step) -> None:
        """The task goes on, and so does this round. Others may still be shown what was opened in it."""
        task = records.get(HardenedTask) or HardenedTask()
        if step.is_again:
            return
        if task.cancelled:
            raise RoundEnded(_CANCELLED.format(number))
        if number < task.latest:
            raise RoundEnded(_PASSED.format(number))

    def finish(self, records: Look, number: int, step: Step, asked: bytes, kept: bytes) -> None:
        records.put(HardenedStep(asked, 1, kept), number, step=self._numbers[step.name], part=step.place)

    def kept(self, records: Look, number: int, name: str, place: int) -> bytes | None:
        """What a message of a step has left; None before it was answered."""
        found = records.get(HardenedStep, number, step=self._numbers[name], part=place)
        return None if found is None or not found.is_done else found.kept

    def _is_done(self, records: Look, number: int, name: str, participants: int) -> bool:
        places = self._places_of(name, participants)
        return all(self.kept(records, number, name, place) is not None for place in places)

    def _places_of(self, name: str, participants: int) -> Sequence[int]:
        return self._places[name](participants) if name in self._places else (0,)


def end_round(records: Look, number: int) -> RoundEnded:
    """From here on, for good: the same error whatever it was. Nothing else that was about to be set is."""
    records.written.clear()
    records.put(replace(records.get(HardenedRound, number) or HardenedRound(), ended=1), number)
    return RoundEnded(_ENDED.format(number))


_CANCELLED = "the requester has cancelled the task: there is no further step of round {}"
_PASSED = "a later round has begun: round {} is over"
_ENDED = "CSP has ended round {}: what was opened is not what honest parties send. The round is void"
