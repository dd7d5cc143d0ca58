"""Which keys a service knows of the roles that call it: a token alone, which may be stolen, opens nothing of a server's."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request

from crowdfl.errors import KeyNotProven
from crowdfl.services.http.auth import CERTIFICATE, RoleToken, Security, TokenEntry
from crowdfl.services.http.h11 import PEER_KEY


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
