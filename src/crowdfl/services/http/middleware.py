"""The outermost layer of every service: request ids, the protocol's version, one log line and one count per request.

An unexpected error ends here as a problem without details.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.types import FilteringBoundLogger

from crowdfl.errors import StoreError
from crowdfl.services.http import logs
from crowdfl.services.http.problems import respond
from crowdfl.services.http.wire import PROTOCOL, PROTOCOL_HEADER, require_protocol, spoken_with

REQUEST_ID_HEADER = "X-Request-Id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class ServiceMetrics:
    """What one service counts, in a registry of its own: several services in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.requests = self.counter("crowdfl_requests", "Requests by route and status", "method", "route", "status")
        self.seconds = Histogram("crowdfl_request_seconds", "Durations by route", ("route",), registry=self.registry)
        self.connections = Gauge("crowdfl_connections", "Open connections", registry=self.registry)
        self.turned_away = self.counter(
            "crowdfl_connections_turned_away", "Connections that the service closed, by reason", "why"
        )

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def gauge(self, name: str, meaning: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Numbers that are looked up at each scrape."""
        self.registry.register(_GaugeByLabel(name, meaning, label, read))


@dataclass(frozen=True)
class _GaugeByLabel(Collector):
    name: str
    meaning: str
    label: str
    read: Callable[[], Mapping[str, int]]

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The name alone, without reading the store."""
        yield GaugeMetricFamily(self.name, self.meaning, labels=[self.label])

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(self.name, self.meaning, labels=[self.label])
        for value, count in sorted(self.read().items()):
            family.add_metric([value], count)
        yield family


@dataclass
class RequestMiddleware:
    """ASGI middleware around one service."""

    app: ASGIApp
    log: FilteringBoundLogger
    metrics: ServiceMetrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope))
        scope["crowdfl.request_id"] = request_id
        with structlog.contextvars.bound_contextvars(request=request_id):
            await self._serve(scope, receive, send, request_id)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        status, started = 0, time.monotonic()
        version = Headers(scope=scope).get(PROTOCOL_HEADER)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID_HEADER], headers[PROTOCOL_HEADER] = request_id, spoken_with(version)
                headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            require_protocol(PROTOCOL if version is None else version)
            await self.app(scope, receive, sending)
        except Exception as error:  # the one place for this: a client gets a problem, never a bare connection
            scope["crowdfl.problem"] = error
            if status:
                raise  # half of the answer is sent: only a closed connection can say that it failed
            await respond(error, request_id)(scope, receive, sending)
        finally:
            self._record(scope, status, time.monotonic() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope["method"] if scope["method"] in _METHODS else "other"  # anyone can invent more of them
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        fields = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        fields |= {name: value for name, value in scope.get("path_params", {}).items() if name in ("task", "number")}
        error = scope.get("crowdfl.problem")
        if error is not None:
            fields["error"] = type(error).__name__
        if isinstance(error, StoreError):  # the caller is not told which database, nor why
            fields["why"] = str(error)
        if error is not None and status in (0, 500):
            self.log.error("failed", where=logs.where(error), **fields)
        else:
            self.log.info("served", **fields)


def _request_id(headers: Headers) -> str:
    given = headers.get(REQUEST_ID_HEADER, "")
    return given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(12)
