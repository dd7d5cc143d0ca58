"""Each role's folder made on its own, and the public parts that make them known to each other."""

import json
import re
import shutil
import ssl
import tomllib
from pathlib import Path

import pytest
from cryptography import x509

from crowdfl.cli.exchange.folder import RoleFolder
from crowdfl.cli.exchange.part import PEERS, read_part
from crowdfl.cli.settings_edit import put_settings
from crowdfl.cli.settings_file import SERVICES, read_service
from crowdfl.errors import SettingsError
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.wire import token_digest
from crowdfl.settings import CspSettings
from tests.cli.program import call

ROLES = ("kgc", "sp", "csp", "requester")
PEM_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Four folders that know nothing of each other."""
    place = tmp_path_factory.mktemp("made")
    for role in ROLES:
        result = call("init", place / role, "--role", role, "--host", f"{role}.example.org", "--json")
        assert result.code == 0, result
        told = json.loads(result.out)
        assert told["public"] == str(place / role / f"{role}.public.json")
    return place


@pytest.fixture
def place(made, tmp_path):
    """A copy to change."""
    return Path(shutil.copytree(made, tmp_path / "place"))


def settings(place, role):
    """Of a role."""
    return place / role / "settings.toml"


def public(place, role):
    """The file that a role hands out."""
    return place / role / f"{role}.public.json"


def accept(place, own, peer, *more):
    """As an operator does who was told the right digits."""
    told = read_part(public(place, peer)).fingerprint
    return call("exchange", "accept", settings(place, own), public(place, peer), "--fingerprint", told, *more)


def accept_all(place):
    """Everyone knows whom it needs."""
    for own, peers in PEERS.items():
        for peer in peers:
            assert accept(place, own, peer).code == 0, (own, peer)


def refused(result, *said):
    """By name, and nothing was changed halfway."""
    assert result.code == 3, result
    for words in said:
        assert words in result.err, result.err


def secrets_of(folder):
    """Every private key and token in a folder."""
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
    for host, good in (("sp.example.org", True), ("127.0.0.1", True), ("kgc.example.org", False), ("10.0.0.7", False)):
        name = f"for-{host}"
        (made / name).mkdir(exist_ok=True)
        files = tls.make_server_certificate(made / name, authority, "tls", [host])
        assert _believed(authority.certificate, files, host) is good, host


def _believed(ca, files, host):
    """Whether a handshake in memory succeeds."""
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
            except ssl.SSLCertVerificationError as wrong:
                return "permitted" not in str(wrong)
            third.write(other.read())
            one.write(fourth.read())
    return True


def test_a_role_without_its_peers_says_what_to_do(place):
    """It has no address to call and no key to check."""
    refused(call("sp", "serve", settings(place, "sp")), "KGC and CSP must be accepted first", "crowdfl exchange accept")
    refused(call("task", "report", "0" * 32, "-s", settings(place, "requester")), "exchange accept")


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
    """Only public parts have travelled."""
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


def test_other_keys_of_a_known_peer_need_a_word_and_are_told_loudly(place):
    """An attacker's first try looks like this; the owner of the keys must be asked."""
    accept_all(place)
    before = {path: path.read_bytes() for path in (place / "kgc").rglob("*") if path.is_file()}
    shutil.rmtree(place / "sp")
    assert call("init", place / "sp", "--role", "sp", "--host", "sp.example.org").code == 0
    refused(accept(place, "kgc", "sp"), "Conflict", "its TLS key", "its tokens", "--replace")
    assert {path: path.read_bytes() for path in (place / "kgc").rglob("*") if path.is_file()} == before
    replaced = accept(place, "kgc", "sp", "--replace", "--overlap", 1)
    assert (replaced.code, replaced.err.count("REPLACED")) == (0, 4), replaced
    listed = call("kgc", "token", "list", settings(place, "kgc")).out
    assert [line.split("\t")[0] for line in listed.splitlines()].count("sp") == 2
    assert "good until" in listed
    found = read_service(SERVICES["kgc"], settings(place, "kgc"))
    assert found.known_keys["sp"] == read_part(public(place, "sp")).tls_keys


