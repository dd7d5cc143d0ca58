"""Lengths of time as people write them."""

import pytest

from crowdfl.durations import duration, seconds_in
from crowdfl.errors import SettingsError
from crowdfl.schema import duration_of, in_seconds, settable
from crowdfl.settings import PlanSettings, TaskSettings
from crowdfl.storage.settings_texts import setting_line

LENGTHS = {
    "10 min": 600.0,
    "7 days": 604800.0,
    "1 day": 86400.0,
    "1 h": 3600.0,
    "90 min": 5400.0,
    "0.5 s": 0.5,
    "0 s": 0.0,
}


@pytest.mark.parametrize(("text", "seconds"), LENGTHS.items())
def test_a_length_of_time_reads_back_as_it_was_written(text, seconds):
    assert seconds_in(text) == seconds
    assert duration(seconds) == text


@pytest.mark.parametrize(("text", "seconds"), [("2 weeks", 1209600.0), ("1.5 hours", 5400.0), ("3 seconds", 3.0)])
def test_other_words_are_read_too(text, seconds):
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "min", "-1 s", "1 fortnight", "1e3 s", "1 h 30 min", " 1 h", "1_0 s"])
def test_what_is_no_length_of_time_is_none(text):
    assert seconds_in(text) is None


@pytest.mark.parametrize("value", [3600, 3600.0, "3600", "an hour", True, ["1 h"]])
def test_a_file_says_the_unit(value):
    """Else 3600 would be read as whatever its reader thinks of."""
    with pytest.raises(
        SettingsError, match=r'^task: `window` is .*; expected a length of time, as in "10 min" or "7 days"'
    ):
        TaskSettings.parse({"window": value}, "task")


def test_a_program_may_give_seconds_or_text():
    assert TaskSettings.of(window=90) == TaskSettings.of(window="90 s") == TaskSettings.parse({"window": "90 s"}, "")


@pytest.mark.parametrize("model", [TaskSettings, PlanSettings], ids=lambda model: model.__name__)
def test_a_template_writes_what_a_file_can_say(model):
    """Each default that is a length of time reads back as itself."""
    marked = {name: field for name, field in settable(model).items() if duration_of(field)}
    assert marked
    for name, field in marked.items():
        value = field.default if field.default is not None else field.examples[0]
        text = setting_line(model, name, value).splitlines()[-1].split(" = ")[1].split("#")[0].strip().strip('"')
        assert in_seconds(model, {name: text}, only_text=True) == {name: value}
