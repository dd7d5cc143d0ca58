"""Bearer tokens, one role each, and what a request's caller may open.

A token is 256 random bits, shown once; the file holds its SHA-256 with a name and a role. A running service reads the file
again when it has changed, so that a revoked token stops working at once.
"""

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from crowdfl.errors import (
    Conflict,
    Forbidden,
    KeyFileDamaged,
    KeyFilePermissions,
    NotAuthenticated,
    NotReady,
    SettingsError,
)
from crowdfl.storage.atomic import require_owner_only, write_private

ROLES = ("requester", "sp", "csp", "operator", "bank")  # the bank says which deposits came in, and nothing else
PARTICIPANT, REQUESTER_SIGNATURE = "participant signature", "requester signature"
Security = tuple[Mapping[str, Sequence[str]], ...]
"""What opens a route, in OpenAPI's form: any one entry, with everything that it names."""
SCHEMES: dict[str, dict[str, str]] = {
    **{f"{role} token": {"type": "http", "scheme": "bearer", "description": f"A token for {role}."} for role in ROLES},
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
}
_PREFIX = "crowdfl_"  # so that scanners for leaked secrets can find one
_LONGEST = 1_000


class TokenEntry(BaseModel):
    """A token as it is stored."""

    model_config = ConfigDict(frozen=True)

    name: str
    role: str
    sha256: str


class _TokenFile(BaseModel):
    version: Literal[1] = 1
    tokens: tuple[TokenEntry, ...]


class Tokens:
    """The tokens that one service accepts, in a file that its owner alone reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._entries: tuple[TokenEntry, ...] = ()

    def add(self, name: str, role: str) -> str:
        """A new token, to be shown once: only its hash is stored."""
        if role not in ROLES:
            raise SettingsError(f"a token's role is {', '.join(ROLES)}, not {role!r}")
        if not name or len(name) > 100 or not name.isprintable():
            raise SettingsError("a token needs a name of 1 to 100 printable characters")
        with self._changing() as entries:
            if any(entry.name == name for entry in entries):
                raise Conflict(f"there is a token called {name!r}: rotate or revoke it")
            return self._put(entries, name, role)

    def rotate(self, name: str) -> str:
        """Another token under the same name; the old one stops working."""
        with self._changing() as entries:
            return self._put(entries, name, _take(entries, name).role)

    def revoke(self, name: str) -> None:
        with self._changing() as entries:
            _take(entries, name)
            self._write(entries)

    def entries(self) -> tuple[TokenEntry, ...]:
        with self._lock:
            return self._current()

    def check(self, token: str) -> TokenEntry:
        """Whose token it is, or `NotAuthenticated`. Every entry is compared, in constant time."""
        digest, found = _digest(token), None
        for entry in self.entries():
            if hmac.compare_digest(entry.sha256.encode(), digest.encode()):
                found = entry
        if found is None:
            raise NotAuthenticated("this token is not known here, or was revoked")
        return found

    def require(self, *roles: str) -> "RoleToken":
        return RoleToken(self, roles)

    def _put(self, entries: list[TokenEntry], name: str, role: str) -> str:
        token = _PREFIX + secrets.token_urlsafe(32)
        self._write([*entries, TokenEntry(name=name, role=role, sha256=_digest(token))])
        return token

    def _write(self, entries: list[TokenEntry]) -> None:
        body = _TokenFile(tokens=tuple(entries)).model_dump_json(indent=1)
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


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _read(path: Path, data: bytes) -> tuple[TokenEntry, ...]:
    try:
        return _TokenFile.model_validate_json(data).tokens
    except ValidationError:
        raise KeyFileDamaged(f"{path} is not a token file of version 1; restore it from a backup") from None
