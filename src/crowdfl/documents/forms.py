"""Forms: every document and settings file names the number of its own, `form`, from 1 on, and is never written again.

A later form may only add fields, and change what it means to leave one out. What earlier forms mean stands here for ever: what
was true when they were written, never today's default. web/phone/protocol/forms.js has the same for phones.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from crowdfl.errors import DocumentError, FormTooNew, SettingsError
from crowdfl.schema import Settings
from crowdfl.settings import (
    CspSettings,
    KgcSettings,
    ParticipantSettings,
    RequesterSettings,
    SpSettings,
    TaskFile,
)
from crowdfl.version import __version__

FORM = "form"
# By kind, what the second form has added, then the third ...: a field by its path, as in `settings.lanes`, with `*` for every
# entry of a table; and what it is in all earlier forms. Of what may be left out, such as `training.rate`, what that meant.
ADDED: dict[str, tuple[Mapping[str, Any], ...]] = {}
FILES: Mapping[type[Settings], str] = MappingProxyType(
    {
        KgcSettings: "settings file of KGC",
        SpSettings: "settings file of SP",
        CspSettings: "settings file of CSP",
        RequesterSettings: "settings file of a requester",
        TaskFile: "task file",
        ParticipantSettings: "invitation file",
    }
)
_TRAINING = "training"  # of a definition: what its requester has written, and nothing else
_OPEN = ("settings", "plan", "who", "consent", _TRAINING)  # tables of a task file that may be missing


def newest(kind: str) -> int:
    """What this version writes."""
    return 1 + len(ADDED.get(kind, ()))


def numbered(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A body of the newest form, as it is written."""
    return {FORM: newest(kind), **body}


def completed(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """What a document says, with every field of the newest form and without its number."""
    return _completed(kind, body, body.get(FORM), is_file=False)


def form_line(model: type[Settings]) -> str:
    """What a settings file begins with."""
    return f"{FORM} = {newest(FILES[model])}\n"


def completed_file(model: type[Settings], found: Mapping[str, Any], place: object) -> dict[str, Any]:
    """The same of a settings file, which may leave out what has a default. One without a number is of form 1."""
    kind = FILES[model]
    whole = {name: {} for name in _OPEN} | dict(found) if model is TaskFile and newest(kind) > 1 else found
    try:
        return _completed(kind, whole, found.get(FORM, 1), is_file=True)
    except DocumentError as wrong:
        raise SettingsError(f"{place}: {wrong}") from None


def _completed(kind: str, body: Mapping[str, Any], form: object, *, is_file: bool) -> dict[str, Any]:
    if type(form) is not int or form < 1:
        raise DocumentError(f"this {kind} does not name its form, a whole number from 1 on")
    if form > newest(kind):
        raise FormTooNew(
            f"this {kind} is of form {form}, and CrowdFL {__version__} reads forms up to {newest(kind)}: update CrowdFL here"
        )
    whole = {name: value for name, value in body.items() if name != FORM}
    for added in ADDED.get(kind, ())[form - 1 :]:
        for path, value in added.items():
            names = path.split(".")
            whole = _with(kind, whole, names, value, may_be_there=is_file or names[0] == _TRAINING)
    return whole


def _with(kind: str, table: Mapping[str, Any], path: list[str], value: object, *, may_be_there: bool) -> dict[str, Any]:
    name, *inner = path
    if not inner:
        if name in table and not may_be_there:
            raise DocumentError(f"this {kind} says `{name}`, which its form does not have")
        return {name: value, **table}
    return {
        one: _with(kind, part, inner, value, may_be_there=may_be_there)
        if name in ("*", one) and isinstance(part, Mapping)  # what else it is, its reader refuses
        else part
        for one, part in table.items()
    }
