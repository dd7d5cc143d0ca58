"""How a service calls its peers: each through one circuit breaker, and with waits that end when the service does."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from structlog.types import FilteringBoundLogger

from crowdfl.errors import Cancelled, CrowdFLError
from crowdfl.services.background.worker import Waits
from crowdfl.services.client.breaker import Breaker
from crowdfl.services.client.transport import Service
from crowdfl.services.http.app_factory import Background


@dataclass
class PeerCalls(Background):
    """A service's peers. It is stopped first, so that whoever waits for a peer ends."""

    log: FilteringBoundLogger
    on_date: Callable[[str, float], object] = lambda _peer, _date: None  # what time it is there, of every answer
    breakers: list[Breaker] = field(default_factory=list)
    _services: list[Service] = field(default_factory=list, repr=False)
    _waits: Waits = field(default_factory=Waits, repr=False)

    def guard(self, service: Service, name: str) -> Service:
        self.breakers.append(Breaker(name, on_change=self._tell))

        def heard(headers: Mapping[str, str]) -> None:
            self._heard(name, headers)

        guarded = service.as_peer(self.breakers[-1], self._waits.sleep, heard)
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
        self._waits.begin()

    def stop(self) -> None:
        self._waits.end()

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
