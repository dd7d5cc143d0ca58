"""What a service counts, in a registry of its own: several services in one process do not mix."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

__all__ = ["GaugeByLabel", "Metrics"]


@dataclass(frozen=True)
class Metrics:
    """The counters of one service."""

    registry: CollectorRegistry = field(default_factory=lambda: CollectorRegistry(auto_describe=True))
    requests: Counter = field(init=False)
    seconds: Histogram = field(init=False)

    def __post_init__(self) -> None:
        requests = self.counter("crowdfl_requests", "Requests by route and status", "method", "route", "status")
        seconds = Histogram("crowdfl_request_seconds", "Durations by route", ("route",), registry=self.registry)
        object.__setattr__(self, "requests", requests)
        object.__setattr__(self, "seconds", seconds)

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        """One more counter."""
        return Counter(name, meaning, labels, registry=self.registry)

    def gauge(self, name: str, meaning: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Numbers that are looked up when they are asked for."""
        self.registry.register(GaugeByLabel(name, meaning, label, read))


@dataclass(frozen=True)
class GaugeByLabel(Collector):
    """Numbers by one label, read from the role's own state at each scrape."""

    name: str
    meaning: str
    label: str
    read: Callable[[], Mapping[str, int]]

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The name alone, without a look at the store."""
        yield GaugeMetricFamily(self.name, self.meaning, labels=[self.label])

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The numbers now."""
        family = GaugeMetricFamily(self.name, self.meaning, labels=[self.label])
        for value, count in sorted(self.read().items()):
            family.add_metric([value], count)
        yield family
