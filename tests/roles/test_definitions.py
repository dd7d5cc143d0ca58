"""What a task's id covers: settings of one profile change no other profile's tasks."""

from dataclasses import replace

import pytest

from crowdfl.crypto.sealing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.settings import TaskSettings
from tests.hosts import small_definition

NEW = {"rule", "check", "max_norm"}


@pytest.mark.parametrize("profile", ["hardened", "paper"])
def test_the_id_of_a_task_does_not_know_the_settings_of_shares(profile):
    """It is what it was before there were any."""
    definition = small_definition(TaskSettings(profile=profile))
    assert not NEW & definition.body()["settings"].keys()
    assert small_definition(TaskSettings(profile=profile, rule="distance")).task == definition.task


def test_the_id_of_a_task_of_shares_covers_them():
    """Each of them makes another task."""
    plain = TaskSettings(profile="shares")
    others = [plain.changed(rule="gate"), plain.changed(check="none"), plain.changed(max_norm=3.0)]
    assert small_definition(plain).body()["settings"].keys() >= NEW
    assert len({small_definition(settings).task for settings in (plain, *others)}) == 4


@pytest.mark.parametrize("settings", [{"profile": "hardened"}, {"profile": "shares", "rule": "none", "max_norm": 4.5}])
def test_a_signed_definition_is_read_as_it_was_written(settings):
    """With the same id."""
    key = SigningKey.fresh()
    definition = replace(small_definition(TaskSettings(**settings)), requester=key.public)
    found = Definition.open(definition.sign(key))
    assert found == definition
    assert found.task == definition.task
