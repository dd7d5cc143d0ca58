"""One service as its clients reach it: TLS, credentials, retries that honour a deadline, problems as the errors they were."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from crowdfl.errors import LimitExceeded, ServiceUnavailable, WrongProtocol
from crowdfl.retry import Backoff
from crowdfl.services.client.credentials import Credential
from crowdfl.services.http import tls
from crowdfl.services.http.wire import PROTOCOL, PROTOCOL_HEADER, error_from

__all__ = ["Reply", "Service", "connect"]

_RESPONSE_LIMIT = 1024 * 1024 * 1024
_READ_SECONDS = 600.0  # a KGC that makes a key says nothing for a while
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_RETRIES = Backoff(deadline=120.0)


@dataclass(frozen=True)
class Reply:
    """An answer that is no problem."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    def json(self) -> dict[str, object]:
        """An object, or `ServiceUnavailable`."""
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ServiceUnavailable("the service's answer cannot be read: is the address right?")
        return found

    def text(self, name: str) -> str:
        """A field of the answer that is text."""
        found = self.json().get(name)
        if not isinstance(found, str):
            raise ServiceUnavailable(f"the service's answer lacks {name}")
        return found

    def whole(self, name: str) -> int:
        """A field of the answer that is a whole number."""
        found = self.json().get(name)
        if not isinstance(found, int) or isinstance(found, bool):
            raise ServiceUnavailable(f"the service's answer lacks {name}")
        return found


@dataclass(frozen=True)
class Service:
    """A service, and the credential it is called with."""

    http: httpx.Client = field(repr=False)
    credential: Credential | None = None
    retries: Backoff = _RETRIES
    now: Callable[[], float] = time.time  # for signed requests

    def call(
        self, method: str, target: str, body: bytes = b"", *, media_type: str | None = None, repeatable: bool = True
    ) -> Reply:
        """One request. A repeatable one is tried again when the connection or the service fails, until the deadline."""
        attempts = self.retries.start()
        while True:
            outcome, asked = self._try(method, target, body, media_type, repeatable=repeatable)
            if isinstance(outcome, Reply):
                return outcome
            if not attempts.wait(asked):
                raise outcome

    def send_json(self, method: str, target: str, body: Mapping[str, object], *, repeatable: bool = True) -> Reply:
        """A request with a JSON body."""
        raw = json.dumps(body).encode()
        return self.call(method, target, raw, media_type="application/json", repeatable=repeatable)

    def close(self) -> None:
        """Let the connections go."""
        self.http.close()

    def _try(
        self, method: str, target: str, body: bytes, media_type: str | None, *, repeatable: bool
    ) -> tuple[Reply | Exception, float]:
        """A reply, or a failure that may pass and how long the service asks to wait; what does not pass is raised."""
        try:
            reply = self._once(method, target, body, media_type)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as failure:  # it was never sent
            if "CERTIFICATE_VERIFY_FAILED" in str(failure):  # time does not mend that
                raise self._unreachable(failure) from None
            return self._unreachable(failure), 0.0
        except httpx.TransportError as failure:
            if not repeatable:
                raise self._unreachable(failure) from None
            return self._unreachable(failure), 0.0
        if reply.status < 400:
            return reply, 0.0
        error = error_from(reply.status, _problem(reply.body))
        if reply.status not in _AGAIN or not repeatable:
            raise error
        return error, _seconds(reply.headers.get("retry-after", ""))

    def _once(self, method: str, target: str, body: bytes, media_type: str | None) -> Reply:
        headers = {PROTOCOL_HEADER: PROTOCOL}
        headers |= {"Content-Type": media_type} if media_type else {}
        if self.credential is not None:
            headers |= self.credential.headers(method, target, body, self.now())
        with self.http.stream(method, target, content=body or None, headers=headers) as response:
            if response.headers.get(PROTOCOL_HEADER, PROTOCOL) != PROTOCOL:
                raise WrongProtocol(
                    f"{self.http.base_url} speaks another version of the protocol: update the older side"
                )
            return Reply(response.status_code, _read(response), dict(response.headers))

    def _unreachable(self, failure: Exception) -> ServiceUnavailable:
        return ServiceUnavailable(f"{self.http.base_url} cannot be reached ({type(failure).__name__}): {failure}")


def connect(
    url: str,
    *,
    ca: Path | None = None,
    credential: Credential | None = None,
    retries: Backoff = _RETRIES,
    plain_http: bool = False,
    now: Callable[[], float] = time.time,
) -> Service:
    """A service at a URL, trusted through the CA at this path, or through the system's."""
    parts = urlsplit(url)
    if parts.scheme != "https":
        tls.require_plain_http_allowed(parts.hostname or "", asked=plain_http)
    verify = tls.client_context(ca) if parts.scheme == "https" else False
    timeout = httpx.Timeout(30.0, read=_READ_SECONDS)
    http = httpx.Client(base_url=url, verify=verify, timeout=timeout, trust_env=False)
    return Service(http, credential, retries, now)


def _read(response: httpx.Response) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        size += len(part)
        if size > _RESPONSE_LIMIT:
            raise LimitExceeded(f"an answer of more than {_RESPONSE_LIMIT} bytes")
        parts.append(part)
    return b"".join(parts)


def _problem(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0
