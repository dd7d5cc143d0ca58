"""Windows that are cut already, in an .npz file.

`ARRAYS` says what a file of windows holds. Which windows to hold out is never guessed: they may overlap, and the file does
not say which do. No array may hold objects, which could hold code.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets.data import (
    UNLABELLED,
    Person,
    Source,
    Split,
    person_at,
)

MAX_HEADER = 512  # bytes; NumPy parses a header as Python literals, and plain arrays need less than a hundred

# What zipfile and NumPy raise on damaged or hostile files. NumPy warns of a header that Python 2 wrote.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, AttributeError, EOFError, OSError, RuntimeError)
_HEADER_ERRORS = (tokenize.TokenError, ArithmeticError, LookupError, MemoryError, SyntaxError, TypeError, ValueError)
UNREADABLE: Final = (*_ZIP_ERRORS, *_HEADER_ERRORS, Warning)

STANDARDISED = (
    "The WISDM windows come standardised per user, time step and axis,"
    " with statistics that partly rest on what is held out here."
)
SWAPPED = "25 swaps within users make the training windows per class equal the paper's table 2."
BUILT = (
    "The WISDM windows are standardised per user, time step and axis by that user's training windows alone.",
    "A fixed rule chose them, so that the training windows per class equal the paper's table 2.",
)

_WINDOWS = ("windows", "x_z", "z")  # the last two are the WISDM sets'

ARRAYS: Mapping[str, str] = MappingProxyType(
    {
        "windows": "numbers of shape (windows, samples, channels)",
        "label": "whole numbers, one per window, each a place in `label_names`",
        "label_names": "texts",
        "user": "whole numbers or texts, one per window: whose it is",
        "train": "one per window: true to train on it, false to hold it out",
    }
)
_VALUES = "To learn numbers: `value`, one or several per window, and `value_names` in place of or beside the labels"
_Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class WindowFile(Source):
    """The people are the users, in the order of their numbers."""

    path: Path

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(str(user) for user in np.unique(self._arrays["user"]))

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(map(str, self._arrays["label_names"])) if "label" in self._arrays else (UNLABELLED,)

    @property
    def value_names(self) -> tuple[str, ...]:
        """Of the columns of `value`; a single one may go without a name."""
        return tuple(map(str, self._arrays.get("value_names", ["value"])))

    @property
    def notes(self) -> tuple[str, ...]:
        if "rule" in self._arrays:  # of `crowdfl wisdm build`
            return BUILT
        standardised = _windows_in(self._arrays) != "windows"
        return (STANDARDISED,) * standardised + (SWAPPED,) * ("src_index" in self._arrays)

    def load_person(self, index: int) -> Split:
        name = person_at(self.people, index)
        train = self._arrays["train"].astype(np.bool_)
        mine = self._arrays["user"] == np.unique(self._arrays["user"])[index]
        return Split(self._side(name, mine & train), self._side(name, mine & ~train))

    def _side(self, name: str, side: npt.NDArray[np.bool_]) -> Person:
        windows = self._arrays[_windows_in(self._arrays)][side]
        values = self._arrays.get("value")
        labels = self._arrays["label"][side] if "label" in self._arrays else np.zeros(len(windows))
        person = Person(name, windows.astype(np.float32), labels.astype(np.int64), self.label_names)
        if values is None:
            return person
        columns = values[side].reshape(len(windows), -1).astype(np.float32)
        return replace(person, values=columns, value_names=self.value_names)

    @cached_property
    def _arrays(self) -> _Arrays:
        found = read_arrays(self.path)
        arrays = {"train": found["adatime_test"] == 0, **found} if "adatime_test" in found else found
        _require_windows(self.path, arrays)
        return arrays


def read_arrays(path: Path) -> _Arrays:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False, max_header_size=MAX_HEADER) as file:
            return dict(file)
    except FileNotFoundError as error:
        raise DataMissing(f"there is no {path}: name the .npz file's path") from error
    except UNREADABLE as error:
        raise DataMalformed(f"{path} is not an .npz file of plain arrays: {error}") from error


def _windows_in(arrays: _Arrays) -> str:
    return next((name for name in _WINDOWS if name in arrays), "windows")


def _require_windows(path: Path, arrays: _Arrays) -> None:
    """All that a file of windows needs, or what there is instead."""
    needed = {_windows_in(arrays) if name == "windows" else name: words for name, words in ARRAYS.items()}
    missing = [name for name in needed if name not in arrays and not (name.startswith("label") and "value" in arrays)]
    if missing or ("label" in arrays and "label_names" not in arrays):
        lacks = " and ".join(f"'{name}'" for name in missing or ["label_names"])
        it_has = ", ".join(f"{name} {array.shape}" for name, array in sorted(arrays.items())) or "none"
        expected = "".join(f"\n  `{name}`, {words}" for name, words in needed.items())
        raise DataMalformed(
            f"{path} lacks the array {lacks}; it has {it_has}. A file of windows holds{expected}\n{_VALUES}"
        )
    for name in filter(arrays.__contains__, (*needed, "value")):
        _require_array(path, arrays, name, needed.get(name, "numbers, one or several per window"))
    if "value" in arrays and "value_names" not in arrays and arrays["value"].shape[1:] not in ((), (1,)):
        raise DataMalformed(f"{path} has several values per window: name them in an array 'value_names'")


def _require_array(path: Path, arrays: _Arrays, name: str, words: str) -> None:
    array = arrays[name]
    kinds = {"label_names": "U", "user": "fiubU"}.get(name, "fiub")
    axes = {"value": (1, 2), _windows_in(arrays): (3,)}.get(name, (1,))
    count = len(arrays[_windows_in(arrays)]) if arrays[_windows_in(arrays)].ndim else 0
    as_many = name == "label_names" or array.shape[:1] == (count,)
    if array.dtype.kind not in kinds or array.ndim not in axes or not as_many:
        found = f"{array.dtype} of shape {array.shape}"
        raise DataMalformed(f"{path}: {name!r} is {found}; expected {words}, for {count} windows")
