"""SP's way to CSP: every reply is durable before it is used, and the task's lease is renewed while SP waits."""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial

from crowdfl.errors import Conflict
from crowdfl.protocols.exchange import Ask, Reply
from crowdfl.roles.sp.core import SpCore

__all__ = ["CspLink", "replies_folder"]


def replies_folder(task: str, number: int) -> str:
    """Where CSP's replies of a round are kept."""
    return f"{task}/rounds/{number}/replies"


class CspLink:
    """After a crash SP goes on from what CSP said then, whatever it says now."""

    def __init__(self, core: SpCore) -> None:
        self._core = core

    def ask(self, task: str, number: int) -> Ask:
        """How the requests of one round reach CSP."""

        def ask(request: bytes) -> Reply:
            self._core.renew_lease(task)
            return self._reply(task, f"{replies_folder(task, number)}/{hashlib.sha256(request).hexdigest()}", request)

        return ask

    def enrol_everyone(self, task: str, number: int) -> None:
        """Whoever uploaded, CSP must know: the message of an enrolment may have been lost."""
        ports = self._core.ports
        for upload in ports.store.uploads(task, number):
            ports.csp.enrol(task, ports.store.participant(task, upload.who).certificate)

    def _reply(self, task: str, name: str, request: bytes) -> Reply:
        ports, ahead = self._core.ports, self._core.options.ahead
        if ports.blobs.has(name):
            return partial(ports.blobs.get, name)
        if ahead is None:
            return partial(bytes, self._keep(name, ports.csp.answer(task, request)))
        return self._waiting(task, name, ahead.submit(ports.csp.answer, task, request))

    def _waiting(self, task: str, name: str, future: "Future[bytes]") -> Callable[[], bytes]:
        def reply() -> bytes:
            while not wait([future], self._core.options.lease_seconds / 3).done:
                self._core.renew_lease(task)
            return self._keep(name, future.result())

        return reply

    def _keep(self, name: str, reply: bytes) -> bytes:
        blobs = self._core.ports.blobs
        try:
            blobs.put(name, reply)
        except Conflict:  # another process has kept one: that one counts
            return blobs.get(name)
        return reply
