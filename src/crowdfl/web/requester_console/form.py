"""The form that a task is created with: every setting, which the page has words for, and what was typed as a task file's
contents.

What does not convert stays as it was typed: the settings' own rules refuse it, in their own words.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from crowdfl.documents.signed import Definition
from crowdfl.durations import duration
from crowdfl.effects import idle_settings, idle_training
from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.protocols.registry import PROFILES
from crowdfl.roles.defining import DECIDED, WATCH_TASK, Explanation, defined, explained
from crowdfl.roles.phones import phone_obstacle
from crowdfl.schema import Settings, duration_of, is_section, settable, types_of
from crowdfl.settings import (
    AskerSettings,
    ConsentSettings,
    PlanSettings,
    QuestionSettings,
    TaskFile,
    TaskSettings,
    TrainingSettings,
)
from crowdfl.task_tables import in_tables

Values = Mapping[str, Mapping[str, Any]]
"""What is typed or chosen, by section and setting."""
SECTIONS: Mapping[str, type[Settings]] = MappingProxyType(
    {
        "task": TaskFile,
        "who": AskerSettings,
        "plan": PlanSettings,
        "consent": ConsentSettings,
        "settings": TaskSettings,
        "training": TrainingSettings,
    }
)
_TEXTS = "texts."  # before the language, of a section with translations
_LONG = ("purpose", "terms", "readers", "text")
_LISTS = {"layers": "lines", "labels": "lines", "sensors": "lines", "questions": "lines"}

PHONE_TASK: Values = MappingProxyType(
    {
        "task": {
            **WATCH_TASK["task"],
            "purpose": "Recognise what the owner of a phone is doing: sitting, standing, walking or climbing stairs",
            "terms": "Recordings stay on your phone. Only two masked shares of what your phone learnt leave it.",
        },
        "settings": {**WATCH_TASK["settings"], "max_participants": 30, "lanes": 256},
        "training": {"labels": ["sitting", "standing", "walking", "stairs"], "channels": 3},
    }
)
_STARTS = {
    "phones": ("Phones: the three axes of acceleration", PHONE_TASK),
    "watch": ("The watch data that comes with crowdfl", WATCH_TASK),
}


def form() -> dict[str, Any]:
    """Every setting, and values to start from."""
    fields = [_field(section, name) for section, model in SECTIONS.items() for name in _settable(model)]
    starts = [{"name": name, "title": title, "values": start_values(own)} for name, (title, own) in _STARTS.items()]
    return {"fields": fields, "starts": starts}


def start_values(own: Values) -> dict[str, dict[str, Any]]:
    """A whole form: these values, and the defaults of every other setting, as a form shows them."""
    return {
        section: {
            name: _shown(own.get(section, {}).get(name, _default(found))) for name, found in _settable(model).items()
        }
        for section, model in SECTIONS.items()
    }


def values_of(definition: Definition) -> dict[str, dict[str, Any]]:
    """A task that exists, as a form shows it: to start another from."""
    task = {name: getattr(definition, name) for name in ("purpose", "terms", "readers", "claim_window")}
    tables = {section: dict(getattr(definition, section)) for section in SECTIONS if section != "task"}
    texts = {
        f"{_TEXTS}{language}": {
            **dict(one),
            "words": "\n".join(f"{label} = {word}" for label, word in one.words.items()),
        }
        for language, one in definition.texts.items()
    }
    return start_values({"task": task, **tables}) | texts


@dataclass
class Answer:
    """What a form's values lead to, or what is wrong with them: by field where it is known, else in words."""

    errors: dict[str, str] = field(default_factory=dict)  # by "section.setting"
    problem: str | None = None
    named: list[str] = field(default_factory=list)  # the fields that the problem speaks about
    idle: list[str] | None = None  # the fields that would do nothing, which the page hides; None: not known
    explanation: Any = None
    cost: int = 0  # of all rounds, in millionths
    body: Any = None  # of the definition, as a phone shows it


