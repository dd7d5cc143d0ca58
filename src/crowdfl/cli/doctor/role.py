"""What `crowdfl doctor` checks in a role's folder, its database, and the services it knows."""

import datetime
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from cryptography import x509

from crowdfl.cli.doctor.machine import DoctorCheck, fail, ok, warn
from crowdfl.cli.requester_file import RequesterFile
from crowdfl.cli.settings_file import in_url, read_service, read_settings
from crowdfl.errors import CrowdFLError, ServiceUnavailable
from crowdfl.retry import Backoff
from crowdfl.services.client.peers import KgcClient
from crowdfl.services.client.transport import Link, Service
from crowdfl.services.cluster.backend import Cluster
from crowdfl.services.http import tls
from crowdfl.services.http.signatures import SKEW_SECONDS
from crowdfl.services.run import certificate_files
from crowdfl.services.server import bind
from crowdfl.settings import ComputingSettings, CspSettings, KgcSettings, PeerSettings, ServiceSettings, SpSettings
from crowdfl.storage import migrations

__all__ = ["role_checks"]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_SOON = datetime.timedelta(days=30)
_ONCE = Backoff(deadline=0.0)
_CLUSTER_SECONDS = 3.0
_START = "start it, or correct its address in the settings"


def role_checks(path: Path) -> list[DoctorCheck]:
    """Of the server or the requester whose settings file this is."""
    try:
        found = read_settings(path)
        server = "host" in found
        checks = _server(read_service(_model(found), path)) if server else _requester(RequesterFile.read(path))
    except CrowdFLError as wrong:
        return [fail(str(path), str(wrong), "correct the file; `crowdfl init` makes one to compare with")]
    name = path.resolve().parent.name
    return [replace(found, what=f"{name}: {found.what}") for found in checks]


def _model(found: Mapping[str, Any]) -> type[ServiceSettings]:
    """SP alone is told where CSP is, and KGC knows no peer."""
    return SpSettings if "csp" in found else CspSettings if "kgc" in found else KgcSettings


def _server(settings: ServiceSettings) -> Iterator[DoctorCheck]:
    yield _permissions(settings.data)
    files = certificate_files(settings)
    if files is not None:
        yield _named("certificate", lambda: _certificate(files))
    yield _named("database", lambda: _database(settings))
    yield _port(settings)
    if isinstance(settings, ComputingSettings):
        if settings.compute == "dask":
            yield _named("cluster", lambda: _cluster(settings))
        yield from _service("KGC", _peer(settings, settings.kgc), settings.kgc_key)
    if isinstance(settings, SpSettings):
        yield from _service("CSP", _peer(settings, settings.csp), None)


def _peer(settings: ServiceSettings, peer: PeerSettings) -> Service:
    return Link(peer.url, settings.ca, settings.plain_http).open(retries=_ONCE)


def _requester(own: RequesterFile) -> Iterator[DoctorCheck]:
    yield _permissions(own.folder)
    for name, link, key in (("KGC", own.kgc, own.kgc_key), ("SP", own.sp, None)):
        yield from _service(name, link.open(retries=_ONCE), key)


def _named(what: str, check: Callable[[], DoctorCheck]) -> DoctorCheck:
    try:
        return check()
    except CrowdFLError as wrong:
        return fail(what, type(wrong).__name__, str(wrong))


def _permissions(folder: Path) -> DoctorCheck:
    """The folder and each file in it are closed to other users."""
    everything = [folder, *sorted(folder.rglob("*"))]
    open_ones = [path for path in everything if path.lstat().st_mode & _OTHERS and not path.is_symlink()]
    foreign = [path for path in everything if path.lstat().st_uid != os.geteuid()]
    if foreign:
        return fail("permissions", f"{foreign[0]} belongs to another user", f"run as its owner, or chown -R {folder}")
    if open_ones:
        return fail("permissions", f"{open_ones[0]} is open to other users", f"chmod -R go= {folder}")
    return ok("permissions", f"{len(everything)} files and folders are their owner's alone")


def _certificate(files: tls.CertificateFiles) -> DoctorCheck:
    tls.require_usable(files)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    now, end = datetime.datetime.now(datetime.UTC), certificate.not_valid_after_utc
    found = f"valid from {certificate.not_valid_before_utc:%Y-%m-%d} to {end:%Y-%m-%d}"
    if not certificate.not_valid_before_utc <= now <= end:
        return fail("certificate", found, "put a valid one at the path that the settings name")
    return warn("certificate", found, "renew it soon") if end - now < _SOON else ok("certificate", found)


def _database(settings: ServiceSettings) -> DoctorCheck:
    file = settings.data / "state.db"
    if settings.database is None and not file.exists():
        return ok("database", "none yet: SQLite is made at the first start")
    migrations.check(settings.database or f"sqlite:///{file}")
    return ok("database", "PostgreSQL, up to date" if settings.database else "SQLite, up to date")


def _cluster(settings: ComputingSettings) -> DoctorCheck:
    if settings.dask is None:
        return fail("cluster", "no scheduler in the settings", "see docs/cluster.md")
    role = "sp" if isinstance(settings, SpSettings) else "csp"
    chosen = settings.dask.changed(plain_tcp=settings.plain_http, patience=_CLUSTER_SECONDS)
    cluster = Cluster(role, chosen)
    try:
        threads = cluster.connect()
    finally:
        cluster.close()
    return (
        ok("cluster", f"{threads} worker threads") if threads else warn("cluster", "no worker", "start `dask worker`")
    )


def _port(settings: ServiceSettings) -> DoctorCheck:
    what = f"port {settings.port}"
    try:
        bind(settings).close()
    except ServiceUnavailable as taken:
        scheme = "http" if settings.certificate is None else "https"
        url = f"{scheme}://{in_url(settings.host)}:{settings.port}"
        service = Link(url, settings.ca, settings.plain_http).open(retries=_ONCE)
        try:
            service.call("GET", "/healthz")
            service.call("GET", "/readyz")
        except CrowdFLError as wrong:
            return fail(what, f"{taken}; no healthy service answers there: {wrong}", "look into the service's log")
        finally:
            service.close()
        return ok(what, "the service runs, its store and disk work")
    return ok(what, "free: the service does not run now")


def _service(name: str, service: Service, key: bytes | None) -> Iterator[DoctorCheck]:
    """Reachable over TLS, of the same protocol, with a clock like ours, and the one that it should be."""
    try:
        before = time.time()
        reply = service.call("GET", "/healthz")
        yield ok(name, f"{service.http.base_url} answers, and speaks the same protocol")
        yield _clock(name, before, reply.headers.get("date"))
        if key is not None:
            known = KgcClient(service).key() == key
            wrong = fail(
                f"{name}'s key", "not the one in the settings", "ask KGC's operator which is right; trust neither"
            )
            yield ok(f"{name}'s key", "is the one in the settings") if known else wrong
    except ServiceUnavailable as away:
        yield fail(name, str(away), _START)
    except CrowdFLError as refusal:
        yield fail(name, f"{type(refusal).__name__}: {refusal}", "update the older side, or correct the address")
    finally:
        service.close()


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
