"""KGC's share and CSP's answers go over a connection that proves the role's own key: a token alone opens neither."""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509

from crowdfl.errors import KeyFileMissing, KeyNotProven, NotAuthenticated, NotReady, ServiceUnavailable, UnknownTask
from crowdfl.services.client.peer_link import PeerAccess, PeerLink
from crowdfl.services.client.peers import KgcClient
from crowdfl.services.client.transport import Bearer, Link, Service
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Pins, Tokens
from crowdfl.services.run import Reloads, open_csp, open_kgc
from crowdfl.services.server import running
from crowdfl.settings import CspSettings, KgcSettings
from crowdfl.storage.atomic import write_private
from tests.http.world import IMPATIENT

TASK = "0" * 64
HOST = {"host": "127.0.0.1", "port": 0, "insecure_test_key": True}


@dataclass
class Kgc:
    """A KGC over TLS that knows the keys of SP and CSP, and whoever has an authority of its own."""

    folder: Path
    settings: KgcSettings
    url: str
    tokens: dict[str, str]
    reloads: Reloads

    def files(self, name: str) -> tls.CertificateFiles:
        return tls.CertificateFiles(self.folder / name / "tls.pem", self.folder / name / "tls.key")

    def link(self, own: tls.CertificateFiles | None) -> Link:
        """To KGC, showing this certificate."""
        return Link(self.url, self.folder / "kgc/ca.pem", own=own)

    @contextlib.contextmanager
    def called(self, token: str, own: tls.CertificateFiles | None) -> Iterator[Service]:
        with contextlib.closing(self.link(own).open(Bearer(token), IMPATIENT)) as service:
            yield service


def make_role(folder: Path, name: str, subject: str | None = None) -> tls.CertificateFiles:
    folder.mkdir(mode=0o700)
    ca = tls.make_ca(folder, subject=subject or f"CrowdFL {name} authority", hosts=["127.0.0.1"])
    return tls.make_server_certificate(folder, ca, "tls", ["127.0.0.1"])


def pin(files: tls.CertificateFiles) -> str:
    return tls.key_pin(tls.require_usable(files))


@pytest.fixture(scope="module")
def kgc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kgc]:
    """It runs; `trusted` is a partner whose authority KGC believes, and which is neither SP nor CSP."""
    folder = tmp_path_factory.mktemp("pins")
    made = {name: make_role(folder / name, name) for name in ("kgc", "sp", "csp", "trusted")}
    tls.make_server_certificate(
        folder / "sp", tls.CertificateFiles(folder / "sp/ca.pem", folder / "sp/ca.key"), "other"
    )
    trust = folder / "kgc/trust.pem"
    trust.write_bytes(b"".join((folder / name / "ca.pem").read_bytes() for name in made))
    tokens = Tokens(folder / "kgc/tokens.json")
    given = {role: tokens.add(role, role) for role in ("sp", "csp", "requester", "operator")}
    pins = {name: (pin(made[name]),) for name in ("sp", "csp")}
    settings = KgcSettings(data=folder / "kgc", **HOST, **vars(made["kgc"]), ca=trust, pins=pins)
    app = open_kgc(settings)
    with running(app, settings) as url:
        yield Kgc(folder, settings, url, given, app.state.reloads)


def expect_access(service: Service) -> None:
    """Ask for a share of a task that is not there: whoever is let in hears so."""
    with pytest.raises(UnknownTask):
        service.call("GET", f"/v1/tasks/{TASK}/bundle")
    with pytest.raises(UnknownTask):
        service.call("POST", f"/v1/tasks/{TASK}/acknowledge")


def expect_refusal(service: Service, why: str = "") -> None:
    """Neither the share nor its acknowledgement, nor a word on the credential."""
    for method, path in (
        ("GET", f"/v1/tasks/{TASK}/bundle"),
        ("POST", f"/v1/tasks/{TASK}/acknowledge"),
        ("GET", "/v1/whoami"),
    ):
        with pytest.raises(KeyNotProven, match=why):
            service.call(method, path)


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_a_role_that_proves_its_key_gets_its_share(kgc: Kgc, role):
    with kgc.called(kgc.tokens[role], kgc.files(role)) as service:
        expect_access(service)
        told = service.call("GET", "/v1/whoami").json()
        assert told == {"name": role, "role": role, "expires": None}


