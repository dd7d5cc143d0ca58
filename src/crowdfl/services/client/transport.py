"""One service as its clients reach it: TLS, credentials, retries that honour a deadline, problems as the errors they were.

A participant signs method, path with query, time and the SHA-256 of the body with the key that KGC certified. A requester signs
the same with the key that its task's definition names, beside its token: the token lets it use the service, the signature its
own task.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import LimitExceeded, NotAuthenticated, ServiceUnavailable
from crowdfl.retry import Backoff
from crowdfl.services.client.server_time import ServerTime
from crowdfl.services.http import tls
from crowdfl.services.http.context import outgoing
from crowdfl.services.http.wire import (
    DIGEST_HEADER,
    OCTETS,
    PROTOCOL,
    PROTOCOL_HEADER,
    REQUESTER_HEADER,
    error_from,
    require_answer_in,
    signed_text,
)

_RESPONSE_LIMIT = 1024 * 1024 * 1024
_READ_SECONDS = 600.0  # a KGC that makes a key says nothing for a while
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_RETRIES = Backoff(deadline=120.0)
_Kind = TypeVar("_Kind", str, int)
Watch = Callable[[str, str], AbstractContextManager[None]]
"""What is around each call of a method and a target, with all its tries: it sees how the call ends."""


def unwatched(_method: str, _target: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass
class Bearer:
    """A role's token; a newer one may take its place."""

    token: str = field(repr=False)

    def headers(self, _method: str, _target: str, _body: bytes, _now: float) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True)
class Signer:
    """A participant's certified key."""

    who: str
    signing: SigningKey

    def headers(self, method: str, target: str, body: bytes, now: float) -> dict[str, str]:
        proof, digest = _prove(self.signing, method, target, body, now)
        return {"Authorization": f'CrowdFL who="{self.who}", {proof}', DIGEST_HEADER: digest}


@dataclass(frozen=True)
class Owner:
    """A requester's token, and the key that its tasks' definitions name."""

    token: str = field(repr=False)
    signing: SigningKey

    def headers(self, method: str, target: str, body: bytes, now: float) -> dict[str, str]:
        proof, digest = _prove(self.signing, method, target, body, now)
        return {"Authorization": f"Bearer {self.token}", REQUESTER_HEADER: proof, DIGEST_HEADER: digest}


Credential = Bearer | Signer | Owner


