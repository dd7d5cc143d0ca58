"""A role opened over its data folder: its store, its files, its peers, its app. `server` then serves the app.

On SIGHUP it reads its certificate, whom it trusts, and its peers' tokens and keys again. All is read and checked before
anything of it is used, so that a damaged file changes nothing. Connections stay.
"""

import asyncio
import contextlib
import shutil
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from structlog.types import FilteringBoundLogger

from crowdfl.crypto.backends import backend_named
from crowdfl.crypto.compute import Backend, Threads, default_backend
from crowdfl.documents.envelope import to_base64url
from crowdfl.errors import CrowdFLError, GuardMissing, StoreUnavailable
from crowdfl.protocols.exchange import Observer
from crowdfl.protocols.profile import Tools
from crowdfl.retry import Backoff, retry
from crowdfl.roles.csp import Csp, CspBooks
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.guard import Guard
from crowdfl.roles.kgc import Kgc
from crowdfl.roles.kgc_retention import KgcRetention
from crowdfl.roles.limits import SpQuotas, TaskBounds
from crowdfl.roles.ports import EndPeer, SpStore
from crowdfl.roles.restored import end_doubtful_csp, end_doubtful_sp
from crowdfl.roles.sp.core import LedgerPorts, SpOptions, SpPorts
from crowdfl.roles.sp.end_notices import EndNotices
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.sp.operator import payment_rows
from crowdfl.roles.sp.platform import Sp
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.roles.sp.time import ClockWatch, OperatorClock
from crowdfl.roles.sp.why import Around
from crowdfl.services import tracing
from crowdfl.services.apps import csp as csp_app
from crowdfl.services.apps import kgc as kgc_app
from crowdfl.services.apps import sp as sp_app
from crowdfl.services.apps.sp_recruiting import Listing
from crowdfl.services.apps.sp_uploads import UnfinishedUploads
from crowdfl.services.background.checker import Checker
from crowdfl.services.background.push import Push, Sender
from crowdfl.services.background.sweeper import Sweep, Sweeper, SweepTicker
from crowdfl.services.background.workers import FailureBackoff, PayoutCommand, Payouts, StepThreads, Ticker
from crowdfl.services.client.breaker import Breaker
from crowdfl.services.client.peer_link import PeerAccess, PeerCalls, PeerLink, calls_to, tell_doubt
from crowdfl.services.client.peers import CspClient, KgcClient
from crowdfl.services.client.transport import Link, Service, SystemClock
from crowdfl.services.http import logs
from crowdfl.services.http.address_limit import AddressLimit
from crowdfl.services.http.app_factory import Background
from crowdfl.services.http.auth import Pins, Tokens
from crowdfl.services.http.pieces import UnfinishedFiles
from crowdfl.services.http.tls import CertificateFiles
from crowdfl.settings import (
    BrowserSettings,
    ComputingSettings,
    CspSettings,
    KgcSettings,
    PeerSettings,
    ServiceSettings,
    SpSettings,
)
from crowdfl.storage import migrations, upgrading
from crowdfl.storage.atomic import push_key, signing_key
from crowdfl.storage.database import open_engine
from crowdfl.storage.database_copy import file_of
from crowdfl.storage.s3 import S3Blobs, kept, open_keys
from crowdfl.storage.settings_file import role_of
from crowdfl.storage.sql import SqlStore

Prepare = Callable[[Any], Callable[[], None]]
"""Reads again what the service's own settings name; what it returns puts that to use."""


