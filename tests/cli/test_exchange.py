"""Each role's folder made on its own, and the public parts that make them known to each other."""

import json
import re
import ssl
import tomllib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crowdfl.errors import Conflict, SettingsError
from crowdfl.services.folders.public_part import read_part, write_part
from crowdfl.services.folders.role_folder import PEERS, RoleFolder, install
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.wire import token_digest
from crowdfl.settings import CspSettings
from crowdfl.storage.settings_file import SERVICES, put_settings, read_service
from tests.cli.program import ROLES, accept, accept_all, call, public, refused, settings

PEM_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def secrets_of(folder):
    found = [path.read_bytes() for path in folder.rglob("*") if path.suffix in (".key", ".token")]
    assert found
    return found


def test_a_role_makes_its_own_keys_and_no_other_s(made):
    """Its part holds no secret; nothing is open to other users; every key differs."""
    secrets = {role: secrets_of(made / role) for role in ROLES}
    everything = [secret for found in secrets.values() for secret in found]
    assert len(set(everything)) == len(everything)
    for role in ROLES:
        text = public(made, role).read_bytes()
        assert not PEM_KEY.search(text)
        assert not any(secret in text or secret.hex().encode() in text for secret in everything)
        assert all(path.stat().st_mode & 0o077 == 0 for path in (made / role).rglob("*"))


def test_a_part_tells_the_digests_of_the_tokens_that_the_role_will_show(made):
    """The holder makes a token; who checks it needs no more than its SHA-256."""
    part = read_part(public(made, "sp"))
    tokens = {name: token_digest((made / f"sp/{name}.token").read_text()) for name in ("kgc", "csp")}
    assert part.tokens == tokens
    assert part.tls_keys == (tls.key_pin(tls.require_usable(RoleFolder(settings(made, "sp")).tls)),)


def test_an_authority_can_vouch_for_its_own_host_alone(made):
    """OpenSSL refuses what it signs for another's: a client may trust several of them."""
    authority = RoleFolder(settings(made, "sp")).authority
    own = x509.load_pem_x509_certificate((made / "sp/tls.pem").read_bytes())
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "sp.example.org"]
    others = ("kgc.example.org", "kgc.sp.example.org", "*.sp.example.org", "kgc.localhost", "10.0.0.7")
    for host, good in (("sp.example.org", True), ("127.0.0.1", True), *((other, False) for other in others)):
        name = f"for-{host}"
        (made / name).mkdir(exist_ok=True)
        files = tls.make_server_certificate(made / name, authority, "tls", [host])
        assert _believed(authority.certificate, files, host.replace("*", "kgc")) is good, host


def _believed(ca, files, host):
    server, client = tls.server_context(files, None, asks=False), tls.client_context(ca)
    one, other, third, fourth = (ssl.MemoryBIO() for _ in range(4))
    a = client.wrap_bio(one, other, server_hostname=host)
    b = server.wrap_bio(third, fourth, server_side=True)
    for _ in range(4):
        for side in (a, b):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                return False
            third.write(other.read())
            one.write(fourth.read())
    return True


def test_a_role_without_its_peers_says_what_to_do(place):
    refused(call("sp", "serve", settings(place, "sp")), "KGC and CSP must be accepted first", "crowdfl exchange accept")
    refused(call("task", "report", "0" * 64, "-s", settings(place, "requester")), "exchange accept")


def test_fingerprints_are_digits_to_read_aloud(made):
    """Eight groups of five: more than 128 bits; any change of any value changes it."""
    shown = json.loads(call("exchange", "show", *(public(made, role) for role in ROLES), "--json").out)
    assert [row["role"] for row in shown] == list(ROLES)
    assert all(re.fullmatch(r"(\d{5} ){7}\d{5}", row["fingerprint"]) for row in shown)
    assert len({row["fingerprint"] for row in shown}) == len(ROLES)
    part = read_part(public(made, "sp"))
    others = [
        part.changed(url="https://sp.example.org:1"),
        part.changed(tls_keys=("0" * 64,)),
        part.changed(key="0" * 64),
        part.changed(authority=None),
        part.changed(tokens={**part.tokens, "kgc": "0" * 64}),
        part.changed(name="spp"),
    ]
    assert len({one.fingerprint for one in (part, *others)}) == len(others) + 1
    told = call("exchange", "show", public(made, "sp")).out
    assert part.fingerprint in told
    assert "https://sp.example.org:7102" in told


