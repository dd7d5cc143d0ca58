"""What travels with a piece of work from one service to the next: its request id, and whatever else was asked to travel.

It loads nothing: phones have this too, and send nothing of it.
"""

import re
import secrets
from collections.abc import Callable
from contextvars import ContextVar

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
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(12)
