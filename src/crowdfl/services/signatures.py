"""Credentials as clients hold them, and the signed requests of participants.

A participant signs method, path with query, time and the SHA-256 of the body with the key that KGC certified. The signature is
checked before the body is read, the body against its digest when it is in.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request

from crowdfl.crypto.sealing import SigningKey, verify
from crowdfl.errors import BadSignature, NotAuthenticated, UnknownParticipant
from crowdfl.roles.sp import Sp

__all__ = ["DIGEST_HEADER", "SKEW_SECONDS", "Bearer", "Credential", "Signed", "Signer", "signed_by"]

DIGEST_HEADER = "X-Content-SHA256"
SKEW_SECONDS = 300.0
_FORM = re.compile(r'CrowdFL who="([0-9a-f]{20})", time="([0-9]{1,12})", signature="([0-9a-f]{128})"')
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Bearer:
    """A role's token."""

    token: str = field(repr=False)

    def headers(self, _method: str, _target: str, _body: bytes, _now: float) -> dict[str, str]:
        """What goes with a request."""
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True)
class Signer:
    """A participant's certified key."""

    who: str
    signing: SigningKey

    def headers(self, method: str, target: str, body: bytes, now: float) -> dict[str, str]:
        """What goes with this request, and with no other."""
        digest, time = hashlib.sha256(body).hexdigest(), str(int(now))
        signature = self.signing.sign(_message(method, target, time, digest)).hex()
        proof = f'CrowdFL who="{self.who}", time="{time}", signature="{signature}"'
        return {"Authorization": proof, DIGEST_HEADER: digest}


Credential = Bearer | Signer


@dataclass(frozen=True)
class Signed:
    """A request whose signature stands, for a body of this digest."""

    who: str
    digest: str

    def require_body(self, digest: str) -> None:
        """Refuse a body other than the one that was signed."""
        if digest != self.digest:
            raise BadSignature("the body is not the one that was signed: it was cut off or altered")


def signed_by(sp: Sp) -> Callable[[Request, str], Signed]:
    """A dependency: the request is signed by a participant of the task that its path names."""

    def check(request: Request, task: str) -> Signed:
        who, time, signature = _parse(request)
        digest = request.headers.get(DIGEST_HEADER, "")
        if not _DIGEST.fullmatch(digest):
            raise NotAuthenticated(f"a signed request names the SHA-256 of its body in {DIGEST_HEADER}, in hex")
        if abs(sp.clock.now() - int(time)) > SKEW_SECONDS:
            raise NotAuthenticated("the request was signed at another time: set the clock, then sign it again")
        query = request.url.query
        target = request.scope["path"] + (f"?{query}" if query else "")
        try:
            key = sp.participant(task, who).identity.signing
            verify(key, _message(request.method, target, time, digest), bytes.fromhex(signature))
        except (UnknownParticipant, BadSignature):  # told alike: who is enrolled is not for strangers
            raise NotAuthenticated("no participant of this task signed this request") from None
        return Signed(who, digest)

    return check


def _parse(request: Request) -> tuple[str, str, str]:
    found = _FORM.fullmatch(request.headers.get("authorization", ""))
    if found is None:
        raise NotAuthenticated('this needs `Authorization: CrowdFL who="...", time="...", signature="..."`')
    return found[1], found[2], found[3]


def _message(method: str, target: str, time: str, digest: str) -> bytes:
    return "\n".join(("crowdfl request 1", method, target, time, digest)).encode()