def test_after_the_exchange_each_role_knows_the_others(place):
    """Addresses, keys, pins and token digests, each where it belongs; doing it again changes nothing."""
    accept_all(place)
    found = {role: read_service(SERVICES[role], settings(place, role)) for role in ("kgc", "sp", "csp")}
    parts = {role: read_part(public(place, role)) for role in ROLES}
    assert found["sp"].kgc.url == "https://kgc.example.org:7101"
    assert found["sp"].csp.url == "https://csp.example.org:7103"
    assert {one.kgc_key.hex() for one in (found["sp"], found["csp"])} == {parts["kgc"].key}
    assert {one.sp_key.hex() for one in (found["kgc"], found["csp"])} == {parts["sp"].key}
    assert found["kgc"].known_keys == {"sp": parts["sp"].tls_keys, "csp": parts["csp"].tls_keys}
    assert found["csp"].known_keys == {"sp": parts["sp"].tls_keys}
    holders = {"kgc": {"sp", "csp", "requester"}, "sp": {"requester"}, "csp": {"sp"}}
    for role, names in holders.items():
        tokens = Tokens(place / role / "tokens.json")
        assert {entry.name for entry in tokens.entries()} == names
        for name in names:
            assert tokens.check((place / name / f"{role}.token").read_text()).role == name
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    accept_all(place)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    for role in ("kgc", "sp", "csp"):
        trusted = ssl.create_default_context(cafile=str(found[role].ca)).get_ca_certs()
        assert len(trusted) == len(PEERS[role]) - ("requester" in PEERS[role]) + 1


def test_no_folder_holds_a_secret_of_another_after_the_exchange(place):
    secrets = {role: secrets_of(place / role) for role in ROLES}
    accept_all(place)
    for role in ROLES:
        held = [path.read_bytes() for path in (place / role).rglob("*") if path.is_file()]
        foreign = [secret for other in ROLES if other != role for secret in secrets[other]]
        assert not any(secret.strip() in data for secret in foreign for data in held)


def test_a_part_that_was_changed_on_its_way_is_refused(place):
    """The digits tell; without digits and without a person nothing is accepted."""
    told, path = read_part(public(place, "sp")).fingerprint, public(place, "sp")
    before = settings(place, "kgc").read_text()
    changed = json.loads(path.read_text()) | {"tls_keys": ["0" * 64]}
    path.write_text(json.dumps(changed))
    refused(call("exchange", "accept", settings(place, "kgc"), path, "--fingerprint", told), "BadSignature")
    refused(call("exchange", "accept", settings(place, "kgc"), path), "--fingerprint")
    assert settings(place, "kgc").read_text() == before
    assert not (place / "kgc/peers").exists()
    assert not (place / "kgc/tokens.json").exists()


@pytest.mark.parametrize(
    ("role", "change", "said"),
    [
        ("sp", {"role": "king"}, "`role` is"),
        ("sp", {"version": 2}, "`version` is"),
        ("sp", {"name": "../../etc"}, "`name` is"),
        ("sp", {"name": "kgc"}, "`name` of sp"),
        ("sp", {"url": "http://sp.example.org"}, "`url` is not an address"),
        ("sp", {"url": "https://evil.example.org:7102"}, "could vouch for hosts other than"),
        ("sp", {"url": "https://sp.example.org:7102\nkgc_key = 1"}, "`url` is not an address"),
        ("sp", {"authority": "nothing"}, "`authority` is not one certificate"),
        ("sp", {"tls_keys": []}, "`tls_keys` is empty"),
        ("sp", {"tls_keys": ["0" * 64] * 3}, "`tls_keys` is"),
        ("sp", {"key": None}, "`key` is what"),
        ("sp", {"tokens": {"kgc": "0" * 64}}, "`tokens` of sp"),
        ("sp", {"tokens": {"kgc": "short", "csp": "0" * 64}}, "`tokens"),
        ("sp", {"more": 1}, "unknown setting"),
        ("requester", {"name": "sp"}, "a name of its own"),
        ("requester", {"url": "https://a"}, "tokens alone"),
        ("csp", {"key": "0" * 64}, "CSP has none"),
    ],
)
def test_a_part_that_makes_no_sense_is_refused_by_name(place, role, change, said):
    """Whoever wrote it may mean harm: nothing of it reaches a path, a settings file or a list of authorities."""
    path = public(place, role)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    refused(call("exchange", "show", path), "SettingsError", said)


