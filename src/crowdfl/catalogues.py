"""Sentences of pages, `web/PAGE/text/LANGUAGE.js`, for what is written without a browser: read as data, never run."""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from crowdfl.errors import SettingsError

LANGUAGES: Mapping[str, str] = {"en": "English", "de": "Deutsch", "zh": "中文"}  # of both consoles and of reports
_ONE = ("en", "de")  # the languages with another form for one
_JSON = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|(\w+)(?=:)|,(?=\s*[}\]])|;')


@cache
def catalogue(page: str, language: str) -> Mapping[str, Mapping[str, Any]]:
    """A module whose one export is an object of texts: its names are quoted, its comments and last commas go."""
    text = files("crowdfl").joinpath("web", page, "text", f"{language}.js").read_text(encoding="utf-8")
    body = _JSON.sub(lambda found: found[1] or (f'"{found[2]}"' if found[2] else ""), text)
    read: dict[str, dict[str, Any]] = json.loads(body.partition("export default")[2])
    return read


class Sentences:
    """What a report says, in its reader's language; numbers are written as that reader writes them."""

    def __init__(self, language: str, *pages: str) -> None:
        if language not in LANGUAGES:
            raise SettingsError(f"{language!r} is no language of reports: choose {', '.join(LANGUAGES)}")
        self.language = language
        self._said: dict[str, Mapping[str, Any]] = {}
        for page in ("common", *pages):
            self._said |= catalogue(page, language)

    def __call__(self, key: str, **values: object) -> str:
        section, _, name = key.partition(".")
        found = self._said[section][name]
        if not isinstance(found, str):
            found = found["one" if self.language in _ONE and values["count"] == 1 else "other"]
        return re.sub(r"\{(\w+)\}", lambda place: self.written(values[place[1]]), found)

    def knows(self, key: str) -> bool:
        section, _, name = key.partition(".")
        return name in self._said.get(section, {})

    def written(self, value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, int):
            return str(value)
        return self.decimal(f"{value:,}")

    def decimal(self, number: str) -> str:
        """A number as Python writes it, with this language's point and commas."""
        return number.translate(str.maketrans(",.", ".,")) if self.language == "de" else number
