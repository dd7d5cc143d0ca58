"""The halves of a round as coroutines: a straight-line program in which the servers swap messages.

SP's half yields its message and is sent CSP's. CSP's half is sent SP's message first and yields its answer. What both do
alike is written once, as a function of its `Side`. A half knows by itself what comes next and how long it must be; it believes
nothing else. Run again with the same messages, a half gives the same bytes: that is how a process continues after a crash.
"""

from collections.abc import Callable, Generator
from typing import Generic, Protocol, TypeVar

from crowdfl.errors import LengthMismatch

_Result = TypeVar("_Result")
Half = Generator[bytes, bytes, _Result]
"""Yields this server's message, is sent the other's."""

SP, CSP = 0, 1


class Side(Protocol):
    """One server inside a program: which of the two it is, and how it swaps messages."""

    index: int  # SP or CSP: whoever adds a public number to a shared one is SP

    def swap(self, mine: bytes) -> Half[bytes]:
        """Send a message, get the other's of the same length."""


class SpSide:
    """SP asks."""

    index = SP

    def swap(self, mine: bytes) -> Half[bytes]:
        return (yield from self.ask(mine, len(mine)))

    def ask(self, mine: bytes, length: int) -> Half[bytes]:
        """Send a message, get CSP's answer of this length."""
        return _of_length((yield mine), length)


class CspSide:
    """CSP answers; what SP sent for the exchange under way can be read before the answer is made."""

    index = CSP

    def __init__(self) -> None:
        self._heard = b""
        self.last: bytes | None = None

    def hear(self, message: bytes) -> None:
        self._heard = message

    def swap(self, mine: bytes) -> Half[bytes]:
        theirs = self.heard(len(mine))
        yield from self.answer(mine)
        return theirs

    def heard(self, length: int | None = None) -> bytes:
        """SP's message of this exchange, of this length; without one, whoever reads it checks what is in it."""
        return self._heard if length is None else _of_length(self._heard, length)

    def answer(self, mine: bytes) -> Half[None]:
        self._heard = yield mine

    def finish(self, mine: bytes) -> None:
        """The answer to the last exchange of a program: the half returns its result right after."""
        self.last = mine


class CspRun(Generic[_Result]):
    """CSP's half of a program under way: `answer` takes SP's next message. `result` is there after the last.

    A program that ends without an answer was through with its last one: that message is for whatever follows.
    """

    def __init__(self, program: Callable[[CspSide], Half[_Result]]) -> None:
        self._side = CspSide()
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
            self.result, self.is_over = end.value, True
        return self._side.last


def _of_length(message: bytes, length: int) -> bytes:
    if len(message) != length:
        raise LengthMismatch(f"a message of {len(message)} bytes where {length} are expected")
    return message
