"""What both consoles share: who may call them, and how an answer is marked.

A page of another site can make a browser send requests here, with its cookies. Against that stand the cookie's SameSite, the
origin that the browser names, and a header that no form of another page can send. An operator's session is in the store: it
holds at every process of SP.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import APIRouter, Depends, Request, Response
from starlette.exceptions import HTTPException

from crowdfl.crypto.randomness import secret_text
from crowdfl.errors import CrowdFLError, Forbidden, NotAuthenticated, TokenExpired
from crowdfl.services.http.address_limit import AddressLimit, address_in
from crowdfl.services.http.auth import TokenEntry, Tokens

HEADER = "X-CrowdFL-Console"
SEALED = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Data is for the console's own page, and is never kept or taken for anything else."""
BY_OPERATOR = "operator"  # the header says who made the page call: what it does by itself keeps no session alive
PATH = "/console"
ROLE = "operator"
# Over TLS a name that browsers take from nobody but a TLS server.
_NAMES = {True: "__Secure-crowdfl-console", False: "crowdfl-console"}
_SAFE = ("GET", "HEAD")
_UNNOTED = 1 / 60  # of the time that a session lasts unused: not every click is a write
_TOO_MANY = "Many wrong tokens came from your address. The right one still opens the console: paste that."


def console_routes(prefix: str) -> APIRouter:
    """Routes of a console's page, which no description of an API shows."""

    def seal(response: Response) -> None:
        response.headers.update(SEALED)

    return APIRouter(prefix=prefix, include_in_schema=False, dependencies=[Depends(seal)])


def require_own_page(request: Request, origins: Collection[str]) -> None:
    """Against forged requests: a browser says where a request comes from."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Forbidden("this request comes from another page: use the console itself")
    if request.method in _SAFE:
        return
    if request.headers.get("origin") not in origins or HEADER not in request.headers:
        raise Forbidden("this request does not come from the console's own page: use the console itself")


def cookies_named(request: Request, name: str) -> list[str]:
    """All of them: other programs on a machine set cookies too, and a browser sends those of every port."""
    pairs = [pair.partition("=") for line in request.headers.getlist("cookie") for pair in line.split(";")]
    return [value.strip() for key, _, value in pairs if key.strip() == name]


@dataclass(eq=False)
class OneBrowser:
    """The requester's console: one page in one browser on this machine.

    Other programs and other users of the machine can reach a port on loopback. The secret in the printed address opens the one
    session there is, once. Two halves make it: a cookie that no script reads, and a value in the page's own storage, which the
    header carries. A browser sends a cookie to every port of a host; the other half stays with this page's origin.
    """

    port: int
    secret: str | None = field(default_factory=lambda: secret_text(32), repr=False)
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

    def open(self, secret: str, response: Response, path: str) -> str:
        """The page's half, for whoever first shows the secret; the cookie goes with the answer."""
        if self.secret is None or not _same(secret, self.secret):
            raise NotAuthenticated(
                "this address was used before: end `crowdfl task console` with Ctrl-C and start it again"
            )
        self.secret = None
        self._halves = (secret_text(32), secret_text(32))
        response.set_cookie(self.cookie, self._halves[0], path=path, httponly=True, samesite="strict")
        return self._halves[1]

    def require_own_page(self, request: Request) -> None:
        """A dependency: also of the request that opens the session."""
        require_own_page(request, (self.origin,))

    def __call__(self, request: Request) -> None:
        """A dependency: the request is of the one session."""
        self.require_own_page(request)
        half = request.headers.get(HEADER, "")
        known = self._halves
        given = cookies_named(request, self.cookie)
        if known is None or not _same(half, known[1]) or not any(_same(value, known[0]) for value in given):
            raise NotAuthenticated("this page is not open: use the address that `crowdfl task console` printed")


@dataclass(frozen=True)
class Session:
    """An operator's, by the token's entry."""

    cookie: str  # its SHA-256
    token: TokenEntry
    began: float
    used: float


class SessionStore(Protocol):
    """What processes of one service share."""

    def put_session(self, cookie: str, token: str, now: float, most: int) -> None: ...
    def session(self, cookie: str) -> tuple[str, float, float] | None: ...
    def use_session(self, cookie: str, now: float) -> None: ...
    def end_session(self, cookie: str) -> None: ...