class ServerTls:
    """The context that a server listens with; each new connection takes the newest one."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = self._current = context
        context.sni_callback = self._choose  # called at every handshake, with or without a name

    def replace(self, context: ssl.SSLContext) -> None:
        self._current = context

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current


class Reloads(Background):
    """All that one service reads again."""

    def __init__(self, log: FilteringBoundLogger, settings: ServiceSettings) -> None:
        self.read_settings: Callable[[], ServiceSettings] = lambda: settings
        self._log = log
        self._prepares: list[Prepare] = []
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, prepare: Prepare) -> None:
        self._prepares.append(prepare)

    def start(self) -> None:
        if threading.current_thread() is threading.main_thread():  # elsewhere no signal arrives
            self._loop = asyncio.get_running_loop()
            self._loop.add_signal_handler(signal.SIGHUP, self._in_thread)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # one that comes late must not end what is ending well

    def reload(self) -> None:
        """Raise the named error of what is wrong, and then use nothing of it."""
        with self._lock:
            settings = self.read_settings()
            for use in [prepare(settings) for prepare in self._prepares]:
                use()

    def _in_thread(self) -> None:
        threading.Thread(target=self._reload_and_tell, name="reload", daemon=True).start()

    def _reload_and_tell(self) -> None:
        try:
            self.reload()
        except (CrowdFLError, OSError) as wrong:
            self._log.error("not reloaded", error=type(wrong).__name__, why=str(wrong))
        else:
            self._log.info("reloaded")


_LEAST_ROOM = 16 * 2**20  # bytes: less is a full disk for a round
_LOOK_SECONDS = 10.0  # between looks whether a sweep is due
_DATABASE = Backoff(first=1.0, longest=10.0)
_ONCE = Backoff(deadline=0.0)  # whoever is away now is told later

_Settings = TypeVar("_Settings", bound=ServiceSettings)


class _Folder(Background):
    """The folder or bucket of a role's blobs, which must be the one of its store."""

    def __init__(self, store: SqlStore, settings: ComputingSettings) -> None:
        self.blobs = kept(settings, "blobs")
        self.name = store.identity(self.blobs.name)
        self.blobs.bind(self.name)

    def check(self) -> None:
        self.blobs.require_own()


