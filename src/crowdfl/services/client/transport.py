"""Calls to a service: credentials, retries, the circuit breaker, and a service's clock as its client follows it.

A phone whose clock is wrong signs with the time in the reply's `Date`, once a signature was refused for its time. A service
that lies about its time gets signatures for another moment; it could repeat such a request later, to itself alone: the request
names a task and a participant that no other service takes signatures of. Times more than a day away are not believed: then the
person is asked to set the clock.
"""

import hashlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx

from crowdfl.crypto.long_bytes import LONG_BYTES, Long, sha256_of, whole
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import CrowdFLError, NotAuthenticated, ReplyUnreadable, ServiceUnavailable
from crowdfl.retry import Backoff
from crowdfl.roles.kept_file import KeptFile
from crowdfl.services.client.breaker import Breaker, seconds_left
from crowdfl.services.client.pace import PacedTransport, paced
from crowdfl.services.http import tls
from crowdfl.services.http.wire import (
    DIGEST_HEADER,
    OCTETS,
    PROBLEM_TYPE,
    PROTOCOL,
    PROTOCOL_HEADER,
    REQUESTER_HEADER,
    error_from,
    outgoing,
    require_answer_in,
    signed_text,
)

FARTHEST = 86400.0  # seconds that a service's clock may differ from this device's
_NEWS = 60.0  # a smaller difference is no reason for a refusal


@dataclass
class ServerTime:
    """How many seconds a service is ahead of this device; 0 until a refusal says otherwise."""

    ahead: float = 0.0

    def learn(self, date: str | None, now: float) -> bool:
        """Follow the service's clock from now on; False if that changes nothing, or it is too far away to be believed."""
        ahead = _moment(date) - now
        if not abs(ahead) <= FARTHEST or abs(ahead - self.ahead) < _NEWS:
            return False
        self.ahead = ahead
        return True


def _moment(date: str | None) -> float:
    try:
        return parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return math.nan


RESPONSE_LIMIT = 1024 * 1024 * 1024
_WORDS = 64 * 1024  # bytes of a refusal, which may be longer than any answer
_READ_SECONDS = 600.0  # a KGC that makes a key says nothing for a while
_PEER_SECONDS = 30.0  # between servers: whoever computes longer says so, and is asked again
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_GATEWAY = frozenset({502, 503, 504})  # what a proxy says of a server that is away
_RETRIES = Backoff(deadline=120.0)
_PEER_RETRIES = Backoff(longest=2.0, deadline=10.0)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_UNREADABLE = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)  # everything that httpx raises
Sleep = Callable[[float], None]
Heard = Callable[[Mapping[str, str]], None]
_Kind = TypeVar("_Kind", str, int)
Watch = Callable[[str, str], AbstractContextManager[None]]
"""What is around each call of a method and a target, with all its tries: it sees how the call ends."""


def unwatched(_method: str, _target: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass
class Bearer:
    """A role's token; a newer one may take its place."""

    token: str = field(repr=False)

    def headers(self, _method: str, _target: str, _body: bytes, _now: float, _digest: str = "") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True)
class Signer:
    """A participant's certified key."""

    who: str
    signing: SigningKey

    def headers(self, method: str, target: str, body: bytes, now: float, digest: str = "") -> dict[str, str]:
        proof, digest = _prove(self.signing, method, target, digest or _digest(body), now)
        return {"Authorization": f'CrowdFL who="{self.who}", {proof}', DIGEST_HEADER: digest}


@dataclass(frozen=True)
class Owner:
    """A requester's token, and the key that its tasks' definitions name."""

    token: str = field(repr=False)
    signing: SigningKey

    def headers(self, method: str, target: str, body: bytes, now: float, digest: str = "") -> dict[str, str]:
        proof, digest = _prove(self.signing, method, target, digest or _digest(body), now)
        return {"Authorization": f"Bearer {self.token}", REQUESTER_HEADER: proof, DIGEST_HEADER: digest}


Credential = Bearer | Signer | Owner


class _Request(NamedTuple):
    method: str
    target: str
    body: bytes
    media_type: str | None
    digest: str


