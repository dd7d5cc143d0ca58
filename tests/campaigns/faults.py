"""What goes wrong, on demand: servers that die at a durable step, wires that lose, repeat and delay."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crowdfl.errors import CrowdFLError
from crowdfl.roles.ports import ManualClock
from crowdfl.simulation.faults import Crash, Life, Point
from crowdfl.simulation.host import Call, Deliver

__all__ = ["Between", "Countdown", "Sent", "Wire", "dying"]


@dataclass
class Countdown:
    """Ends a process at so many durable steps from now, once; before and after a write are two."""

    left: int | None = None
    dead: bool = False

    def __call__(self, point: Point) -> None:
        if self.left is None or not point.is_write:
            return
        self.left -= 1
        if self.left <= 0:
            self.left, self.dead = None, True
            raise Crash


def dying(step: int | None) -> Life:
    """Of a server without a host."""
    plan = Countdown(step)
    return Life("server", lambda: plan, Counter())


class Between:
    """A store whose calls (those of one name, or all) are counted; after one of them something else happens first."""

    def __init__(self, target: Any, name: str | None, act: Callable[[], None], count: int = 1) -> None:
        self._target, self._name, self._act = target, name, act
        self.left = count
        self._alone = True

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Nobody else gets in while a transaction writes."""
        with self._target.transaction():
            self._alone = False
            try:
                yield
            finally:
                self._alone = True

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        def call(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            if self._alone and self._name in (None, name):
                self.left -= 1
                if self.left == 0:
                    self._act()
            return result

        return call


class Sent(NamedTuple):
    """A call, and how to make it again."""

    name: str
    arguments: tuple[Any, ...]
    deliver: Callable[[], Any]
    reply: Any = None


@dataclass
class Wire:
    """Between SP and CSP, which may be away. `fates` says what becomes of the next calls; once used up, all goes well.

    A function among the fates is run while the call is under way, as another process or another caller would.
    """

    clock: ManualClock
    away: bool = False
    fates: list[Any] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    late: list[Sent] = field(default_factory=list)

    def __call__(self, call: Call, deliver: Deliver) -> Any:
        if call.receiver != "csp":
            return deliver()
        if self.away:
            raise ConnectionError("nobody answers")
        return self._carry(Sent(call.name, call.arguments, deliver), self.fates.pop(0) if self.fates else "well")

    def _carry(self, call: Sent, fate: Any) -> Any:
        if fate == "lost":
            raise ConnectionError("the request was lost")
        if fate == "late":
            self.late.append(call)
            raise ConnectionError("no answer came in time")
        if isinstance(fate, float):
            self.clock.time += fate
        if callable(fate):
            fate()
        reply = call.deliver()
        self._deliver_late_ones()
        if fate == "repeated":
            assert call.deliver() == reply
        if fate == "old ones again":
            for old in self.sent[-3:]:
                assert old.deliver() == old.reply
        if fate == "answer lost":
            raise ConnectionError("the answer was lost")
        self.sent.append(call._replace(reply=reply))
        return reply

    def _deliver_late_ones(self) -> None:
        """Overtaken by a request that was sent after them; nobody waits for their answers any more."""
        while self.late:
            with contextlib.suppress(CrowdFLError, ConnectionError):
                self.late.pop(0).deliver()