@dataclass(frozen=True)
class Reply:
    """A successful answer."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    def json(self) -> dict[str, object]:
        """The answer as a JSON object; `ServiceUnavailable` if it is not one."""
        found = _parsed(self.body)
        if not isinstance(found, dict):
            raise ServiceUnavailable("the service's answer is not a JSON object: check its address")
        return found

    def octets(self) -> bytes:
        """The answer as bytes; `ServiceUnavailable` if it is something else, such as the page of a public network."""
        if self.status != 200 or self.headers.get("content-type", "").partition(";")[0] != OCTETS:
            raise ServiceUnavailable("the answer is not from the service: something in between has answered")
        return self.body

    def text(self, name: str) -> str:
        return self._field(name, str)

    def whole(self, name: str) -> int:
        return self._field(name, int)

    def amounts(self, name: str) -> dict[int, int]:
        """Millionths by round."""
        found = self.json().get(name)
        if not isinstance(found, dict) or not all(_is_round(n) and type(found[n]) is int for n in found):
            raise ServiceUnavailable(f"the service's answer lacks {name}")
        return {int(number): amount for number, amount in found.items()}

    def _field(self, name: str, kind: type[_Kind]) -> _Kind:
        found = self.json().get(name)
        if type(found) is not kind:  # true is not a number
            raise ServiceUnavailable(f"the service's answer lacks {name}")
        return found


def _is_round(text: str) -> bool:
    return text.isdecimal() and len(text) <= 10


@dataclass(frozen=True)
class Service:
    """A service, and the credential it is called with."""

    http: httpx.Client = field(repr=False)
    credential: Credential | None = None
    retries: Backoff = _RETRIES
    now: Callable[[], float] = time.time  # for signed requests
    watch: Watch = unwatched
    on_wait: Callable[[Exception, float], object] = lambda _failure, _seconds: None  # hears of each miss at once
    server_time: ServerTime = field(default_factory=ServerTime, repr=False)  # shared by copies of this service

    def call(
        self, method: str, target: str, body: bytes = b"", *, media_type: str | None = None, repeatable: bool = True
    ) -> Reply:
        """One request. A repeatable one is tried again when the connection or the service fails, until the deadline."""
        with self.watch(method, target):
            return self._call(method, target, body, media_type, repeatable=repeatable)

    def _call(self, method: str, target: str, body: bytes, media_type: str | None, *, repeatable: bool) -> Reply:
        attempts = self.retries.start()
        while True:
            outcome, asked = self._try(method, target, body, media_type, repeatable=repeatable)
            if isinstance(outcome, Reply):
                return outcome
            if not attempts.wait(asked, partial(self.on_wait, outcome)):
                raise outcome

    def send_json(self, method: str, target: str, body: Mapping[str, object], *, repeatable: bool = True) -> Reply:
        raw = json.dumps(body).encode()
        return self.call(method, target, raw, media_type="application/json", repeatable=repeatable)

    def close(self) -> None:
        self.http.close()

    def _try(
        self, method: str, target: str, body: bytes, media_type: str | None, *, repeatable: bool, retimed: bool = False
    ) -> tuple[Reply | Exception, float]:
        """A reply, or a failure that may pass and how long the service asks to wait; what does not pass is raised."""
        try:
            reply = self._once(method, target, body, media_type)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as failure:  # it was never sent
            if "CERTIFICATE_VERIFY_FAILED" in str(failure):  # waiting does not change that
                raise self._unreachable(failure) from None
            return self._unreachable(failure), 0.0
        except httpx.TransportError as failure:
            if not repeatable:
                raise self._unreachable(failure) from None
            return self._unreachable(failure), 0.0
        if reply.status < 400:
            return reply, 0.0
        error = error_from(reply.status, _parsed(reply.body))
        if isinstance(error, NotAuthenticated) and not retimed and self._takes_its_time(reply):  # nothing was done
            return self._try(method, target, body, media_type, repeatable=repeatable, retimed=True)
        if reply.status not in _AGAIN or not repeatable:
            raise error
        return error, _seconds(reply.headers.get("retry-after", ""))

    def _once(self, method: str, target: str, body: bytes, media_type: str | None) -> Reply:
        headers = {PROTOCOL_HEADER: PROTOCOL} | outgoing()
        headers |= {"Content-Type": media_type} if media_type else {}
        if self.credential is not None:
            headers |= self.credential.headers(method, target, body, self.now() + self.server_time.ahead)
        with self.http.stream(method, target, content=body or None, headers=headers) as response:
            require_answer_in(response.headers.get(PROTOCOL_HEADER), str(self.http.base_url))
            return Reply(response.status_code, _read(response), dict(response.headers))

    def _takes_its_time(self, refusal: Reply) -> bool:
        """Whether a participant's signature may have been refused for its time: the next one bears the service's."""
        return isinstance(self.credential, Signer) and self.server_time.learn(refusal.headers.get("date"), self.now())

    def _unreachable(self, failure: Exception) -> ServiceUnavailable:
        return ServiceUnavailable(f"{self.http.base_url} cannot be reached ({type(failure).__name__}): {failure}")


@dataclass(frozen=True)
class Link:
    """How to reach a service: its address, the CA to trust or the system's, whether plain HTTP was asked for."""

    url: str
    ca: Path | None = None
    plain_http: bool = False
    own: tls.CertificateFiles | None = None  # what proves to the service who calls

    def open(
        self,
        credential: Credential | None = None,
        retries: Backoff = _RETRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> Service:
        timeout = httpx.Timeout(30.0, read=_READ_SECONDS)
        http = httpx.Client(
            base_url=self.url, transport=transport or self.transport(), timeout=timeout, trust_env=False
        )
        return Service(http, credential, retries)

    def transport(self) -> httpx.BaseTransport:
        """Connections of their own, with the certificates as they are on disk now."""
        parts = urlsplit(self.url)
        if parts.scheme != "https":
            tls.require_plain_http_allowed(parts.hostname or "", asked=self.plain_http)
        verify = tls.client_context(self.ca, self.own) if parts.scheme == "https" else False
        return httpx.HTTPTransport(verify=verify, trust_env=False)

    def as_requester(self, token: str, signing: SigningKey) -> Service:
        return self.open(Owner(token, signing))


def _prove(key: SigningKey, method: str, target: str, body: bytes, now: float) -> tuple[str, str]:
    digest, time = hashlib.sha256(body).hexdigest(), str(int(now))
    return f'time="{time}", signature="{key.sign(signed_text(method, target, time, digest)).hex()}"', digest


def _read(response: httpx.Response) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        size += len(part)
        if size > _RESPONSE_LIMIT:
            raise LimitExceeded(f"an answer of more than {_RESPONSE_LIMIT} bytes")
        parts.append(part)
    return b"".join(parts)


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0
