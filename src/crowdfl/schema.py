"""How settings are checked, and what is said of one that is wrong: the ground that `crowdfl.settings` stands on."""

import difflib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from crowdfl.durations import seconds_in
from crowdfl.errors import SettingsError

_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}  # pydantic's names
_KINDS = {bool: "true or false", str: "a string", Path: "a path"}
_ALIKE = 0.65  # of two names, that one may be the other mistyped
_LISTED = 5  # unknown names that a message repeats
_SHOWN = 60  # characters of a wrong value that a message repeats


@dataclass(frozen=True)
class Expected:
    """In a type's annotation: what an error says is expected, where the type alone does not tell."""

    text: str


@dataclass(frozen=True)
class Duration:
    """A length of time: text in files, seconds in programs and documents. `words` stand for seconds that need no number; `more`
    are other texts, such as the example, that stay as they are."""

    words: tuple[tuple[str, float], ...] = ()
    more: Callable[[str], bool] | None = None
    example: str = ""


class SettingsTable(BaseModel):
    """One table of settings. Types are strict: true is not 1, and "3" is not 3."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    def changed(self, **values: Any) -> Self:  # noqa: ANN401 -- each value is checked by its name
        """The same with these values, checked again."""
        return type(self)(**{**dict(self), **values})


class Settings(SettingsTable):
    """What a user writes, or a program gives by keywords: what is wrong is a SettingsError."""

    def __init__(self, /, **given: Any) -> None:  # noqa: ANN401 -- each value is checked by its name
        try:
            super().__init__(**given)
        except ValidationError as wrong:
            raise _refusal(type(self), given, wrong) from None

    @classmethod
    def parse(cls, found: Mapping[str, Any], place: object, **given: Any) -> Self:  # noqa: ANN401 -- as above
        """From what a file or a section holds, and what the program adds; errors name the place."""
        try:
            require_known(cls, found)
            return cls(**in_seconds(cls, found, only_text=True), **given)
        except SettingsError as wrong:
            raise SettingsError(f"{place}: {wrong}", wrong.faults) from None


def settable(model: type[SettingsTable]) -> dict[str, FieldInfo]:
    return {name: field for name, field in model.model_fields.items() if field.description}


def duration_of(field: FieldInfo) -> Duration | None:
    """What marks a setting as a length of time."""
    marks = [*field.metadata, *_marks(field.annotation)]
    return next((mark for mark in marks if isinstance(mark, Duration)), None)


def in_seconds(model: type[SettingsTable], found: Mapping[str, Any], *, only_text: bool = False) -> dict[str, Any]:
    """The same with each length of time in seconds; `only_text`: a bare number is refused, since it does not say its unit."""
    read = dict(found)
    for name, setting in settable(model).items():
        mark, value = duration_of(setting), found.get(name)
        if mark is None or value is None or not (only_text or isinstance(value, str)):
            continue
        if mark.more is not None and isinstance(value, str) and mark.more(value):
            continue
        seconds = dict(mark.words).get(value, seconds_in(value)) if isinstance(value, str) else None
        if seconds is None:
            words = f"`{name}` is {_shown(value)}; expected {expected(name, setting)}"
            raise SettingsError(words, {name: words})
        read[name] = seconds
    return read


def is_section(field: FieldInfo) -> bool:
    """Whether a setting is a table whose settings other models have."""
    return get_origin(types_of(field.annotation)[0]) is dict


def types_of(annotation: Any) -> list[Any]:  # noqa: ANN401 -- a type, in any form that typing has
    """The types that a setting may have, None apart."""
    if get_origin(annotation) is Annotated:
        return types_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in types_of(part)]
    return [] if annotation is NoneType else [annotation]


def table_of(field: FieldInfo) -> type[SettingsTable] | None:
    """The model of a setting that is a table, such as [kgc]."""
    kinds = types_of(field.annotation)
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, SettingsTable)), None)


def expected(name: str, field: FieldInfo) -> str:
    """What a setting may be, in words: its type and its bounds."""
    marks = [*field.metadata, *_marks(field.annotation)]
    said = next((mark.text for mark in marks if isinstance(mark, Expected)), None)
    kinds = types_of(field.annotation)
    if said is not None:
        return said
    if (mark := duration_of(field)) is not None:
        words = "".join(f' or "{word}"' for word in (*dict(mark.words), mark.example) if word)
        return f'a length of time, as in "10 min" or "7 days"{words}, {_bounds(marks)} seconds'
    if table_of(field) or is_section(field):
        return f"a table, [{name}]"
    if get_origin(kinds[0]) is Literal:
        return " or ".join(f'"{choice}"' for choice in get_args(kinds[0]))
    if kinds[0] in _KINDS:
        return _KINDS[kinds[0]]
    even = any(getattr(mark, "multiple_of", None) == 2 for mark in marks)
    kind = "a number" if float in kinds else "an even whole number" if even else "a whole number"
    return f"{kind}, {_bounds(marks)}"


def require_known(
    model: type[SettingsTable], found: Mapping[str, Any], inside: str = "", *, by_program: bool = False
) -> None:
    """Refuse a name that is not a setting: a mistyped one must not leave another at its default."""
    known = settable(model)
    if model.model_config.get("extra") != "ignore":
        refuse_unknown(set(found) - set(model.model_fields if by_program else known), known, known, inside)
    for name, field in known.items():
        table = table_of(field)
        if table and isinstance(found.get(name), dict):
            require_known(table, found[name], f"{inside}{name}.", by_program=by_program)


def refuse_unknown(
    unknown: Collection[str], here: Collection[str], meant: Collection[str], inside: str = "", place: str = ""
) -> None:
    """If there are such: with the settings that are `here`, and those that may have been `meant`."""
    if unknown:
        listed = ", ".join(_hint(name, meant, inside) for name in sorted(unknown)[:_LISTED])
        raise SettingsError(f"{place}unknown setting {listed}; the settings here are {', '.join(sorted(here))}")


def _hint(name: str, known: Collection[str], inside: str) -> str:
    usual = name[:_SHOWN].replace("learning_rate", "rate").replace("lr", "rate")  # what other programs call it
    near = [usual] if usual in known else difflib.get_close_matches(name[:_SHOWN], known, 1, _ALIKE)
    return f"`{inside}{ascii(name[:_SHOWN])[1:-1]}`" + (f" (did you mean `{inside}{near[0]}`?)" if near else "")


def _marks(annotation: Any) -> list[Any]:  # noqa: ANN401 -- as in `types_of`
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return [*marks, *(mark for field in marks for mark in getattr(field, "metadata", ())), *_marks(inner)]
    if get_origin(annotation) in (Union, UnionType):
        return [mark for part in get_args(annotation) for mark in _marks(part)]
    return []


def _bounds(marks: list[Any]) -> str:
    found = [(word, getattr(mark, name, None)) for mark in marks for name, word in _BOUNDS.items()]
    return " and ".join(f"{word} {_number(bound)}" for word, bound in found if bound is not None)


def _number(bound: float) -> str:
    """Short where digits would have to be counted: 2^63, 10^15."""
    for base in (2, 10):
        power = round(math.log(bound, base)) if bound >= 10**9 else 0
        if power and base**power == bound:
            return f"{base}^{power}"
    return f"{bound:,}"


def _refusal(model: type[SettingsTable], given: Mapping[str, Any], wrong: ValidationError) -> SettingsError:
    """What was found and what is expected, of the first setting that is wrong; `faults` has the others too."""
    found = wrong.errors(include_url=False, include_input=False)
    try:
        require_known(model, given, by_program=True)
    except SettingsError as unknown:
        return unknown
    found.sort(key=lambda error: error["type"] == "missing")
    if not found[0]["loc"]:  # of a rule about several settings, which says all itself
        return SettingsError(str(found[0]["ctx"]["error"]))
    said = [_fault(model, given, error) for error in found]
    return SettingsError(said[0][1], dict(reversed(said)))


def _fault(model: type[SettingsTable], given: Mapping[str, Any], error: ErrorDetails) -> tuple[str, str]:
    """The name of one setting, and what is wrong with it."""
    names, words, is_secret = _place(model, error["loc"])
    name = ".".join(names)
    if error["type"] == "missing":
        return name, f"`{name}` is missing; expected {words}"
    value: Any = given
    for part in names:
        value = value[part]
    return name, f"`{name}` is {'not shown, as a secret' if is_secret else _shown(value)}; expected {words}"


def _place(model: type[SettingsTable] | None, location: tuple[int | str, ...]) -> tuple[list[str], str, bool]:
    """The name of a setting in pydantic's location, whose rest says which type or item did not fit; what is expected; and
    whether it is a secret, which no repr shows either."""
    names: list[str] = []
    words, is_secret = "", False
    for part in location:
        if model is None or part not in model.model_fields:
            break
        field = model.model_fields[str(part)]
        names.append(str(part))
        words = expected(".".join(names), field)
        model = table_of(field)
        is_secret = is_secret or not field.repr
    return names, words, is_secret


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()  # as TOML and JSON write it
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
