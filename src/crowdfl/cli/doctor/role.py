"""What `crowdfl doctor` checks in a role's folder, its database, and the services it knows."""

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from crowdfl.cli.doctor.credentials import requester_credentials, server_credentials
from crowdfl.cli.doctor.held import held_checks
from crowdfl.cli.doctor.machine import DoctorCheck, fail, ok, warn
from crowdfl.cli.exchange.role_folder import in_url
from crowdfl.errors import CrowdFLError, ServiceUnavailable, StoreError
from crowdfl.retry import Backoff
from crowdfl.services.background.watching import role_of
from crowdfl.services.client.peers import KgcClient
from crowdfl.services.client.requester_file import RequesterFile
from crowdfl.services.client.transport import Link
from crowdfl.services.cluster.backend import Cluster
from crowdfl.services.http.signatures import SKEW_SECONDS
from crowdfl.services.server import bind
from crowdfl.settings import ComputingSettings, ServiceSettings, SpSettings
from crowdfl.storage import migrations
from crowdfl.storage.settings_file import SERVICES, read_service, read_settings

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ONCE = Backoff(deadline=0.0)
_CLUSTER_SECONDS = 3.0
_START = "start it, or correct its address in the settings"


def role_checks(path: Path) -> list[DoctorCheck]:
    """Of the server or the requester whose settings file this is."""
    try:
        found = read_settings(path)
        model = _model(found)
        checks = _server(read_service(model, path)) if "host" in found else _requester(RequesterFile.read(path))
    except CrowdFLError as wrong:
        return [fail(str(path), str(wrong), "correct the file; `crowdfl init` makes one to compare with")]
    name = path.resolve().parent.name
    return [replace(found, what=f"{name}: {found.what}") for found in checks]


def _model(found: Mapping[str, Any]) -> type[ServiceSettings]:
    """By the role, where the file says it; else SP alone is told where CSP is, and KGC knows no peer."""
    guess = "sp" if "csp" in found else "csp" if "kgc" in found else "kgc"
    return SERVICES.get(str(found.get("role")), SERVICES[guess])


def _server(settings: ServiceSettings) -> Iterator[DoctorCheck]:
    yield _permissions(settings.data)
    yield _named("database", lambda: _database(settings))
    yield from _held(settings)
    yield _port(settings)
    if isinstance(settings, ComputingSettings):
        if settings.compute == "dask":
            yield _named("cluster", lambda: _cluster(settings))
        yield from _service("KGC", _link(settings, settings.kgc.url), settings.kgc_key)
    if isinstance(settings, SpSettings):
        yield from _service("CSP", _link(settings, settings.csp.url), None)
    yield from server_credentials(settings)


def _requester(own: RequesterFile) -> Iterator[DoctorCheck]:
    yield _permissions(own.folder)
    for name, url, key in (("KGC", own.settings.kgc, own.settings.kgc_key), ("SP", own.settings.sp, None)):
        yield from _service(name, own.link(url), key)
    yield from requester_credentials(own)


def _named(what: str, check: Callable[[], DoctorCheck]) -> DoctorCheck:
    try:
        return check()
    except CrowdFLError as wrong:
        return fail(what, type(wrong).__name__, str(wrong))


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
    file = settings.data / "state.db"
    if settings.database is None and not file.exists():
        return ok("database", "none yet: SQLite is made at the first start")
    migrations.check(settings.database or f"sqlite:///{file}")
    return ok("database", "PostgreSQL, up to date" if settings.database else "SQLite, up to date")


def _held(settings: ServiceSettings) -> list[DoctorCheck]:
    if settings.database is None and not (settings.data / "state.db").exists():
        return []
    try:
        return list(held_checks(settings, role_of(settings)))
    except StoreError:  # reported above
        return []
    except CrowdFLError as wrong:
        return [fail("held", type(wrong).__name__, str(wrong))]


def _cluster(settings: ComputingSettings) -> DoctorCheck:
    if settings.dask is None:
        return fail("cluster", "no scheduler in the settings", "see docs/cluster.md")
    role = "sp" if isinstance(settings, SpSettings) else "csp"
    chosen = settings.dask.changed(plain_tcp=settings.plain_http, patience=_CLUSTER_SECONDS)
    with closing(Cluster(role, chosen)) as cluster:
        threads = cluster.connect()
    if not threads:
        return warn("cluster", "no worker", "start `dask worker`")
    return ok("cluster", f"{threads} worker threads")


def _port(settings: ServiceSettings) -> DoctorCheck:
    what = f"port {settings.port}"
    try:
        bind(settings).close()
    except ServiceUnavailable as taken:
        scheme = "http" if settings.certificate is None else "https"
        url = f"{scheme}://{in_url(settings.host)}:{settings.port}"
        try:
            with closing(_link(settings, url).open(retries=_ONCE)) as service:
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
        with closing(link.open(retries=_ONCE)) as service:
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
