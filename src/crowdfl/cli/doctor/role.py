"""What `crowdfl doctor` checks in a role's folder, its database, and the services it knows; every credential is tried."""

import datetime
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from cryptography import x509

from crowdfl.cli.doctor.command import DoctorCheck, fail, ok, warn
from crowdfl.cli.role_folder import in_url
from crowdfl.errors import CrowdFLError, KeyNotProven, NotAuthenticated, ServiceUnavailable, StoreError, TokenExpired
from crowdfl.retry import Backoff
from crowdfl.roles.records import TaskState
from crowdfl.roles.retention import Held, Retention, WhyHeld, secrets_of
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.roles.waiting import PEERS, format_time
from crowdfl.services.client.opening import RequesterFile
from crowdfl.services.client.peer_link import PeerAccess
from crowdfl.services.client.peers import KgcClient
from crowdfl.services.client.transport import Bearer, Link
from crowdfl.services.cluster.backend import Cluster
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens, said_time
from crowdfl.services.http.signatures import SKEW_SECONDS
from crowdfl.services.run import certificate_files, open_retention, peer_access
from crowdfl.services.server import bind
from crowdfl.settings import ComputingSettings, CspSettings, KgcSettings, ServiceSettings, SpSettings
from crowdfl.storage import migrations
from crowdfl.storage.atomic import read_secret, read_signing_key
from crowdfl.storage.s3 import open_keys
from crowdfl.storage.settings_file import SERVICES, read_service, read_settings, role_in, role_of

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ONCE = Backoff(deadline=0.0)
_CLUSTER_SECONDS = 3.0
_START = "start it, or correct its address in the settings"
_ADVICE = {
    WhyHeld.ENDED: "the service erases it within the hour; if it does not run, `crowdfl {role} task purge`",
    WhyHeld.PAST: "SP never said that it is over: `crowdfl {role} task purge`, or wait for a day of sightings",
    WhyHeld.UNKNOWN: "left by a creation that never ended: swept after a week; is `database` the right one?",
}


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
    yield _permissions(settings.data)
    yield _checked("database", lambda: _database(settings))
    yield from _held(settings)
    yield _port(settings)
    if isinstance(settings, ComputingSettings):
        if settings.compute == "dask":
            yield _checked("cluster", lambda: _cluster(settings))
        yield from _service("KGC", _link(settings, settings.kgc.url), settings.kgc_key)
    if isinstance(settings, SpSettings):
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


def _held(settings: ServiceSettings) -> list[DoctorCheck]:
    if settings.database is None and not (settings.data / "state.db").exists():
        return []
    try:
        return list(_held_lines(settings, role_of(settings)))
    except StoreError:  # reported above
        return []
    except CrowdFLError as wrong:
        return [fail("held", type(wrong).__name__, str(wrong))]


def _held_lines(settings: ServiceSettings, role: str) -> Iterator[DoctorCheck]:
    """One line for each reason; the kinds are counted together."""
    with open_retention(settings, upgrade=False) as retention:
        held = {task: secrets_of(counts) for task, counts in retention.held().items() if secrets_of(counts)}
        reasons = {task: retention.why_held(task, counts) for task, counts in held.items()}
        yield from _lines(held, {task: (why, _until(retention, task, why)) for task, why in reasons.items()}, role)
        if isinstance(retention, SpRetention):
            yield from _not_told(retention)


def _until(retention: Retention[Any], task: str, why: WhyHeld) -> str:
    return f" until {format_time(retention.store.task(task).claims_until)}" if why is WhyHeld.CLAIMS else ""


def _lines(held: Held, reasons: dict[str, tuple[WhyHeld, str]], role: str) -> Iterator[DoctorCheck]:
    if not held:
        yield ok("held", "nothing secret of any task")
    for (why, until), count in sorted(Counter(reasons.values()).items(), key=lambda one: one[0][0].words + one[0][1]):
        kinds: Counter[str] = sum((held[task] for task in held if reasons[task] == (why, until)), Counter())
        told = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
        found = f"{count} task{'s' if count > 1 else ''}, {why.words}{until}: {told}"
        advice = _ADVICE.get(why, "").format(role=role)
        yield warn("held", found, advice) if advice else ok("held", found)