@pytest.mark.parametrize(
    ("role", "shown", "why"),
    [
        ("sp", None, "none was shown"),
        ("csp", None, "none was shown"),
        ("sp", "csp", "not of the key"),
        ("csp", "sp", "not of the key"),
        ("sp", "trusted", "not of the key"),
        ("sp", "kgc", "not of the key"),
    ],
)
def test_a_stolen_token_gets_no_share(kgc: Kgc, role, shown, why):
    """Without a certificate, or with one that KGC believes but that is another's."""
    with kgc.called(kgc.tokens[role], kgc.files(shown) if shown else None) as service:
        expect_refusal(service, why)


def test_another_key_of_the_same_authority_is_not_the_role_s(kgc: Kgc):
    own = tls.CertificateFiles(kgc.folder / "sp/other.pem", kgc.folder / "sp/other.key")
    with kgc.called(kgc.tokens["sp"], own) as service:
        expect_refusal(service, "not of the key")


def test_a_certificate_without_the_token_opens_nothing(kgc: Kgc):
    with kgc.called("crowdfl_guess", kgc.files("sp")) as service, pytest.raises(NotAuthenticated):
        service.call("GET", f"/v1/tasks/{TASK}/bundle")


def test_a_self_made_certificate_of_the_same_subject_is_refused_at_the_handshake(kgc: Kgc, tmp_path):
    forged = make_role(tmp_path / "forged", "sp")
    subjects = [tls.require_usable(files).subject for files in (forged, kgc.files("sp"))]
    assert subjects[0] == subjects[1]
    with kgc.called(kgc.tokens["sp"], forged) as service, pytest.raises(ServiceUnavailable):
        service.call("GET", f"/v1/tasks/{TASK}/bundle")


def test_who_needs_no_certificate_connects_without_one(kgc: Kgc):
    with contextlib.closing(kgc.link(None).open(retries=IMPATIENT)) as phone:
        assert len(KgcClient(phone).key()) == 32
    for role in ("requester", "operator"):
        with kgc.called(kgc.tokens[role], None) as service:
            assert service.call("GET", "/v1/whoami").text("role") == role


def test_keys_and_certificates_are_read_again_while_connections_stay(kgc: Kgc, tmp_path):
    """A pin that is gone stops the very connection that it let in; a new certificate is served to the next one."""
    old = ssl.get_server_certificate(_address(kgc))
    settings = kgc.settings
    try:
        with kgc.called(kgc.tokens["sp"], kgc.files("sp")) as service:
            expect_access(service)
            ca = tls.CertificateFiles(kgc.folder / "kgc/ca.pem", kgc.folder / "kgc/ca.key")
            tls.renew_certificate(kgc.files("kgc"), ca, ["127.0.0.1"])
            unknown = settings.changed(pins={"csp": settings.pins.csp})
            kgc.reloads.read_settings = lambda: unknown
            kgc.reloads.reload()
            expect_refusal(service, "knows no key of sp yet")
            kgc.reloads.read_settings = lambda: settings
            kgc.reloads.reload()
            expect_access(service)
        new = ssl.get_server_certificate(_address(kgc))
        certificates = [x509.load_pem_x509_certificate(pem.encode()) for pem in (old, new)]
        assert certificates[0].serial_number != certificates[1].serial_number
        assert tls.key_pin(certificates[0]) == tls.key_pin(certificates[1])
    finally:
        kgc.reloads.read_settings = lambda: settings


def test_whom_a_service_no_longer_trusts_is_gone_after_a_reload(kgc: Kgc, tmp_path):
    """The newest context decides about clients too, not the one that the server began with."""
    settings = kgc.settings
    alone = settings.changed(ca=kgc.folder / "kgc/ca.pem")
    try:
        kgc.reloads.read_settings = lambda: alone
        kgc.reloads.reload()
        with kgc.called(kgc.tokens["sp"], kgc.files("sp")) as service, pytest.raises(ServiceUnavailable):
            service.call("GET", "/healthz")
    finally:
        kgc.reloads.read_settings = lambda: settings
        kgc.reloads.reload()
    with kgc.called(kgc.tokens["sp"], kgc.files("sp")) as service:
        expect_access(service)