@dataclass(frozen=True)
class Reply:
    """A successful answer."""

    status: int
    content: Long = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    @property
    def body(self) -> bytes:
        """In memory."""
        return whole(self.content)

    def json(self) -> dict[str, object]:
        """The answer as a JSON object; `ServiceUnavailable` if it is not one."""
        found = _parsed(self.body)
        if not isinstance(found, dict):
            raise ServiceUnavailable("the service's answer is not a JSON object: check its address")
        return found

    def octets(self) -> bytes:
        """The answer as bytes; `ServiceUnavailable` if it is something else, such as the page of a public network."""
        self._require_octets()
        return self.body

    def whole_octets(self) -> Long:
        """The same, where it lies, if the service names the hash of its answer: a part of one is none."""
        self._require_octets()
        if sha256_of(self.content).hex() != self.headers.get(DIGEST_HEADER.lower()):
            raise ServiceUnavailable("the answer did not arrive whole: try again later")
        return self.content

    def _require_octets(self) -> None:
        if self.status != 200 or self.headers.get("content-type", "").partition(";")[0] != OCTETS:
            raise ServiceUnavailable("the answer is not from the service: something in between has answered")

    def text(self, name: str) -> str:
        return self._field(name, str)

    def hex(self, name: str) -> bytes:
        try:
            return bytes.fromhex(self.text(name))
        except ValueError:
            raise ServiceUnavailable(f"the service's answer holds no {name}") from None

    def table(self, name: str) -> dict[str, Any]:
        found = self.json().get(name)
        if not isinstance(found, dict):
            raise ServiceUnavailable(f"the service's answer lacks {name}")
        return found

    def tables(self, name: str) -> list[dict[str, Any]]:
        found = self.json().get(name)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise ServiceUnavailable(f"the service's answer lacks {name}")
        return found

    def whole(self, name: str) -> int:
        return self._field(name, int)

    def wholes(self, name: str) -> list[int]:
        found = self.json().get(name)
        if not isinstance(found, list) or not all(type(one) is int for one in found):
            raise ServiceUnavailable(f"the service's answer lacks {name}")
        return found

    def amounts(self, name: str) -> dict[int, int]:
        """Millionths by round."""
        found = self.json().get(name)
        if not isinstance(found, dict) or not all(
            n.isdecimal() and len(n) <= 10 and type(found[n]) is int for n in found
        ):
            raise ServiceUnavailable(f"the service's answer lacks {name}")
        return {int(number): amount for number, amount in found.items()}

    def _field(self, name: str, kind: type[_Kind]) -> _Kind:
        found = self.json().get(name)
        if type(found) is not kind:  # true is not a number
            raise ServiceUnavailable(f"the service's answer lacks {name}")
        return found


