"""A role's certificates, keys and tokens: each is tried where it is used."""

import datetime
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from cryptography import x509

from crowdfl.cli.doctor.check import ONCE, DoctorCheck, checked, fail, ok, warn
from crowdfl.errors import (
    CrowdFLError,
    KeyNotProven,
    NotAuthenticated,
    ServiceUnavailable,
    TokenExpired,
)
from crowdfl.services.client.opening import RequesterFile
from crowdfl.services.client.peer_link import PeerAccess
from crowdfl.services.client.transport import Bearer, Link
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens, said_time
from crowdfl.services.run import certificate_files, peer_access
from crowdfl.settings import ComputingSettings, CspSettings, KgcSettings, ServiceSettings, SpSettings
from crowdfl.storage.atomic import read_secret, read_signing_key
from crowdfl.storage.s3 import open_keys
from crowdfl.storage.settings_file import role_of

_SOON = datetime.timedelta(days=30)
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_ACCEPT = "let its operator run `crowdfl exchange accept` with this role's public part"


def server_credentials(settings: ServiceSettings) -> Iterator[DoctorCheck]:
    """Of KGC, SP or CSP."""
    files = certificate_files(settings)
    if files is not None:
        yield checked("certificate", lambda: _certificate_check("certificate", files))
    yield from _authorities(settings.ca)
    yield from _own_authority(settings.data)
    yield from _signing(settings.data)
    yield from _keys(settings)
    yield from _given(settings)
    if isinstance(settings, ComputingSettings):
        if settings.dask is not None and settings.dask.certificate and settings.dask.key:
            cluster = tls.CertificateFiles(settings.dask.certificate, settings.dask.key)
            yield checked("dask certificate", lambda: _certificate_check("dask certificate", cluster))
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


def _certificate_check(what: str, files: tls.CertificateFiles) -> DoctorCheck:
    return _validity(what, tls.require_usable(files), "`crowdfl tls renew`, then SIGHUP; or where it came from")


def _validity(what: str, certificate: x509.Certificate, advice: str) -> DoctorCheck:
    now = datetime.datetime.now(datetime.UTC)
    end = certificate.not_valid_after_utc
    found = f"valid from {certificate.not_valid_before_utc:%Y-%m-%d} to {end:%Y-%m-%d}"
    if not certificate.not_valid_before_utc <= now <= end:
        return fail(what, found, advice)
    return warn(what, found, f"soon: {advice}") if end - now < _SOON else ok(what, found)


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
        yield checked("own authority", lambda: _certificate_check("own authority", files))
    elif files.certificate.exists():
        yield ok("own authority", "its key is kept elsewhere: `crowdfl tls renew` needs it")


def _signing(folder: Path) -> Iterator[DoctorCheck]:
    path = folder / "signing.key"
    if path.exists():
        yield checked("signing key", lambda: ok("signing key", f"of {read_signing_key(path).public.hex()[:16]}..."))


def _keys(settings: ServiceSettings) -> Iterator[DoctorCheck]:
    """Whether the passphrase opens the folder of key shares, or none is needed; an empty folder stays as it is."""
    folder = settings.data / "keys"
    elsewhere = isinstance(settings, ComputingSettings) and settings.s3 is not None
    if not elsewhere and (not folder.is_dir() or not any(folder.iterdir())):
        return
    found = "no passphrase" if settings.passphrase_file is None else "the passphrase opens them"

    def look() -> DoctorCheck:
        open_keys(settings)
        return ok("key shares", found)

    yield checked("key shares", look)


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
        if not entry.ended(tokens.now()) and (entry.expires or 0) - tokens.now() < _SOON.total_seconds():
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
        with closing(shown.open(retries=ONCE)) as service:
            service.call("GET", "/healthz")
    except CrowdFLError:
        return False
    return True


def _token(access: PeerAccess, path: Path, role: str) -> DoctorCheck:
    what = f"token for {access.name}"
    try:
        with closing(access.link.open(Bearer(read_secret(path, what)), ONCE)) as service:
            known = service.call("GET", "/v1/whoami").json()
    except CrowdFLError as wrong:
        return _refused(what, wrong)
    if known.get("role") != role:
        return fail(what, f"{access.name} knows it as {known.get('role')}'s", f"it must be one of {role}")
    ends = known.get("expires")
    if isinstance(ends, int | float) and ends - time.time() < _SOON.total_seconds():
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
