"""What both ends of a connection agree on: the protocol's version, what is signed, the names of problems, bytes in JSON.

A phone needs this and httpx, and nothing that a server is made of.
"""

import hashlib
import re
from base64 import b64decode
from binascii import Error as _NotBase64
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar

from crowdfl import errors
from crowdfl.crypto.randomness import secret_hex, secret_text
from crowdfl.errors import CrowdFLError, FormatError, ServiceError, ServiceUnavailable, UploadRejected, WrongProtocol
from crowdfl.reasons import Reason
from crowdfl.text import printable

PROTOCOL = "3"
PROTOCOL_HEADER = "X-CrowdFL-Protocol"
DIGEST_HEADER = "X-Content-SHA256"
REQUESTER_HEADER = "X-CrowdFL-Requester"
REQUEST_HEADER = "X-CrowdFL-Request"  # what CSP answers: the SHA-256 of the request
OCTETS = "application/octet-stream"
PROBLEM_TYPE = "urn:crowdfl:problem:"
_SCANNED = "crowdfl_"  # a token starts so, so that scanners for leaked secrets can find one
_LATER = (408, 425, 429)  # refusals that pass; so does every 5xx


def with_hash(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """A long answer that is sent as it is made; behind it its hash, so that a part of one is none."""
    hashed = hashlib.sha256()
    for piece in pieces:
        hashed.update(piece)
        yield piece
    yield hashed.digest()


def before_hash(answer: bytes) -> memoryview:
    """What such an answer holds, not copied."""
    view = memoryview(answer)
    body = view[: -hashlib.sha256().digest_size]
    found = view[-hashlib.sha256().digest_size :]
    if hashlib.sha256(body).digest() != found:
        raise ServiceUnavailable("the answer did not arrive whole: try again later")
    return body


def error_from(status: int, body: object) -> CrowdFLError:
    """The error that the service raised; one that may pass by itself says so, whatever its name."""
    fields = body if isinstance(body, dict) else {}
    slug = str(fields.get("type", "")).removeprefix(PROBLEM_TYPE)
    told = fields.get("detail") or fields.get("title") or f"the service answered with status {status}"
    text = printable(str(told))
    later = status >= 500 or status in _LATER
    if slug == "invalid-request":
        return FormatError(printable(f"{text} {fields.get('errors', '')}"))
    # A refusal of the service's own by a name that is not known here is final; a proxy in between has no name for it.
    final = str(fields.get("type", "")).startswith(PROBLEM_TYPE) and not later
    error = _BY_SLUG.get(slug, ServiceError if final else ServiceUnavailable)(text)
    error.passes = error.passes or later
    if isinstance(error, UploadRejected) and "reason" in fields:
        error.reason = Reason(fields["reason"])
    return error


def require_protocol(version: str | None) -> None:
    """Refuse a caller that speaks another version, or does not say which."""
    if version != PROTOCOL:
        raise WrongProtocol(f"{PROTOCOL_HEADER} must be {PROTOCOL}: update the older side")


def require_answer_in(version: str | None, where: str) -> None:
    """Refuse an answer in another version than this program asked in. Whoever does not say is no CrowdFL service, and is
    found out by what it answers."""
    if version not in (None, PROTOCOL):
        shown = version if version.isdecimal() and len(version) < 6 else "an unknown one"
        raise WrongProtocol(
            f"{where} speaks version {shown} of the protocol, and this program version {PROTOCOL}: update the older side, "
            "services before those who call them"
        )


def signed_text(method: str, target: str, time: str, digest: str) -> bytes:
    """The bytes that a request's signature is over; `target` is the path with its query, `digest` of the body."""
    return "\n".join(("crowdfl request 1", method, target, time, digest)).encode()


def new_token() -> str:
    return _SCANNED + secret_text(32)


def token_digest(token: str) -> str:
    """What is stored and published of a token: of 256 random bits it gives nothing away."""
    return hashlib.sha256(token.encode()).hexdigest()


def from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (_NotBase64, ValueError):
        raise FormatError("a field is not valid base64") from None


def slug_of(name: str) -> str:
    """`TooLate` and `Too late` as `too-late`."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()).strip("-")


_BY_SLUG: dict[str, type[CrowdFLError]] = {slug_of(name): getattr(errors, name) for name in errors.__all__}


REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

request_id: ContextVar[str | None] = ContextVar("crowdfl_request_id", default=None)
_carriers: list[Callable[[], dict[str, str]]] = []


def outgoing() -> dict[str, str]:
    """The headers that a call on behalf of the present work carries."""
    known = request_id.get()
    headers = {} if known is None else {REQUEST_ID_HEADER: known}
    for carrier in _carriers:
        headers |= carrier()
    return headers


def carry(headers: Callable[[], dict[str, str]]) -> Callable[[], None]:
    """Let these headers travel too; the answer takes that back."""
    _carriers.append(headers)
    return lambda: _carriers.remove(headers)


def accepted_id(given: str) -> str:
    """The caller's id if it is one, else a new one: an id must not be able to forge a line of a log."""
    return given if _REQUEST_ID.fullmatch(given) else secret_hex(12)
