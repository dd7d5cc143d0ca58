"""The halves of a round as coroutines: a straight-line program in which the servers swap messages.

SP's half yields its message and is sent CSP's. CSP's half is sent SP's message first and yields its answer. What both do
alike is written once, as a function of its `Side`. What comes next and how long it must be is declared (`Course`): a half
believes nothing else. Run again with the same messages, a half gives the same bytes: that is how a process continues after a
crash.
"""

from collections.abc import Callable, Generator
from typing import Generic, Protocol, TypeVar

_Result = TypeVar("_Result")
Half = Generator[bytes, bytes, _Result]
"""Yields this server's message, is sent the other's."""

SP, CSP = 0, 1


class Course(Protocol):
    """What is declared of a program: each message is that of the next step, and as long as it must be, or is refused."""

    def asked(self, payload: bytes) -> bytes: ...  # SP's
    def answered(self, payload: bytes) -> bytes: ...  # CSP's
    def opened(self, kept: int, *, is_usable: bool) -> None: ...  # how many lanes are used, if that is enough
    def judged(self, accepted: int) -> None: ...


class Undeclared:
    """Of a piece of a program by itself: every message is taken."""

    def asked(self, payload: bytes) -> bytes:
        return payload

    def answered(self, payload: bytes) -> bytes:
        return payload

    def opened(self, kept: int, *, is_usable: bool) -> None: ...

    def judged(self, accepted: int) -> None: ...


class Side(Protocol):
    """One server inside a program: which of the two it is, and how it swaps messages."""

    index: int  # SP or CSP: whoever adds a public number to a shared one is SP
    course: Course

    def swap(self, mine: bytes) -> Half[bytes]:
        """Send a message, get the other's."""


class SpSide:
    """SP asks."""

    index = SP

    def __init__(self, course: Course | None = None) -> None:
        self.course: Course = course or Undeclared()

    def swap(self, mine: bytes) -> Half[bytes]:
        return self.course.answered((yield self.course.asked(mine)))


class CspSide:
    """CSP answers; what SP sent for the exchange under way can be read before the answer is made."""

    index = CSP

    def __init__(self, course: Course | None = None) -> None:
        self.course: Course = course or Undeclared()
        self._heard = b""
        self.last: bytes | None = None

    def hear(self, message: bytes) -> None:
        self._heard = message

    def swap(self, mine: bytes) -> Half[bytes]:
        theirs = self.heard()
        yield from self.answer(mine)
        return theirs

    def heard(self) -> bytes:
        """SP's message of this exchange; nothing is computed with it before."""
        return self.course.asked(self._heard)

    def answer(self, mine: bytes) -> Half[None]:
        self._heard = yield self.course.answered(mine)

    def finish(self, mine: bytes) -> None:
        """The answer to the last exchange of a program: the half returns its result right after."""
        self.last = self.course.answered(mine)


class CspRun(Generic[_Result]):
    """CSP's half of a program under way: `answer` takes SP's next message. `result` is there after the last.

    A program that ends without an answer was through with its last one: that message is for whatever follows.
    """

    def __init__(self, program: Callable[[CspSide], Half[_Result]], course: Course | None = None) -> None:
        self._side = CspSide(course)
        self._half = program(self._side)
        self._begun = self.is_over = False
        self.result: _Result | None = None

    def close(self) -> None:
        """Whatever it holds is let go."""
        self._half.close()

    def answer(self, message: bytes) -> bytes | None:
        if self.is_over:
            return None
        try:
            if self._begun:
                return self._half.send(message)
            self._begun = True
            self._side.hear(message)
            return next(self._half)
        except StopIteration as end:
            self.result = end.value
            self.is_over = True
        return self._side.last