@dataclass(frozen=True)
class Service:
    """A service, and the credential it is called with."""

    http: httpx.Client = field(repr=False)
    credential: Credential | None = None
    retries: Backoff = _RETRIES
    now: Callable[[], float] = time.time  # for signed requests
    watch: Watch = unwatched
    breaker: Breaker | None = None  # between servers
    heard: Heard = lambda _headers: None  # of every answer
    on_wait: Callable[[Exception, float], object] = lambda _failure, _seconds: None  # hears of each miss at once
    read_seconds: float | None = None  # to wait for an answer, where that is more than usual
    pace: float | None = None  # seconds that an exchange may take, besides what its bytes take at the least rate
    longest: int = RESPONSE_LIMIT  # bytes that are read of an answer
    spool: Path | None = None  # the folder where a long answer is kept, in place of memory
    server_time: ServerTime = field(default_factory=ServerTime, repr=False)  # shared by copies of this service

    def call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        media_type: str | None = None,
        repeatable: bool = True,
        digest: str = "",
    ) -> Reply:
        """One request. A repeatable one is tried again when the connection or the service fails, until the deadline.

        While the breaker is open, and when a request that is being answered has no time left, it fails at once. `digest` is
        what a signature is over, if not the hash of the body.
        """
        with self.watch(method, target):
            return self._call(_Request(method, target, body, media_type, digest), repeatable=repeatable)

    def _call(self, request: "_Request", *, repeatable: bool) -> Reply:
        attempts = in_time(self.retries).start()
        while True:
            if seconds_left() == 0.0:
                raise ServiceUnavailable(f"{self.http.base_url} was not asked in time: try again later")
            outcome, asked = self._try(request, repeatable=repeatable)
            if isinstance(outcome, Reply):
                return outcome
            if not attempts.wait(asked, partial(self.on_wait, outcome)):
                raise outcome

    def send_json(self, method: str, target: str, body: Mapping[str, object]) -> Reply:
        return self.call(method, target, json.dumps(body).encode(), media_type="application/json")

    def as_peer(self, breaker: Breaker, sleep: Sleep, heard: Heard) -> "Service":
        """The same for a server that calls another: short waits, which `sleep` may end, and the peer's circuit breaker."""
        self.http.timeout = httpx.Timeout(_PEER_SECONDS, connect=5.0)
        retries = replace(_PEER_RETRIES, sleep=sleep)
        return replace(self, retries=retries, breaker=breaker, heard=heard, pace=_PEER_SECONDS)

    def close(self) -> None:
        self.http.close()

    def _try(self, request: "_Request", *, repeatable: bool, retimed: bool = False) -> tuple[Reply | Exception, float]:
        """A reply, or a failure that may pass and how long the service asks to wait; what does not pass is raised."""
        try:
            reply = self._guarded(request)
        except _UNREADABLE as failure:
            # Waiting changes no certificate, and what was sent may have been done.
            lasting = "CERTIFICATE_VERIFY_FAILED" in str(failure)
            if lasting or (not repeatable and not isinstance(failure, _NEVER_SENT)):
                raise self._unreachable(failure) from None
            return self._unreachable(failure), 0.0
        if reply.status < 400:
            return reply, 0.0
        error = error_from(reply.status, _parsed(reply.body))
        if isinstance(error, NotAuthenticated) and not retimed and self._takes_its_time(reply):  # nothing was done
            return self._try(request, repeatable=repeatable, retimed=True)
        if reply.status not in _AGAIN or not repeatable:
            raise error
        return error, _seconds(reply.headers.get("retry-after", ""))

    def _guarded(self, request: "_Request") -> Reply:
        """One exchange; the breaker hears whether there was an answer. An error in the services' own form is one."""
        if self.breaker is None:
            return self._once(request)
        self.breaker.admit()
        answered = False
        try:
            reply = self._once(request)
            answered = reply.status not in _GATEWAY or _is_problem(reply.body)
        except CrowdFLError:
            answered = True
            raise
        finally:
            self.breaker.record(answered=answered)
        return reply

    def _once(self, request: "_Request") -> Reply:
        method, target, body, media_type, digest = request
        headers = {PROTOCOL_HEADER: PROTOCOL} | outgoing()
        headers |= {"Content-Type": media_type} if media_type else {}
        if self.credential is not None:
            headers |= self.credential.headers(method, target, body, self.now() + self.server_time.ahead, digest)
        slow = self.pace is not None and self.read_seconds is not None  # a peer that was given more time
        with (
            paced(self.read_seconds if slow else self.pace),
            self.http.stream(
                method, target, content=body or None, headers=headers, timeout=self._timeout()
            ) as response,
        ):
            self.heard(response.headers)
            require_answer_in(response.headers.get(PROTOCOL_HEADER), str(self.http.base_url))
            longest = self.longest if response.status_code == 200 else max(self.longest, _WORDS)
            return Reply(response.status_code, _read(response, longest, self.spool), dict(response.headers))

    def _timeout(self) -> httpx.Timeout:
        left = seconds_left()
        usual = self.http.timeout
        if self.read_seconds is not None:
            usual = httpx.Timeout(**usual.as_dict() | {"read": self.read_seconds})
        if left is None:
            return usual
        return httpx.Timeout(**{name: min(left, value or left) for name, value in usual.as_dict().items()})

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
        return PacedTransport(tls.client_context(self.ca, self.own) if parts.scheme == "https" else None)

    def as_requester(self, token: str, signing: SigningKey) -> Service:
        return self.open(Owner(token, signing))


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _prove(key: SigningKey, method: str, target: str, digest: str, now: float) -> tuple[str, str]:
    time = str(int(now))
    return f'time="{time}", signature="{key.sign(signed_text(method, target, time, digest)).hex()}"', digest


def _read(response: httpx.Response, longest: int, spool: Path | None) -> Long:
    parts = _parts(response, longest)
    announced = response.headers.get("content-length", "")
    if spool is None or not announced.isdecimal() or not LONG_BYTES < int(announced) <= longest:
        return b"".join(parts)
    file = tempfile.NamedTemporaryFile(dir=spool, suffix=".part")  # noqa: SIM115 -- gone when nobody holds it; or swept
    for part in parts:
        file.write(part)
    file.flush()
    return KeptFile(file, path=Path(file.name))  # type: ignore[arg-type]  # which a temporary file is


def _parts(response: httpx.Response, longest: int) -> Iterator[bytes]:
    size = 0
    for part in response.iter_bytes():
        size += len(part)
        if size > longest:
            raise ReplyUnreadable(f"an answer of more than {longest} bytes")
        yield part


def in_time(retries: Backoff) -> Backoff:
    """The same, within what is left to the request that this thread answers."""
    left = seconds_left()
    return retries if left is None else replace(retries, deadline=min(retries.deadline, left))


def _is_problem(body: bytes) -> bool:
    found = _parsed(body)
    return isinstance(found, dict) and str(found.get("type", "")).startswith(PROBLEM_TYPE)


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


class SystemClock:
    """Seconds since the epoch, as the machine counts them."""

    def now(self) -> float:
        return time.time()
