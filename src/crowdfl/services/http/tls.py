"""A development CA, server certificates made with it, and the rule that plain HTTP stays on loopback.

For a machine or laboratory that runs all roles; a deployment brings its own certificates by path.
"""

import datetime
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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
_SKEW = datetime.timedelta(hours=1)
_ALWAYS = ("localhost", "127.0.0.1")
_NOT_A_CA = x509.BasicConstraints(ca=False, path_length=None)


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate and its private key, as PEM files."""

    certificate: Path
    key: Path


def make_ca(folder: Path, now: datetime.datetime | None = None) -> CertificateFiles:
    """A new development CA as `ca.pem` and `ca.key`."""
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
    extensions = [(x509.BasicConstraints(ca=True, path_length=0), True), (usage, True)]
    return _issue(folder, "ca", "CrowdFL development CA", _CA_DAYS, extensions, now=now)


def make_server_certificate(
    folder: Path, ca: CertificateFiles, name: str, hosts: Iterable[str] = (), now: datetime.datetime | None = None
) -> CertificateFiles:
    """A certificate for a server, as `<name>.pem` and `<name>.key`; good for loopback and the given hosts."""
    names = [_general_name(host) for host in dict.fromkeys((*_ALWAYS, *hosts))]
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    extensions = [(_NOT_A_CA, True), (x509.SubjectAlternativeName(names), False), (usage, False)]
    return _issue(folder, name, f"CrowdFL {name}", _SERVER_DAYS, extensions, _load_ca(ca), now)


def make_cluster_certificate(folder: Path, name: str = "cluster") -> CertificateFiles:
    """For all machines of one role's cluster, as `<name>.pem` and `<name>.key`: it is its own and only authority."""
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    return _issue(folder, name, f"CrowdFL {name}", _SERVER_DAYS, [(_NOT_A_CA, True), (usage, False)])


def client_context(ca: Path | None) -> ssl.SSLContext:
    """Trusts the CA at this path alone, or the system's; TLS 1.2 or later, names checked."""
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except FileNotFoundError:
        raise KeyFileMissing(f"there is no certificate authority at {ca}") from None
    except ssl.SSLError:
        raise KeyFileDamaged(f"{ca} does not hold a certificate") from None
    return context


def require_usable(files: CertificateFiles) -> None:
    _load(files)


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


def _issue(
    folder: Path,
    name: str,
    subject: str,
    days: int,
    extensions: Iterable[tuple[x509.ExtensionType, bool]],
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None = None,
    now: datetime.datetime | None = None,
) -> CertificateFiles:
    """A new key and its certificate, signed by the issuer or by itself; each extension comes with whether it is critical."""
    key, start = ec.generate_private_key(ec.SECP256R1()), now or datetime.datetime.now(datetime.UTC)
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    signer, signing = issuer or (own, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(signer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _SKEW)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return _write(folder, name, builder.sign(signing, hashes.SHA256()), key)


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
