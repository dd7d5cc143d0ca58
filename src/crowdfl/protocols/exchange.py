"""How SP's steps talk to CSP: a generator yields a request as bytes and is sent a reply to wait for.

A step that sends its next request before it waits for the last reply lets both servers work at the same time.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeVar

__all__ = ["Reply", "carry", "pipelined"]

Reply = Callable[[], bytes]
"""CSP's answer: the call waits until it is there."""

_Result = TypeVar("_Result")
_Kept = TypeVar("_Kept")


def carry(step: Generator[bytes, Reply, _Result], answer: Callable[[bytes], bytes]) -> _Result:
    """Take a step to its end, one request after the other, where CSP is a function call away."""
    try:
        request = next(step)
        while True:
            request = step.send(partial(bytes, answer(request)))
    except StopIteration as end:
        result: _Result = end.value
        return result


def pipelined(
    requests: Iterable[tuple[bytes, _Kept]], take: Callable[[bytes, _Kept], None]
) -> Generator[bytes, Reply, None]:
    """Send every request, then take each reply with what was kept for it: one reply behind, so two are in memory at most."""
    waiting: tuple[Reply, _Kept] | None = None
    for request, kept in requests:
        reply = yield request
        if waiting is not None:
            take(waiting[0](), waiting[1])
        waiting = reply, kept
    if waiting is not None:
        take(waiting[0](), waiting[1])
