"""A role as a process: its store, its files, its app, and uvicorn."""

import contextlib
import gc
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from crowdfl.crypto.backends import backend_named
from crowdfl.crypto.compute import Backend, Threads, default_backend
from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import (
    KeyFileDamaged,
    KeyFilePermissions,
    ServiceUnavailable,
)
from crowdfl.protocols.exchange import Observer, Silent
from crowdfl.protocols.profile import Tools
from crowdfl.retry import Backoff
from crowdfl.roles.csp import Csp
from crowdfl.roles.kgc import Kgc
from crowdfl.roles.ports import Blobs
from crowdfl.roles.sp.core import SpOptions, SpPorts
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.sp.platform import Sp
from crowdfl.services.apps import csp as csp_app
from crowdfl.services.apps import kgc as kgc_app
from crowdfl.services.apps import sp as sp_app
from crowdfl.services.checker import Checker
from crowdfl.services.client.credentials import Bearer
from crowdfl.services.client.peers import CspClient, KgcClient
from crowdfl.services.client.transport import Service, connect
from crowdfl.services.clock import SystemClock
from crowdfl.services.cluster.backend import Cluster
from crowdfl.services.http import logs, tls
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.h11 import LimitedH11Protocol
from crowdfl.services.http.tls import CertificateFiles
from crowdfl.services.payouts import PayoutCommand
from crowdfl.services.ticker import FailureBackoff, Ticker
from crowdfl.settings import ComputingSettings, CspSettings, PeerSettings, ServiceSettings, SpSettings
from crowdfl.storage import migrations
from crowdfl.storage.atomic import read_secret, require_owner_only, write_private
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.sealed_blobs import SealedBlobs, require_open
from crowdfl.storage.sql import SqlStore

__all__ = [
    "bind",
    "certificate_files",
    "open_csp",
    "open_kgc",
    "open_sp",
    "read_ledger",
    "running",
    "serve_csp",
    "serve_kgc",
    "serve_sp",
    "signing_key",
]


class _Resources:
    """What is let go when the service ends; most of it was opened with the app."""

    def __init__(self, *closing: Callable[[], None], starting: Callable[[], None] = lambda: None) -> None:
        self._closing, self._starting = closing, starting

    def start(self) -> None:
        """With the service."""
        self._starting()

    def stop(self) -> None:
        """Let go."""
        for close in self._closing:
            close()

    def check(self) -> None:
        """The store is checked by itself, peers when they are called."""


def signing_key(path: Path) -> SigningKey:
    """The key at this path, made if there is none."""
    with contextlib.suppress(FileExistsError):
        write_private(path, SigningKey.fresh().private)
    with open(path, "rb") as file:
        require_owner_only(file.fileno(), path, KeyFilePermissions)
        private = file.read(100)
    if len(private) != 32:
        raise KeyFileDamaged(f"{path} is no signing key; restore it from a backup")
    return SigningKey(private)


def _tools(settings: ComputingSettings, backend: Backend, observer: Observer | None) -> Tools:
    return Tools(
        backend,
        insecure_test_key=settings.insecure_test_key,
        constant_time=settings.constant_time,
        observer=observer or Silent(),
    )


def open_kgc(settings: ServiceSettings) -> FastAPI:
    """KGC's app over its data folder."""
    folder = _folder(settings)
    signing = signing_key(folder / "signing.key")
    bundles = _keys(settings)
    store = _store(settings)
    kgc = Kgc(store, bundles, SystemClock(), signing, insecure_test_key=settings.insecure_test_key)
    return kgc_app.create_app(kgc, _tokens(settings), folder=folder, background=(_Resources(store.close),))


def open_csp(settings: CspSettings, observer: Observer | None = None) -> FastAPI:
    """CSP's app over its data folder."""
    folder = _folder(settings)
    keys, store, kgc = _keys(settings), _store(settings), _peer(settings, settings.kgc, "KGC")
    backend, close = _backend(settings, "csp")
    csp = Csp(
        store,
        FileBlobs(folder / "blobs"),
        keys,
        KgcClient(kgc),
        settings.kgc_key,
        _tools(settings, backend, observer),
    )
    background = (_Resources(store.close, kgc.close, close),)
    return csp_app.create_app(csp, _tokens(settings), folder=folder, background=background)


def open_sp(settings: SpSettings, observer: Observer | None = None) -> FastAPI:
    """SP's app over its data folder, with its rounds moving as long as it is served."""
    folder = _folder(settings)
    keys, store = _keys(settings), _store(settings)
    kgc, csp = _peer(settings, settings.kgc, "KGC"), _peer(settings, settings.csp, "CSP")
    backend, close = _backend(settings, "sp")
    ahead, checker = ThreadPoolExecutor(1, "sp-asks-csp"), Checker(Threads(1))
    ports = SpPorts(
        store,
        FileBlobs(folder / "blobs"),
        keys,
        SystemClock(),
        KgcClient(kgc),
        CspClient(csp),
        settings.kgc_key,
    )
    options = SpOptions(
        _tools(settings, backend, observer),
        checker=checker,
        on_paid=PayoutCommand(settings.on_paid) if settings.on_paid else None,
        failures=FailureBackoff(logs.get("sp"), settings.tick_seconds),
        ahead=ahead,
        lease_seconds=settings.lease_seconds,
        csp_patience=settings.csp_patience,
    )
    sp = Sp(ports, options)
    background = (
        _Resources(
            partial(ahead.shutdown, wait=False, cancel_futures=True),
            checker.close,
            store.close,
            kgc.close,
            csp.close,
            close,
            starting=checker.start,
        ),
        Ticker(sp.tick, logs.get("sp"), settings.tick_seconds),
    )
    signing = signing_key(folder / "signing.key")
    return sp_app.create_app(sp, _tokens(settings), folder=folder, signing=signing, background=background)


