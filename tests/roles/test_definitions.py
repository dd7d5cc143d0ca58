"""A task's id is a hash of what its requester signed: whatever it names makes another task."""

import base64
import json
from dataclasses import replace

import pytest

from crowdfl.cli.task.template import task_text
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import Definition
from crowdfl.documents.task_summary import asker_words
from crowdfl.errors import BadSignature, DocumentError, SettingsError
from crowdfl.roles.defining import defined
from crowdfl.settings import TaskSettings
from crowdfl.storage.settings_file import read_task
from tests.hosts import small_definition

KEY = SigningKey.fresh()


def definition(**settings) -> Definition:
    return replace(small_definition(TaskSettings(**settings)), requester=KEY.public).dated(1000.0)


def opened(body: dict) -> Definition:
    return Definition.open(Envelope.sign("definition", json.dumps(body), KEY).text)


@pytest.mark.parametrize(
    "settings",
    [
        {"profile": "hardened", "clip": 16, "window": 60, "budget": "36.00", "lanes": None},
        {"profile": "shares", "pay": "none", "max_norm": 4.5, "server_step": "fedadam", "budget": 36},
    ],
)
def test_a_signed_definition_is_read_as_it_was_written(settings):
    found = Definition.open(definition(**settings).sign(KEY))
    assert replace(found) == definition(**settings)
    assert found.task == Definition.open(definition(**settings).sign(KEY)).task
    assert (definition().task, replace(found, purpose="another").task) == ("", "")


def test_every_setting_makes_another_task():
    adam = {"profile": "shares", "server_step": "fedadam"}
    changes = [{"pay": "equal"}, {"check": "none"}, {"max_norm": 3.0}, {"clip": 16}, {"server_rate": 0.5}]
    ids = {Definition.open(definition(**adam, **change).sign(KEY)).task for change in ({}, *changes)}
    assert len(ids) == 1 + len(changes)


def test_a_definition_names_every_setting():
    body = definition().body()
    del body["settings"]["server_floor"]
    with pytest.raises(DocumentError, match="does not say server_floor"):
        opened(body)


def test_settings_out_of_bounds_are_refused_by_name():
    body = definition(profile="shares", server_step="fedavgm").body()
    body["settings"]["server_rate"] = 1e9
    with pytest.raises(DocumentError, match="server_rate"):
        opened(body)


def test_what_json_cannot_hold_is_not_signed():
    for training in ({"rate": float("nan")}, {"rate": 1j}, {"name": "\ud800"}):
        with pytest.raises(DocumentError):
            replace(definition(), training=training).sign(KEY)


@pytest.mark.parametrize("payload", ['{"rate": 1, "rate": 2}', '{"rate": 1e999}', '{"rate": 7%s}' % ("0" * 40), "NaN"])
def test_what_two_readers_could_take_for_two_things_is_refused(payload):
    body = definition().body() | {"training": "here"}
    text = json.dumps(body).replace('"here"', payload)
    with pytest.raises(DocumentError, match="JSON of plain values"):
        Definition.open(Envelope.sign("definition", text, KEY).text)


def test_a_definition_of_another_s_key_is_refused():
    with pytest.raises(BadSignature):
        Definition.open(definition().sign(SigningKey.fresh()))


def test_who_asks_is_signed_with_its_picture_and_told_before_joining(tmp_path):
    """A task file names a PNG beside it; anything else is refused, in words."""
    png = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    (tmp_path / "logo.png").write_bytes(png)
    file = tmp_path / "task.toml"
    who = '[who]\nname = "Dr. Ada"\ncontact = "ada@example.org"\nlogo = "logo.png"\n'
    file.write_text(task_text().replace("\n[who]\n", f"\n{who}", 1))
    definition, _ = defined(file, read_task(file))
    assert base64.b64decode(definition.who.logo) == png
    assert asker_words(definition).startswith(
        "Dr. Ada; ada@example.org (so they say; nothing but the key that begins with"
    )
    (tmp_path / "logo.png").write_bytes(b"GIF89a")
    with pytest.raises(SettingsError, match=r"\[who\].*PNG"):
        defined(file, read_task(file))
    (tmp_path / "logo.png").unlink()
    with pytest.raises(SettingsError, match="cannot be read"):
        read_task(file)
