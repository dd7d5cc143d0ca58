"""Each role's own authority, the certificate it serves and calls with, and the rule that plain HTTP stays on loopback.

A role's authority can vouch for that role's host and for loopback alone, so that a client may trust several of them. Whoever
has certificates of another authority names them in the settings.
"""

import datetime
import hashlib
import ipaddress
import ssl
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from crowdfl.crypto.randomness import random_bits, random_p256
from crowdfl.errors import (
    KeyFileDamaged,
    KeyFileExists,
    KeyFileMissing,
    KeyFilePermissions,
    PlainHttpRefused,
    SettingsError,
)
from crowdfl.storage.atomic import require_owner_only, write_private

_CA_DAYS = 3650
_SERVER_DAYS = 397  # what strict clients accept of a server
_SKEW = datetime.timedelta(days=1)
_ALWAYS = ("localhost", "127.0.0.1")
_NOT_A_CA = x509.BasicConstraints(ca=False, path_length=None)
_BOTH_WAYS = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
_Extension = tuple[x509.ExtensionType, bool]  # with whether it is critical


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


def make_ca(
    folder: Path,
    now: datetime.datetime | None = None,
    *,
    subject: str = "CrowdFL development CA",
    hosts: Iterable[str] | None = None,
) -> CertificateFiles:
    """A new authority as `ca.pem` and `ca.key`; with `hosts`, believed about these and loopback alone, and no subdomain."""
    usage = x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    extensions: list[_Extension] = [(x509.BasicConstraints(ca=True, path_length=0), True), (usage, True)]
    if hosts is not None:
        # Loopback is always among them, so that names and addresses are both restricted: a form without any rule is free.
        named = list(dict.fromkeys((*_ALWAYS, *hosts)))
        excluded = [x509.DNSName(name) for name in map(below, named) if name and not _is_under(named, name)]
        extensions.append((x509.NameConstraints([_subtree(host) for host in named], excluded), True))
    return _write(folder, "ca", *_issue(subject, _CA_DAYS, extensions, now=now))


def make_server_certificate(
    folder: Path, ca: CertificateFiles, name: str, hosts: Iterable[str] = (), now: datetime.datetime | None = None
) -> CertificateFiles:
    """For a server, as `<name>.pem` and `<name>.key`; good for loopback and the given hosts, and to prove itself to others."""
    return _write(folder, name, *_issue(f"CrowdFL {name}", _SERVER_DAYS, _server(hosts), _load_ca(ca), now=now))


def renew_certificate(
    files: CertificateFiles, ca: CertificateFiles, hosts: Iterable[str] = (), now: datetime.datetime | None = None
) -> None:
    """Another certificate for the key that is there."""
    _, key = _load(files)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise KeyFileDamaged(f"{files.key} was not made by `crowdfl init`: renew its certificate where it came from")
    subject = f"CrowdFL {files.certificate.stem}"
    certificate, _ = _issue(subject, _SERVER_DAYS, _server(hosts), _load_ca(ca), key, now)
    write_private(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), overwrite=True)


def make_cluster_certificate(folder: Path, name: str = "cluster") -> CertificateFiles:
    """For all machines of one role's cluster, as `<name>.pem` and `<name>.key`: it is its own and only authority."""
    extensions: list[_Extension] = [(_NOT_A_CA, True), (_BOTH_WAYS, False)]
    return _write(folder, name, *_issue(f"CrowdFL {name}", _SERVER_DAYS, extensions))


