"""A key that leaked, as operators replace it: docs/leaked-keys.md names these tests."""

import json

import pytest

from crowdfl.errors import NotAuthenticated
from crowdfl.services.folders.public_part import read_part
from crowdfl.services.http.auth import Tokens
from crowdfl.storage.atomic import read_signing_key
from crowdfl.storage.settings_file import SERVICES, read_service
from tests.cli.program import accept, accept_all, call, public, refused, settings


@pytest.mark.parametrize(("role", "others"), [("kgc", ("sp", "csp", "requester")), ("sp", ("kgc", "csp", "requester"))])
def test_a_signing_key_is_replaced_and_others_take_it_on_its_owners_word(role, others, place):
    """The old one is kept for whoever looks into it, and is in nobody's settings any more."""
    accept_all(place)
    old = read_signing_key(place / role / "signing.key")
    told = call("exchange", "rekey", settings(place, role))
    assert told.code == 0
    new = read_signing_key(place / role / "signing.key").public
    assert new != old.public
    (leaked,) = (place / role).glob("signing.key.leaked-*")
    assert read_signing_key(leaked).public == old.public
    assert leaked.stat().st_mode & 0o777 == 0o600
    assert read_part(public(place, role)).key == new.hex()
    for other in others:
        refused(accept(place, other, role), "Conflict", "the key that it signs with", "--replace")
        assert accept(place, other, role, "--replace").code == 0
        if other != "requester":
            assert getattr(read_service(SERVICES[other], settings(place, other)), f"{role}_key") == new
        assert old.public.hex() not in settings(place, other).read_text()


@pytest.mark.parametrize("role", ["csp", "requester"])
def test_a_role_whose_key_a_task_names_for_good_is_told_where_to_read_on(role, place):
    refused(call("exchange", "rekey", settings(place, role)), "SettingsError", "docs/leaked-keys.md")


def test_a_stolen_token_is_refused_at_once_and_its_holder_goes_on_with_another(place):
    """A requester's key opens nothing without its token: this is what keeps a thief of both out, amid a task."""
    accept_all(place)
    stolen = (place / "requester/sp.token").read_text().strip()
    assert call("exchange", "token", settings(place, "requester"), "sp").code == 0
    assert accept(place, "sp", "requester", "--replace").code == 0  # no overlap
    assert call("exchange", "token", settings(place, "requester"), "sp", "--use").code == 0
    tokens = Tokens(place / "sp/tokens.json")
    with pytest.raises(NotAuthenticated):
        tokens.check(stolen)
    assert tokens.check((place / "requester/sp.token").read_text().strip()).name == "requester"


@pytest.mark.parametrize("role", ["sp", "csp"])
def test_a_stolen_tls_key_proves_nothing_once_the_new_one_is_accepted(role, place):
    """As in a renewal, but others forget the old key before the service is started again."""
    accept_all(place)
    (old,) = read_part(public(place, role)).tls_keys
    assert call("tls", "renew", settings(place, role), "--new-key").code == 0
    assert call("tls", "renew", settings(place, role), "--use-new-key").code == 0
    for other in ("kgc", *(("csp",) if role == "sp" else ())):
        assert accept(place, other, role, "--replace").code == 0
        known = read_service(SERVICES[other], settings(place, other)).known_keys[role]
        assert known == read_part(public(place, role)).tls_keys
        assert old not in known


def test_a_new_payer_key_is_made_beside_the_old_one_which_stays_for_running_tasks(tmp_path):
    keys = [json.loads(call("payer", "key", tmp_path / name, "--json").out)["payer_key"] for name in ("old", "new")]
    assert len(set(keys)) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"old", "old.record.json", "new", "new.record.json"}
