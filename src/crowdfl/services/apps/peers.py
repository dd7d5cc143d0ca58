"""What a service says about the servers that it calls."""

from collections.abc import Sequence

from crowdfl.services.client.breaker import Breaker
from crowdfl.services.http.middleware import ServiceMetrics


def add_peer_gauge(metrics: ServiceMetrics, peers: Sequence[Breaker]) -> None:
    """Readiness does not ask for this: a service whose peer is away still serves."""
    metrics.gauge("crowdfl_peer_up", "Whether a peer answers", "peer", lambda: {one.peer: one.is_up for one in peers})