def server_context(files: CertificateFiles, clients: Path | None, *, asks: bool) -> ssl.SSLContext:
    """TLS 1.2 or later; one that asks takes a client's certificate if there is one, and believes `clients` about it."""
    require_usable(files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key)
    except ssl.SSLError as wrong:
        raise KeyFileDamaged(f"{files.certificate} cannot be served: {wrong.reason}") from None
    if asks:
        context.verify_mode = ssl.CERT_OPTIONAL  # phones and requesters have none
        _trust(context, clients, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(ca: Path | None, own: CertificateFiles | None = None) -> ssl.SSLContext:
    """Trusts the CA at this path alone, or the system's; TLS 1.2 or later, names checked; `own` proves who calls."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _trust(context, ca, ssl.Purpose.SERVER_AUTH)
    if own is not None:
        require_usable(own)
        context.load_cert_chain(own.certificate, own.key)
    return context


def _trust(context: ssl.SSLContext, ca: Path | None, purpose: ssl.Purpose) -> None:
    try:
        if ca is None:
            context.load_default_certs(purpose)
        else:
            context.load_verify_locations(ca)
    except FileNotFoundError:
        raise KeyFileMissing(f"there is no certificate authority at {ca}") from None
    except ssl.SSLError:
        raise KeyFileDamaged(f"{ca} does not hold a certificate") from None


def key_pin(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate's public key: the same when the certificate is renewed and the key stays."""
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(certificate.public_key().public_bytes(*form)).hexdigest()


def pin_of_der(der: bytes) -> str | None:
    """The same of a connection's certificate; None if its key is of no kind that is known here."""
    try:
        return key_pin(x509.load_der_x509_certificate(der))
    except (ValueError, UnsupportedAlgorithm):
        return None


def require_usable(files: CertificateFiles) -> x509.Certificate:
    certificate = _load(files)[0]
    if files.key.stat().st_mode & stat.S_IRWXO:  # a group of the machine's own may read keys from elsewhere
        raise KeyFilePermissions(f"everyone on this machine can read {files.key}: chmod o= {files.key}")
    return certificate


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_plain_http_allowed(host: str, *, asked: bool) -> None:
    if not asked:
        raise PlainHttpRefused("TLS is not set up: give a certificate, or ask for plain HTTP on loopback")
    if not is_loopback(host):
        raise PlainHttpRefused(f"plain HTTP to {host or 'nowhere'} is refused: it is allowed on loopback only")


def _server(hosts: Iterable[str]) -> list[_Extension]:
    names = [_general_name(host) for host in dict.fromkeys((*_ALWAYS, *hosts))]
    return [(_NOT_A_CA, True), (x509.SubjectAlternativeName(names), False), (_BOTH_WAYS, False)]


def _issue(
    subject: str,
    days: int,
    extensions: Iterable[_Extension],
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
    key: ec.EllipticCurvePrivateKey | None = None,
    now: datetime.datetime | None = None,
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate of a key, or of a new one, signed by the issuer or by itself."""
    key = key or random_p256()
    start = now or datetime.datetime.now(datetime.UTC)
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    signer, signing = issuer or (own, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(signer)
        .public_key(key.public_key())
        .serial_number(1 + int(random_bits(159)))
        .not_valid_before(start - _SKEW)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signing, hashes.SHA256()), key


def below(host: str) -> str | None:
    """What a name constraint calls all names under a host, which permitting the host permits too; None for an address."""
    return f".{host}" if isinstance(_general_name(host), x509.DNSName) else None


def _is_under(hosts: Iterable[str], below_one: str) -> bool:
    return any(host.lower().endswith(below_one.lower()) for host in hosts)


def _subtree(host: str) -> x509.GeneralName:
    """A host as an authority's restriction: an address is a network of one."""
    name = _general_name(host)
    return x509.IPAddress(ipaddress.ip_network(host)) if isinstance(name, x509.IPAddress) else name


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise SettingsError(f"{host!r} is not a host name; write one with non-ASCII letters as xn--...") from None


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> CertificateFiles:
    files = CertificateFiles(folder / f"{name}.pem", folder / f"{name}.key")
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    try:
        write_private(files.key, secret)
        write_private(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    except FileExistsError as there:
        raise KeyFileExists(f"{there.filename2 or files.key} exists already: remove it to make another") from None
    return files


def _load(files: CertificateFiles) -> tuple[x509.Certificate, PrivateKeyTypes]:
    try:
        key = serialization.load_pem_private_key(files.key.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        belongs = certificate.public_key() == key.public_key()  # raises if the certificate's key is damaged
    except FileNotFoundError as missing:
        raise KeyFileMissing(f"there is no file {missing.filename}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise KeyFileDamaged(f"{files.certificate} and {files.key} are not a certificate with its key") from None
    if not belongs:
        raise KeyFileDamaged(f"{files.certificate} does not belong to {files.key}")
    return certificate, key


def _load_ca(files: CertificateFiles) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    certificate, key = _load(files)
    with open(files.key, "rb") as file:
        require_owner_only(file.fileno(), files.key, KeyFilePermissions)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise KeyFileDamaged(f"{files.key} is not the key of a development CA")
    return certificate.subject, key
