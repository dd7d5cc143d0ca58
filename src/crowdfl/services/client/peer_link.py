"""A server's connection to another one, whose token and certificates may be replaced while it runs."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
from opentelemetry.trace import SpanKind
from structlog.types import FilteringBoundLogger

from crowdfl.errors import Cancelled, CrowdFLError, NotReady
from crowdfl.roles.ports import Events
from crowdfl.services import tracing
from crowdfl.services.client.breaker import Breaker
from crowdfl.services.client.transport import Bearer, Link, Service, Watch, unwatched
from crowdfl.services.http import logs
from crowdfl.services.http.app_factory import Background
from crowdfl.storage.atomic import read_secret


class _CurrentTransport(httpx.BaseTransport):
    """New requests go through the newest connections; those that the ones before it carry may end."""

    def __init__(self, transport: httpx.BaseTransport) -> None:
        self._current = transport
        self._before: httpx.BaseTransport | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._current.handle_request(request)

    def replace(self, transport: httpx.BaseTransport) -> None:
        ended = self._before
        self._before = self._current
        self._current = transport
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
        token = access.read_token()
        transport = access.link.transport()

        def use() -> None:
            self._bearer.token = token
            self._transport.replace(transport)

        return use


def calls_to(peer: str, events: Events) -> Watch:
    """Around each call to a peer: a span, and an event if it failed."""

    @contextlib.contextmanager
    def watch(method: str, target: str) -> Iterator[None]:
        path = target.partition("?")[0]
        with tracing.span(f"{method} {peer}", kind=SpanKind.CLIENT, peer=peer, method=method, path=path):
            try:
                yield
            except NotReady:  # an answer like another: it is not there yet
                raise
            except CrowdFLError as failure:
                events("peer call failed", peer=peer, method=method, **logs.described(failure))
                raise

    return watch


@dataclass
class PeerCalls(Background):
    """A service's peers. It is stopped first, so that whoever waits for a peer ends."""

    log: FilteringBoundLogger
    on_date: Callable[[str, float], object] = lambda _peer, _date: None  # what time it is there, of every answer
    breakers: list[Breaker] = field(default_factory=list)
    _services: list[Service] = field(default_factory=list, repr=False)
    _over: threading.Event = field(default_factory=threading.Event, repr=False)

    def guard(self, service: Service, name: str) -> Service:
        self.breakers.append(Breaker(name, on_change=self._tell))

        def heard(headers: Mapping[str, str]) -> None:
            self._heard(name, headers)

        guarded = service.as_peer(self.breakers[-1], self._sleep, heard)
        self._services.append(guarded)
        return guarded

    def ask_time(self) -> None:
        """Every answer has a date."""
        for service in self._services:
            try:
                service.call("GET", "/healthz")
            except Cancelled:
                raise
            except CrowdFLError:  # it is away, and its breaker knows
                continue

    def start(self) -> None:
        self._over.clear()

    def stop(self) -> None:
        self._over.set()

    def _sleep(self, seconds: float) -> None:
        """All of these waits end at once when the service stops."""
        if self._over.wait(seconds):
            raise Cancelled("this service is being stopped")

    def _heard(self, peer: str, headers: Mapping[str, str]) -> None:
        with contextlib.suppress(ValueError):  # no date, or none that can be read
            self.on_date(peer, parsedate_to_datetime(headers.get("date", "")).timestamp())

    def _tell(self, peer: str, up: bool) -> None:
        if up:
            self.log.info("a peer is back", peer=peer)
        else:
            self.log.error("a peer is away", peer=peer)


def tell_doubt(log: FilteringBoundLogger, sure: bool) -> None:
    if sure:
        log.info("the clock is sure again")
    else:
        log.error("the clock is in doubt: set it, or confirm it with `crowdfl sp clock confirm`")
