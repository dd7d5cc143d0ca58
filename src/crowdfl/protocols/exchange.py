"""How SP's steps talk to CSP, and who may watch: a generator yields a request as bytes and is sent a reply to wait for.

A step that sends its next request before it waits for the last reply lets both servers work at the same time.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from crowdfl.crypto.long_bytes import Long, whole
from crowdfl.errors import LimitExceeded
from crowdfl.protocols.party import Costs, View

Reply = Callable[[], Long]
"""CSP's answer: the call waits until it is there."""

Ask = Callable[[Long], Reply]
"""How a request reaches CSP: a function call, or HTTP with a durable copy of each reply."""

Exchange = Generator[Long, Reply, None]
"""SP's side of a step: yields requests, is sent replies to wait for."""


@dataclass(frozen=True)
class ReplyForm:
    """What a reply to one request looks like, whatever it says: known before the request leaves, and no secret is in it."""

    longest: int  # bytes
    _require: Callable[[Long], object]  # `FormatError` for anything else

    def check(self, reply: Long) -> None:
        if len(reply) > self.longest:
            raise LimitExceeded(f"a reply of {len(reply)} bytes; at most {self.longest} are allowed at this step")
        self._require(reply)


_Result = TypeVar("_Result")
_Kept = TypeVar("_Kept")


class Observer:
    """Whoever measures a round. This one gives every party counters and a view of its own, and looks at nothing else."""

    def costs(self, role: str) -> Costs:
        """The counters of a party that is being built."""
        return Costs()

    def view(self, role: str) -> View:
        """Where a party that is being built records what it sees in the clear."""
        return View()

    def begin(self, stage: str) -> None:
        """A round enters a stage: encrypt, collect, check, average, read, reward, open."""

    def working(self, role: str) -> AbstractContextManager[None]:
        """Around each stretch of one role's work."""
        return nullcontext()

    def message(self, sender: str, receiver: str, message: Long) -> None: ...


_UNWATCHED = Observer()


class Silent(Observer):
    """A service's: it has no use for a record of what was opened, and no business keeping one."""

    def view(self, role: str) -> View:
        return View(keep=False)


def ask_directly(answer: Callable[[bytes], bytes], observer: Observer = _UNWATCHED) -> Ask:
    """CSP a function call away."""

    def ask(request: Long) -> Reply:
        with observer.working("CSP"):
            reply = answer(whole(request))
        observer.message("CSP", "SP", reply)
        return partial(bytes, reply)

    return ask


def run_exchange(step: Generator[Long, Reply, _Result], ask: Ask, observer: Observer = _UNWATCHED) -> _Result:
    """Take a step of SP's to its end, one request after the other. The only loop of this kind."""
    reply: Reply | None = None
    while True:
        with observer.working("SP"):
            try:
                request = next(step) if reply is None else step.send(reply)
            except StopIteration as end:
                result: _Result = end.value
                return result
        observer.message("SP", "CSP", request)
        reply = ask(request)
        del request  # it may be long


def pipelined(
    requests: Iterable[tuple[bytes, _Kept]], take: Callable[[bytes, _Kept], None]
) -> Generator[bytes, Reply, None]:
    """Send every request, then take each reply with what was kept for it: one reply behind, so two are in memory at most."""
    waiting: tuple[Reply, _Kept] | None = None
    for request, kept in requests:
        reply = yield request
        if waiting is not None:
            take(whole(waiting[0]()), waiting[1])
        waiting = reply, kept
    if waiting is not None:
        take(whole(waiting[0]()), waiting[1])