def test_a_reload_with_a_damaged_file_changes_nothing(kgc: Kgc):
    settings = kgc.settings
    broken = settings.changed(pins={}, certificate=kgc.folder / "none.pem")
    try:
        kgc.reloads.read_settings = lambda: broken
        with pytest.raises(KeyFileMissing):
            kgc.reloads.reload()
    finally:
        kgc.reloads.read_settings = lambda: settings
    with kgc.called(kgc.tokens["sp"], kgc.files("sp")) as service:
        expect_access(service)


def test_a_peer_link_takes_a_new_token_and_certificate(kgc: Kgc, tmp_path):
    """The old token is known no more, the link goes on with the next; calls that it carries end well."""
    tokens, file = Tokens(kgc.folder / "kgc/tokens.json"), tmp_path / "kgc.token"
    write_private(file, kgc.tokens["sp"].encode())
    access = PeerAccess("KGC", kgc.link(kgc.files("sp")), file)
    link = PeerLink(access)
    with contextlib.closing(link.service) as service:
        expect_access(service)
        kgc.tokens["sp"] = tokens.rotate("sp")
        with pytest.raises(NotAuthenticated):
            service.call("GET", "/v1/whoami")
        write_private(file, kgc.tokens["sp"].encode(), overwrite=True)
        link.prepare(access)()
        expect_access(service)
        file.unlink()
        with pytest.raises(KeyFileMissing):
            link.prepare(access)
        expect_access(service)


def test_csp_answers_sp_s_key_alone(tmp_path):
    """All that CSP has is for SP: its token and its key."""
    made = {name: make_role(tmp_path / name, name) for name in ("csp", "sp", "kgc")}
    trust = tmp_path / "csp/trust.pem"
    trust.write_bytes(b"".join((tmp_path / name / "ca.pem").read_bytes() for name in made))
    token = Tokens(tmp_path / "csp/tokens.json").add("sp", "sp")
    write_private(tmp_path / "csp/kgc.token", b"crowdfl_x")
    peer = {"url": "https://127.0.0.1:1", "token": tmp_path / "csp/kgc.token"}
    pins = {"sp": (pin(made["sp"]),)}
    own = {"data": tmp_path / "csp", **HOST, **vars(made["csp"]), "ca": trust, "kgc": peer, "kgc_key": bytes(32)}
    settings = CspSettings(**own, pins=pins)
    with running(open_csp(settings), settings) as url:
        for shown, error in ((made["sp"], NotReady), (made["kgc"], KeyNotProven), (None, KeyNotProven)):
            link = Link(url, tmp_path / "csp/ca.pem", own=shown)
            with contextlib.closing(link.open(Bearer(token), IMPATIENT)) as service, pytest.raises(error):
                service.call("GET", f"/v1/tasks/{TASK}/requests/{'0' * 64}")


def test_openapi_says_that_a_certificate_is_needed(kgc: Kgc, tmp_path):
    settings = kgc.settings.changed(data=tmp_path)
    document = open_kgc(settings).openapi()
    found = document["paths"]["/v1/tasks/{task}/bundle"]["get"]["security"]
    assert found == [{f"{role} token": [], "role certificate": []} for role in ("sp", "csp")]
    who = document["paths"]["/v1/whoami"]["get"]["security"]
    assert {"requester token": []} in who
    assert "role certificate" in document["components"]["securitySchemes"]


def test_plain_http_keeps_to_the_token(tmp_path):
    settings = KgcSettings(data=tmp_path / "kgc", **HOST, plain_http=True)
    app = open_kgc(settings)
    token = Tokens(tmp_path / "kgc/tokens.json").add("sp", "sp")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(running(app, settings))
        link = Link(url, plain_http=True).open(Bearer(token), IMPATIENT)
        expect_access(stack.enter_context(contextlib.closing(link)))


def test_a_pin_is_looked_for_where_it_belongs():
    """One role's key does not open another's place, and a role without pins goes by its token."""
    pins = Pins({"sp": ("a", "b"), "csp": ()})
    pins.require("sp", "b")
    pins.require("requester", None)
    for role, proven in (("sp", "c"), ("sp", None), ("csp", "a"), ("csp", None)):
        with pytest.raises(KeyNotProven):
            pins.require(role, proven)


def _address(kgc: Kgc) -> tuple[str, int]:
    return "127.0.0.1", int(kgc.url.rpartition(":")[2])
