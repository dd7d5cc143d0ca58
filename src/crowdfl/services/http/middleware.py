"""The outermost layer of every service: request ids, the protocol's version, one log line and one count per request.

An unexpected error ends here as a problem without details.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.types import FilteringBoundLogger

from crowdfl.services import tracing
from crowdfl.services.http import logs
from crowdfl.services.http.problems import respond
from crowdfl.services.http.wire import (
    DIGEST_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    REQUEST_ID_HEADER,
    accepted_id,
    require_protocol,
)
from crowdfl.text import printable

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_PAGES_SEND = ("Authorization", "Content-Type", DIGEST_HEADER, PROTOCOL_HEADER)
_PAGES_READ = ("Date", "Retry-After", PROTOCOL_HEADER, REQUEST_ID_HEADER)
_REMEMBERED = 7200  # seconds that a browser need not ask again: the most that browsers accept
_LONGEST_ORIGIN = 100
_SHOWN = ("task", "number", "who")  # of a path's parts
_LONGEST_PART = 64
_UPLOADS = (
    ("PUT", "/v1/tasks/{task}/rounds/{number}/uploads/{who}"),
    ("POST", "/v1/tasks/{task}/rounds/{number}/uploads/{who}/commit"),
)


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

    def number(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """One number, looked up at each scrape."""
        Gauge(name, meaning, registry=self.registry).set_function(read)

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
        request_id = accepted_id(Headers(scope=scope).get(REQUEST_ID_HEADER, ""))
        scope["crowdfl.request_id"] = request_id
        with logs.working_under(request_id):
            await self._serve(scope, receive, send, request_id)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        status, started = 0, time.monotonic()
        asked = Headers(scope=scope)
        version = asked.get(PROTOCOL_HEADER)

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID_HEADER], headers[PROTOCOL_HEADER] = request_id, PROTOCOL
                headers.setdefault("Cache-Control", "no-store")
                headers.setdefault("X-Content-Type-Options", "nosniff")  # no upload becomes a page of this origin
            await send(message)

        try:
            with tracing.span(_method(scope), kind=SpanKind.SERVER, parent=asked) as span:
                require_protocol(PROTOCOL if version is None else version)
                await self.app(scope, receive, sending)
                span.set_attributes(tracing.named({"route": _route(scope), "status": status}))
        except Exception as error:  # the one place for this: a client gets a problem, never a bare connection
            scope["crowdfl.problem"] = error
            if status:
                raise  # half of the answer is sent: only a closed connection can say that it failed
            await respond(error, request_id)(scope, receive, sending)
        finally:
            self._record(scope, status, time.monotonic() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        method = _method(scope)
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        fields: dict[str, object] = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        parts = scope.get("path_params", {}).items()
        fields |= {name: str(value)[:_LONGEST_PART] for name, value in parts if name in _SHOWN}
        error = scope.get("crowdfl.problem")
        if error is not None:
            fields |= logs.described(error)
        if error is not None and status in (0, 500):
            self.log.error("failed", where=logs.where(error), **fields)
        elif error is not None and status > 500:
            self.log.warning("unavailable", **fields)
        else:
            self.log.info(_event(method, route, refused=error is not None), **fields)


class BrowserAccess(CORSMiddleware):
    """Which pages of other origins may read a service's answers in a browser, a problem's too: around everything else.

    Nothing here is a secret's guard: whoever is not a browser ignores it, and no answer depends on a cookie. A page that is
    refused is logged, with what to do.
    """

    def __init__(self, app: ASGIApp, log: FilteringBoundLogger, origins: Collection[str]) -> None:
        super().__init__(app, origins, sorted(_METHODS), _PAGES_SEND, expose_headers=_PAGES_READ, max_age=_REMEMBERED)
        self._log = log

    def preflight_response(self, request_headers: Headers) -> Response:
        answer = super().preflight_response(request_headers)
        if not self.is_allowed_origin(request_headers["origin"]):
            page = printable(request_headers["origin"], _LONGEST_ORIGIN)
            why = f"pages of {page} may not call this service: its operator can add it to `web_origins`"
            self._log.info("refused", route="preflight", status=answer.status_code, reason=why)
        return answer


def _method(scope: Scope) -> str:
    """One name for all that anyone can invent."""
    return scope["method"] if scope["method"] in _METHODS else "other"


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "unmatched"))


def _event(method: str, route: str, *, refused: bool) -> str:
    """What a request was, by its outcome; an upload's line is the event of its acknowledgement too."""
    if (method, route) in _UPLOADS:
        return "upload refused" if refused else "upload acknowledged"
    return "refused" if refused else "served"
