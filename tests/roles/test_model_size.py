"""How large a model can be is said where a task is defined, and what is too large is refused before anything is made."""

import re
from pathlib import Path

import pytest

import crowdfl.web
from crowdfl.errors import SettingsError
from crowdfl.roles.defining import explained
from crowdfl.roles.model_size import MOST_BYTES, PHONE_PARAMETERS, require_size, size_line
from crowdfl.roles.phones import phone_obstacle
from crowdfl.services.client.transport import RESPONSE_LIMIT
from crowdfl.settings import SpSettings, TaskSettings
from tests.hosts import small_definition

UNCHECKED = TaskSettings(profile="shares", check="none", rounds=1, max_samples=10)


def of(parameters):
    return small_definition(UNCHECKED, parameters=parameters)


def test_a_task_s_explanation_says_what_its_model_takes():
    line = size_line(of(100_000_000))
    assert "first weights take 800.0 MB" in line
    assert "10,000,000 parameters" in line
    assert line in explained(of(100_000_000)).widths.splitlines()


def test_a_model_that_nobody_could_fetch_is_refused():
    """What people's programs read bounds it, and SP takes as much unless told otherwise."""
    assert SpSettings.model_fields["max_initial_bytes"].default == MOST_BYTES == RESPONSE_LIMIT
    require_size(of(134_209_536))
    for refuse in (require_size, explained):
        with pytest.raises(SettingsError, match="134,209,537 parameters is too large: 134,209,536 are the most"):
            refuse(of(134_209_537))


def test_phones_are_told_of_their_own_limit_before_anyone_is_invited():
    """The page's, which refuses a larger task itself."""
    page = (Path(crowdfl.web.__file__).parent / "phone/protocol/settings.js").read_text()
    (found,) = re.findall(r"MOST_PARAMETERS = ([0-9_]+);", page)
    assert int(found.replace("_", "")) == PHONE_PARAMETERS
    assert "10,000,001 parameters" in str(phone_obstacle(of(PHONE_PARAMETERS + 1)))
