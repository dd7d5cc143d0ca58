"""The tables of a task file: settings that every profile has, and one table of the profile's own."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from crowdfl.effects import nothing_words, profiles_of
from crowdfl.errors import SettingsError
from crowdfl.schema import refuse_unknown, settable
from crowdfl.settings import TaskSettings

_KEYED = ("lanes", "key_bits")
# By profile, in the order of a file; whatever is in none is a setting of all.
OWN_SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "shares": (
            *("weighting", "max_norm", "check", "lanes", "pay", "each", "bonus"),
            *("epsilon", "delta", "noise", "reference"),
            *("server_step", "server_rate", "server_momentum", "server_squares", "server_floor"),
        ),
        "hardened": ("total", *_KEYED),
        "paper": _KEYED,
    }
)
COMMON_SETTINGS = tuple(
    name
    for name in settable(TaskSettings)
    if name != "profile" and not any(name in own for own in OWN_SETTINGS.values())
)
STEP = "server_step"
STEP_NAMES: Mapping[str, str] = MappingProxyType(  # of its table, by the setting's own
    {
        "server_step": "kind",
        "server_rate": "rate",
        "server_momentum": "momentum",
        "server_squares": "squares",
        "server_floor": "floor",
    }
)
_LISTED = " or ".join(f"[{name}]" for name in OWN_SETTINGS)


def flat_settings(common: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """A task's settings by their names, from its file's [settings] and the table of its profile."""
    found = [name for name, table in tables.items() if table is not None]
    if len(found) != 1:
        said = f"this one has {' and '.join(f'[{name}]' for name in found)}" if found else "this one has none"
        raise SettingsError(f"a task file has one table of its profile, {_LISTED}, and {said}")
    (profile,) = found
    own = _flat_step(dict(tables[profile] or {}))
    if "profile" in common:
        raise SettingsError(f"the profile is the name of its own table, {_LISTED}: leave `profile` out")
    for name in common:
        if name in OWN_SETTINGS[profile]:
            raise SettingsError(f"`{name}` is a setting of the profile: write it in the table [{profile}]")
        _require_of(profile, name)
    for name in own:
        if name in COMMON_SETTINGS:
            raise SettingsError(f"`{name}` is a setting of every profile: write it in the table [settings]")
        _require_of(profile, name)
    written = [name for name in OWN_SETTINGS[profile] if name == STEP or name not in STEP_NAMES]
    for table, found_there, here in (("settings", common, COMMON_SETTINGS), (profile, own, written)):
        unknown = found_there.keys() - {*COMMON_SETTINGS, *OWN_SETTINGS[profile]}
        refuse_unknown(unknown, here, [*COMMON_SETTINGS, *written], place=f"[{table}]: ")
    return {"profile": profile, **common, **own}


def in_tables(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The same as a file's tables."""
    profile = str(flat.get("profile", "shares"))
    own = {name: value for name, value in flat.items() if name not in COMMON_SETTINGS and name != "profile"}
    step = {STEP_NAMES[name]: own.pop(name) for name in list(own) if name in STEP_NAMES}
    common = {name: value for name, value in flat.items() if name in COMMON_SETTINGS}
    return {"settings": common, profile: own | ({STEP: step} if step else {})}


def _flat_step(own: dict[str, Any]) -> dict[str, Any]:
    if flat := [name for name in own if name in STEP_NAMES and name != STEP]:
        raise SettingsError(
            f"unknown setting `{flat[0]}`; a server step is a table, [shares.{STEP}], with its `{STEP_NAMES[flat[0]]}`"
        )
    if STEP not in own:
        return own
    step, names = own.pop(STEP), {short: name for name, short in STEP_NAMES.items()}
    if not isinstance(step, Mapping) or "kind" not in step:
        raise SettingsError(f'`{STEP}` is {step!r}; expected a table, [shares.{STEP}], with a `kind`, as in "fedadam"')
    if unknown := sorted(step.keys() - names.keys()):
        raise SettingsError(f"unknown setting `{STEP}.{unknown[0]}`; the settings there are {', '.join(names)}")
    return own | {names[short]: value for short, value in step.items()}


def _require_of(profile: str, name: str) -> None:
    others = [other for other, own in OWN_SETTINGS.items() if name in own and other != profile]
    if others and name not in OWN_SETTINGS[profile]:
        raise SettingsError(nothing_words(name, profiles_of(*others)))
