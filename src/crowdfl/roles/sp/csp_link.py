"""SP's link to CSP: every reply is durable before it is used, and no request is ever computed on with two replies.

SP's masks come from a durable seed, so that a step that is repeated sends the same bytes. A CSP that deviates could answer them
otherwise the second time; later requests would then differ by what it chose, under the same masks, and the difference of the
two would be a participant's lanes. So the digest of a reply is recorded in the store before the reply is used. From then on
that reply counts, from its file; if the file is gone or altered, the round is void. A request without a record may be repeated:
nothing was ever computed with a reply to it. With one reply for each request, all requests of a seed are the same for ever.
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial

from crowdfl.errors import Conflict, NotReady, ReplyLost
from crowdfl.protocols.exchange import Ask, Reply
from crowdfl.roles.ports import Blobs, SpStore
from crowdfl.roles.sp.core import SpCore


def replies_folder(task: str, number: int) -> str:
    return f"{task}/rounds/{number}/replies"


def forget_replies(store: SpStore, blobs: Blobs, task: str, number: int) -> None:
    """Of a round that is never computed again."""
    blobs.clear(replies_folder(task, number))
    store.forget_replies(task, number)


class CspLink:
    """How a round's steps reach CSP."""

    def __init__(self, core: SpCore) -> None:
        self._core = core

    def ask(self, task: str, number: int) -> Ask:
        used = self._core.ports.store.replies(task, number)  # what is recorded meanwhile, `_use` sees

        def ask(request: bytes) -> Reply:
            self._core.renew_lease(task)
            place = _Place(task, number, hashlib.sha256(request).hexdigest())
            before = used.get(place.request)
            return self._reply(place, request) if before is None else partial(bytes, self._used_before(place, before))

        return ask

    def _reply(self, place: "_Place", request: bytes) -> Reply:
        ports, ahead = self._core.ports, self._core.options.ahead
        if ports.blobs.has(place.file):  # a crash came before it was used
            return lambda: self._use(place, ports.blobs.get(place.file))
        if ahead is None:
            return partial(bytes, self._keep(place, ports.csp.answer(place.task, request)))
        return self._waiting(place, ahead.submit(copy_context().run, ports.csp.answer, place.task, request))

    def _waiting(self, place: "_Place", future: "Future[bytes]") -> Callable[[], bytes]:
        def reply() -> bytes:
            while not wait([future], self._core.options.lease_seconds / 3).done:
                self._core.renew_lease(place.task)
            return self._keep(place, future.result())

        return reply

    def _keep(self, place: "_Place", reply: bytes) -> bytes:
        blobs = self._core.ports.blobs
        try:
            blobs.put(place.file, reply)
        except Conflict:  # another process has kept one: that one counts
            return self._use(place, blobs.get(place.file))
        return self._use(place, reply)

    def _use(self, place: "_Place", reply: bytes) -> bytes:
        """Recorded first: of two processes with two replies, the second one stops here."""
        digest = hashlib.sha256(reply).digest()
        if self._core.ports.store.use_reply(place.task, place.number, place.request, digest) != digest:
            raise place.lost()
        return reply

    def _used_before(self, place: "_Place", digest: bytes) -> bytes:
        try:
            reply = self._core.ports.blobs.get(place.file)
        except NotReady:
            raise place.lost() from None
        if hashlib.sha256(reply).digest() != digest:
            raise place.lost()
        return reply


@dataclass(frozen=True)
class _Place:
    """Where the reply to one request is."""

    task: str
    number: int
    request: str

    @property
    def file(self) -> str:
        return f"{replies_folder(self.task, self.number)}/{self.request}"

    def lost(self) -> ReplyLost:
        return ReplyLost(f"a reply of CSP that round {self.number} was computed with is missing or altered: it is void")