class _Tables(Background):
    """A process whose database another version has migrated is not ready, and its supervisor ends it."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    def check(self) -> None:
        self._store.check_tables()


class _Resources(Background):
    """What is closed when the service ends; most of it was opened with the app."""

    def __init__(self, *closing: Callable[[], None], starting: Callable[[], None] = lambda: None) -> None:
        self._closing, self._starting = closing, starting

    def start(self) -> None:
        self._starting()

    def stop(self) -> None:
        for close in self._closing:
            close()


@dataclass(frozen=True)
class SpParts:
    """What pages that SP serves besides its API are made from: `app.state.parts`."""

    sp: Sp
    retention: SpRetention
    tokens: Tokens
    peers: Sequence[Breaker]
    folder: Path
    settings: SpSettings


def _tools(settings: ComputingSettings, backend: Backend, observer: Observer | None) -> Tools:
    return Tools(
        backend,
        insecure_test_key=settings.insecure_test_key,
        constant_time=settings.constant_time,
        observer=observer or tracing.TracedRounds(),
    )


def open_kgc(settings: KgcSettings) -> FastAPI:
    folder = _folder(settings)
    signing = signing_key(folder / "signing.key")
    bundles = open_keys(settings)
    store = _store(settings)
    insecure, bounds = settings.insecure_test_key, TaskBounds.of(settings)
    kgc = Kgc(store, bundles, SystemClock(), signing, insecure_test_key=insecure, bounds=bounds)
    retention = KgcRetention(store, bundles, kgc.clock, sp_key=settings.sp_key)
    reloads = Reloads(logs.get("kgc"), settings)
    pins = _pins(settings, reloads)
    background = (_Resources(store.close), _Tables(store), reloads, _sweeping("kgc", retention.sweep))
    app = kgc_app.create_app(
        kgc, _tokens(settings), folder=folder, pins=pins, retention=retention, background=background
    )
    app.state.reloads = reloads
    _let_pages_in(app, settings)
    return app


def open_csp(settings: CspSettings, observer: Observer | None = None) -> FastAPI:
    folder = _folder(settings)
    reloads = Reloads(logs.get("csp"), settings)
    keys = open_keys(settings)
    store = _store(settings)
    kgc = _link(settings, reloads, "KGC", lambda known: known.kgc)
    peers = PeerCalls(logs.get("csp"))
    kgc_service = peers.guard(kgc.service, "KGC")
    files, guard = _Folder(store, settings), open_guard(store, settings)
    backend, close = _backend(settings, "csp", files.name)
    csp = Csp(
        store,
        files.blobs,
        keys,
        guard,
        KgcClient(kgc_service),
        settings.kgc_key,
        SystemClock(),
        _tools(settings, backend, observer),
    )
    retention = CspRetention(
        store,
        keys,
        SystemClock(),
        csp.blobs,
        guard,
        sp_key=settings.sp_key,
        forget=csp.drop,
        sweep_requests=UnfinishedFiles(folder / "incoming").sweep,
    )
    closing = _Resources(store.close, kgc.service.close, close)
    background = (closing, _Tables(store), files, reloads, _sweeping("csp", retention.sweep), peers)
    pins = _pins(settings, reloads)
    app = csp_app.create_app(
        csp,
        _tokens(settings),
        folder=folder,
        pins=pins,
        retention=retention,
        background=background,
        peers=peers.breakers,
    )
    app.state.reloads = reloads
    return app


def open_sp(settings: SpSettings, observer: Observer | None = None) -> FastAPI:
    """SP's app over its data folder, with its rounds moving as long as it is served."""
    folder = _folder(settings)
    keys = open_keys(settings)
    store = _store(settings)
    log = logs.get("sp")
    signing = signing_key(folder / "signing.key")
    watch = ClockWatch(SystemClock(), time.monotonic, store, settings.max_clock_jump, partial(tell_doubt, log))
    reloads, peers = Reloads(log, settings), PeerCalls(log, watch.heard)
    steps = StepThreads(settings.tick)
    kgc = _outside(steps, peers.guard(_link(settings, reloads, "KGC", lambda known: known.kgc).service, "KGC"))
    csp = _outside(steps, peers.guard(_link(settings, reloads, "CSP", lambda known: known.csp).service, "CSP"))
    watch.ask_peers = peers.ask_time
    checker, files = Checker(Threads(1)), _Folder(store, settings)
    backend, close = _backend(settings, "sp", files.name)
    guard = open_guard(store, settings)
    ports = SpPorts(
        store,
        SystemClock(),
        files.blobs,
        keys,
        guard,
        KgcClient(kgc),
        CspClient(csp, folder=folder / "incoming"),
        settings.kgc_key,
    )
    options = SpOptions(
        _tools(settings, backend, observer),
        checker=checker,
        on_paid=PayoutCommand(
            settings.on_paid, settings.on_paid_time, lambda payment: payment_rows(store, [payment])[0]
        )
        if settings.on_paid
        else None,
        signing=signing,
        max_joins=settings.max_joins,
        payer=settings.payer_key or b"",
        push_hosts=settings.push_hosts,
        failures=FailureBackoff(log, settings.tick, store),
        runner=steps,
        lease_seconds=settings.lease,
        csp_patience=settings.csp_patience,
        looks_per_second=settings.looks_per_second,
        min_claim_window=float(settings.min_claim_window),
        events=logs.events("sp"),
        around_step=around_step,
        quotas=SpQuotas.of(settings),
        watch=watch,
    )
    sp, vapid = Sp(ports, options), push_key(folder / "push.key")
    sender = Sender(log, sp.reminders, vapid, f"https://{settings.host}")
    hearing: dict[str, EndPeer] = {
        "kgc": KgcClient(replace(kgc, retries=_ONCE)),
        "csp": CspClient(replace(csp, retries=_ONCE)),
    }
    retention = SpRetention(
        store,
        keys,
        ports.clock,
        ports.blobs,
        guard,
        UnfinishedUploads(folder / "incoming"),
        notices=EndNotices(store, ports.clock, signing, hearing, on_failure=_log_not_told),
        forget=sp.aggregators.drop,
        is_sure=watch.is_sure,
    )
    background = (
        _Resources(
            sender.close,
            checker.close,
            store.close,
            kgc.close,
            csp.close,
            close,
            starting=checker.start,
        ),
        _Tables(store),
        files,
        reloads,
        steps,
        Payouts(log, sp.payments.run_one, settings.tick, sp.payments.abandon),
        Ticker(log, sp.tick, settings.tick),
        Push(log, sender.send_due, settings.tick),
        _sweeping("sp", retention.sweep, retention.tick, 10 * settings.tick),
        peers,
    )
    tokens = _tokens(settings)
    app = sp_app.create_app(
        sp,
        tokens,
        folder=folder,
        signing=signing,
        retention=retention,
        push_key=to_base64url(vapid.public) if settings.push_hosts else "",
        pay_kinds=settings.pay_kinds,
        listing=Listing(
            settings.phone_connect[0] if settings.phone_connect else settings.kgc.url,
            settings.kgc_key,
            AddressLimit(settings.max_joins_per_address, 3600.0),
        ),
        background=background,
        peers=peers.breakers,
    )
    app.state.reloads = reloads
    app.state.parts = SpParts(sp, retention, tokens, peers.breakers, folder, settings)
    _let_pages_in(app, settings)
    return app


