"""Texts that the settings' models make: templates, lines of a file, and the site's page of settings."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from crowdfl.durations import duration
from crowdfl.schema import SettingsTable, duration_of, expected, is_section, settable, table_of
from crowdfl.settings import (
    AskerSettings,
    BrowserSettings,
    ComputingSettings,
    ConsentSettings,
    CspSettings,
    KgcSettings,
    PlanSettings,
    RequesterSettings,
    ServiceSettings,
    SpSettings,
    TaskFile,
    TaskLimits,
    TaskSettings,
    TextsSettings,
    TrainingSettings,
)
from crowdfl.task_tables import COMMON_SETTINGS, OWN_SETTINGS, STEP, STEP_NAMES

_PAGES: tuple[tuple[str, str, type[SettingsTable] | None], ...] = (
    ("Task file", "As `crowdfl task new` prints it. Everything in it is part of the task's id.", TaskFile),
    (
        "Task file, `[settings]`",
        "The same names are keywords of `simulate`, `LocalFederation` and `TaskSettings`.",
        None,
    ),
    ("Task file, `[who]`", "Who asks, as people read it before they join.", AskerSettings),
    ("Task file, `[plan]`", "When people join and when rounds are.", PlanSettings),
    ("Task file, `[consent]`", "What people sign before they join; without it, nothing.", ConsentSettings),
    (
        "Task file, `[texts.de]`",
        "The same for another language; people read theirs, else the task's own.",
        TextsSettings,
    ),
    ("Task file, `[training]`", "What every participant's device does: docs/learning.md.", TrainingSettings),
    ("KGC, SP and CSP, `settings.toml`", "What all three have, as `crowdfl init` writes it.", ServiceSettings),
    ("KGC and SP", "What both accept of a new task; tasks that are there go on.", TaskLimits),
    ("KGC and SP, for browsers", "A page that SP serves itself may always call SP.", BrowserSettings),
    ("KGC", "The key generation centre has besides:", KgcSettings),
    ("SP and CSP", "The sensing platform and the computation server have besides:", ComputingSettings),
    ("SP", "The sensing platform has besides:", SpSettings),
    ("CSP", "The computation server has besides:", CspSettings),
    ("Requester, `settings.toml`", "As `crowdfl init` writes it.", RequesterSettings),
)
_LONGEST_LINE = 120


def template_text(
    model: type[SettingsTable],
    values: Mapping[str, Any],
    prefix: str = "",
    names: Collection[str] | None = None,
    *,
    short: bool = False,
) -> str:
    """A commented file: these values, and every other setting as a comment with its default or an example.

    `names`: only these settings. `short`: a line each, with the first sentence of what each is.
    """
    lines, tables = [], ""
    for name, field in settable(model).items():
        if names is not None and name not in names:
            continue
        table = table_of(field)
        if table is not None and name in values:
            inner = template_text(table, values[name], f"{prefix}{name}.")
            tables += f"\n# {field.description}\n[{prefix}{name}]\n{inner}"
        elif table is None and not is_section(field):  # which is a file's own part
            lines.append(_line(name, field, values, short=short))
    return "\n".join(lines) + "\n" + tables


def settings_page() -> str:
    head = (
        "# Settings\n\n"
        "With this page you can look up every setting of a service, a task and a training. `make docs`\n"
        "makes it from `src/crowdfl/settings.py`. After `=` stands the default. Paths are\n"
        "relative to the folder of their file. A setting that is unknown, of another type or out of bounds is refused by\n"
        "name.\n"
    )
    parts = [f"\n## {title}\n\n{about}\n\n{_list(model) if model else _tables()}" for title, about, model in _PAGES]
    return head + "".join(parts)


def _tables() -> str:
    """A task's settings, those of all profiles and those of each."""
    fields = settable(TaskSettings)
    text = "\n".join(_items({name: fields[name] for name in COMMON_SETTINGS})) + "\n"
    for profile, names in OWN_SETTINGS.items():
        own = {f"{STEP}.{STEP_NAMES[name]}" if name in STEP_NAMES else name: fields[name] for name in names}
        words = "\n".join(_items(own))
        text += f"\n## Task file, `[{profile}]`\n\n{settable(TaskFile)[profile].description}\n\n{words}\n"
    return text


def _list(model: type[SettingsTable]) -> str:
    own = {name: field for name, field in settable(model).items() if name in model.__annotations__}
    return "\n".join(_items(own)) + "\n"


def _items(fields: Mapping[str, FieldInfo], inside: str = "") -> list[str]:
    items = []
    for name, field in fields.items():
        table, shown = table_of(field), f"{inside}{name}"
        if table is not None or is_section(field):
            inner = _items(settable(table), f"{shown}.") if table else []
            items += [f"- `[{shown}]`: {field.description}", *inner]
            continue
        is_usual = not field.is_required() and field.default not in (None, ())
        words = [f"`{shown} = {_written(field, field.default)}`" if is_usual else f"`{shown}`", _brief(field, is_usual)]
        words += ["required"] if field.is_required() else []
        items.append(f"- {', '.join(filter(None, words))}: {field.description}")
    return items


def _brief(field: FieldInfo, is_usual: bool) -> str:
    """What is expected, without what a default shows by itself and without bounds that only keep absurd numbers out."""
    words = re.sub(r"(?: and at most 10\^\d+| and below 2\^63)$", "", expected("", field))
    words = re.sub(r"at least (\S+) and at most (\S+)$", r"\1 to \2", words)
    words = re.sub(r', as in "10 min" or "7 days"(.*), (?:above|at least) 0 and at most \S+ seconds$', r"\1", words)
    words = words.removeprefix("a ").removeprefix("an ").removesuffix(" such as https://host:7101")
    words = re.sub(r"(public key|digests|host name or an IP address), .*", r"\1", words)
    plain = r"string|true or false|(whole )?number, (above 0|at least [01])"
    return "" if is_usual and re.fullmatch(plain, words) else words


def setting_line(model: type[SettingsTable], name: str, value: object) -> str:
    """One setting as a template writes it."""
    return _line(name, settable(model)[name], {name: value})


def commented(name: str, field: FieldInfo) -> str:
    """A setting that is left out, as a template shows it."""
    return _line(name, field, {})


def _line(name: str, field: FieldInfo, values: Mapping[str, Any], *, short: bool = False) -> str:
    example = field.examples[0] if field.examples else "" if field.is_required() else field.default
    text = f"{name} = {_written(field, values[name])}" if name in values else f"# {name} = {_written(field, example)}"
    if short:
        return f"{text:<26} # {(field.description or '').partition('. ')[0].rstrip('.')}."
    beside = f"{text:<26} # {field.description}"
    return beside if len(beside) <= _LONGEST_LINE else f"# {field.description}\n{text}"


def _written(field: FieldInfo, value: object) -> str:
    """As a file has it: seconds as a length of time."""
    mark = duration_of(field)
    if mark is None or isinstance(value, bool) or not isinstance(value, int | float):
        return _toml(value)
    return _toml(next((word for word, seconds in mark.words if seconds == value), duration(value)))


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
