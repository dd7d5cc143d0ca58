"""Settings files: how they are read, and the texts that come from the models: templates, and docs/settings.md."""

import base64
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic.fields import FieldInfo

from crowdfl.errors import SettingsError
from crowdfl.schema import Settings, SettingsTable, expected, settable, table_of, types_of
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
from crowdfl.storage.atomic import write_private

SERVICES: Mapping[str, type[ServiceSettings]] = {"kgc": KgcSettings, "sp": SpSettings, "csp": CspSettings}
_PAGES = (
    ("Task file", "As `crowdfl task new` prints it. Everything in it is part of the task's id.", TaskFile),
    ("Task file, `[settings]`", "The same names are keywords of `LocalFederation` and `TaskSettings`.", TaskSettings),
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
_Model = TypeVar("_Model", bound=Settings)
_Service = TypeVar("_Service", bound=ServiceSettings)


def read_settings(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"there is no settings file at {path}{_where(path)}") from None
    except (ValueError, RecursionError) as wrong:  # a number of thousands of digits is a plain ValueError
        raise SettingsError(f"{path} is not TOML: {wrong}") from None
    except OSError as wrong:
        raise SettingsError(f"{path} cannot be read: {wrong.strerror}") from None


def read_task(path: Path) -> dict[str, Any]:
    """A task file, with the picture that it names."""
    found = read_settings(path)
    who = found.get("who")
    if isinstance(who, dict) and isinstance(who.get("logo"), str) and who["logo"]:
        logo = path.parent / who["logo"]
        try:
            who["logo"] = base64.b64encode(logo.read_bytes()).decode()
        except OSError as wrong:
            raise SettingsError(f"{path}, [who]: the picture {logo} cannot be read: {wrong.strerror}") from None
    return found


def role_of(settings: ServiceSettings) -> str:
    return next(name for name, model in SERVICES.items() if type(settings) is model)


def role_in(found: Mapping[str, Any]) -> str:
    """As the file says it; else SP alone is told where CSP is, and KGC knows no peer."""
    return str(found.get("role", "sp" if "csp" in found else "csp" if "kgc" in found else "kgc"))


def _where(path: Path) -> str:
    """Where it may be: a role's commands look in the folder that they are typed in."""
    if path.name != "settings.toml":
        return ""
    return ": `crowdfl init` writes one for each role; go to the folder that it made, or name the file with its path"


def read_file(model: type[_Model], path: Path, **given: Any) -> _Model:  # noqa: ANN401 -- checked by the model
    """The settings in a TOML file, and what the program adds; paths in the file are relative to its folder."""
    found = read_settings(path)
    try:
        return model.parse(_located(model, found, path.resolve().parent), path, **given)
    except SettingsError as wrong:
        raise SettingsError(f"{wrong}{_about_peers(model, found)}") from None


def read_service(model: type[_Service], path: Path) -> _Service:
    """A service's settings; the folder of the file is its own."""
    return read_file(model, path, data=path.resolve().parent)


def template_text(model: type[SettingsTable], values: Mapping[str, Any], prefix: str = "") -> str:
    """A commented file: these values, and every other setting as a comment with its default or an example."""
    lines, tables = [], ""
    for name, field in settable(model).items():
        table = table_of(field)
        if table is not None and name in values:
            inner = template_text(table, values[name], f"{prefix}{name}.")
            tables += f"\n# {field.description}\n[{prefix}{name}]\n{inner}"
        elif table is None and get_origin(field.annotation) is not dict:  # a section is a file's own part
            lines.append(_line(name, field, values))
    return "\n".join(lines) + "\n" + tables


def settings_page() -> str:
    head = (
        "# Settings\n\n"
        "With this page you can look up every setting of a service, a task and a training. `python tools/reference.py`\n"
        "writes it from `src/crowdfl/settings.py`; `crowdfl settings` prints it. After `=` stands the default. Paths are\n"
        "relative to the folder of their file. A setting that is unknown, of another type or out of bounds is refused by\n"
        "name.\n"
    )
    parts = [f"\n## {title}\n\n{about}\n\n{_list(model)}" for title, about, model in _PAGES]
    return head + "".join(parts)


def _list(model: type[SettingsTable]) -> str:
    own = {name: field for name, field in settable(model).items() if name in model.__annotations__}
    return "\n".join(_items(own)) + "\n"


def _items(fields: Mapping[str, FieldInfo], inside: str = "") -> list[str]:
    items = []
    for name, field in fields.items():
        table, shown = table_of(field), f"{inside}{name}"
        if table is not None or get_origin(field.annotation) is dict:
            inner = _items(settable(table), f"{shown}.") if table else []
            items += [f"- `[{shown}]`: {field.description}", *inner]
            continue
        is_usual = not field.is_required() and field.default not in (None, ())
        words = [f"`{shown} = {_toml(field.default)}`" if is_usual else f"`{shown}`", _brief(field, is_usual)]
        words += ["required"] if field.is_required() else []
        items.append(f"- {', '.join(filter(None, words))}: {field.description}")
    return items


def _brief(field: FieldInfo, is_usual: bool) -> str:
    """What is expected, without what a default shows by itself and without bounds that only keep absurd numbers out."""
    words = re.sub(r"(?: and at most 10\^\d+| and below 2\^63)$", "", expected("", field))
    words = re.sub(r"at least (\S+) and at most (\S+)$", r"\1 to \2", words)
    words = words.removeprefix("a ").removeprefix("an ").removesuffix(" such as https://host:7101")
    words = re.sub(r"(public key|digests|host name or an IP address), .*", r"\1", words)
    plain = r"string|true or false|(whole )?number, (above 0|at least [01])"
    return "" if is_usual and re.fullmatch(plain, words) else words


def _about_peers(model: type[SettingsTable], found: Mapping[str, Any]) -> str:
    """What to do in a folder of `crowdfl init --role` whose peers are not known yet."""
    peers = [name.upper() for name in ("kgc", "sp", "csp") if name in model.model_fields and name not in found]
    if not peers or "role" not in found:
        return ""
    return f". {' and '.join(peers)} must be accepted first: `crowdfl exchange accept`"


def _located(model: type[SettingsTable], found: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same with paths joined to the folder; what is not a good path is left for the model to refuse."""
    placed = dict(found)
    for name, field in settable(model).items():
        value, table = found.get(name), table_of(field)
        if table is not None and isinstance(value, dict):
            placed[name] = _located(table, value, folder)
        elif Path in types_of(field.annotation) and isinstance(value, str) and value and value.isprintable():
            placed[name] = folder / value
    return placed


def setting_line(model: type[SettingsTable], name: str, value: object) -> str:
    """One setting as a template writes it."""
    return _line(name, settable(model)[name], {name: value})


def _line(name: str, field: FieldInfo, values: Mapping[str, Any]) -> str:
    example = field.examples[0] if field.examples else "" if field.is_required() else field.default
    text = f"{name} = {_toml(values[name])}" if name in values else f"# {name} = {_toml(example)}"
    beside = f"{text:<26} # {field.description}"
    return beside if len(beside) <= _LONGEST_LINE else f"# {field.description}\n{text}"


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def put_settings(path: Path, model: type[SettingsTable], values: Mapping[str, Any]) -> None:
    """Set these values; one that is a mapping holds settings of the table of its name."""
    before = path.read_text()
    wanted, text = tomllib.loads(before), before
    for name, value in values.items():
        if isinstance(value, Mapping):
            text = _with_table(text, model, name, value)
            wanted[name] = {**wanted.get(name, {}), **value}
        else:
            text = _with_line(text, None, name, setting_line(model, name, value))
            wanted[name] = value
    if text == before:
        return
    if not _reads_as(text, wanted):
        lines = "; ".join(f"{name} = {value!r}" for name, value in values.items())
        raise SettingsError(f"{path} is written in a way that this command cannot change: put into it {lines}")
    write_private(path, text.encode(), overwrite=True)


def _reads_as(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _with_table(text: str, model: type[SettingsTable], name: str, values: Mapping[str, Any]) -> str:
    field = model.model_fields[name]
    if f"[{name}]" not in text.splitlines():
        text = f"{text.rstrip()}\n\n# {field.description}\n[{name}]\n"
    for inner, item in values.items():
        text = _with_line(text, name, inner, setting_line(table_of(field) or model, inner, item))
    return text


def _with_line(text: str, table: str | None, name: str, new: str) -> str:
    """In place of the setting's own line, else of the comment that stands for it, else after the last setting there."""
    lines = text.splitlines()
    start = 0 if table is None else lines.index(f"[{table}]") + 1
    end = next((i for i, line in enumerate(lines) if i >= start and line.lstrip().startswith("[")), len(lines))
    for form in (rf"\s*{name}\s*=", rf"#\s*{name}\s*="):
        for i in range(start, end):
            if re.match(form, lines[i]):
                about = new.splitlines()[0]
                first = (
                    i - 1 if i > start and "\n" in new and lines[i - 1] == about else i
                )  # a comment above it is there
                return "\n".join([*lines[:first], new, *lines[i + 1 :]]) + "\n"
    last = max((i + 1 for i in range(start, end) if re.match(r"\s*[A-Za-z_]+\s*=", lines[i])), default=start)
    return "\n".join([*lines[:last], new, *lines[last:]]) + "\n"
