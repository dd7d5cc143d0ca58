"""How a phone comes to trust a demo's certificates: one authority for both services, and a page to fetch it from.

The authority can vouch for this machine's address alone. Its certificate is public; whoever is in between could still put
another in its place, so the phone's owner compares the fingerprint: as the phone shows it, never as that page does.
"""

import contextlib
import html
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from crowdfl.services.http.tls import CertificateFiles, renew_certificate

_FILE = "/crowdfl-demo.crt"
_STEPS = {
    "Android": (
        "Open Settings, Security and privacy, More security settings, Encryption and credentials (or search for "
        "“CA certificate”), Install a certificate, CA certificate, Install anyway. Choose the downloaded file. Look at it "
        "in Trusted credentials, User, and compare its SHA-256. Then open the link in Chrome. (Firefox does not trust such "
        "certificates unless a hidden setting, “Use third party CA certificates”, is switched on.)"
    ),
    "iPhone, iPad": (
        "Open it in Safari and allow the profile. In Settings: General, VPN & Device Management, install the profile; "
        "More Details shows its SHA-256 to compare. Then General, About, Certificate Trust Settings: switch full trust on "
        "for it. Then open the link in Safari."
    ),
    "Afterwards": "Remove the certificate in the same place. It is good for this one demo only.",
}


def share_authority(roles: Path, host: str) -> x509.Certificate:
    """SP's authority vouches for KGC's address too, which is the same here: a phone has to trust one, not two."""
    authority = CertificateFiles(roles / "sp/authority/ca.pem", roles / "sp/authority/ca.key")
    renew_certificate(CertificateFiles(roles / "kgc/tls.pem", roles / "kgc/tls.key"), authority, [host])
    return x509.load_pem_x509_certificate(authority.certificate.read_bytes())


def fingerprint(certificate: x509.Certificate) -> str:
    """As phones show it."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def trust_steps() -> dict[str, str]:
    """What to do on a phone, by its kind."""
    return dict(_STEPS)


@dataclass(frozen=True)
class _CertificatePage:
    """Two things to fetch, and nothing else."""

    certificate: x509.Certificate

    def answer(self, path: str) -> tuple[str, bytes] | None:
        if path == _FILE:
            return "application/x-x509-ca-cert", self.certificate.public_bytes(serialization.Encoding.DER)
        return ("text/html; charset=utf-8", self._page().encode()) if path == "/" else None

    def _page(self) -> str:
        steps = "".join(f"<h2>{html.escape(who)}</h2><p>{html.escape(what)}</p>" for who, what in _STEPS.items())
        return (
            '<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>CrowdFL demo</title>'
            f'<h1>Certificate of a CrowdFL demo</h1><p><a href="{_FILE}">Download the certificate</a></p><p>Its SHA-256, as '
            "your phone shows it in its settings, must be the one in the terminal of the demo. This page does not show it: "
            f"nothing protects this page, and somebody in between could change it.</p>{steps}</html>"
        )


@contextlib.contextmanager
def certificate_page(host: str, certificate: x509.Certificate) -> Iterator[str]:
    """Its address, over plain HTTP: before a phone trusts the authority, it could not open anything else without a warning."""
    page = _CertificatePage(certificate)

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds: nobody keeps a thread for nothing

        def do_GET(self) -> None:
            found = page.answer(self.path)
            kind, body = found or ("text/plain", b"not here\n")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: a terminal shows the campaign."""

    with ThreadingHTTPServer((host, 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, name="certificate page", daemon=True).start()
        try:
            yield f"http://{_in_url(host)}:{server.server_port}/"
        finally:
            server.shutdown()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
