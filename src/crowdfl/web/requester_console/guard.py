"""Who may call the console: one page in one browser on this machine.

Other programs and other users of the machine can reach a port on loopback, and so can any page that a browser shows. The secret
in the printed address opens the one session there is, once. Two halves make the session: a cookie that no script reads, and a
value in the page's own storage. A browser sends a cookie to every port of a host; the other half stays with this page's origin.
"""

import hmac
import secrets
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crowdfl.web.static import page_headers

API = "/api/"
OPENING = "/api/session"
HEADER = "X-CrowdFL-Console"  # the page's half; another site's page cannot send it without asking first
_READING = ("GET", "HEAD")
_HEADERS = page_headers() | {"Cache-Control": "no-store"}


@dataclass
class RequesterSession:
    """The one session of a console on this port."""

    port: int
    secret: str | None = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    _halves: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """What opens the page; whoever has it can open the session, once."""
        return f"{self.origin}/#open={self.secret}"

    @property
    def cookie(self) -> str:
        """Its name: consoles on other ports have their own."""
        return f"crowdfl-console-{self.port}"

    def open(self, secret: str) -> tuple[str, str] | None:
        """The two halves, for whoever first shows the secret."""
        if self.secret is None or not _same(secret, self.secret):
            return None
        self.secret, self._halves = None, (secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        return self._halves

    def admits(self, cookie: str, half: str) -> bool:
        return self._halves is not None and _same(cookie, self._halves[0]) and _same(half, self._halves[1])


@dataclass
class Guard:
    """ASGI middleware: every answer has the page's headers; no call of the API comes from anywhere but the page."""

    app: ASGIApp
    session: RequesterSession

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope)
        await (self.app if refusal is None else refusal)(scope, receive, sending)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if headers.getlist("host") != [f"127.0.0.1:{self.session.port}"]:  # a name that somebody points here
            return _refused(421, "NotFromHere", f"open {self.session.origin}: other names do not lead to this page")
        if headers.get("sec-fetch-site", "same-origin") != "same-origin" and _is_api(scope):
            return _refused(403, "NotFromHere", "only the console's own page may call this")
        if scope["method"] not in _READING and headers.getlist("origin") != [self.session.origin]:
            return _refused(403, "NotFromHere", "only the console's own page may call this")
        if _is_api(scope) and HEADER not in headers:
            return _refused(403, "NotFromHere", f"a call needs the header {HEADER}")
        if _is_api(scope) and scope["path"] != OPENING and not self._is_ours(headers):
            return _refused(
                401, "NoSession", "this page is not open: use the address that `crowdfl task console` printed"
            )
        return None

    def _is_ours(self, headers: Headers) -> bool:
        """By hand: other programs on this machine set cookies too, and Python's parser stops at one that is unusual."""
        pairs = [pair.partition("=") for line in headers.getlist("cookie") for pair in line.split(";")]
        own = [value.strip() for name, _, value in pairs if name.strip() == self.session.cookie]
        return any(self.session.admits(value, headers.get(HEADER, "")) for value in own)


def _is_api(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith(API)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


def _refused(status: int, error: str, detail: str) -> JSONResponse:
    return JSONResponse({"error": error, "detail": detail}, status_code=status)