def test_an_unrestricted_authority_is_refused(place):
    """It could vouch for KGC's host, to phones that trust SP."""
    (place / "wide").mkdir()
    wide = tls.make_ca(place / "wide")
    path = public(place, "sp")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"authority": wide.certificate.read_text()}))
    refused(call("exchange", "show", path), "restricted to a host")


def test_an_authority_that_could_vouch_for_subdomains_is_refused(place):
    """SP's at example.org could speak for KGC at kgc.example.org: permitting a name permits all names under it."""
    path = public(place, "sp")
    told = json.loads(path.read_text())
    certificate = x509.load_pem_x509_certificate(told["authority"].encode())
    exact = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateBuilder(certificate.issuer, certificate.subject, key.public_key(), 1)
    made = made.not_valid_before(certificate.not_valid_before_utc).not_valid_after(certificate.not_valid_after_utc)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    for excluded, good in ((exact.excluded_subtrees, True), (None, False), ([x509.DNSName(".localhost")], False)):
        rules = x509.NameConstraints(exact.permitted_subtrees, excluded)
        wide = made.add_extension(rules, critical=True).sign(key, hashes.SHA256())
        path.write_text(json.dumps(told | {"authority": wide.public_bytes(serialization.Encoding.PEM).decode()}))
        shown = call("exchange", "show", path)
        assert (shown.code == 0, "could vouch for subdomains" in shown.err) == (good, not good)


def test_a_requester_cannot_take_another_s_place(place):
    """Neither a server's token digest, which is public, nor a name that is taken by another role."""
    accept_all(place)
    stolen, path = json.loads(public(place, "sp").read_text())["tokens"]["kgc"], public(place, "requester")
    part = json.loads(path.read_text())
    path.write_text(json.dumps(part | {"name": "evil", "tokens": part["tokens"] | {"kgc": stolen}}))
    refused(accept(place, "kgc", "requester"), "Conflict", "every holder makes its own")
    tokens = Tokens(place / "kgc/tokens.json")
    tokens.add("watcher", "operator")
    assert not (place / "kgc/peers/evil.public.json").exists()
    path.write_text(json.dumps(part | {"name": "watcher", "tokens": part["tokens"] | {"kgc": "0" * 64}}))
    refused(accept(place, "kgc", "requester", "--replace"), "Conflict", "another role")
    assert {entry.role for entry in tokens.entries() if entry.name == "watcher"} == {"operator"}


def test_a_role_accepts_whom_it_needs_and_nobody_else(place):
    refused(accept(place, "csp", "requester"), "nothing to do with")
    refused(accept(place, "sp", "sp"), "nothing to do with")


def test_a_second_requester_has_a_name_of_its_own(place):
    assert call("init", place / "acme", "--role", "requester", "--name", "acme").code == 0
    for role in ("kgc", "sp"):
        assert accept(place, role, "requester").code == 0
        assert accept(place, role, "acme").code == 0
        names = {entry.name for entry in Tokens(place / role / "tokens.json").entries()}
        assert {"requester", "acme"} <= names
    refused(call("init", place / "bad", "--role", "requester", "--name", "sp"), "cannot be a requester's name")
    refused(call("init", place / "bad", "--role", "requester", "--name", "../x"), "cannot be a requester's name")
    assert not (place / "bad").exists()