def test_keys_in_settings_that_no_part_brought_are_not_replaced_silently(place):
    """They may have been written by hand, after a phone call."""
    put_settings(settings(place, "csp"), CspSettings, {"sp_key": "11" * 32})
    refused(accept(place, "csp", "sp"), "Conflict", "`sp_key` in the settings")
    assert accept(place, "csp", "sp", "--replace").code == 0
    assert tomllib.loads(settings(place, "csp").read_text())["sp_key"] == read_part(public(place, "sp")).key


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
    """CSP knows no requester."""
    refused(accept(place, "csp", "requester"), "nothing to do with")
    refused(accept(place, "sp", "sp"), "nothing to do with")


def test_a_second_requester_has_a_name_of_its_own(place):
    """Both are known, each by its own token."""
    assert call("init", place / "acme", "--role", "requester", "--name", "acme").code == 0
    for role in ("kgc", "sp"):
        assert accept(place, role, "requester").code == 0
        assert accept(place, role, "acme").code == 0
        names = {entry.name for entry in Tokens(place / role / "tokens.json").entries()}
        assert {"requester", "acme"} <= names
    refused(call("init", place / "bad", "--role", "requester", "--name", "sp"), "cannot be a requester's name")
    refused(call("init", place / "bad", "--role", "requester", "--name", "../x"), "cannot be a requester's name")
    assert not (place / "bad").exists()


def test_a_new_token_is_known_before_it_is_used(place):
    """The holder makes it, the service accepts its digest beside the old one, the holder switches."""
    accept_all(place)
    tokens, file = Tokens(place / "kgc/tokens.json"), place / "sp/kgc.token"
    old = file.read_text()
    assert call("exchange", "token", settings(place, "sp"), "kgc").code == 0
    assert file.read_text() == old
    assert accept(place, "kgc", "sp", "--replace", "--overlap", 1).code == 0
    assert call("exchange", "token", settings(place, "sp"), "kgc", "--use").code == 0
    assert file.read_text() != old
    assert tokens.check(file.read_text()).expires is None
    assert tokens.check(old).expires is not None
    assert accept(place, "kgc", "sp").code == 0  # the part is the same before and after the switch
    refused(call("exchange", "token", settings(place, "sp"), "kgc", "--use"), "KeyFileMissing")
    refused(call("exchange", "token", settings(place, "sp"), "requester"), "shows tokens to kgc, csp")


def test_a_certificate_is_renewed_with_the_same_key(place):
    """Nobody has to be told; the part and its fingerprint stay."""
    own, before = RoleFolder(settings(place, "sp")), read_part(public(place, "sp"))
    old = tls.require_usable(own.tls)
    assert call("tls", "renew", settings(place, "sp")).code == 0
    new = tls.require_usable(own.tls)
    assert new.serial_number != old.serial_number
    assert read_part(public(place, "sp")) == before
    shown = json.loads(call("tls", "show", settings(place, "sp"), "--json").out)
    assert shown["key"] == before.tls_keys[0]
    (place / "sp/authority/ca.key").unlink()  # kept elsewhere
    refused(call("tls", "renew", settings(place, "sp")), "KeyFileMissing", "bring it back")


def test_a_new_key_is_known_before_it_is_used(place):
    """The part names both keys, peers accept both, then the role switches; in the end the old one is gone."""
    accept_all(place)
    own = RoleFolder(settings(place, "sp"))
    old = tls.key_pin(tls.require_usable(own.tls))
    assert call("tls", "renew", settings(place, "sp"), "--new-key").code == 0
    assert tls.key_pin(tls.require_usable(own.tls)) == old
    both = read_part(public(place, "sp")).tls_keys
    assert (len(both), both[0]) == (2, old)
    assert accept(place, "kgc", "sp", "--replace").code == 0
    assert read_service(SERVICES["kgc"], settings(place, "kgc")).known_keys["sp"] == both
    assert call("tls", "renew", settings(place, "sp"), "--use-new-key").code == 0
    assert tls.key_pin(tls.require_usable(own.tls)) == both[1]
    assert read_part(public(place, "sp")).tls_keys == both[1:]
    assert accept(place, "kgc", "sp", "--replace").code == 0
    assert read_service(SERVICES["kgc"], settings(place, "kgc")).known_keys["sp"] == both[1:]
    refused(call("tls", "renew", settings(place, "sp"), "--use-new-key"), "KeyFileMissing")
    assert call("tls", "renew", settings(place, "kgc"), "--new-key").code == 0  # nobody knows KGC's: it is used at once
    assert len(read_part(public(place, "kgc")).tls_keys) == 1


