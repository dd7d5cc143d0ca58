"""What every service has: problems, the middleware, health, readiness, metrics, OpenAPI."""

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from crowdfl.errors import UnknownTask
from crowdfl.services.background.watching import add_disk_gauge
from crowdfl.services.http import logs, problems
from crowdfl.services.http.auth import ROLES, SCHEMES, CertifiedToken, Pins, Security, TokenEntry, Tokens
from crowdfl.services.http.middleware import BrowserAccess, RequestMiddleware, ServiceMetrics
from crowdfl.services.http.wire import PROTOCOL_HEADER, require_protocol
from crowdfl.version import __version__

_NO_TASK = "0" * 32  # the store answers that it is not there


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
    def whoami(caller: Annotated[TokenEntry, Depends(CertifiedToken(tokens.require(*ROLES), pins))]) -> dict[str, Any]:
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
                    document["paths"][route.path][method.lower()]["security"] = list(_guards(route.dependant))
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