def _not_told(retention: SpRetention) -> Iterator[DoctorCheck]:
    """Peers that have not acknowledged the end of a task."""
    settled = [stored for stored in retention.store.tasks() if stored.state == TaskState.SETTLED]
    for name, shown in PEERS.items():
        waiting = [stored for stored in settled if name in stored.unnotified(PEERS)]
        if waiting:
            found = f"has not acknowledged the end of {len(waiting)} task{'s' if len(waiting) > 1 else ''}"
            yield warn(f"{shown}'s keys", found, "is `sp_key` in its settings? It is told again, once an hour at least")


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


SOON = datetime.timedelta(days=30)
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_ACCEPT = "let its operator run `crowdfl exchange accept` with this role's public part"


def server_credentials(settings: ServiceSettings) -> Iterator[DoctorCheck]:
    """Of KGC, SP or CSP."""
    files = certificate_files(settings)
    if files is not None:
        yield _checked("certificate", lambda: certificate_check("certificate", files))
    yield from _authorities(settings.ca)
    yield from _own_authority(settings.data)
    yield from _signing(settings.data)
    yield from _keys(settings)
    yield from _given(settings)
    if isinstance(settings, ComputingSettings):
        if settings.dask is not None and settings.dask.certificate and settings.dask.key:
            cluster = tls.CertificateFiles(settings.dask.certificate, settings.dask.key)
            yield _checked("dask certificate", lambda: certificate_check("dask certificate", cluster))
        yield from _peer(peer_access(settings, settings.kgc, "KGC"), role_of(settings))
    if isinstance(settings, SpSettings):
        yield from _peer(peer_access(settings, settings.csp, "CSP"), "sp")


def requester_credentials(own: RequesterFile) -> Iterator[DoctorCheck]:
    yield from _authorities(own.settings.ca)
    for name, url, token in (
        ("KGC", own.settings.kgc, own.settings.kgc_token),
        ("SP", own.settings.sp, own.settings.sp_token),
    ):
        yield from _peer(PeerAccess(name, own.link(url), token), "requester")


def certificate_check(what: str, files: tls.CertificateFiles) -> DoctorCheck:
    return _validity(what, tls.require_usable(files), "`crowdfl tls renew`, then SIGHUP; or where it came from")


def _validity(what: str, certificate: x509.Certificate, advice: str) -> DoctorCheck:
    now, end = datetime.datetime.now(datetime.UTC), certificate.not_valid_after_utc
    found = f"valid from {certificate.not_valid_before_utc:%Y-%m-%d} to {end:%Y-%m-%d}"
    if not certificate.not_valid_before_utc <= now <= end:
        return fail(what, found, advice)
    return warn(what, found, f"soon: {advice}") if end - now < SOON else ok(what, found)


def _checked(what: str, check: Callable[[], DoctorCheck]) -> DoctorCheck:
    try:
        return check()
    except (CrowdFLError, OSError) as wrong:
        return fail(what, type(wrong).__name__, str(wrong))


def _authorities(path: Path | None) -> Iterator[DoctorCheck]:
    """Those that this role trusts."""
    if path is None:
        return
    try:
        found = [x509.load_pem_x509_certificate(block) for block in _PEM.findall(path.read_bytes())]
    except (OSError, ValueError) as wrong:
        yield fail("trusted authorities", f"{path}: {wrong}", "accept the peers again, or restore it from a backup")
        return
    if not found:
        yield fail("trusted authorities", f"{path} holds no certificate", "accept the peers again")
    for certificate in found:
        what = f"trusts {certificate.subject.rfc4514_string().removeprefix('CN=')}"
        yield _validity(what, certificate, "ask its owner for a public part with a newer authority")


def _own_authority(folder: Path) -> Iterator[DoctorCheck]:
    files = tls.CertificateFiles(folder / "authority/ca.pem", folder / "authority/ca.key")
    if files.certificate.exists() and files.key.exists():
        yield _checked("own authority", lambda: certificate_check("own authority", files))
    elif files.certificate.exists():
        yield ok("own authority", "its key is kept elsewhere: `crowdfl tls renew` needs it")


def _signing(folder: Path) -> Iterator[DoctorCheck]:
    path = folder / "signing.key"
    if path.exists():
        yield _checked("signing key", lambda: ok("signing key", f"of {read_signing_key(path).public.hex()[:16]}..."))


