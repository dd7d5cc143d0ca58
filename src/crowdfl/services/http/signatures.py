"""Signed requests as a service checks them: the signature before the body is read, the body against its digest afterwards."""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from anyio import to_thread
from fastapi import Depends, Request

from crowdfl.crypto.signing import verify
from crowdfl.errors import BadSignature, Forbidden, NotAuthenticated, UnknownParticipant
from crowdfl.roles.sp.platform import Sp
from crowdfl.services.http.auth import PARTICIPANT, REQUESTER_SIGNATURE, RoleToken, Security
from crowdfl.services.http.bodies import JSON_LIMIT, Form, TaskId, parse, read_bytes
from crowdfl.services.http.wire import DIGEST_HEADER, REQUESTER_HEADER, signed_text

REQUESTER = "requester"
SIGNED = "crowdfl.signed"  # in a request's scope: a participant of the task has signed it
SKEW_SECONDS = 300.0
_PROOF = r'time="([0-9]{1,12})", signature="([0-9a-f]{128})"'
_PARTICIPANT = re.compile(rf'CrowdFL who="([0-9a-f]{{20}})", {_PROOF}')
_REQUESTER = re.compile(_PROOF)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_Form = TypeVar("_Form", bound=Form)


@dataclass(frozen=True)
class Signed:
    """A request whose signature is valid, for a body of this digest."""

    who: str
    digest: str

    def require_body(self, digest: str) -> None:
        if digest != self.digest:
            raise BadSignature("the body is not the one that was signed: it was cut off or altered")


@dataclass(frozen=True, eq=False)
class ByParticipant:
    """A dependency: the request is signed by a participant of the task that its path names."""

    sp: Sp

    security: Security = ({PARTICIPANT: []},)

    async def __call__(self, request: Request, task: TaskId) -> Signed:
        found = _PARTICIPANT.fullmatch(request.headers.get("authorization", ""))
        if found is None:
            raise NotAuthenticated('this needs `Authorization: CrowdFL who="...", time="...", signature="..."`')
        who, time, signature = found.groups()
        digest = _digest(request)
        if abs(self.sp.clock.now() - int(time)) > SKEW_SECONDS:  # else nothing needs to be read from the store
            _require_time(await to_thread.run_sync(self.sp.core.is_about_now, float(time), SKEW_SECONDS))
        try:
            _verify(await self._key(task, who), request, time, digest, signature)
        except (UnknownParticipant, BadSignature):  # the same answer: strangers do not learn who is enrolled
            raise NotAuthenticated("no participant of this task signed this request") from None
        request.scope[SIGNED] = True
        return Signed(who, digest)

    async def _key(self, task: str, who: str) -> bytes:
        known = self.sp.core.identity_at_hand(task, who)
        if known is None:
            known = await to_thread.run_sync(self.sp.core.identity, task, who)
        return known.signing


Proof = Callable[[bytes], Signed]
"""A requester's signature that is not checked yet: call it with the key that must have made it."""


@dataclass(frozen=True, eq=False)
class ByRequester:
    """A dependency: a requester's token and a signature, for a route that learns from the body whose it must be."""

    token: RoleToken
    is_about_now: Callable[[float, float], bool]  # a time, and how many seconds it may be away

    security: Security = ({f"{REQUESTER} token": [], REQUESTER_SIGNATURE: []},)

    def __call__(self, request: Request) -> Proof:
        self.token(request)
        found = _REQUESTER.fullmatch(request.headers.get(REQUESTER_HEADER, ""))
        if found is None:
            raise NotAuthenticated(f'this needs `{REQUESTER_HEADER}: time="...", signature="..."` beside the token')
        time, signature = found.groups()
        digest = _digest(request)
        _require_time(self.is_about_now(float(time), SKEW_SECONDS))

        def by(key: bytes) -> Signed:
            try:
                _verify(key, request, time, digest, signature)
            except BadSignature:
                raise Forbidden("this is for the requester whose key the task's definition names") from None
            return Signed(REQUESTER, digest)

        return by


@dataclass(frozen=True, eq=False)
class ByOwner:
    """A dependency: a requester's token, and the signature of the requester whose task the path names."""

    requester: ByRequester
    key_of: Callable[[str], bytes]

    @property
    def security(self) -> Security:
        return self.requester.security

    def __call__(self, request: Request, task: TaskId) -> Signed:
        return self.requester(request)(self.key_of(task))


def signed_json_body(
    model: type[_Form], guard: Callable[..., Signed | Awaitable[Signed]]
) -> Callable[..., Awaitable[_Form]]:
    """A dependency that reads a JSON body once its signature is checked, and accepts the signed body only."""

    async def read(request: Request, caller: Signed = Depends(guard)) -> _Form:  # noqa: B008 -- as FastAPI has it
        raw = await read_bytes(request, JSON_LIMIT)
        caller.require_body(hashlib.sha256(raw).hexdigest())
        return parse(model, raw)

    return read


def _digest(request: Request) -> str:
    """The one that the body must have."""
    digest = request.headers.get(DIGEST_HEADER, "")
    if not _DIGEST.fullmatch(digest):
        raise NotAuthenticated(f"a signed request names the SHA-256 of its body in {DIGEST_HEADER}, in hex")
    return digest


def _require_time(is_about_now: bool) -> None:
    if not is_about_now:
        raise NotAuthenticated(
            "the request's time differs too much from this service's: set the clock, then sign it again"
        )


def _verify(key: bytes, request: Request, time: str, digest: str, signature: str) -> None:
    query = request.url.query
    target = request.scope["path"] + (f"?{query}" if query else "")
    verify(key, signed_text(request.method, target, time, digest), bytes.fromhex(signature))
