"""Settings: one declaration, from which the page, the templates and the error texts come."""

import pydoc
import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest

import crowdfl
from crowdfl.cli.task.template import task_text, template
from crowdfl.crypto.backends import BACKENDS
from crowdfl.effects import idle_settings
from crowdfl.errors import SettingsError
from crowdfl.learning.datasets import supplied as watch
from crowdfl.learning.features import FEATURES
from crowdfl.learning.models.learner import Training
from crowdfl.roles.defining import defined
from crowdfl.schema import expected, settable, table_of
from crowdfl.settings import (
    ComputingSettings,
    ParticipantSettings,
    RequesterSettings,
    SpSettings,
    TaskFile,
    TaskOptions,
    TaskSettings,
    TrainingSettings,
)
from crowdfl.storage.settings_file import SERVICES, read_file, read_service
from crowdfl.storage.settings_texts import template_text
from crowdfl.task_tables import OWN_SETTINGS, STEP_NAMES, flat_settings, in_tables

MODELS = [TaskFile, TaskSettings, TrainingSettings, *SERVICES.values(), RequesterSettings, ParticipantSettings]
SERVICE = f'host = "a"\nport = 1\nkgc_key = "{"00" * 32}"\n[kgc]\nurl = "https://a"\ntoken = "t"\n'
SP = SERVICE + '[csp]\nurl = "https://b"\ntoken = "/else/where"\n'


def fields_of(model):
    """Every setting of a model and of its tables."""
    for name, field in settable(model).items():
        yield name, field
        if table_of(field):
            yield from fields_of(table_of(field))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_setting_says_what_it_is(model):
    """One line that ends with a full stop and does not break a table; bounds or a kind in words."""
    for name, field in fields_of(model):
        assert field.description.endswith("."), name
        assert not {"\n", "|"} & set(field.description), name
        assert expected(name, field)


TABLES = {"settings", *OWN_SETTINGS, "training", "plan", "who", "consent", "texts", "words"}  # of a task file


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_template_names_every_setting(model):
    values = {name: "x" for name, field in settable(model).items() if field.is_required() and not table_of(field)}
    text = template_text(model, values)
    assert tomllib.loads(text).keys() == values.keys() - TABLES
    plain = {name for name, field in settable(model).items() if not table_of(field)} - TABLES
    assert plain == {line.split(" = ")[0].removeprefix("# ") for line in text.splitlines() if " = " in line}


def test_a_task_file_to_start_from_makes_a_task():
    found = tomllib.loads(template.replace('learner = "network"', 'learner = "softmax"'))
    definition, _ = defined(Path("task.toml"), found)
    said = flat_settings(found["settings"], {"shares": found["shares"]})
    assert definition.settings == TaskSettings.of(**said)
    usual = {"pay", "per_round", "epsilon", "delta", "noise", *STEP_NAMES}
    assert said.keys() == settable(TaskSettings).keys() - idle_settings(definition.settings) - usual


def test_values_are_kept_as_given():
    """A number is not turned into another type, nor money into another form."""
    made = TaskSettings(clip=16, budget=Decimal("1.50"))
    assert type(made.clip) is int
    assert type(TaskSettings(clip=16.0).clip) is float
    assert made.budget == Decimal("1.50")
    assert made == TaskSettings(clip=16, budget=Decimal("1.50"))
    assert made.changed(rounds=2).rounds == 2


@pytest.mark.parametrize("clip", [0.0, -1.0, 9007199254.740992, 9007199254.74099, 1e9, 1e15])
@pytest.mark.parametrize("decimals", [-1, 0, 6, 12, 13])
def test_settings_refuse_what_a_double_could_not_count(decimals, clip):
    if 0 <= decimals <= 12 and 0 < clip * 10**decimals < 2**53:
        assert TaskSettings(decimals=decimals, clip=clip).clip == clip
        return
    with pytest.raises(SettingsError, match=r"^`(clip|decimals)` is "):
        TaskSettings(decimals=decimals, clip=clip)


def test_names_that_other_parts_define_are_theirs():
    assert get_args(ComputingSettings.model_fields["compute"].annotation) == (*BACKENDS, "dask")
    assert set(get_args(TrainingSettings.model_fields["features"].annotation)) == set(FEATURES)
    made, usual = TrainingSettings(labels=("a",)), Training()
    assert (made.epochs, made.batch, made.rate, made.seed) == (usual.epochs, usual.batch, usual.rate, usual.seed)
    assert (made.window_samples, made.hertz, made.held_out) == (watch.CUT.length, watch.HERTZ, watch.CUT.held_out)