def _keys(settings: ServiceSettings) -> Iterator[DoctorCheck]:
    """Whether the passphrase opens the folder of key shares, or none is needed; an empty folder stays as it is."""
    folder, elsewhere = settings.data / "keys", isinstance(settings, ComputingSettings) and settings.s3 is not None
    if not elsewhere and (not folder.is_dir() or not any(folder.iterdir())):
        return
    found = "no passphrase" if settings.passphrase_file is None else "the passphrase opens them"

    def look() -> DoctorCheck:
        open_keys(settings)
        return ok("key shares", found)

    yield _checked("key shares", look)


def _given(settings: ServiceSettings) -> Iterator[DoctorCheck]:
    """What this service knows of its callers: keys that it asks for, tokens that end soon."""
    if isinstance(settings, KgcSettings | CspSettings) and settings.certificate is not None:
        for role, keys in settings.known_keys.items():
            what = f"{role}'s TLS key"
            if keys:
                yield ok(
                    what, "is known" if len(keys) == 1 else f"{len(keys)} are known: accept again when it is renewed"
                )
            else:
                yield fail(what, f"none is known: {role} gets nothing here", "`crowdfl exchange accept`")
    tokens = Tokens(settings.data / "tokens.json")
    try:
        ending = [entry for entry in tokens.entries() if entry.expires is not None]
    except CrowdFLError as wrong:
        yield fail("tokens", type(wrong).__name__, str(wrong))
        return
    for entry in ending:
        if not entry.ended(tokens.now()) and (entry.expires or 0) - tokens.now() < SOON.total_seconds():
            yield warn(
                f"{entry.name}'s old token", f"good until {entry.until}", "its holder must use the new one by then"
            )
    yield ok("tokens", f"{len(tokens.entries())} are known here")


def _peer(access: PeerAccess, role: str) -> Iterator[DoctorCheck]:
    """This role's certificate and every token file at another service; whether it answers at all is checked elsewhere."""
    if not _answers(access.link, own=False):
        return
    if access.link.own is not None and access.link.url.startswith("https:"):
        what = f"certificate at {access.name}"
        if not _answers(access.link, own=True):
            yield fail(what, f"{access.name} does not believe who vouches for it", _ACCEPT)
            return
        yield ok(what, "is believed")
    coming = access.token.with_name(f"{access.token.name}.next")
    yield _token(access, access.token, role)
    if coming.exists():
        check = _token(access, coming, role)
        advice = "`crowdfl exchange token --use`, then SIGHUP" if check.verdict == "ok" else _ACCEPT
        yield warn(f"next token for {access.name}", check.found, advice)


def _answers(link: Link, *, own: bool) -> bool:
    shown = link if own else replace(link, own=None)
    try:
        with closing(shown.open(retries=_ONCE)) as service:
            service.call("GET", "/healthz")
    except CrowdFLError:
        return False
    return True


def _token(access: PeerAccess, path: Path, role: str) -> DoctorCheck:
    what = f"token for {access.name}"
    try:
        with closing(access.link.open(Bearer(read_secret(path, what)), _ONCE)) as service:
            known = service.call("GET", "/v1/whoami").json()
    except CrowdFLError as wrong:
        return _refused(what, wrong)
    if known.get("role") != role:
        return fail(what, f"{access.name} knows it as {known.get('role')}'s", f"it must be one of {role}")
    ends = known.get("expires")
    if isinstance(ends, int | float) and ends - time.time() < SOON.total_seconds():
        return warn(what, f"good until {said_time(ends)}", "put the one that replaces it into its place, then SIGHUP")
    return ok(what, f"{access.name} knows it as {known.get('name')}'s")


def _refused(what: str, wrong: CrowdFLError) -> DoctorCheck:
    if isinstance(wrong, ServiceUnavailable):
        return warn(what, str(wrong), "try again when it answers")
    advice: dict[type[CrowdFLError], str] = {
        KeyNotProven: _ACCEPT,
        NotAuthenticated: f"make another one (`crowdfl exchange token`) and {_ACCEPT}",
        TokenExpired: "put the one that replaced it into its place, then SIGHUP",
    }
    words = advice.get(type(wrong), "update the older side, or correct the file")
    return fail(what, f"{type(wrong).__name__}: {wrong}", words)
