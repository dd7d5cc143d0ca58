"""An operator's session in the console: an operator token opens it, a cookie carries it, and memory alone holds it.

The cookie is 256 random bits; the server keeps its SHA-256. A session ends when its token is revoked or expires, when the
operator has done nothing for a while, and after a working day at the latest. It is of one process: a restart ends all.
"""

import hashlib
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from crowdfl.errors import CrowdFLError, Forbidden, NotAuthenticated, TokenExpired
from crowdfl.services.http.auth import TokenEntry, Tokens
from crowdfl.services.http.connections import address_of

HEADER = "X-CrowdFL-Console"  # which no form of another page can send
BY_OPERATOR, BY_PAGE = "operator", "page"  # who made the page send this: the latter does not keep a session alive
PATH = "/console"
ROLE = "operator"
# Over TLS a name that browsers take from nobody but a TLS server.
_NAMES = {True: "__Secure-crowdfl-console", False: "crowdfl-console"}
_SAME = ("same-origin", "none")  # none: typed into the address bar
_SAFE = ("GET", "HEAD")
_TOO_MANY = "Many wrong tokens came from your address. The right one still opens the console: paste that."


@dataclass(eq=False)
class Session:
    """Whose it is, by the token's entry; times of the server's steady clock."""

    token: TokenEntry
    began: float
    used: float
    ended: bool = False


@dataclass
class Sessions:
    """At most `most`; the one that was unused longest makes room."""

    tokens: Tokens
    idle: float = 3600.0
    longest: float = 12 * 3600.0
    most: int = 64
    now: Callable[[], float] = time.monotonic
    _open: OrderedDict[str, Session] = field(default_factory=OrderedDict, repr=False)  # by the cookie's SHA-256
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, token: str) -> str:
        """The cookie's value, for a token of an operator's; whoever has another is told so."""
        entry = self._known(token)
        if entry.role != ROLE:
            raise Forbidden(f"this is for {ROLE}, not for {entry.role}: paste a token of role {ROLE}")
        value, now = secrets.token_urlsafe(32), self.now()
        with self._lock:
            while len(self._open) >= self.most:
                self._open.popitem(last=False)[1].ended = True
            self._open[_digest(value)] = Session(entry, now, now)
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
        with self._lock:
            session = self._open.get(_digest(value))
        if session is None or not self.is_alive(session):
            self.end(value)
            raise NotAuthenticated("you are not logged in, or your session has ended: log in with an operator token")
        if using:
            self._use(value, session)
        return session

    def _use(self, value: str, session: Session) -> None:
        with self._lock:
            session.used = self.now()
            if not session.ended:
                self._open.move_to_end(_digest(value))

    def is_alive(self, session: Session) -> bool:
        now = self.now()
        over = session.ended or now - session.used > self.idle or now - session.began > self.longest
        return not over and self._is_good(session.token)

    def end(self, value: str) -> None:
        with self._lock:
            session = self._open.pop(_digest(value), None)
            if session is not None:
                session.ended = True

    def _is_good(self, known: TokenEntry) -> bool:
        """Looked up each time: a token that is revoked, or given another role, ends its sessions at once."""
        entries = [entry for entry in self.tokens.entries() if entry.sha256 == known.sha256 and entry.role == ROLE]
        return any(not entry.ended(self.tokens.now()) for entry in entries)


@dataclass
class LoginLimit:
    """Wrong tokens of one address: after `most` in `seconds`, more of them are answered shortly, and logged no more.

    It keeps nobody out who has a right one: behind a proxy all people have one address, and 256 bits cannot be guessed.
    """

    most: int = 10
    seconds: float = 60.0
    addresses: int = 1000  # that are remembered
    now: Callable[[], float] = time.monotonic
    _wrong: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def require_patience(self, address: str) -> None:
        with self._lock:
            wrong = self._wrong.get(address, deque())
            while wrong and self.now() - wrong[0] > self.seconds:
                wrong.popleft()
            if len(wrong) < self.most:
                return
            wait = int(self.seconds - (self.now() - wrong[0])) + 1
        raise HTTPException(429, _TOO_MANY, headers={"Retry-After": str(wait)})

    @property
    def remembered(self) -> int:
        return len(self._wrong)

    def forget(self) -> None:
        with self._lock:
            self._wrong.clear()

    def record(self, address: str) -> None:
        with self._lock:
            self._wrong.setdefault(address, deque(maxlen=self.most)).append(self.now())
            self._wrong.move_to_end(address)
            while len(self._wrong) > self.addresses:
                self._wrong.popitem(last=False)


@dataclass(frozen=True, eq=False)
class SessionGuard:
    """What a request must show: where it comes from, and which session it belongs to."""

    sessions: Sessions
    limit: LoginLimit = field(default_factory=LoginLimit)

    def __call__(self, request: Request) -> Session:
        """A dependency: the request is of a session, and of the console's own page."""
        require_own_page(request)
        using = request.headers.get(HEADER) == BY_OPERATOR
        return self.sessions.find(_cookie(request), using=using)

    def log_in(self, request: Request, token: str, response: Response) -> Session:
        """Another session of this browser ends."""
        try:
            value = self.sessions.begin(token.strip())
        except CrowdFLError:
            address = _address(request)
            self.limit.require_patience(address)
            self.limit.record(address)
            raise
        self.log_out(request)
        secure = _is_tls(request)
        response.set_cookie(_NAMES[secure], value, path=PATH, secure=secure, httponly=True, samesite="strict")
        return self.sessions.find(value, using=True)

    def log_out(self, request: Request, response: Response | None = None) -> None:
        self.sessions.end(_cookie(request))
        if response is not None:
            secure = _is_tls(request)
            response.delete_cookie(_NAMES[secure], path=PATH, secure=secure, httponly=True, samesite="strict")


def require_own_page(request: Request) -> None:
    """A dependency against forged requests, beside the cookie's SameSite: a browser says where a request comes from."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in _SAME:
        raise Forbidden("this request comes from another page: use the console itself")
    if request.method in _SAFE:
        return
    if request.headers.get("origin") not in _own(request) or request.headers.get(HEADER) not in (BY_OPERATOR, BY_PAGE):
        raise Forbidden("this request does not come from the console's own page: use the console itself")


def _own(request: Request) -> tuple[str, ...]:
    """The origins of this page: plain HTTP is for loopback, where a proxy on the same machine may speak TLS for SP."""
    host = request.headers.get("host", "")
    return (f"https://{host}",) if request.url.scheme == "https" else (f"https://{host}", f"http://{host}")


def _is_tls(request: Request) -> bool:
    """As the browser sees it, which says so where something is changed."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def _cookie(request: Request) -> str:
    plain = "" if request.url.scheme == "https" else request.cookies.get(_NAMES[False], "")
    return request.cookies.get(_NAMES[True], plain)


def _address(request: Request) -> str:
    try:
        return address_of((request.client.host,)) if request.client is not None else "unknown"
    except ValueError:  # a name, as tests have it
        return "unknown"


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
