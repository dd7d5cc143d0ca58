"""The development CA, and plain HTTP kept on loopback."""

import datetime
import ssl
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from crowdfl.errors import KeyFileDamaged, KeyFileExists, KeyFileMissing, KeyFilePermissions, SettingsError
from crowdfl.services.http import tls


@pytest.fixture
def ca(tmp_path):
    return tls.make_ca(tmp_path)


def test_a_server_certificate_is_for_loopback_and_the_given_names_and_no_ca(tmp_path, ca):
    """A stolen server key cannot sign others. From an hour ago, for clocks that are off, until about a year from now."""
    now = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    files = tls.make_server_certificate(tmp_path, ca, "sp", ["sp.example.org", "10.0.0.7"], now=now)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "sp.example.org"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "10.0.0.7"]
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.certificate.read_bytes()))
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc
    assert (certificate.not_valid_after_utc - now).days == 397


def test_files_are_their_owners_alone_and_never_overwritten(tmp_path, ca):
    """A second CA would lock everyone out; with a key that others can read, anyone could have made certificates."""
    assert [stat.S_IMODE(path.stat().st_mode) for path in (ca.key, ca.certificate)] == [0o600, 0o600]
    with pytest.raises(KeyFileExists):
        tls.make_ca(tmp_path)
    ca.key.chmod(0o640)
    with pytest.raises(KeyFilePermissions):
        tls.make_server_certificate(tmp_path, ca, "sp")


def test_files_that_do_not_serve_are_named(tmp_path, ca):
    """Missing, damaged, mixed up, and a host that is none."""
    other = tls.make_server_certificate(tmp_path, ca, "sp")
    with pytest.raises(KeyFileMissing):
        tls.require_usable(tls.CertificateFiles(tmp_path / "none.pem", ca.key))
    with pytest.raises(KeyFileDamaged):
        tls.require_usable(tls.CertificateFiles(other.certificate, ca.key))
    with pytest.raises(SettingsError):
        tls.make_server_certificate(tmp_path, ca, "x", ["\u00fc.example"])
    other.certificate.write_text("nothing")
    with pytest.raises(KeyFileDamaged):
        tls.require_usable(other)
    with pytest.raises(KeyFileDamaged):
        tls.client_context(other.certificate)
    with pytest.raises(KeyFileMissing):
        tls.client_context(tmp_path / "none.pem")


def test_a_client_trusts_the_given_ca_alone(ca):
    context = tls.client_context(ca.certificate)
    assert len(context.get_ca_certs()) == 1
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_loopback_is_known():
    assert all(map(tls.is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost")))
    assert not any(map(tls.is_loopback, ("0.0.0.0", "10.0.0.1", "localhost.example.org", "")))  # noqa: S104


def test_repro_a_certificate_whose_key_is_damaged(tmp_path):
    """It parses, and only a look at its key shows that the point is not on the curve."""
    files = tls.make_ca(tmp_path)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    form = serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    point = certificate.public_key().public_bytes(*form)
    damaged = certificate.public_bytes(serialization.Encoding.DER).replace(point, point[:-1] + bytes([point[-1] ^ 1]))
    files.certificate.write_text(ssl.DER_cert_to_PEM_cert(damaged))
    with pytest.raises(KeyFileDamaged):
        tls.require_usable(files)


def test_a_key_that_everyone_can_read_is_refused(tmp_path, ca):
    """A group may: keys from elsewhere often have one."""
    files = tls.make_server_certificate(tmp_path, ca, "sp")
    files.key.chmod(0o640)
    tls.require_usable(files)
    files.key.chmod(0o644)
    with pytest.raises(KeyFilePermissions, match="chmod o="):
        tls.require_usable(files)
