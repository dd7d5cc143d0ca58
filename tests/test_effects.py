"""A setting that would do nothing is refused by name, with what would make it act."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from crowdfl.cli.task.template import task_text
from crowdfl.effects import _RULES, idle_settings, idle_training, profiles_of, require_effect, require_training_effect
from crowdfl.errors import SettingsError
from crowdfl.roles.defining import defined
from crowdfl.schema import settable
from crowdfl.settings import PlanSettings, SpSettings, TaskSettings, TrainingSettings
from crowdfl.storage.settings_file import read_service
from crowdfl.task_tables import OWN_SETTINGS
from tests.simulate.test_dropouts import run
from tests.test_settings import SP

EQUAL = {"weighting": "equal", "max_norm": 5.0}
PAID = {"budget": "36.00"}
# The name, a value, the rest of the task, and what would make it act.
IDLE: list[tuple[str, Any, dict[str, Any], str]] = [
    ("key_bits", 2048, {}, "the profile hardened or paper"),
    ("total", "shown", {}, "the profile hardened"),
    ("total", "shown", {"profile": "paper"}, "the profile hardened"),
    ("max_samples", 50, EQUAL, 'weighting = "samples"'),
    ("lanes", 64, {"check": "none"}, 'check = "bounds"'),
    ("pay", "equal", {}, "a `budget`"),
    ("currency", "EUR", {}, "a `budget`"),
    ("server_rate", 0.1, {}, 'server_step = "fedavgm" or "fedadagrad" or "fedadam" or "fedyogi"'),
    ("server_momentum", 0.9, {}, 'server_step = "fedavgm" or "fedadagrad" or "fedadam" or "fedyogi"'),
    ("server_squares", 0.99, {"server_step": "fedadagrad"}, 'server_step = "fedadam" or "fedyogi"'),
    ("server_floor", 0.001, {"server_step": "fedavgm"}, 'server_step = "fedadagrad" or "fedadam" or "fedyogi"'),
    *[
        (name, value, {"profile": profile} | PAID, "the profile shares")
        for profile in ("hardened", "paper")
        for name, value in {
            "pay": "distance",
            "weighting": "samples",
            "check": "bounds",
            "max_norm": 5.0,
            "reference": False,
            "server_step": "none",
            "server_rate": 1.0,
        }.items()
    ],
]


@pytest.mark.parametrize(("name", "value", "rest", "needs"), IDLE)
def test_a_setting_that_would_do_nothing_is_refused_by_name(name, value, rest, needs):
    """Also at its default: who writes it thinks that it says something."""
    given = {**rest, name: value}
    with pytest.raises(SettingsError) as refusal:
        require_effect(TaskSettings.of(**given), given)
    assert (
        str(refusal.value) == f"`{name}` would do nothing in this task: it needs {needs}. Leave it out, or change that"
    )
    require_effect(TaskSettings.of(**rest), rest)
    assert name in idle_settings(TaskSettings.of(**rest))


@pytest.mark.parametrize("profile", ["shares", "hardened", "paper"])
def test_a_task_file_to_start_from_says_nothing_idle(profile):
    found = tomllib.loads(task_text(profile).replace('learner = "network"', 'learner = "softmax"'))
    assert defined(Path("task.toml"), found)


EVERY = [
    ({"rounds": 1}, {}, "more than one of `rounds`"),
    ({"rounds": 2, "window": 3600.0}, {"closes": "deadline"}, 'more than `window`, or closes = "everyone"'),
]


@pytest.mark.parametrize(("rest", "plan", "needs"), EVERY)
def test_a_pace_that_rounds_cannot_have_is_refused(rest, plan, needs):
    with pytest.raises(SettingsError, match=f"`every` would do nothing in this task: it needs {needs}"):
        require_effect(TaskSettings.of(**rest), rest, plan=PlanSettings(every=3600.0, **plan))
    task = TaskSettings.of(rounds=2, window=1800.0)
    require_effect(task, {}, plan=PlanSettings(every=3600.0, **plan))


def test_every_door_refuses_it():
    """Of a task file and of `simulate`; Flower's is in tests/flower."""
    found = tomllib.loads(task_text().replace('learner = "network"', 'learner = "softmax"'))
    found["shares"]["key_bits"] = 2048
    with pytest.raises(SettingsError, match="`key_bits` would do nothing"):
        defined(Path("task.toml"), found)
    with pytest.raises(SettingsError, match="`key_bits` would do nothing"):
        run(key_bits=2048)


def test_time_to_claim_is_for_a_task_that_pays():
    found = tomllib.loads(task_text().replace('learner = "network"', 'learner = "softmax"'))
    del found["settings"]["budget"], found["settings"]["currency"]
    found["claim_window"] = "7 days"
    with pytest.raises(SettingsError, match="`claim_window` would do nothing in this task: it needs a `budget`"):
        defined(Path("task.toml"), found)
    del found["claim_window"]
    assert defined(Path("task.toml"), found)[0].claim_window == 0


def test_every_setting_of_the_table_is_one():
    assert {name for name, *_ in IDLE} < settable(TaskSettings).keys()


# As above, of [training].
IDLE_TRAINING: list[tuple[str, Any, dict[str, Any], str]] = [
    ("layers", [32], {"learner": "softmax"}, 'learner = "network"'),
    ("layers", [32], {"learner": "conv"}, 'learner = "network"'),
    ("layers", [32], {"learner": "mine:Net"}, 'learner = "network"'),
    ("loss", "huber", {"learner": "functions", "target": "value"}, 'learner = "network" or "conv", or a torch module'),
    ("loss", "mine:loss", {"learner": "softmax"}, 'learner = "network" or "conv", or a torch module'),
]


@pytest.mark.parametrize(("name", "value", "rest", "needs"), IDLE_TRAINING)
def test_a_setting_of_training_that_would_do_nothing_is_refused_by_name(name, value, rest, needs):
    given = {"labels": ["a"], **rest, name: value}
    with pytest.raises(
        SettingsError, match=f"^`{name}` would do nothing in this task: it needs {re.escape(needs)}. Leave"
    ):
        require_training_effect(TrainingSettings(**given), given)
    assert name in idle_training(TrainingSettings(**given))
    found = tomllib.loads(task_text()) | {"training": given}
    with pytest.raises(SettingsError, match=f"`{name}` would do nothing in this task"):
        defined(Path("task.toml"), found)


@pytest.mark.parametrize(
    ("line", "needs"), [('pay_kinds = ["iban"]', "payer_key"), ('on_paid_time = "2 min"', "on_paid")]
)
def test_a_setting_of_sp_that_would_do_nothing_is_refused_by_name(tmp_path, line, needs):
    path = tmp_path / "settings.toml"
    path.write_text(f"{line}\n{SP}")
    with pytest.raises(SettingsError, match=f"would do nothing here: it needs `{needs}`"):
        read_service(SpSettings, path)


def test_what_is_of_shares_alone_does_nothing_elsewhere():
    """Two lists of one fact: the tables of a task file, and what would do nothing. A validator refuses the other two."""
    alone = set(OWN_SETTINGS["shares"]) - set(OWN_SETTINGS["hardened"]) - set(OWN_SETTINGS["paper"])
    rule = next(rule for rule in _RULES if rule.needs == profiles_of("shares"))
    assert set(rule.names) == alone - {"delta", "noise"}
