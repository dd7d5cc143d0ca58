"""Claims to SP: how long one may be follows from its task, and who sends it is known before any of it is read.

A phone of protocol 2 signs the claim but not the request: it is still let in, with few others at a time.
"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Request

from crowdfl.errors import ServiceUnavailable
from crowdfl.roles.sp.platform import Sp
from crowdfl.services.client.breaker import PeerPatience
from crowdfl.services.http import logs
from crowdfl.services.http.auth import Security
from crowdfl.services.http.bodies import Body, TaskId, spooled, takes_bytes
from crowdfl.services.http.signatures import ByParticipant, Signed
from crowdfl.services.http.wire import PROTOCOL_HEADER

_UNSIGNED_PROTOCOL = "2"
_UNSIGNED_AT_ONCE = 32
_AT_ONCE = 16  # claims that are looked at, of the forty threads: CSP is asked about each


@dataclass(frozen=True, eq=False)
class _Claimant:
    """A dependency: the participant who signed the request, or None for a phone of protocol 2, which does not sign it."""

    sp: Sp
    signed: ByParticipant

    @property
    def security(self) -> Security:
        return self.signed.security

    async def __call__(self, request: Request, task: TaskId) -> Signed | None:
        await to_thread.run_sync(self.sp.definition, task)  # or UnknownTask
        signs = "authorization" in request.headers
        if not signs and request.headers.get(PROTOCOL_HEADER) == _UNSIGNED_PROTOCOL:
            return None
        return await self.signed(request, task)


@dataclass(frozen=True, eq=False)
class _ClaimDesk:
    """Takes a claim in and has it paid."""

    sp: Sp
    folder: Path
    patience: PeerPatience
    _unsigned: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_UNSIGNED_AT_ONCE), repr=False
    )

    @asynccontextmanager
    async def receive(self, request: Request, task: str, caller: Signed | None) -> AsyncIterator[Body]:
        limit = await to_thread.run_sync(self.sp.claim_limit, task)
        if caller is not None:
            async with spooled(request, limit, self.folder) as body:
                caller.require_body(body.digest)
                yield body
            return
        if not self._unsigned.acquire(blocking=False):
            raise ServiceUnavailable("many claims are being read: send this one again later")
        try:
            async with spooled(request, limit, self.folder) as body:
                yield body
        finally:
            self._unsigned.release()

    def pay(self, task: str, body: Body) -> dict[str, Any]:
        with self.patience():
            outcome = self.sp.claim(task, body.read())
        if outcome.short:
            logs.get("sp").warning("a round held less than was claimed of it", task=task, rounds=sorted(outcome.short))
        return {"amount": outcome.amount, "paid": outcome.paid, "claimed": outcome.claimed}


def add_claim_route(app: FastAPI, sp: Sp, folder: Path, guard: ByParticipant, patience: PeerPatience) -> None:
    desk, few = _ClaimDesk(sp, folder, patience), partial(to_thread.run_sync, limiter=CapacityLimiter(_AT_ONCE))
    claimant = Annotated[Signed | None, Depends(_Claimant(sp, guard))]

    @app.post("/v1/tasks/{task}/claims", openapi_extra=takes_bytes())
    async def claim(request: Request, task: TaskId, caller: claimant) -> dict[str, Any]:
        """Pay a claim: what is paid, and what was claimed, by round. Less is paid where a round had nothing left."""
        async with desk.receive(request, task, caller) as body:
            return await few(partial(desk.pay, task, body))
