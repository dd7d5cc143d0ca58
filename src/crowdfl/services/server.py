"""An app served over TLS by uvicorn: as a process, or by a thread of this one."""

import contextlib
import gc
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar, cast

import uvicorn
from fastapi import FastAPI
from structlog.types import FilteringBoundLogger

from crowdfl.errors import ServiceUnavailable, SettingsError
from crowdfl.retry import Backoff
from crowdfl.services import tracing
from crowdfl.services.background.workers import Worker
from crowdfl.services.http import logs, tls
from crowdfl.services.http.app_factory import ServiceMetrics, add_certificate_gauge
from crowdfl.services.http.connections import (
    ConnectionGate,
    LimitedH11Protocol,
    LimitedListener,
    room_for,
    shrink_tls_buffers,
)
from crowdfl.services.http.logs import rate_limit_library_logs
from crowdfl.services.run import Reloads, ServerTls, certificate_files, open_csp, open_kgc, open_sp
from crowdfl.settings import CspSettings, KgcSettings, ServiceSettings, SpSettings

_LOOK_SECONDS = 0.5
_LONGEST_STOP = 8.0  # seconds; requests have 3 of them, each worker has 2
_DIED = 3  # the status of a named error

_Settings = TypeVar("_Settings", bound=ServiceSettings)
_SWEEP_SECONDS = 5


@contextlib.contextmanager
def running(app: FastAPI, settings: ServiceSettings) -> Iterator[str]:
    server, listener, url = make_server(app, settings)
    with in_thread(server, listener):
        yield url


@contextlib.contextmanager
def in_thread(server: uvicorn.Server, listener: socket.socket) -> Iterator[None]:
    """Served by a thread of this process, for as long as this lasts."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server")
    thread.start()
    try:
        looks = Backoff.steady(0.01).start()
        while not server.started:
            if not thread.is_alive():
                raise ServiceUnavailable("the server did not start")
            looks.wait()
        yield
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _serve(
    open_app: Callable[[_Settings], FastAPI],
    name: str,
    settings: _Settings,
    read_settings: Callable[[], _Settings] | None = None,
    extend: Callable[[FastAPI, _Settings], None] = lambda _app, _settings: None,
) -> None:
    """Until SIGTERM; SIGHUP has certificates, tokens and pins read again, and the settings by `read_settings`.

    `extend` adds to the app what this layer knows nothing of, such as pages.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # before it is listened for, nothing is outdated yet
    stop_tracing = tracing.start(settings.tracing, name)
    logs.configure()
    app = open_app(settings)
    app.state.reloads.read_settings = read_settings or app.state.reloads.read_settings
    extend(app, settings)
    server, listener, url = make_server(app, settings)
    rate_limit_library_logs(lambda: server.should_exit)
    # A signal that comes before uvicorn listens for signals counts too; and uvicorn raises the one that stopped it again at its
    # end: the process must not look killed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: setattr(server, "should_exit", True))
    ending = _Ending(server, logs.get(name))
    ending.watch(app)
    gc.collect()
    gc.enable()
    gc.freeze()  # what exists by now stays: collecting it again and again took a tenth of a request's time
    with contextlib.closing(listener):
        logs.get(name).info("listening", url=url)
        if listener.gate.most < settings.connections:
            logs.get(name).warning("raise the limit of open files: fewer connections fit", fit=listener.gate.most)
        if settings.insecure_test_key:
            logs.get(name).warning("INSECURE TEST KEYS are allowed here")
        for role in _unknown(settings):
            logs.get(name).warning("no TLS key of this role is known: it gets nothing here", role=role)
        server.run(sockets=[listener])
        stop_tracing()
        logs.get(name).info("stopped")
    ending.require_all_alive()


