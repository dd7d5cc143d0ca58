"""Settings files: how they are read and changed."""

import base64
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from crowdfl.documents.forms import completed_file
from crowdfl.errors import SettingsError
from crowdfl.schema import Settings, SettingsTable, settable, table_of, types_of
from crowdfl.settings import (
    CspSettings,
    KgcSettings,
    ServiceSettings,
    SpSettings,
)
from crowdfl.storage.atomic import write_private
from crowdfl.storage.settings_texts import setting_line

SERVICES: Mapping[str, type[ServiceSettings]] = {"kgc": KgcSettings, "sp": SpSettings, "csp": CspSettings}
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
    found = completed_file(model, read_settings(path), path)
    try:
        return model.parse(_located(model, found, path.resolve().parent), path, **given)
    except SettingsError as wrong:
        raise SettingsError(f"{wrong}{_about_peers(model, found)}") from None


def read_service(model: type[_Service], path: Path) -> _Service:
    """A service's settings; the folder of the file is its own."""
    return read_file(model, path, data=path.resolve().parent)


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
        value = found.get(name)
        table = table_of(field)
        if table is not None and isinstance(value, dict):
            placed[name] = _located(table, value, folder)
        elif Path in types_of(field.annotation) and isinstance(value, str) and value and value.isprintable():
            placed[name] = folder / value
    return placed


def put_settings(path: Path, model: type[SettingsTable], values: Mapping[str, Any]) -> None:
    """Set these values; one that is a mapping holds settings of the table of its name."""
    before = path.read_text()
    wanted = tomllib.loads(before)
    text = before
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
