"""What goes wrong, on demand: servers that die at a durable step, wires that lose, repeat and delay."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from crowdfl.errors import CrowdFLError
from crowdfl.roles.ports import ManualClock

__all__ = ["Between", "Crash", "Fragile", "FragileDisk", "Life", "Wire"]

_TASKS = {"add_task", "change_task", "add_participant", "leave", "use_invitation", "lease", "release", "post"}
_MONEY = {"add_deposit", "decide_deposit", "add_payment", "change_payment", "mark_paid_before"}
_ROUNDS = {"put_round", "mark_asked", "acknowledge", "drop_uploads", "put_seed", "use_reply", "forget_replies"}
_CSP = {"mark_refused", "put_answer", "remember", "reserve"}
_ENDS = {"erase_seeds", "erase_answers", "remove"}
_DURABLE = _TASKS | _MONEY | _ROUNDS | _CSP | _ENDS | {"put", "put_all", "delete", "clear"}


class Crash(BaseException):
    """The process is gone; nothing in it may catch this and go on."""


@dataclass
class Life:
    """One process. It dies at the step that was chosen, and does nothing ever after."""

    left: int | None = None
    dead: bool = False

    def step(self) -> None:
        """A durable step begins or has ended."""
        self.check()
        if self.left is not None:
            self.left -= 1
            self.dead = self.left <= 0
            self.check()

    def check(self) -> None:
        if self.dead:
            raise Crash


class Fragile:
    """A store or blobs in the hands of a process that may die before or after each durable call."""

    def __init__(self, target: Any, life: Life) -> None:
        self._target, self._life = target, life

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self._life.check()
            if name not in _DURABLE:
                return method(*arguments, **named)
            self._life.step()
            result = method(*arguments, **named)
            self._life.step()
            return result

        return call

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Dying before the commit undoes it all; after, nothing."""
        self._life.check()
        with self._target.transaction():
            yield
            self._life.step()
        self._life.step()


@dataclass
class FragileDisk:
    """The disk of a process that may die; `number` tells processes of one role apart."""

    disk: Any
    life: Life
    number: str = ""

    def store(self, role: str) -> Fragile:
        return Fragile(self.disk.store(role + self.number), self.life)

    def blobs(self, name: str) -> Fragile:
        """The same for all processes of a role."""
        return Fragile(self.disk.blobs(name), self.life)


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


@dataclass
class Wire:
    """Calls to a server that may be away. `fates` says what becomes of the next calls; once used up, all goes well.

    A function among the fates is run while the call is under way, as another process or another caller would.
    """

    server: Callable[[], Any]
    clock: ManualClock
    away: bool = False
    fates: list[Any] = field(default_factory=list)
    sent: list[tuple[str, tuple[Any, ...], Any]] = field(default_factory=list)
    late: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if self.away:
                raise ConnectionError("nobody answers")
            return self._carry(name, arguments, self.fates.pop(0) if self.fates else "well")

        return call

    def _carry(self, name: str, arguments: tuple[Any, ...], fate: Any) -> Any:
        if fate == "lost":
            raise ConnectionError("the request was lost")
        if fate == "late":
            self.late.append((name, arguments))
            raise ConnectionError("no answer came in time")
        if isinstance(fate, float):
            self.clock.time += fate
        if callable(fate):
            fate()
        reply = self._deliver(name, arguments)
        self._deliver_late_ones()
        if fate == "repeated":
            assert self._deliver(name, arguments) == reply
        if fate == "old ones again":
            for old_name, old_arguments, old_reply in self.sent[-3:]:
                assert self._deliver(old_name, old_arguments) == old_reply
        if fate == "answer lost":
            raise ConnectionError("the answer was lost")
        self.sent.append((name, arguments, reply))
        return reply

    def _deliver_late_ones(self) -> None:
        """Overtaken by a request that was sent after them; nobody waits for their answers any more."""
        while self.late:
            with contextlib.suppress(CrowdFLError, ConnectionError):
                self._deliver(*self.late.pop(0))

    def _deliver(self, name: str, arguments: tuple[Any, ...]) -> Any:
        try:
            return getattr(self.server(), name)(*arguments)
        except Crash:
            raise ConnectionError("the server died") from None