@contextlib.contextmanager
def around_step(task: str) -> Iterator[None]:
    """One step of a task: its lines and its calls to peers carry an id of its own."""
    with logs.working_under(), tracing.span("step", task=task):
        yield


def _outside(steps: StepThreads, service: Service) -> Service:
    """A step that waits for an answer gives its place to another task's."""

    @contextlib.contextmanager
    def watch(method: str, target: str) -> Iterator[None]:
        with steps.waiting(), service.watch(method, target):
            yield

    return replace(service, watch=watch)


def _let_pages_in(app: FastAPI, settings: BrowserSettings) -> None:
    """As `web_origins` says now, and after each reload."""

    def use(new: BrowserSettings) -> None:
        app.state.web_origins.intersection_update(new.web_origins)
        app.state.web_origins.update(new.web_origins)

    use(settings)
    app.state.reloads.add(lambda new: partial(use, new))


def _sweeping(
    role: str, sweep: Sweep, often: Callable[[], bool] = lambda: False, seconds: float = _LOOK_SECONDS
) -> SweepTicker:
    return SweepTicker(logs.get(role), Sweeper(sweep, often).tick, seconds)


def _log_not_told(task: str, peer: str, failure: Exception) -> None:
    logs.get("sp").warning("the end of a task was not heard", task=task, peer=peer, error=type(failure).__name__)


def certificate_files(settings: ServiceSettings) -> CertificateFiles | None:
    if settings.certificate is None or settings.key is None:
        return None
    return CertificateFiles(settings.certificate, settings.key)


def _folder(settings: ServiceSettings) -> Path:
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    return settings.data


@contextlib.contextmanager
def open_books(settings: SpSettings, task: str | None = None) -> Iterator[LedgerPorts]:
    """As SP's operator opens them beside a running service; `task` is one that must be there."""
    with contextlib.closing(SqlStore(_database(settings))) as store:
        if task is not None:
            store.task(task)
        yield LedgerPorts(store, OperatorClock(SystemClock(), time.monotonic, store, settings.max_clock_jump))


@contextlib.contextmanager
def open_csp_books(settings: CspSettings) -> Iterator[CspBooks]:
    """As CSP's operator opens them beside a running service, with CSP's keys."""
    tools = Tools(Threads(1), insecure_test_key=settings.insecure_test_key)
    with contextlib.closing(SqlStore(_database(settings))) as store:
        yield CspBooks(store, open_keys(settings), SystemClock(), tools)


@contextlib.contextmanager
def open_retention(
    settings: ServiceSettings,
) -> Iterator[SpRetention | CspRetention | KgcRetention]:
    """What a role holds, beside its running service: names and counts, so that no passphrase is needed."""
    with contextlib.closing(SqlStore(_database(settings))) as store:
        keys, clock = kept(settings, "keys"), SystemClock()
        if isinstance(settings, KgcSettings):
            yield KgcRetention(store, keys, clock)
        elif isinstance(settings, SpSettings):
            parts = UnfinishedUploads(settings.data / "incoming")
            own = kept(settings, "blobs"), open_guard(store, settings, tell=False)
            yield SpRetention(store, keys, clock, *own, parts)
        elif isinstance(settings, CspSettings):
            own = kept(settings, "blobs"), open_guard(store, settings, tell=False)
            yield CspRetention(store, keys, clock, *own)


def around_sp(settings: SpSettings, store: SpStore, guard: Guard) -> Around:
    """What is wrong with SP itself, as a command beside it sees it, and its console."""
    missing = doubt = ""
    try:
        guard.require_own()
    except CrowdFLError as wrong:
        missing = str(wrong)
    try:
        OperatorClock(SystemClock(), time.monotonic, store, settings.max_clock_jump).now()
    except CrowdFLError as wrong:
        doubt = str(wrong)
    full = shutil.disk_usage(settings.data).free < _LEAST_ROOM
    return Around(full, missing, doubt, settings.csp_patience)


def read_ledger(settings: SpSettings, task: str) -> Ledger:
    with open_books(settings, task) as books:
        return Ledger(books.store.movements(task))


def _store(settings: ServiceSettings) -> SqlStore:
    """A service's, which logs what becomes of its tasks; an operator's command says so itself.

    A service waits for a database that has a server of its own: after a power cut that one may take longer to start.
    """
    role, url = role_of(settings), settings.database_url
    open_engine(url).dispose()  # what waiting does not mend is raised
    has_server = not url.startswith("sqlite")

    def tell(failure: StoreUnavailable, seconds: float) -> None:
        logs.get(role).warning("waiting for the database", seconds=round(seconds, 1), **logs.described(failure))

    retry(partial(upgrading.upgrade, url), _DATABASE, StoreUnavailable, passing=lambda _: has_server, tell=tell)
    return SqlStore(url, logs.events(role))


