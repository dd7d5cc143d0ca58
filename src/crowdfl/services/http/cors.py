"""Cross-origin requests: which pages may read a service's answers in a browser, and what they may send.

Nothing here is a secret's guard: whoever is not a browser ignores it, and no answer depends on a cookie. It keeps a page of
somebody else from using a visitor's network place or standing, and it is the only door that the phone's page has to KGC.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.responses import Response

from crowdfl.errors import Forbidden
from crowdfl.services.http.wire import DIGEST_HEADER, PROTOCOL_HEADER, REQUEST_ID_HEADER
from crowdfl.text import printable

_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_SENT = ", ".join(("Authorization", "Content-Type", DIGEST_HEADER, PROTOCOL_HEADER))
_READ = ", ".join(("Date", "Retry-After", PROTOCOL_HEADER, REQUEST_ID_HEADER))
_REMEMBERED = "7200"  # seconds that a browser need not ask again: the most that browsers accept
_LONGEST_ORIGIN = 100


@dataclass
class Cors:
    """The origins of one service; none: browsers keep its answers to itself."""

    origins: frozenset[str] = field(default_factory=frozenset)

    def replace(self, origins: Iterable[str]) -> None:
        self.origins = frozenset(origins)

    def headers(self, request: Headers) -> dict[str, str]:
        """What any answer to this request says, a problem's too."""
        if not self.origins:
            return {}
        origin = request.get("origin")
        if origin not in self.origins:
            return {"Vary": "Origin"}
        return {"Vary": "Origin", "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _READ}

    def asks_first(self, method: str, request: Headers) -> bool:
        """Whether a browser asks what it may send; without any origin such a question is like any other request."""
        asks = "origin" in request and "access-control-request-method" in request
        return bool(self.origins) and method == "OPTIONS" and asks

    def permission(self, request: Headers) -> Response:
        """The answer to that question; what the browser then sends is checked as always."""
        origin = request.get("origin", "")
        if origin not in self.origins:
            shown = printable(origin, _LONGEST_ORIGIN)
            raise Forbidden(f"pages of {shown} may not call this service: its operator can add it to `web_origins`")
        allowed = {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Allow-Headers": _SENT}
        return Response(status_code=204, headers=allowed | {"Access-Control-Max-Age": _REMEMBERED})
