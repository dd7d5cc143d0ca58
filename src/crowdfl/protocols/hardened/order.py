"""The order of the steps of a `hardened` round, as CSP keeps it: what comes after what, each message once."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from crowdfl.errors import OutOfTurn, RoundEnded
from crowdfl.protocols.hardened.opening import PARTICIPANTS, REQUESTER
from crowdfl.protocols.hardened.prifedavg import TOTAL
from crowdfl.protocols.hardened.prirwd import DISTANCES, REWARDS, WEIGHTS
from crowdfl.protocols.hardened.shape import Shape
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import CspMemory

Work = Callable[[], tuple[Message, bool]]  # the reply, and whether what was opened was in range
Places = Callable[[int], Sequence[int]]
NONCE, LANES, INNER, OPEN_REWARDS, SCALE = "nonce", "lanes", "inner products", "open rewards", "scale"


@dataclass(frozen=True)
class Step:
    """A request in its place: the step it takes, which of the step's messages it is, and what to do."""

    name: str
    place: int
    work: Work


class RoundOrder:
    """The order of a round's steps: `after` names what must be done before each, `places` the messages of each.

    Several messages of one step may come in any order; every other step has one.
    """

    def __init__(self, after: Mapping[str, str | None], places: Mapping[str, Places]) -> None:
        self._after, self._places = after, places

    def admit(self, memory: CspMemory, number: int, step: Step, request: bytes, participants: int) -> None:
        """Reserve a place for this very request, or say why it is not its turn."""
        if self.has_ended(memory, number):
            raise RoundEnded(_ENDED.format(number))
        if memory.restored:
            raise RoundEnded(_FORGOTTEN.format(number))
        if step.name not in self._after:
            raise OutOfTurn(f"the rounds of this task have no step {step.name!r}")
        before = self._after[step.name]
        if before is not None and not self._is_done(memory, number, before, participants):
            raise OutOfTurn(f"step {step.name!r} of round {number} comes after {before!r}, which is not done")
        if step.place not in self._places_of(step.name, participants):
            raise OutOfTurn(f"step {step.name!r} of round {number} has no message {step.place}")
        name = hashlib.sha256(request).digest()
        if memory.reserve(f"asked {step.name} {step.place}", name, number) != name:
            raise OutOfTurn(f"step {step.name!r} of round {number} was asked for with other contents")

    def finish(self, memory: CspMemory, number: int, step: Step) -> None:
        memory.keep(f"done {step.name} {step.place}", b"", number)

    def end(self, memory: CspMemory, number: int) -> RoundEnded:
        memory.reserve(_HAS_ENDED, b"", number)
        return RoundEnded(_ENDED.format(number))

    def has_ended(self, memory: CspMemory, number: int) -> bool:
        return memory.get(_HAS_ENDED, number) is not None

    def _is_done(self, memory: CspMemory, number: int, name: str, participants: int) -> bool:
        places = self._places_of(name, participants)
        return all(memory.get(f"done {name} {place}", number) is not None for place in places)

    def _places_of(self, name: str, participants: int) -> Sequence[int]:
        return self._places[name](participants) if name in self._places else (0,)


_FORGOTTEN = "CSP was restored from a backup and may have answered round {} before. The round is void"
_ENDED = "CSP has ended round {}: what was opened is not what honest parties send. The round is void"
_HAS_ENDED = "ended"


def order_of(shape: Shape) -> dict[str, str | None]:
    """What comes after what. In a task that pays, nothing is opened to readers before the rewards are."""
    settings = shape.task.settings
    rewards = [NONCE, LANES, INNER, DISTANCES, *_division(WEIGHTS), *_division(REWARDS), OPEN_REWARDS]
    after = _chain(rewards, None) if settings.lanes != 0 else {}
    first = OPEN_REWARDS if shape.budget_of_a_round is not None else None
    scaling = [*_division(TOTAL), SCALE] if settings.total == "hidden" else []
    after |= _chain(scaling, first)
    opened_after = SCALE if scaling else first
    return after | {open_to(audience): opened_after for audience in (PARTICIPANTS, REQUESTER)}


def _division(purpose: str) -> list[str]:
    return [f"guard of {purpose}", f"squares of {purpose}", f"divide {purpose}"]


def _chain(steps: Sequence[str], first: str | None) -> dict[str, str | None]:
    return dict(zip(steps, [first, *steps], strict=False))


def open_to(audience: int) -> str:
    return f"open to audience {audience}"
