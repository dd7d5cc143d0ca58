"""The task file to start from, as `crowdfl task new` prints it."""

from collections.abc import Collection, Mapping
from typing import Any

from crowdfl.documents.forms import form_line
from crowdfl.effects import idle_settings
from crowdfl.roles.defining import DECIDED, WATCH_TASK
from crowdfl.schema import SettingsTable, settable
from crowdfl.settings import (
    AskerSettings,
    ConsentSettings,
    PlanSettings,
    TaskFile,
    TaskSettings,
    TextsSettings,
    TrainingSettings,
)
from crowdfl.storage.settings_texts import commented, template_text
from crowdfl.task_tables import COMMON_SETTINGS, OWN_SETTINGS, STEP, STEP_NAMES

_NOT_AT_FIRST = {
    "scale_inputs",
    "target",
    "proximal",
    "layers",
    "standardise",
    "held_out",
}  # at their defaults, as comments

_KEYED_READERS = "The requester reads the last average; every participant reads the others."

_HEAD = """\
# A task: every setting. A line that begins with "# name =" shows what holds if it is left out.
"""
_FEW = "# What a person decides follows. `crowdfl task new --all` prints every setting, with what holds where it is left out.\n"
_ABOUT_STEP = "What readers make of a round's average; a table as this, without the #: docs/shares.md.\n"
_ABOUT_WHO = """\
# People read this before they join, and nothing proves it: tell them the beginning of your key by another way.
"""
_ABOUT_PLAN = """\
# As it stands this is a trial: rounds run as soon as `min_participants` have joined and all who have joined have sent.
"""
_ABOUT_CONSENT = """\
# With both, whoever joins signs that they agree; with neither, nobody is asked.
"""
_ABOUT_TEXTS = "For each language that people read besides; a table as this, without the #.\n"
_ABOUT_DATA = """\
# `labels`, `channels`, `window_samples` and `hertz` say which data people need: here the watch data's (watch:0 to watch:9).
# `crowdfl train --look --data DATA` prints them for yours; `crowdfl task create --try DATA` checks it before anyone is asked.
"""


def task_text(profile: str = "shares", *, every: bool = True) -> str:
    """A task file to start from: every setting, or what a person decides."""
    task, own = dict(WATCH_TASK["task"]), dict(WATCH_TASK["settings"]) | {"profile": profile}
    decided = {section: list(names) for section, names in DECIDED.items()}
    if profile != "shares":
        task["readers"] = _KEYED_READERS
        own = {name: value for name, value in own.items() if name not in OWN_SETTINGS["shares"]} | {"max_samples": 1000}
        decided["settings"].append("max_samples")
        decided["profile"] = []
    return _every(task, own) if every else _decided(task, own, decided)


def _decided(task: Mapping[str, Any], own: Mapping[str, Any], names: Mapping[str, Collection[str]]) -> str:
    profile = own["profile"]
    settings = {"window": TaskSettings.model_fields["window"].default} | dict(own)
    training = _start(TrainingSettings) | dict(WATCH_TASK["training"])
    sections: list[tuple[str, type[SettingsTable], Mapping[str, Any], Collection[str]]] = [
        ("[who]", AskerSettings, {"name": ""}, names["who"]),
        ("[settings]", TaskSettings, settings, names["settings"]),
        (f"[{profile}]", TaskSettings, settings, names["profile"]),
        ("[plan]", PlanSettings, {}, names["plan"]),
        ("[training]", TrainingSettings, training, names["training"]),
    ]
    head = f"{form_line(TaskFile).rstrip()} {_FEW}{template_text(TaskFile, task, names=names['task'], short=True)}"
    parts = [f"\n{title}\n{template_text(model, own, names=some, short=True)}" for title, model, own, some in sections]
    return head + "".join(part.rstrip("\n") + "\n" for part in parts)


def _every(task: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    profile = own["profile"]
    idle = idle_settings(TaskSettings(**own))
    chosen = {name: value for name, value in _start(TaskSettings).items() if name not in idle} | dict(own)
    training = {name: value for name, value in _start(TrainingSettings).items() if name not in _NOT_AT_FIRST} | dict(
        WATCH_TASK["training"]
    )
    tables = {name for name in OWN_SETTINGS[profile] if name not in STEP_NAMES}
    step = "".join(f"{commented(short, settable(TaskSettings)[name])}\n" for name, short in STEP_NAMES.items())
    steps = f"\n# [shares.{STEP}]  {_ABOUT_STEP}{step}" if profile == "shares" else ""
    own_table = (
        f"# {settable(TaskFile)[profile].description}\n[{profile}]\n{template_text(TaskSettings, chosen, names=tables)}"
    )
    return (
        f"{_HEAD}{form_line(TaskFile)}{template_text(TaskFile, task)}"
        f"\n[settings]\n{template_text(TaskSettings, chosen, names=COMMON_SETTINGS)}"
        f"\n{own_table}{steps}"
        f"\n[who]\n{_ABOUT_WHO}{template_text(AskerSettings, {})}"
        f"\n[plan]\n{_ABOUT_PLAN}{template_text(PlanSettings, _start(PlanSettings))}"
        f"\n[consent]\n{_ABOUT_CONSENT}{template_text(ConsentSettings, {})}"
        f"\n# [texts.de]  {_ABOUT_TEXTS}{template_text(TextsSettings, {})}"
        f"\n[training]\n{_ABOUT_DATA}{template_text(TrainingSettings, training)}"
    )


def _start(model: type[SettingsTable]) -> dict[str, Any]:
    return {name: field.default for name, field in settable(model).items() if field.default is not None}


template = task_text()