def answer(values: Values, now: float) -> Answer:
    """As `crowdfl task explain` says it, for a form that may be half filled in."""
    errors, idle = faults(values), idle_fields(values)
    if errors:
        return Answer(errors, idle=idle)
    try:
        draft, _ = defined("the form", contents(values))
        definition = draft.dated(now)  # as it would be, created now
        settings = definition.settings
        cost = settings.rounds * definition.plan.round_cost(settings)
        told = _with_phones(explained(definition), definition)
        return Answer(idle=idle, explanation=told, cost=cost, body=definition.body())
    except CrowdFLError as wrong:
        words = str(wrong)
        return Answer(problem=words, named=_named(words), idle=idle)


def _with_phones(explanation: Explanation, definition: Definition) -> Explanation:
    """Of the profile that phones can take part in; of others nobody expects it."""
    why = phone_obstacle(definition) if definition.settings.profile == "shares" else None
    return explanation if why is None else replace(explanation, warnings=[*explanation.warnings, f"no phones: {why}"])


def faults(values: Values) -> dict[str, str]:
    """Every field that is wrong by itself; of rules about several, the fields that they name."""
    found: dict[str, str] = {}
    for section, model in SECTIONS.items():
        try:
            model(**_given(section, values) | ({"training": {}} if section == "task" else {}))
        except SettingsError as wrong:
            named = wrong.faults or {name.partition(".")[2]: str(wrong) for name in _named(str(wrong), section)[:1]}
            found |= {f"{section}.{name}": words for name, words in (named or {"": str(wrong)}).items()}
    return found


def contents(values: Values) -> dict[str, Any]:
    """As a task file holds them."""
    values = _acting(values)
    inner = {section: _written(section, values) for section in SECTIONS if section != "task"}
    texts = {
        section.removeprefix(_TEXTS): _translated(one) for section, one in values.items() if section.startswith(_TEXTS)
    }
    return {**_written("task", values), **inner, **in_tables(inner["settings"]), "texts": texts}


def _acting(values: Values) -> Values:
    """Without what would do nothing: the page hides it, and a file says only what its task does."""
    idle = idle_fields(values) or []
    return {
        section: {name: value for name, value in typed.items() if f"{section}.{name}" not in idle}
        for section, typed in values.items()
    }


def idle_fields(values: Values) -> list[str] | None:
    """The fields that would do nothing in this task; None where its settings do not stand."""
    try:
        task = TaskSettings(**_given("settings", values))
        training = TrainingSettings(**_given("training", values))
    except SettingsError:  # which is said of the settings themselves
        return None
    found = [f"settings.{name}" for name in _settable(TaskSettings) if name in idle_settings(task)]
    found += [f"training.{name}" for name in idle_training(training)]
    return found + ([] if task.budget is not None else ["task.claim_window"])


def _written(section: str, values: Values) -> dict[str, Any]:
    """With lengths of time as text; the page has them in seconds."""
    fields = _settable(SECTIONS[section])
    given = _given(section, values)
    times = {name for name in given if name in fields and duration_of(fields[name])}
    return {
        name: duration(value) if name in times and isinstance(value, int | float) else value
        for name, value in given.items()
    }


def _translated(typed: Mapping[str, Any]) -> dict[str, Any]:
    """What is filled in of one language; words one a line, as in walking = Gehen."""
    pairs = [line.partition("=") for line in str(typed.get("words", "")).splitlines() if line.strip()]
    given = {name: value for name, value in typed.items() if name != "words" and str(value).strip()}
    return given | {"words": {label.strip(): word.strip() for label, _, word in pairs}}


def _given(section: str, values: Values) -> dict[str, Any]:
    """What is filled in; what is left empty keeps its default, or is missed by name."""
    fields = _settable(SECTIONS[section])
    typed = values.get(section, {})
    unknown = {name: value for name, value in typed.items() if name not in fields}  # for the model to refuse
    read = {name: _read(name, fields[name], value) for name, value in typed.items() if name in fields}
    return {name: value for name, value in read.items() if value not in ("", None)} | unknown


