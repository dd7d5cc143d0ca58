"""A server's connection to another one, whose token and certificates may be replaced while it runs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from crowdfl.services.client.transport import Bearer, Link, Watch, unwatched
from crowdfl.storage.atomic import read_secret


class _CurrentTransport(httpx.BaseTransport):
    """New requests go through the newest connections; those that the ones before it carry may end."""

    def __init__(self, transport: httpx.BaseTransport) -> None:
        self._current = transport
        self._before: httpx.BaseTransport | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._current.handle_request(request)

    def replace(self, transport: httpx.BaseTransport) -> None:
        ended, self._before, self._current = self._before, self._current, transport
        if ended is not None:
            ended.close()

    def close(self) -> None:
        for transport in (self._before, self._current):
            if transport is not None:
                transport.close()


@dataclass(frozen=True)
class PeerAccess:
    """How a server reaches another, and the file with its token."""

    name: str
    link: Link
    token: Path

    def read_token(self) -> str:
        return read_secret(self.token, f"token for {self.name}")


class PeerLink:
    """One peer, as `service`."""

    def __init__(self, access: PeerAccess, watch: Watch = unwatched) -> None:
        self._bearer = Bearer(access.read_token())
        self._transport = _CurrentTransport(access.link.transport())
        self.service = replace(access.link.open(self._bearer, transport=self._transport), watch=watch)

    def prepare(self, access: PeerAccess) -> Callable[[], None]:
        """Read everything again, and fail if something is wrong with it; what is returned puts it to use."""
        token, transport = access.read_token(), access.link.transport()

        def use() -> None:
            self._bearer.token = token
            self._transport.replace(transport)

        return use
