"""Values put into a settings file that a person may have edited: their lines change, everything else stays."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crowdfl.errors import SettingsError
from crowdfl.schema import SettingsTable, table_of
from crowdfl.storage.atomic import write_private
from crowdfl.storage.settings_file import setting_line


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
