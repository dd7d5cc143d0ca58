"""Keys, tokens and certificates of a role that others know already: how they are replaced, and how not."""

import json
import os
import pty
import shutil
import sys
import tomllib

import pytest

from crowdfl.services.folders.public_part import read_part
from crowdfl.services.folders.role_folder import RoleFolder
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens
from crowdfl.settings import CspSettings
from crowdfl.storage.settings_file import SERVICES, put_settings, read_service
from tests import subprocesses
from tests.cli.program import ROLES, accept, accept_all, call, public, refused, settings


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


@pytest.mark.second
@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_a_person_at_a_terminal_compares_the_digits(place, answer, code):
    """They are shown with a question; without a yes nothing is accepted."""
    words = ["exchange", "accept", str(settings(place, "kgc")), str(public(place, "sp"))]
    mine, theirs = pty.openpty()
    try:
        os.write(mine, answer)
        done = subprocesses.run(
            [sys.executable, "-m", "crowdfl", *words],
            stdin=theirs,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        os.close(mine)
        os.close(theirs)
    assert done.returncode == code, done.stderr
    assert read_part(public(place, "sp")).fingerprint in done.stdout
    assert (place / "kgc/tokens.json").exists() == (code == 0)