def _read(name: str, found: FieldInfo, value: object) -> object:
    """A typed text as the value that it stands for."""
    if not isinstance(value, str):
        return value
    kind, text = _kind(name, found), value.strip()
    if name in _LISTS:
        return _items(name, text)
    if duration_of(found) is not None:
        return _number(text)
    if kind == "flag":
        return {"true": True, "false": False}.get(text, text)
    return _number(text) if kind in ("whole", "number") else text


def _items(name: str, text: str) -> object:
    whole = name in ("layers", "questions")
    parts = [part.strip() for line in text.splitlines() for part in ([line] if whole else line.split(","))]
    kept = [part for part in parts if part]
    if name == "questions":
        return [_question(line) for line in kept]
    if name == "layers":
        return [_number(part) for part in kept]
    return kept or ("" if name == "labels" else [])


def _question(line: str) -> dict[str, Any]:
    """As in: pain | Does it hurt? | no, a little, much | feature."""
    name, text, choices, use = ([part.strip() for part in line.split("|")] + [""] * 4)[:4]
    return {"id": name, "text": text, "choices": _items("choices", choices), **({"use": use} if use else {})}


def _number(text: str) -> int | float | str:
    """16 stays 16 and 16.0 stays 16.0: a task's id covers the form it is written in."""
    for kind in (int, float):
        read: Callable[[str], int | float] = kind
        try:
            return read(text) if "_" not in text and len(text) < 40 else text
        except ValueError:
            continue
    return text


def _shown(value: object) -> object:
    """As a field of the form holds it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(map(_line, value))
    return "" if value is None else str(value)


def _line(item: object) -> str:
    if isinstance(item, Mapping | QuestionSettings):
        one = dict(item)
        return " | ".join((one["id"], one["text"], ", ".join(one["choices"]), one.get("use", "feature")))
    return str(item)


def _settable(model: type[Settings]) -> dict[str, FieldInfo]:
    """Without a file's sections, which are sections of the form."""
    return {name: found for name, found in settable(model).items() if not is_section(found)}


def _default(found: FieldInfo) -> object:
    return None if found.is_required() else found.default


def _field(section: str, name: str) -> dict[str, Any]:
    found = _settable(SECTIONS[section])[name]
    kind, example = _kind(name, found), (found.examples or [None])[0]
    return {
        "section": section,
        "name": name,
        "kind": kind,
        "choices": _choices(name, found),
        "optional": not found.is_required() and found.default is None,
        "required": found.is_required(),
        "first": name in DECIDED.get(section, ()) or (section == "settings" and name in DECIDED["profile"]),
        "seconds": duration_of(found) is not None,
        "example": None if example is None else _shown(example),
    }


def _kind(name: str, found: FieldInfo) -> str:
    """How a field is typed or chosen."""
    kinds = types_of(found.annotation)
    if name in _LONG or name in _LISTS:
        return "long" if name in _LONG else _LISTS[name]
    if name == "budget":
        return "money"
    if name == "profile" or get_origin(kinds[0]) is Literal:
        return "choice"
    if bool in kinds:
        return "flag"
    if str in kinds:
        return "text"
    return "number" if float in kinds else "whole"


def _choices(name: str, found: FieldInfo) -> list[str]:
    if name == "profile":
        return list(PROFILES)
    return [choice for kind in types_of(found.annotation) if get_origin(kind) is Literal for choice in get_args(kind)]


def _named(words: str, only: str | None = None) -> list[str]:
    """The fields whose names occur in a message, in its order: in backticks, if there are any."""
    spoken = re.findall(r"`(\w+)`", words) or re.findall(r"\w+", words)
    sections = [only] if only else list(SECTIONS)
    known = {name: f"{section}.{name}" for section in reversed(sections) for name in _settable(SECTIONS[section])}
    return list(dict.fromkeys(known[word] for word in spoken if word in known))
