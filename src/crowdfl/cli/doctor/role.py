"""What `crowdfl doctor` checks of a role."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from crowdfl.cli.doctor.check import ONCE, DoctorCheck, checked, fail, ok, warn
from crowdfl.cli.doctor.credentials import requester_credentials, server_credentials
from crowdfl.cli.doctor.held import held_checks
from crowdfl.cli.doctor.looks import looks_checks
from crowdfl.cli.doctor.machine import space
from crowdfl.errors import (
    CrowdFLError,
    GuardMissing,
    ServiceUnavailable,
    StoreError,
)
from crowdfl.services.client.opening import RequesterFile
from crowdfl.services.client.peers import KgcClient
from crowdfl.services.client.transport import Link
from crowdfl.services.cluster.backend import Cluster
from crowdfl.services.folders.role_folder import in_url
from crowdfl.services.http.signatures import SKEW_SECONDS
from crowdfl.services.run import guard_exposure, open_guard
from crowdfl.services.server import bind
from crowdfl.settings import ComputingSettings, KgcSettings, ServiceSettings, SpSettings
from crowdfl.storage import migrations
from crowdfl.storage.database import open_engine, reading
from crowdfl.storage.settings_file import SERVICES, read_service, read_settings, role_in, role_of
from crowdfl.storage.sql import SqlStore

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_CLUSTER_SECONDS = 3.0
_START = "start it, or correct its address in the settings"


def role_checks(path: Path) -> list[DoctorCheck]:
    """Of the server or the requester whose settings file this is."""
    try:
        found = read_settings(path)
        model = SERVICES.get(role_in(found), KgcSettings)  # of another role: the model says so
        checks = _server(read_service(model, path)) if "host" in found else _requester(RequesterFile.read(path))
    except CrowdFLError as wrong:
        return [fail(str(path), str(wrong), "correct the file; `crowdfl init` makes one to compare with")]
    name = path.resolve().parent.name
    return [replace(found, what=f"{name}: {found.what}") for found in checks]


def _server(settings: ServiceSettings) -> Iterator[DoctorCheck]:
    yield space(settings.data, "correct the path of the settings file")
    yield _permissions(settings.data)
    yield checked("database", lambda: _database(settings))
    yield from held_checks(settings)
    yield _port(settings)
    if isinstance(settings, ComputingSettings):
        yield checked("guard", lambda: _guard(settings))
        yield from _standbys(settings)
        if settings.compute == "dask":
            yield checked("cluster", lambda: _cluster(settings))
        yield from _service("KGC", _link(settings, settings.kgc.url), settings.kgc_key)
    if isinstance(settings, SpSettings):
        yield from looks_checks(settings)
        yield from _service("CSP", _link(settings, settings.csp.url), None)
    yield from server_credentials(settings)


def _requester(own: RequesterFile) -> Iterator[DoctorCheck]:
    yield _permissions(own.folder)
    for name, url, key in (("KGC", own.settings.kgc, own.settings.kgc_key), ("SP", own.settings.sp, None)):
        yield from _service(name, own.link(url), key)
    yield from requester_credentials(own)


def _permissions(folder: Path) -> DoctorCheck:
    everything = [folder, *sorted(folder.rglob("*"))]
    open_ones = [path for path in everything if path.lstat().st_mode & _OTHERS and not path.is_symlink()]
    foreign = [path for path in everything if path.lstat().st_uid != os.geteuid()]
    if foreign:
        return fail("permissions", f"{foreign[0]} belongs to another user", f"run as its owner, or chown -R {folder}")
    if open_ones:
        return fail("permissions", f"{open_ones[0]} is open to other users", f"chmod -R go= {folder}")
    return ok("permissions", f"{len(everything)} files and folders are their owner's alone")


def _database(settings: ServiceSettings) -> DoctorCheck:
    if settings.database is None and not (settings.data / "state.db").exists():
        return ok("database", "none yet: SQLite is made at the first start")
    migrations.check(settings.database_url)
    return ok("database", "PostgreSQL, up to date" if settings.database else "SQLite, up to date")


def _guard(settings: ComputingSettings) -> DoctorCheck:
    """Of a database that exists: it knows its guard."""
    if settings.database is None and not (settings.data / "state.db").exists():
        return ok("guard", "none yet: it is made at the first step of a round")
    with closing(SqlStore(settings.database_url)) as store:
        try:
            open_guard(store, settings, tell=False).require_own()
        except GuardMissing as missing:
            return fail("guard", "not there, or another's: no step of a round is taken", str(missing))
    exposed = guard_exposure(settings)
    if exposed is not None:
        return warn("guard", exposed, "docs/backup.md")
    return ok("guard", "there, away from the database")


def _standbys(settings: ComputingSettings) -> Iterator[DoctorCheck]:
    """A standby that is behind sets the server back when it takes over."""
    if settings.database is None:
        return
    engine = open_engine(settings.database_url)
    try:
        with reading(engine) as connection:
            if connection.dialect.name != "postgresql":
                return
            states = list(connection.exec_driver_sql("SELECT sync_state FROM pg_stat_replication").scalars())
            durable = connection.exec_driver_sql("SHOW synchronous_commit").scalar()
    except StoreError:  # reported above
        return
    finally:
        engine.dispose()
    if durable in ("off", "local") and (states or durable == "off"):
        found = f"synchronous_commit is {durable}: what was committed may be lost"
        yield warn("standbys", found, "set it to `on`: the server would be set back")
    if behind := sum(state not in ("sync", "quorum") for state in states):
        found = f"{behind} of {len(states)} standbys are not synchronous, or this user may not see it"
        yield warn(
            "standbys", found, "name them in `synchronous_standby_names`: one that is behind sets this server back"
        )
    elif states:
        yield ok("standbys", f"{len(states)}, synchronous")


def _cluster(settings: ComputingSettings) -> DoctorCheck:
    if settings.dask is None:
        return fail("cluster", "no scheduler in the settings", "see docs/cluster.md")
    chosen = settings.dask.changed(plain_tcp=settings.plain_http, patience=_CLUSTER_SECONDS)
    with closing(Cluster(role_of(settings), chosen)) as cluster:
        threads = cluster.connect()
    if not threads:
        return warn("cluster", "no worker", "start `dask worker`")
    return ok("cluster", f"{threads} worker threads")


def _port(settings: ServiceSettings) -> DoctorCheck:
    what = f"port {settings.port}"
    try:
        bind(settings.address, settings.port).close()
    except ServiceUnavailable as taken:
        scheme = "http" if settings.certificate is None else "https"
        url = f"{scheme}://{in_url(settings.host)}:{settings.port}"
        try:
            with closing(_link(settings, url).open(retries=ONCE)) as service:
                service.call("GET", "/healthz")
                service.call("GET", "/readyz")
        except CrowdFLError as wrong:
            return fail(what, f"{taken}; no healthy service answers there: {wrong}", "look into the service's log")
        return ok(what, "the service runs, its store and disk work")
    return ok(what, "free: the service does not run now")


def _link(settings: ServiceSettings, url: str) -> Link:
    return Link(url, settings.ca, settings.plain_http)


def _service(name: str, link: Link, key: bytes | None) -> Iterator[DoctorCheck]:
    """Reachable over TLS, of the same protocol, with a clock like ours, and the one that it should be."""
    try:
        with closing(link.open(retries=ONCE)) as service:
            before = time.time()
            reply = service.call("GET", "/healthz")
            yield ok(name, f"{service.http.base_url} answers, and speaks the same protocol")
            yield _clock(name, before, reply.headers.get("date"))
            if key is not None:
                yield _key(f"{name}'s key", known=KgcClient(service).key() == key)
    except ServiceUnavailable as away:
        yield fail(name, str(away), _START)
    except CrowdFLError as refusal:
        yield fail(name, f"{type(refusal).__name__}: {refusal}", "update the older side, or correct the address")


def _key(what: str, *, known: bool) -> DoctorCheck:
    if known:
        return ok(what, "is the one in the settings")
    return fail(what, "not the one in the settings", "ask KGC's operator which is right; trust neither")


def _clock(name: str, before: float, date: str | None) -> DoctorCheck:
    what = f"{name}'s clock"
    try:
        theirs = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return warn(what, "its answer has no date", "compare the clocks by hand")
    apart = abs(theirs - (before + time.time()) / 2)
    found = f"{apart:.0f} s apart"
    if apart > SKEW_SECONDS:
        return fail(what, found, "set both clocks, best by NTP: signed requests are refused")
    return warn(what, found, "set both clocks, best by NTP") if apart > 5 else ok(what, found)
