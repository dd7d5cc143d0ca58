"""Settings files, and what each setting in them may be."""

import ipaddress
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crowdfl.errors import SettingsError

__all__ = [
    "CA_TEXT",
    "HOST",
    "KEY",
    "PORT",
    "SECONDS",
    "SWITCH",
    "TEXT",
    "TEXTS",
    "URL",
    "Setting",
    "Table",
    "check_settings",
    "in_url",
    "is_host",
    "read_settings",
]

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_SHOWN = 60  # characters of a wrong value that a message repeats


@dataclass(frozen=True)
class Setting:
    """What a setting may be: in words, and as a check of what was found."""

    wanted: str
    fits: Callable[[Any], bool]
    required: bool = False


@dataclass(frozen=True)
class Table:
    """What a table may hold, by name."""

    entries: Mapping[str, "Setting | Table"]


def read_settings(path: Path) -> dict[str, Any]:
    """A TOML file, or a named error."""
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"there is no settings file at {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise SettingsError(f"{path} is no TOML: {wrong}") from None
    except OSError as wrong:
        raise SettingsError(f"{path} cannot be read: {wrong.strerror}") from None


def check_settings(
    path: Path, found: Mapping[str, Any], table: Table, inside: str = "", *, others: bool = False
) -> None:
    """Refuse what is missing, of another type, out of range, or, unless `others` may be there, unknown."""
    for name in found:
        if name not in table.entries and not others:
            known = ", ".join(sorted(table.entries))
            raise SettingsError(f"{path}: there is no setting `{inside}{name}`; take it out, known are {known}")
    for name, entry in table.entries.items():
        _check_entry(path, found, name, entry, inside)


def is_host(value: object) -> bool:
    """Whether this is a plain host name or an IP address."""
    if not isinstance(value, str) or len(value) > 253:
        return False
    try:
        return "%" not in value and bool(ipaddress.ip_address(value))
    except ValueError:
        labels = value.split(".")
        return all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()  # 1.2.3 and 1.2.3.999 are mistyped


def in_url(host: str) -> str:
    """A host as URLs write it."""
    return f"[{host}]" if ":" in host else host


def _check_entry(path: Path, found: Mapping[str, Any], name: str, entry: Setting | Table, inside: str) -> None:
    value = found.get(name)
    if isinstance(entry, Table):
        if name in found and not isinstance(value, dict):
            raise SettingsError(f"{path}: `{inside}{name}` is {_shown(value)}; wanted is a table, [{inside}{name}]")
        if name in found:
            check_settings(path, found[name], entry, f"{inside}{name}.")
    elif name not in found:
        if entry.required:
            raise SettingsError(f"{path}: `{inside}{name}` is missing; wanted is {entry.wanted}")
    elif not entry.fits(value):
        raise SettingsError(f"{path}: `{inside}{name}` is {_shown(value)}; wanted is {entry.wanted}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as TOML and JSON write it
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)  # Python counts true as 1


def _is_url(value: Any) -> bool:  # noqa: ANN401
    """Whether a client can take it; whether plain HTTP is allowed is the client's to say."""
    if not _is_text(value) or not value.isascii() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        _ = parts.port  # looked at only now: above 65535 it is an error
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and is_host(parts.hostname)


def _is_ca(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.isascii())


def _is_key(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-fA-F]{64}", value) is not None


TEXT = Setting("a text", _is_text)
TEXTS = Setting("a list of texts", lambda value: isinstance(value, list) and all(map(_is_text, value)))
SWITCH = Setting("true or false", lambda value: isinstance(value, bool))
SECONDS = Setting("a number of seconds above 0, at most 1e9", lambda value: _is_number(value) and 0 < value <= 1e9)
PORT = Setting(
    "a whole number from 0 to 65535",
    lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535,
)
HOST = Setting("a plain host name or an IP address", is_host)
URL = Setting("an address such as https://host:7101", _is_url)
KEY = Setting("a public key, 64 hexadecimal digits", _is_key)
CA_TEXT = Setting("certificates as text, or nothing", _is_ca)