def test_paths_are_those_of_the_files_folder(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(f'ca = "ca.pem"\n{SP}')
    found = read_service(SpSettings, path)
    assert (found.data, found.ca, found.kgc.token) == (tmp_path, tmp_path / "ca.pem", tmp_path / "t")
    assert found.csp.token == Path("/else/where")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("prot = 1", "unknown setting `prot` (did you mean `port`?); the settings here are ca, certificate, compute, "),
        ('data = "x"', "unknown setting `data` (did you mean `database`?); "),
        ("zzz = 1", "unknown setting `zzz`; the settings here are ca, "),
        ('dask = {scheduler = "x", patience = 1}', "unknown setting `dask.patience`; the settings here are ca, "),
        ('dask = {shceduler = "x"}', "unknown setting `dask.shceduler` (did you mean `dask.scheduler`?); "),
        (
            "tick = true",
            '`tick` is true; expected a length of time, as in "10 min" or "7 days", above 0 and at most 10^9 seconds',
        ),
        ('on_paid = "/bin/pay"', "`on_paid` is '/bin/pay'; expected a list of strings"),
        ('compute = "abacus"', '`compute` is \'abacus\'; expected "threads" or "cuda" or "dask"'),
        ('compute = "dask"', "`dask` is missing; "),
        ('listen = "a b"', "`listen` is 'a b'; expected a plain host name or an IP address"),
        ("ca = []", "`ca` is []; expected a path"),
        ('certificate = "x"', "`certificate` and `key` go together; give both, or neither"),
        (f"database = {['x' * 50] * 3}", "`database` is ['" + "x" * 50 + "', 'xxxx...; expected a string"),
    ],
)
def test_a_wrong_setting_of_a_file_is_refused_in_plain_words(tmp_path, line, said):
    path = tmp_path / "settings.toml"
    path.write_text(f"{line}\n{SP}")
    with pytest.raises(SettingsError) as refusal:
        read_service(SpSettings, path)
    assert str(refusal.value).startswith(f"{path}: {said}")


def test_a_role_refuses_the_settings_of_another(tmp_path):
    """They would have no effect there."""
    path = tmp_path / "settings.toml"
    path.write_text(f'csp_patience = "1 s"\n{SERVICE}')
    with pytest.raises(SettingsError, match="unknown setting `csp_patience`"):
        read_service(SERVICES["csp"], path)
    with pytest.raises(SettingsError, match="unknown setting `csp_patience`, `kgc`"):
        read_service(SERVICES["kgc"], path)


def test_a_task_file_is_refused_by_its_section():
    file, found = Path("task.toml"), tomllib.loads(template)
    for section, place, name in (
        ("settings", "[settings] and [shares]", "window"),
        ("training", "[training]", "window_samples"),
    ):
        wrong = found | {section: found[section] | {name: 0}}
        with pytest.raises(SettingsError, match=rf"^task\.toml, {re.escape(place)}: `{name}` is 0; expected"):
            defined(file, wrong)
    with pytest.raises(SettingsError, match=r"^task\.toml: `settings` is 5; expected a table, \[settings\]$"):
        defined(file, found | {"settings": 5})
    with pytest.raises(SettingsError, match=r"^task\.toml: unknown setting `porpose` .did you mean `purpose`"):
        defined(file, found | {"porpose": "x"})


def test_a_file_that_is_not_toml_is_named(tmp_path):
    path = tmp_path / "settings.toml"
    for text in ("host = [", "port = " + "9" * 5000, "a = " + "[" * 5000):
        path.write_text(text)
        with pytest.raises(SettingsError, match=f"^{path} is not TOML"):
            read_file(RequesterSettings, path)


def test_an_invitation_may_say_more():
    """A newer requester's does."""
    keys = {"kgc_key": "00" * 32, "sp_key": "11" * 32}
    found = {
        "task": "t",
        "invitation": "i",
        "kgc": "https://a",
        "sp": "https://b",
        "ca": None,
        "insecure_test_key": False,
    }
    assert ParticipantSettings.parse(found | keys | {"news": 1}, "invitation.json").sp_key == b"\x11" * 32


def test_every_setting_of_a_task_is_an_option_of_functions():
    """By the same name, in their help; rounds and profile are arguments of their own."""
    assert {*TaskOptions.__annotations__, "profile", "rounds", "reference"} == set(settable(TaskSettings))
    shown = pydoc.render_doc(crowdfl.simulate)
    assert all(f"    {name}: " in shown for name in TaskOptions.__annotations__)


