"""What every service has: problems, metrics, health, readiness, OpenAPI, and the middleware around it all.

The middleware gives each request an id, checks the protocol's version, and writes one log line and one count. An unexpected
error ends there as a problem without details.
"""

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cryptography import x509
from fastapi import Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from opentelemetry.trace import SpanKind
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.types import FilteringBoundLogger

from crowdfl.errors import UnknownTask
from crowdfl.services import tracing
from crowdfl.services.client.breaker import Breaker
from crowdfl.services.http import logs, problems
from crowdfl.services.http.auth import SCHEMES, CertifiedToken, Pins, Security, TokenEntry, Tokens
from crowdfl.services.http.problems import respond
from crowdfl.services.http.wire import (
    DIGEST_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    REQUEST_ID_HEADER,
    accepted_id,
    require_protocol,
)
from crowdfl.settings import TOKEN_ROLES
from crowdfl.text import printable
from crowdfl.version import __version__

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
TLS_ALONE = "max-age=31536000"  # seconds that a browser calls this host in no other way, nor past a wrong certificate
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


def add_peer_gauge(metrics: ServiceMetrics, peers: Sequence[Breaker]) -> None:
    """Readiness does not ask for this: a service whose peer is away still serves."""
    metrics.gauge("crowdfl_peer_up", "Whether a peer answers", "peer", lambda: {one.peer: one.is_up for one in peers})


def add_disk_gauge(metrics: ServiceMetrics, folder: Path) -> None:
    def read() -> dict[str, int]:
        try:
            found = shutil.disk_usage(folder)
        except OSError:
            return {}
        return {"free": found.free, "total": found.total}

    metrics.gauge("crowdfl_disk_bytes", "The disk that holds this role's folder", "kind", read)


def add_certificate_gauge(metrics: ServiceMetrics, certificate: Path) -> None:
    meaning = "When the service's certificate on disk ends, in seconds since 1970"
    with suppress(ValueError):  # an app may be served twice: it is there already
        metrics.gauge("crowdfl_certificate_expires_seconds", meaning, "file", _Expiry(certificate))


