"""A task file from settings that a program has: every setting in it, those left out as comments."""

import json
from collections.abc import Mapping
from typing import Any

from crowdfl.documents.forms import form_line
from crowdfl.effects import idle_settings
from crowdfl.schema import settable
from crowdfl.settings import FUNCTIONS, PlanSettings, TaskFile, TaskSettings, TrainingSettings
from crowdfl.storage.settings_texts import template_text
from crowdfl.task_tables import COMMON_SETTINGS, OWN_SETTINGS, STEP, STEP_NAMES

# What people read where the requester says nothing else.
_TO_SAY: Mapping[str, Any] = {
    "purpose": "SAY HERE what the model is for",
    "terms": "Data stays with you. Only a protected model leaves your device.",
}
_WEEK = 604800.0
_READERS = "The requester reads every average; participants read every one but the last."
_KEYED_READERS = "The requester reads the last average; every participant reads the others."
OF_FUNCTIONS: Mapping[str, Any] = {"learner": FUNCTIONS, "labels": ["value"]}  # people bring functions of their own


def task_file_text(
    words: Mapping[str, Any],
    settings: TaskSettings,
    training: Mapping[str, Any],
    plan: Mapping[str, Any] | None = None,
    head: str = "",
) -> str:
    """What `crowdfl task create` reads; `head` is a comment above it."""
    paid = {} if settings.budget is None else {"claim_window": _WEEK}
    said = {**_TO_SAY, "readers": readers_of(settings.profile), **paid, **words}
    return (
        f"{head}{form_line(TaskFile)}{template_text(TaskFile, said)}"
        f"{_settings_text(settings)}"
        f"\n[plan]\n{template_text(PlanSettings, plan or {})}"
        f"\n[training]\n{template_text(TrainingSettings, dict(OF_FUNCTIONS) | dict(training))}"
    )


def _settings_text(settings: TaskSettings) -> str:
    """[settings], the profile's own table, and in it that of a server step."""
    values = chosen(settings)
    own = [name for name in OWN_SETTINGS[settings.profile] if name not in STEP_NAMES]
    text = f"\n[settings]\n{template_text(TaskSettings, values, names=COMMON_SETTINGS)}"
    text += f"\n[{settings.profile}]\n{template_text(TaskSettings, values, names=own)}"
    step = {short: values[name] for name, short in STEP_NAMES.items() if name in values}
    if step:
        text += f"\n[{settings.profile}.{STEP}]\n" + "".join(f"{name} = {json.dumps(step[name])}\n" for name in step)
    return text


def readers_of(profile: str) -> str:
    """Who reads the averages, by the profile."""
    return _READERS if profile == "shares" else _KEYED_READERS


def chosen(settings: TaskSettings) -> dict[str, Any]:
    """What is not as it is by default, as files write it; what follows from it is left out."""
    found = settings.model_dump(mode="json", exclude_defaults=True)
    return {
        name: value for name, value in found.items() if name in settable(TaskSettings).keys() - idle_settings(settings)
    }