def test_a_secret_shows_in_no_error_and_no_repr():
    """An invitation holds a private key: whatever is wrong with it, nobody reads it in a log."""
    usual = {"task": "t", "kgc": "https://a", "sp": "https://b", "kgc_key": "00" * 32, "sp_key": "00" * 32, "ca": None}
    for invitation in ("SECRET\nline", 7, ["SECRET"]):
        with pytest.raises(SettingsError, match="`invitation` is not shown") as refusal:
            ParticipantSettings(**usual, insecure_test_key=False, invitation=invitation)
        assert "SECRET" not in str(refusal.value) + str(refusal.value.faults)
    assert "SECRET" not in repr(ParticipantSettings(**usual, insecure_test_key=False, invitation="SECRET"))


@pytest.mark.parametrize("profile", OWN_SETTINGS)
def test_a_task_file_to_decide_on_is_short_and_makes_the_same_task_as_the_whole_one(profile):
    few, every = task_text(profile, every=False), task_text(profile)
    assert len(few.splitlines()) <= 26
    softmax = {"learner": "softmax"}
    made = []
    for text in (few, every):
        found = tomllib.loads(text)
        made.append(defined(Path("task.toml"), found | {"training": found["training"] | softmax})[0])
    assert (made[0].settings, made[0].plan, made[0].claims_until) == (
        made[1].settings,
        made[1].plan,
        made[1].claims_until,
    )


TABLES_REFUSED = {
    "none": ({}, {}, "one table of its profile, [shares] or [hardened] or [paper], and this one has none"),
    "two": ({}, {"shares": {}, "paper": {}}, "and this one has [shares] and [paper]"),
    "profile": ({"profile": "paper"}, {"shares": {}}, "leave `profile` out"),
    "own": (
        {"max_norm": 5.0},
        {"shares": {}},
        "`max_norm` is a setting of the profile: write it in the table [shares]",
    ),
    "common": (
        {},
        {"shares": {"rounds": 3}},
        "`rounds` is a setting of every profile: write it in the table [settings]",
    ),
    "of others": (
        {},
        {"shares": {"key_bits": 2048}},
        "`key_bits` would do nothing in this task: it needs the profile hardened",
    ),
    "of another": (
        {},
        {"paper": {"total": "shown"}},
        "`total` would do nothing in this task: it needs the profile hardened.",
    ),
    "no step": ({}, {"shares": {"server_step": "fedadam"}}, "expected a table, [shares.server_step], with a `kind`"),
    "no kind": (
        {},
        {"shares": {"server_step": {"rate": 0.1}}},
        "expected a table, [shares.server_step], with a `kind`",
    ),
    "a step's": ({}, {"shares": {"server_step": {"kind": "fedadam", "lr": 1}}}, "unknown setting `server_step.lr`"),
    "flat": ({}, {"shares": {"server_rate": 0.1}}, "unknown setting `server_rate`"),
    "mistyped": ({}, {"shares": {"max_nrom": 0.1}}, "unknown setting `max_nrom` (did you mean `max_norm`?)"),
    "in its own table": (
        {},
        {"paper": {"mask_bits": 40}},
        "[paper]: unknown setting `mask_bits` (did you mean `key_bits`?); the settings here are key_bits, lanes",
    ),
    "not of others": (
        {"mask_bits": 40},
        {"shares": {}},
        "[settings]: unknown setting `mask_bits`; the settings here are budget, clip, currency, decimals, late, ",
    ),
}


@pytest.mark.parametrize(("common", "tables", "said"), TABLES_REFUSED.values(), ids=TABLES_REFUSED.keys())
def test_settings_belong_to_their_profile(common, tables, said):
    found = {name: table for name, table in tomllib.loads(template).items() if name not in OWN_SETTINGS}
    with pytest.raises(SettingsError, match=re.escape(said)):
        defined(Path("task.toml"), found | {"settings": found["settings"] | common} | tables)


def test_a_server_step_is_a_table_of_its_profile():
    flat = {"profile": "shares", "rounds": 2, "server_step": "fedadam", "server_rate": 0.1, "max_norm": 5.0}
    tables = in_tables(flat)
    assert tables["shares"] == {"max_norm": 5.0, "server_step": {"kind": "fedadam", "rate": 0.1}}
    assert flat_settings(tables.pop("settings"), tables) == flat