def test_init_of_all_roles_is_as_strong(tmp_path):
    """Each has an authority of its own, and KGC knows the servers' keys."""
    assert call("init", tmp_path / "all", "--insecure-test-key").code == 0
    found = read_service(SERVICES["kgc"], settings(tmp_path / "all", "kgc"))
    assert all(len(found.known_keys[role]) == 1 for role in ("sp", "csp"))
    keys = [path.read_bytes() for path in (tmp_path / "all").rglob("ca.key")]
    assert len(set(keys)) == len(keys) == 3
    refused(call("init", tmp_path / "more", "--port", 1), "--port goes with --role")


def test_a_payers_key_goes_from_sp_to_its_requesters(tmp_path):
    """By hand or with SP's part; another one is a change, which nobody makes unasked."""
    key = "ab" * 32
    assert call("init", tmp_path / "all", "--payer-key", key).code == 0
    assert f'payer_key = "{key}"' in (tmp_path / "all/requester/settings.toml").read_text()
    part = read_part(tmp_path / "all/sp/sp.public.json")
    assert part.payer_key == key
    with pytest.raises(Conflict, match="whom it pays people out by"):
        install(tmp_path / "all/requester/settings.toml", part.changed(payer_key="cd" * 32))
    for role, wrong in (("csp", key), ("sp", "AB")):
        told = call("init", tmp_path / role, "--role", role, "--payer-key", wrong)
        assert (told.code, "--payer-key is SP's to name" in told.err) == (3, True)


def test_an_address_has_one_meaning_however_it_is_written(tmp_path):
    result = call("init", tmp_path / "sp", "--role", "sp", "--host", "2001:DB8:0:0::7", "--json")
    assert result.code == 0, result
    assert read_part(tmp_path / "sp/sp.public.json").url == "https://[2001:DB8:0:0::7]:7102"


EDITED = """host = "a"
# kgc_key = ""  # a comment
port = 1
[kgc]  # where it is
url = "https://a"
token = "t"
"""


def test_settings_are_changed_in_place(tmp_path):
    """Comments and other lines stay; a form that is not understood is left alone, with what to write."""
    path = tmp_path / "settings.toml"
    path.write_text(EDITED.replace("  # where it is", ""))
    put_settings(path, CspSettings, {"kgc_key": "22" * 32, "ca": "x.pem", "kgc": {"url": "https://b"}})
    put_settings(path, CspSettings, {"pins": {"sp": ["33" * 32]}})
    text = path.read_text()
    assert tomllib.loads(text) == {
        "host": "a",
        "port": 1,
        "ca": "x.pem",
        "kgc_key": "22" * 32,
        "kgc": {"url": "https://b", "token": "t"},
        "pins": {"sp": ["33" * 32]},
    }
    put_settings(path, CspSettings, {"kgc_key": "22" * 32, "pins": {"sp": ["33" * 32]}})
    assert path.read_text() == text
    path.write_text(EDITED)
    with pytest.raises(SettingsError, match="cannot change: put into it kgc"):
        put_settings(path, CspSettings, {"kgc": {"url": "https://b"}})
    assert path.read_text() == EDITED


def test_an_accepted_sp_is_let_in_and_its_old_place_is_not(place):
    path = settings(place, "kgc")
    path.write_text(path.read_text().replace("# web_origins = []", 'web_origins = ["https://pages.example"]'))
    for _ in range(2):
        assert accept(place, "kgc", "sp").code == 0
        assert tomllib.loads(path.read_text())["web_origins"] == [
            "https://pages.example",
            "https://sp.example.org:7102",
        ]
    part = read_part(public(place, "sp"))
    write_part(public(place, "sp"), part.changed(url="https://sp.example.org"))
    assert accept(place, "kgc", "sp", "--replace").code == 0
    assert tomllib.loads(path.read_text())["web_origins"] == ["https://pages.example", "https://sp.example.org"]