def test_a_new_host_needs_a_new_authority(place):
    """The old one cannot vouch for it: said before anything is changed, where a phone would only see a failure."""
    path, before = settings(place, "sp"), public(place, "sp").read_bytes()
    certificate = (place / "sp/tls.pem").read_bytes()
    assert call("exchange", "make", path, "--url", "https://sp.example.org").code == 0
    assert read_part(public(place, "sp")).url == "https://sp.example.org"
    assert call("tls", "renew", path).code == 0
    assert read_part(public(place, "sp")).url == "https://sp.example.org"  # a renewal keeps what others were told
    assert call("exchange", "make", path).code == 0
    assert public(place, "sp").read_bytes() == before
    path.write_text(path.read_text().replace("sp.example.org", "other.example.org"))
    certificate = (place / "sp/tls.pem").read_bytes()
    refused(call("exchange", "make", path), "could vouch for hosts other than other.example.org", "init --role")
    refused(call("tls", "renew", path), "could vouch for hosts other than other.example.org")
    assert (place / "sp/tls.pem").read_bytes() == certificate


def test_init_of_all_roles_is_as_strong(tmp_path):
    """Each has an authority of its own, and KGC knows the servers' keys."""
    assert call("init", tmp_path / "all", "--insecure-test-key").code == 0
    found = read_service(SERVICES["kgc"], settings(tmp_path / "all", "kgc"))
    assert all(len(found.known_keys[role]) == 1 for role in ("sp", "csp"))
    keys = [path.read_bytes() for path in (tmp_path / "all").rglob("ca.key")]
    assert len(set(keys)) == len(keys) == 3
    refused(call("init", tmp_path / "more", "--port", 1), "--port goes with --role")


def test_an_address_has_one_meaning_however_it_is_written(tmp_path):
    """IPv6, too: the authority is for it, in its short form."""
    result = call("init", tmp_path / "sp", "--role", "sp", "--host", "2001:DB8:0:0::7", "--json")
    assert result.code == 0, result
    assert read_part(tmp_path / "sp/sp.public.json").url == "https://[2001:DB8:0:0::7]:7102"


def test_a_folder_of_the_last_release_comes_along(tmp_path):
    """One authority for all, no role and no pins in its settings: the steps of the page bring it up to date."""
    assert call("init", tmp_path / "all").code == 0
    place = tmp_path / "all"
    (place / "ca").mkdir(mode=0o700)
    shared = tls.make_ca(place / "ca")
    for role in ROLES:
        path = settings(place, role)
        kept = path.read_text().replace("peers/ca.pem", "ca.pem").partition("[pins]")[0]
        path.write_text(
            "\n".join(line for line in kept.splitlines() if not line.startswith(("role =", "name ="))) + "\n"
        )
        for part in ("peers", "authority"):
            shutil.rmtree(place / role / part, ignore_errors=True)
        public(place, role).unlink()
        shutil.copy(shared.certificate, place / role / "ca.pem")
        refused(call("exchange", "make", path), 'role = "sp"')
        path.write_text(f'role = "{role}"\n{path.read_text()}')
    for role in ("kgc", "sp", "csp"):
        refused(call("tls", "renew", settings(place, role)), "KeyFileMissing")
        assert call("tls", "renew", settings(place, role), "--ca", place / "ca").code == 0
    assert call("exchange", "make", settings(place, "requester")).code == 0
    accept_all(place)
    found = read_service(SERVICES["kgc"], settings(place, "kgc"))
    assert found.known_keys == {role: read_part(public(place, role)).tls_keys for role in ("sp", "csp")}
    assert found.ca == place / "kgc/ca.pem"
    assert Tokens(place / "kgc/tokens.json").check((place / "sp/kgc.token").read_text()).expires is None


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
