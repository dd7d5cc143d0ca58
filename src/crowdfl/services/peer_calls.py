"""How a service calls its peers: each through one circuit breaker, and with waits that end when the service does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from structlog.types import FilteringBoundLogger

from crowdfl.services.client.breaker import Breaker
from crowdfl.services.client.transport import Service
from crowdfl.services.http.app_factory import Background
from crowdfl.services.worker import Waits


@dataclass
class PeerCalls(Background):
    """A service's peers. It is stopped first, so that whoever waits for a peer ends."""

    log: FilteringBoundLogger
    breakers: list[Breaker] = field(default_factory=list)
    _waits: Waits = field(default_factory=Waits, repr=False)

    def guard(self, service: Service, name: str) -> Service:
        self.breakers.append(Breaker(name, on_change=self._tell))

        def heard(headers: Mapping[str, str]) -> None:
            self._heard(name, headers)

        return service.as_peer(self.breakers[-1], self._waits.sleep, heard)

    def start(self) -> None:
        self._waits.begin()

    def stop(self) -> None:
        self._waits.end()

    def _heard(self, peer: str, headers: Mapping[str, str]) -> None:
        """Of every answer."""

    def _tell(self, peer: str, up: bool) -> None:
        if up:
            self.log.info("a peer is back", peer=peer)
        else:
            self.log.error("a peer is away", peer=peer)
