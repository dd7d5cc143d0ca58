"""Who calls: tokens of roles, and the TLS keys that servers prove besides. A token alone opens nothing of a server's."""

import contextlib
import datetime
import fcntl
import hmac
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crowdfl.errors import (
    Conflict,
    Forbidden,
    KeyFileDamaged,
    KeyFilePermissions,
    KeyNotProven,
    NotAuthenticated,
    NotReady,
    SettingsError,
    TokenExpired,
)
from crowdfl.services.http.connections import PEER_KEY
from crowdfl.services.http.wire import new_token, token_digest
from crowdfl.settings import TOKEN_ROLES
from crowdfl.storage.atomic import require_owner_only, write_private

# The bank says which deposits came in, a monitor reads /metrics, and nothing else; an operator's opens SP's console too.
PARTICIPANT, REQUESTER_SIGNATURE = "participant signature", "requester signature"
CERTIFICATE = "role certificate"
Security = tuple[Mapping[str, Sequence[str]], ...]
"""What opens a route, in OpenAPI's form: any one entry, with everything that it names."""
SCHEMES: dict[str, dict[str, str]] = {
    **{
        f"{role} token": {"type": "http", "scheme": "bearer", "description": f"A token for {role}."}
        for role in TOKEN_ROLES
    },
    PARTICIPANT: {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": 'CrowdFL who="...", time="...", signature="...": Ed25519 over the request, by the certified key.',
    },
    REQUESTER_SIGNATURE: {
        "type": "apiKey",
        "in": "header",
        "name": "X-CrowdFL-Requester",
        "description": 'time="...", signature="...": Ed25519 over the request, by the key in the task\'s definition.',
    },
    CERTIFICATE: {"type": "mutualTLS", "description": "A client certificate of the key that is known of the role."},
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST = 1_000
_Dependency = TypeVar("_Dependency", bound=Callable[..., Any])


class TokenEntry(BaseModel):
    """A token as it is stored."""

    model_config = ConfigDict(frozen=True)

    name: str
    role: str
    sha256: str
    # Seconds since 1970: another has taken its place.
    expires: Annotated[float, Field(ge=0, le=10**11, allow_inf_nan=False)] | None = None

    def ended(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires

    @property
    def until(self) -> str | None:
        """The end in words, if it has one."""
        return None if self.expires is None else said_time(self.expires)


class _TokenFile(BaseModel):
    version: Literal[1] = 1
    tokens: tuple[TokenEntry, ...]


class Tokens:
    """The tokens that one service accepts, in a file that its owner alone reads."""

    def __init__(self, path: Path, now: Callable[[], float] = time.time) -> None:
        self.path, self.now = path, now
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._entries: tuple[TokenEntry, ...] = ()

    def add(self, name: str, role: str) -> str:
        """A new token, to be shown once: only its hash is stored."""
        _require_named(name, role)
        with self._changing() as entries:
            if any(entry.name == name for entry in entries):
                raise Conflict(f"there is a token called {name!r}: rotate or revoke it")
            return self._put(entries, name, role)

    def accept(self, name: str, role: str, sha256: str, overlap: float = 0.0) -> None:
        """A token that its holder made, and told the SHA-256 of. Safe to repeat; another one is replaced as by `rotate`."""
        _require_named(name, role)
        if not _SHA256.fullmatch(sha256):
            raise SettingsError("a token's SHA-256 has 64 hexadecimal digits")
        with self._changing() as entries:
            known = next((entry for entry in entries if entry.sha256 == sha256), None)
            if known is not None and (known.name, known.role) != (name, role):
                raise Conflict(f"{known.name!r} has this very token: every holder makes its own")
            if any(entry.name == name and entry.role != role for entry in entries):
                raise Conflict(f"there is a token called {name!r} for another role: revoke it, or choose another name")
            if known is None or known.expires is not None:
                retiring = self._retiring(entries, name, overlap)
                new = TokenEntry(name=name, role=role, sha256=sha256)
                self._write([*(entry for entry in retiring if entry.sha256 != sha256), new])

    def rotate(self, name: str, overlap: float = 0.0) -> str:
        """Another token under the same name; the old one stops working, at once or when `overlap` seconds have passed."""
        with self._changing() as entries:
            role = _take(list(entries), name).role
            return self._put(self._retiring(entries, name, overlap), name, role)

    def revoke(self, name: str) -> None:
        with self._changing() as entries:
            _take(entries, name)
            self._write([entry for entry in entries if entry.name != name])

    def entries(self) -> tuple[TokenEntry, ...]:
        with self._lock:
            return self._current()

    def check(self, token: str) -> TokenEntry:
        """Whose token it is, or `NotAuthenticated`. Every entry is compared, in constant time."""
        digest = token_digest(token)
        found = None
        for entry in self.entries():
            if hmac.compare_digest(entry.sha256.encode(), digest.encode()):
                found = entry
        if found is None:
            raise NotAuthenticated(
                "this token is not known to this service, or was revoked: "
                "let its operator accept your public file, or give you another"
            )
        if found.ended(self.now()):
            raise TokenExpired(f"this token was good until {found.until}: its holder needs the one that replaced it")
        return found

    def require(self, *roles: str) -> "RoleToken":
        return RoleToken(self, roles)

    def _put(self, entries: list[TokenEntry], name: str, role: str) -> str:
        token = new_token()
        self._write([*entries, TokenEntry(name=name, role=role, sha256=token_digest(token))])
        return token

    def _retiring(self, entries: list[TokenEntry], name: str, overlap: float) -> list[TokenEntry]:
        """The same with this name's tokens ending when the overlap does, or sooner if they were to."""
        if overlap < 0:
            raise SettingsError("an overlap is not negative")
        end = self.now() + overlap
        ending = {"expires": end}
        return [
            entry.model_copy(update=ending)
            if entry.name == name and (entry.expires is None or entry.expires > end)
            else entry
            for entry in entries
        ]

    def _write(self, entries: list[TokenEntry]) -> None:
        """Without what has ended: nobody needs it any more."""
        kept = tuple(entry for entry in entries if not entry.ended(self.now()))
        body = _TokenFile(tokens=kept).model_dump_json(indent=1, exclude_none=True)
        write_private(self.path, body.encode(), overwrite=True)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[TokenEntry]]:
        """Under a lock: two commands at once must not undo each other's change, such as a revocation."""
        lock = self.path.with_name(f".{self.path.name}.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield list(self.entries())
        finally:
            os.close(descriptor)

    def _current(self) -> tuple[TokenEntry, ...]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return ()
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
            if seen != self._seen:
                require_owner_only(descriptor, self.path, KeyFilePermissions)
                self._entries = _read(self.path, file.read())
                self._seen = seen
        return self._entries


@dataclass(frozen=True, eq=False)
class RoleToken:
    """A dependency: the request carries a token of one of these roles."""

    tokens: Tokens
    roles: tuple[str, ...]

    @property
    def security(self) -> Security:
        return tuple({f"{role} token": []} for role in self.roles)

    def __call__(self, request: Request) -> TokenEntry:
        entry = self.tokens.check(bearer(request))
        if entry.role not in self.roles:
            raise Forbidden(f"this is for {' or '.join(self.roles)}, not for {entry.role}")
        return entry


def bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token or len(token) > _LONGEST:
        raise NotAuthenticated("this needs `Authorization: Bearer <token>`")
    return token.strip()


def _take(entries: list[TokenEntry], name: str) -> TokenEntry:
    for entry in entries:
        if entry.name == name:
            entries.remove(entry)
            return entry
    raise NotReady(f"there is no token called {name!r}")


def _require_named(name: str, role: str) -> None:
    if role not in TOKEN_ROLES:
        raise SettingsError(f"a token's role is {', '.join(TOKEN_ROLES)}, not {role!r}")
    if not name or len(name) > 100 or not name.isprintable():
        raise SettingsError("a token needs a name of 1 to 100 printable characters")


def said_time(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def _read(path: Path, data: bytes) -> tuple[TokenEntry, ...]:
    try:
        return _TokenFile.model_validate_json(data).tokens
    except ValidationError:
        raise KeyFileDamaged(f"{path} is not a token file of version 1; restore it from a backup") from None


def opened_by(*guards: Any) -> Callable[[_Dependency], _Dependency]:  # noqa: ANN401 -- whatever has `security`
    """Marks a dependency that asks one of these guards, for OpenAPI."""

    def mark(dependency: _Dependency) -> _Dependency:
        vars(dependency)["security"] = tuple(one for guard in guards for one in guard.security)
        return dependency

    return mark


class Pins:
    """The keys of roles, by the SHA-256 of each; a role has two while it moves from one to the next."""

    def __init__(self, keys: Mapping[str, tuple[str, ...]]) -> None:
        self._keys = dict(keys)

    def replace(self, keys: Mapping[str, tuple[str, ...]]) -> None:
        self._keys = dict(keys)

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def require(self, role: str, proven: str | None) -> None:
        """Raise `KeyNotProven` unless this role may go by its token alone, or the connection proves a key of its own."""
        known = self._keys.get(role)
        if known is None or proven in known:
            return
        if not known:
            raise KeyNotProven(f"this service knows no key of {role} yet: its operator runs `crowdfl exchange accept`")
        if proven is None:
            raise KeyNotProven(f"the token of {role} counts with the certificate of {role} alone, and none was shown")
        raise KeyNotProven(
            f"the certificate that was shown is not of the key that this service knows of {role}: if that key was renewed, "
            "let this service's operator accept it"
        )


@dataclass(frozen=True, eq=False)
class CertifiedToken:
    """A dependency: a token of one of these roles, over a connection that proves the role's key; `pins` None: plain HTTP."""

    token: RoleToken
    pins: Pins | None

    @property
    def security(self) -> Security:
        pinned = () if self.pins is None else self.pins.roles
        return tuple(
            {f"{role} token": [], **({CERTIFICATE: []} if role in pinned else {})} for role in self.token.roles
        )

    def __call__(self, request: Request) -> TokenEntry:
        entry = self.token(request)
        if self.pins is not None:
            self.pins.require(entry.role, getattr(request.state, PEER_KEY, None))
        return entry