class _Ending:
    """How a process ends: in a few seconds, whatever its threads wait for, and with an error if one of its workers has died.

    What is cut off is done again after the next start, as after a crash.
    """

    def __init__(self, server: uvicorn.Server, log: FilteringBoundLogger) -> None:
        self._server, self._log, self._died = server, log, False

    def watch(self, app: FastAPI) -> None:
        for work in app.state.background:
            if isinstance(work, Worker):
                work.on_death = self._end
        # It looks instead of being told: whoever handles a signal may hold any lock.
        threading.Thread(target=self._leave_in_time, name="ending", daemon=True).start()

    def require_all_alive(self) -> None:
        if self._died:
            raise ServiceUnavailable("a worker of this service has died: its log says why; start the service again")

    def _end(self) -> None:
        self._died = self._server.should_exit = True

    def _leave_in_time(self) -> None:
        while not self._server.should_exit:
            time.sleep(_LOOK_SECONDS)
        time.sleep(_LONGEST_STOP)
        self._log.warning("left unfinished work behind", threads=[thread.name for thread in threading.enumerate()])
        sys.stderr.flush()
        os._exit(_DIED if self._died else 0)


serve_kgc = partial(_serve, open_kgc, "kgc")
serve_sp = partial(_serve, open_sp, "sp")
serve_csp = partial(_serve, open_csp, "csp")


def make_server(app: FastAPI, settings: ServiceSettings) -> tuple[uvicorn.Server, LimitedListener, str]:
    files = certificate_files(settings)
    if files is None:
        tls.require_plain_http_allowed(settings.address, asked=settings.plain_http)
    else:
        add_certificate_gauge(app.state.metrics, files.certificate)
    gate = _gate(app, settings)
    config = uvicorn.Config(
        app,
        http=cast("type[LimitedH11Protocol]", partial(LimitedH11Protocol, gate)),  # uvicorn calls it, and no more
        loop="asyncio",  # another would accept connections past the listener that counts them
        ws="none",
        log_config=None,
        access_log=False,  # the middleware writes one line per request, without addresses
        server_header=False,
        proxy_headers=False,  # who can write a header must not choose its address
        timeout_graceful_shutdown=3,  # seconds
        callback_notify=_sweeping(gate),
        timeout_notify=_SWEEP_SECONDS,
    )
    config.load()
    if files is not None:
        shrink_tls_buffers()
        config.ssl = _tls(settings, getattr(app.state, "reloads", None))
    listener = LimitedListener.over(bind(settings.address, settings.port), gate)
    # asyncio sets this on its own sockets only; without it, an answer's second part waits 40 ms for the first's receipt.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return uvicorn.Server(config), listener, f"{'http' if files is None else 'https'}://{shown}:{port}"


def _unknown(settings: ServiceSettings) -> list[str]:
    """The roles that have been accepted by nobody yet."""
    if settings.certificate is None or not isinstance(settings, KgcSettings | CspSettings):
        return []
    return [role for role, keys in settings.known_keys.items() if not keys]


def _tls(settings: ServiceSettings, reloads: Reloads | None) -> ssl.SSLContext:
    """The context to listen with; KGC and CSP ask who calls."""

    def context(of: ServiceSettings) -> ssl.SSLContext:
        files = certificate_files(of)
        if files is None:
            raise SettingsError("this service was started with TLS: give `certificate` and `key`, or restart it")
        return tls.server_context(files, of.ca, asks=not isinstance(of, SpSettings))

    own = ServerTls(context(settings))
    if reloads is not None:
        reloads.add(lambda new: partial(own.replace, context(new)))
    return own.context


def _gate(app: FastAPI, settings: ServiceSettings) -> ConnectionGate:
    metrics: ServiceMetrics = getattr(app.state, "metrics", None) or ServiceMetrics()
    most = room_for(settings.connections)
    log = logs.get(getattr(app.state, "service", app.title))
    gate = ConnectionGate(
        most, settings.connections_per_address, log, lambda why: metrics.turned_away.labels(why).inc()
    )
    metrics.connections.set_function(lambda: len(gate))
    return gate


def _sweeping(gate: ConnectionGate) -> Callable[[], Awaitable[None]]:
    async def sweep() -> None:
        gate.sweep()

    return sweep


def bind(address: str, port: int, otherwise: str = "choose another `listen` or `port`") -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=2048)
    except OSError as wrong:
        why = str(wrong.strerror).partition(" (while")[0]  # Python adds the address, which is in the message already
        raise ServiceUnavailable(f"cannot listen on {address} port {port}: {why}; {otherwise}") from None