def open_guard(store: SqlStore, settings: ComputingSettings, *, tell: bool = True) -> Guard:
    """The second place where a server notes its steps. The log says if it is not there, or is hardly another place."""
    guard = Guard(kept(settings, "guard"), store, role_of(settings))
    exposed = guard_exposure(settings)
    if tell and exposed is not None:
        logs.get(guard.role).warning("guard", why=exposed)
    if tell:
        try:
            guard.require_own()
        except GuardMissing as missing:  # claims are answered all the same
            logs.get(guard.role).error("guard", **logs.described(missing))
    return guard


def give_guard_up(settings: ComputingSettings, *, unchanged: bool = False) -> None:
    """The operator's word that the notes are lost: a new guard, and an end of what may have been set back. `unchanged`: nothing
    was, and tasks go on."""
    with contextlib.closing(SqlStore(_database(settings))) as store:
        end: Callable[[], None] = partial(end_doubtful_csp, store)
        if isinstance(settings, SpSettings):
            end = partial(end_doubtful_sp, store, time.time())
        open_guard(store, settings, tell=False).renew(None if unchanged else end)


def guard_exposure(settings: ComputingSettings) -> str | None:
    """What sets back the database and the guard together; None where they lie apart."""
    database = file_of(settings.database_url)
    if database is None or isinstance(kept(settings, "guard"), S3Blobs):
        return None
    folder = settings.guard or settings.data
    if not database.exists() or not folder.exists() or database.stat().st_dev != folder.stat().st_dev:
        return None
    other = "CSP" if role_of(settings) == "sp" else "SP"
    return (
        f"the guard is on one volume with the database: a snapshot sets both back, and then {other} can read the uploads of a "
        "round that is run again; name another disk in `guard`"
    )


def _database(settings: ServiceSettings) -> str:
    """Its URL, for a command beside the service: an empty one is made, and an older one is left to `crowdfl upgrade`."""
    url = settings.database_url
    if migrations.revision_of(url) is None:
        migrations.upgrade(url)
    migrations.check(url)
    return url


def _tokens(settings: ServiceSettings) -> Tokens:
    return Tokens(settings.data / "tokens.json")


def _backend(settings: ComputingSettings, role: str, name: str) -> tuple[Backend, Callable[[], None]]:
    """Where the role computes, and what closes it; `name` is of its store. A backend that is missing is reported before
    anything is served."""
    if settings.compute == "threads":
        return default_backend(), lambda: None
    if settings.dask is None or settings.compute != "dask":
        return backend_named(settings.compute), lambda: None
    from crowdfl.services.cluster.backend import Cluster  # most servers have none
    from crowdfl.services.cluster.worker import Store

    store = Store(settings.s3 or (settings.data / "blobs").absolute(), name)
    cluster = Cluster(role, settings.dask.changed(plain_tcp=settings.plain_http), store=store)
    cluster.connect()
    return cluster, cluster.close


def peer_access(settings: ServiceSettings, peer: PeerSettings, name: str) -> PeerAccess:
    """How this service calls another: it shows its own certificate."""
    return PeerAccess(name, Link(peer.url, settings.ca, settings.plain_http, certificate_files(settings)), peer.token)


def _link(settings: _Settings, reloads: Reloads, name: str, peer: Callable[[_Settings], PeerSettings]) -> PeerLink:
    """To another service; `peer` finds it in the settings, and again in those that a reload brings."""
    link = PeerLink(peer_access(settings, peer(settings), name), calls_to(name, logs.events(role_of(settings))))
    reloads.add(lambda new: link.prepare(peer_access(new, peer(new), name)))
    return link


def _pins(settings: KgcSettings | CspSettings, reloads: Reloads) -> Pins | None:
    """None without TLS: plain HTTP, for trials on loopback, proves nothing."""
    if settings.certificate is None:
        return None
    pins = Pins(settings.known_keys)

    def prepare(new: KgcSettings | CspSettings) -> Callable[[], None]:
        return partial(pins.replace, new.known_keys)

    reloads.add(prepare)
    return pins