class _Expiry:
    """Read again when the file has changed: it is renewed while the service runs."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen, self._ends = path, 0, 0

    def __call__(self) -> dict[str, int]:
        try:
            changed = os.stat(self._path).st_mtime_ns
            if changed != self._seen:
                found = x509.load_pem_x509_certificate(self._path.read_bytes())
                self._ends = int(found.not_valid_after_utc.timestamp())
                self._seen = changed
        except (OSError, ValueError):
            return {}
        return {self._path.name: self._ends}


@dataclass
class RequestMiddleware:
    """ASGI middleware around one service."""

    app: ASGIApp
    log: FilteringBoundLogger
    metrics: ServiceMetrics
    ration: logs.Ration = field(default_factory=logs.Ration)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = accepted_id(Headers(scope=scope).get(REQUEST_ID_HEADER, ""))
        scope["crowdfl.request_id"] = request_id
        with logs.working_under(request_id):
            await self._serve(scope, receive, send, request_id)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        status = 0
        started = time.monotonic()
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
                if scope["scheme"] == "https" and asked.get("host", "").partition(":")[0] != "localhost":
                    headers["Strict-Transport-Security"] = TLS_ALONE
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
        elif error is None:
            self.log.info(_event(method, route, refused=False), **fields)
        else:
            self._tell_refusal(_event(method, route, refused=True), fields)

    def _tell_refusal(self, event: str, fields: dict[str, object]) -> None:
        """At a limited rate: strangers cause these. The metrics count them all."""
        unlogged = self.ration.take(f"{event} {fields['error']}")
        if unlogged is None:
            return
        fields |= {"unlogged": unlogged} if unlogged else {}
        if fields["status"] in range(500):
            self.log.info(event, **fields)
        else:
            self.log.warning("unavailable", **fields)


class BrowserAccess(CORSMiddleware):
    """Which pages of other origins may read a service's answers in a browser, a problem's too: around everything else.

    Nothing here is a secret's guard: whoever is not a browser ignores it, and no answer depends on a cookie. A page that is
    refused is logged, with what to do.
    """

    def __init__(self, app: ASGIApp, log: FilteringBoundLogger, origins: Collection[str]) -> None:
        super().__init__(app, origins, sorted(_METHODS), _PAGES_SEND, expose_headers=_PAGES_READ, max_age=_REMEMBERED)
        self._log = log
        self._ration = logs.Ration()

    def preflight_response(self, request_headers: Headers) -> Response:
        answer = super().preflight_response(request_headers)
        refused = not self.is_allowed_origin(request_headers["origin"])
        if refused and self._ration.take("") is not None:
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


_NO_TASK = "0" * 64  # the store answers that it is not there


class Background:
    """Work that goes on as long as the service does."""

    def start(self) -> None:
        """With the service."""

    def stop(self) -> None:
        """With the service; returns when the work has ended."""

    def check(self) -> None:
        """Raise a named error if the work no longer goes on."""


def make_app(
    name: str,
    tokens: Tokens,
    metrics: ServiceMetrics,
    look_up: Callable[[str], object],
    folder: Path,
    background: Sequence[Background] = (),
    pins: Pins | None = None,
) -> FastAPI:
    """An app with everything but its routes; `look_up` asks the store for a task, `folder` is where the files lie."""
    described: dict[int | str, dict[str, Any]] = {
        "default": {"description": "A problem (RFC 9457)", "content": {problems.MEDIA_TYPE: {}}}
    }
    app = FastAPI(
        title=f"CrowdFL {name.upper()}",
        version=__version__,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        responses=described,
        lifespan=_lifespan(background),
    )
    app.openapi = partial(_described, app)  # type: ignore[method-assign]  # FastAPI's own way to add to it
    app.state.service, app.state.metrics = name, metrics  # for the server, which counts connections
    add_disk_gauge(metrics, folder)
    app.state.background = tuple(background)
    problems.install(app)
    app.state.web_origins = set()  # whoever opens the app fills it from the settings
    app.add_middleware(RequestMiddleware, log=logs.get(name), metrics=metrics)
    app.add_middleware(BrowserAccess, log=logs.get(name), origins=app.state.web_origins)  # the outermost

    @app.get("/healthz")
    async def health() -> dict[str, str]:  # not in a thread: when all are taken, the process still answers
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz")
    def readiness() -> dict[str, str]:
        """The store answers, the disk takes a file, the background work goes on."""
        with suppress(UnknownTask):
            look_up(_NO_TASK)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"ready")
            file.flush()
        for work in background:
            work.check()
        return {"status": "ready"}

    @app.get("/v1/whoami")
    def whoami(
        caller: Annotated[TokenEntry, Depends(CertifiedToken(tokens.require(*TOKEN_ROLES), pins))],
    ) -> dict[str, Any]:
        """Whose credential this is, and until when it is good: for its holder to try it."""
        return {"name": caller.name, "role": caller.role, "expires": caller.expires}

    @app.get("/metrics", dependencies=[Depends(tokens.require("operator", "monitor"))])
    def numbers() -> Response:
        """For Prometheus."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return app


def between_roles(request: Request) -> None:
    """A dependency: a server that calls another says which protocol it speaks."""
    require_protocol(request.headers.get(PROTOCOL_HEADER))


def _described(app: FastAPI) -> dict[str, Any]:
    """OpenAPI with what opens each route, read off the very dependencies that enforce it."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        document.setdefault("components", {})["securitySchemes"] = SCHEMES
        for route in app.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                for method in route.methods or ():
                    guards = _guards(route.dependant)
                    once = [one for place, one in enumerate(guards) if one not in guards[:place]]
                    document["paths"][route.path][method.lower()]["security"] = once
        app.openapi_schema = document
    return app.openapi_schema


def _guards(dependant: Dependant) -> Security:
    own: Security = getattr(dependant.call, "security", ())
    return own or tuple(found for part in dependant.dependencies for found in _guards(part))


def _lifespan(background: Sequence[Background]) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as ending:
            for work in background:
                work.start()
                ending.callback(work.stop)
            yield

    return life