def serve_kgc(settings: ServiceSettings) -> None:
    """Run KGC until SIGTERM or SIGINT."""
    _serve(open_kgc(settings), settings, "kgc")


def serve_sp(settings: SpSettings) -> None:
    """Run SP until SIGTERM or SIGINT."""
    _serve(open_sp(settings), settings, "sp")


def serve_csp(settings: CspSettings) -> None:
    """Run CSP until SIGTERM or SIGINT."""
    _serve(open_csp(settings), settings, "csp")


@contextlib.contextmanager
def running(app: FastAPI, settings: ServiceSettings) -> Iterator[str]:
    """An app served by a thread of this process; its URL."""
    server, listener, url = _server(app, settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server")
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield url
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def _serve(app: FastAPI, settings: ServiceSettings, name: str) -> None:
    logs.configure()
    server, listener, url = _server(app, settings)
    # One that comes before uvicorn looks for signals counts too; and uvicorn repeats the one that stopped it, when all is
    # written: the process ends as one that was not killed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: setattr(server, "should_exit", True))
    gc.collect()
    gc.freeze()  # what is there by now stays: looking through it again and again is a tenth of a request's time
    with contextlib.closing(listener):
        logs.get(name).info("listening", url=url)
        if settings.insecure_test_key:
            logs.get(name).warning("INSECURE TEST KEYS are allowed here")
        server.run(sockets=[listener])
        logs.get(name).info("stopped")


def _server(app: FastAPI, settings: ServiceSettings) -> tuple[uvicorn.Server, socket.socket, str]:
    files = certificate_files(settings)
    if files is None:
        tls.require_plain_http_allowed(settings.address, asked=settings.plain_http)
    else:
        tls.require_usable(files)
    config = uvicorn.Config(
        app,
        http=LimitedH11Protocol,
        ws="none",
        ssl_certfile=None if files is None else str(files.certificate),
        ssl_keyfile=None if files is None else str(files.key),
        log_config=None,
        access_log=False,  # the boundary writes one line per request, without addresses
        server_header=False,
        proxy_headers=False,  # nobody's address is used for anything
        timeout_graceful_shutdown=20,
    )
    listener = bind(settings)
    # asyncio does this for sockets of its own alone; without it, an answer's second part waits 40 ms for the first's receipt.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return uvicorn.Server(config), listener, f"{'http' if files is None else 'https'}://{shown}:{port}"


def certificate_files(settings: ServiceSettings) -> CertificateFiles | None:
    """A service's certificate and key, or None for plain HTTP."""
    if settings.certificate is None or settings.key is None:
        return None
    return CertificateFiles(settings.certificate, settings.key)


def bind(settings: ServiceSettings) -> socket.socket:
    """A socket that listens where the settings say."""
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    try:
        return socket.create_server((settings.address, settings.port), family=family, backlog=2048)
    except OSError as wrong:
        where = f"{settings.address} port {settings.port}"
        why = str(wrong.strerror).partition(" (while")[0]  # Python adds the address, which is said already
        raise ServiceUnavailable(f"cannot listen on {where}: {why}; choose another `listen` or `port`") from None


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    looks = Backoff.steady(0.01).start()
    while not server.started:
        if not thread.is_alive():
            raise ServiceUnavailable("the server did not start")
        looks.wait()


def _folder(settings: ServiceSettings) -> Path:
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    return settings.data


def read_ledger(settings: ServiceSettings, task: str) -> Ledger:
    """A task's books as SP keeps them, for its operator."""
    with contextlib.closing(_store(settings)) as store:
        store.task(task)
        return Ledger(store.movements(task))


def _store(settings: ServiceSettings) -> SqlStore:
    url = settings.database or f"sqlite:///{settings.data / 'state.db'}"
    migrations.upgrade(url)
    return SqlStore(url)


def _keys(settings: ServiceSettings) -> Blobs:
    """The role's key shares."""
    blobs = FileBlobs(settings.data / "keys")
    if settings.passphrase_file is None:
        return require_open(blobs)
    return SealedBlobs(blobs, read_secret(settings.passphrase_file, "passphrase"))


def _tokens(settings: ServiceSettings) -> Tokens:
    return Tokens(settings.data / "tokens.json")


def _backend(settings: ComputingSettings, role: str) -> tuple[Backend, Callable[[], None]]:
    """Where the role computes, and what lets go of it; what is not there is told before anything is served."""
    if settings.compute == "threads":
        return default_backend(), lambda: None
    if settings.dask is None or settings.compute != "dask":
        return backend_named(settings.compute), lambda: None
    cluster = Cluster(role, settings.dask.changed(plain_tcp=settings.plain_http))
    cluster.connect()
    return cluster, cluster.close


def _peer(settings: ServiceSettings, peer: PeerSettings, name: str) -> Service:
    token = read_secret(peer.token, f"token for {name}")
    return connect(peer.url, ca=settings.ca, credential=Bearer(token), plain_http=settings.plain_http)