@dataclass
class Sessions:
    """Of operators. An operator token opens one, and a cookie of 256 random bits carries it, whose SHA-256 is kept here.

    It ends when its token is revoked or expires, when the operator has done nothing for a while, and after a working day at
    the latest. There are at most `most`; the one that was unused longest makes room.
    """

    tokens: Tokens
    store: SessionStore
    idle: float = 3600.0
    longest: float = 12 * 3600.0
    most: int = 64
    now: Callable[[], float] = time.time

    def begin(self, token: str) -> str:
        """The cookie's value, for a token of an operator's; whoever has another is told so."""
        entry = self._known(token)
        if entry.role != ROLE:
            raise Forbidden(f"this is for {ROLE}, not for {entry.role}: paste a token of role {ROLE}")
        value = secret_text(32)
        self.store.put_session(_digest(value), entry.sha256, self.now(), self.most)
        return value

    def _known(self, token: str) -> TokenEntry:
        """Whoever pastes a token here is the operator: nobody else can be asked for another."""
        try:
            return self.tokens.check(token)
        except TokenExpired:
            raise
        except NotAuthenticated:
            raise NotAuthenticated(
                "this token is not known to this service, or was revoked: make another with `crowdfl sp token add`"
            ) from None

    def find(self, value: str, *, using: bool) -> Session:
        """`using`: the operator did something. `NotAuthenticated` where it has ended, whatever the reason."""
        session = self._found(_digest(value))
        if session is None:
            raise NotAuthenticated("you are not logged in, or your session has ended: log in with an operator token")
        if using and self.now() - session.used > self.idle * _UNNOTED:
            self.store.use_session(session.cookie, self.now())
        return session

    def is_alive(self, session: Session) -> bool:
        return self._found(session.cookie) is not None

    def _found(self, cookie: str) -> Session | None:
        """The token is looked up each time: one that is revoked, or given another role, ends its sessions at once."""
        known = self.store.session(cookie)
        now = self.now()
        if known is None:
            return None
        sha256, began, used = known
        entries = [entry for entry in self.tokens.entries() if entry.sha256 == sha256 and entry.role == ROLE]
        valid = [entry for entry in entries if not entry.ended(self.tokens.now())]
        if not valid or now - used > self.idle or now - began > self.longest:
            self.store.end_session(cookie)
            return None
        return Session(cookie, valid[0], began, used)

    def left(self, session: Session) -> int:
        """Seconds that it can last, whatever the operator does."""
        return max(0, int(session.began + self.longest - self.now()))

    def end(self, value: str) -> None:
        self.store.end_session(_digest(value))


@dataclass
class LoginLimit(AddressLimit):
    """Wrong tokens of one address: after `most` in `seconds`, more of them are answered shortly, and logged no more.

    It keeps nobody out who has a right one: behind a proxy all people have one address, and 256 bits cannot be guessed.
    """

    most: int = 10
    seconds: float = 60.0

    def record(self, address: str) -> None:
        """One more; where there were many lately, status 429 instead of the refusal."""
        if wait := self.wait(address):
            raise HTTPException(429, _TOO_MANY, headers={"Retry-After": str(wait)})


@dataclass(frozen=True, eq=False)
class SessionGuard:
    """The operator's console: what a request must show, from where it comes and which session it belongs to."""

    sessions: Sessions
    limit: LoginLimit = field(default_factory=LoginLimit)

    def __call__(self, request: Request) -> Session:
        """A dependency: the request is of a session, and of the console's own page."""
        self.require_own_page(request)
        return self.sessions.find(_cookie(request), using=request.headers.get(HEADER) == BY_OPERATOR)

    def require_own_page(self, request: Request) -> None:
        """A dependency. Plain HTTP is for loopback, where a proxy on the same machine may speak TLS for SP."""
        host = request.headers.get("host", "")
        plain = () if request.url.scheme == "https" else (f"http://{host}",)
        require_own_page(request, (f"https://{host}", *plain))

    def log_in(self, request: Request, token: str, response: Response) -> Session:
        """Another session of this browser ends."""
        try:
            value = self.sessions.begin(token.strip())
        except CrowdFLError:
            self.limit.record(address_in(request))
            raise
        self.sessions.end(_cookie(request))
        response.set_cookie(value=value, **_cookie_options(request))
        return self.sessions.find(value, using=True)

    def log_out(self, request: Request, response: Response) -> None:
        self.sessions.end(_cookie(request))
        response.delete_cookie(**_cookie_options(request))


def _cookie_options(request: Request) -> dict[str, Any]:
    """Secure as the browser sees it, which says so where something is changed."""
    secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
    return {"key": _NAMES[secure], "path": PATH, "secure": secure, "httponly": True, "samesite": "strict"}


def _cookie(request: Request) -> str:
    """Over TLS by the name alone that nobody on the way could have set."""
    names = [_NAMES[True]] if request.url.scheme == "https" else [_NAMES[True], _NAMES[False]]
    return next((value for name in names for value in cookies_named(request, name)), "")


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())
