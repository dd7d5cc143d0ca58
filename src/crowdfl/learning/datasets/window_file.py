"""Windows that are cut already, from an .npz file: the WISDM sets, or others in the same form.

The file holds `windows` (n, length, channels), `label` into `label_names`, `user`, and `train`, true for training windows.
Which windows to hold out is never guessed: they may overlap, and the file does not say which do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.data import Labels, Person, Source, Split, Windows, person_at
from crowdfl.learning.datasets.npz import Arrays, read_arrays, require

__all__ = ["STANDARDISED", "SWAPPED", "WindowFile", "dealt_at_random"]

STANDARDISED = (
    "The WISDM windows come standardised per user, time step and axis,"
    " with statistics that partly rest on what is held out here."
)
SWAPPED = "25 swaps within users make the training windows per class equal the paper's table 2."

_WINDOWS = ("windows", "x_z", "z")  # the last two are the WISDM sets'


@dataclass(frozen=True)
class WindowFile(Source):
    """The people are the users, in the order of their numbers."""

    path: Path

    @property
    def people(self) -> tuple[str, ...]:
        return tuple(str(user) for user in np.unique(self._content.users))

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._content.label_names

    @property
    def notes(self) -> tuple[str, ...]:
        return self._content.notes

    def load_person(self, index: int) -> Split:
        content, name = self._content, person_at(self.people, index)
        mine = content.users == np.unique(content.users)[index]
        sides = (mine & content.train, mine & ~content.train)
        train, held_out = (
            Person(name, content.windows[side], content.labels[side], content.label_names) for side in sides
        )
        return Split(train, held_out)

    @cached_property
    def _content(self) -> "_Content":
        return _content(self.path, read_arrays(self.path))


def dealt_at_random(people: Sequence[Split], seed: int) -> list[Split]:
    """As many people as before, the windows dealt at random; what was held out stays held out.

    Everyone gets as many as the person in their place had. The paper does not say whose windows are whose.
    """
    order = np.random.default_rng(seed)
    train = _deal([split.train for split in people], order)
    held_out = _deal([split.held_out for split in people], order)
    return [Split(*sides) for sides in zip(train, held_out, strict=True)]


def _deal(people: Sequence[Person], order: np.random.Generator) -> list[Person]:
    windows = np.concatenate([person.windows for person in people])
    labels = np.concatenate([person.labels for person in people])
    ends = np.cumsum([len(person) for person in people])[:-1]
    hands = enumerate(np.split(order.permutation(len(labels)), ends), start=1)
    return [Person(f"dealt-{n:02}", windows[hand], labels[hand], people[0].label_names) for n, hand in hands]


@dataclass(frozen=True, eq=False)
class _Content:
    windows: Windows
    labels: Labels
    users: npt.NDArray[Any]
    train: npt.NDArray[np.bool_]
    label_names: tuple[str, ...]
    notes: tuple[str, ...]


def _content(path: Path, found: Arrays) -> _Content:
    marked = {"train": found["adatime_test"] == 0} if "adatime_test" in found else {}
    arrays = {**marked, **found}
    windows = next((name for name in _WINDOWS if name in arrays), "windows")
    require(path, arrays, "label", windows, "user", "train")
    if "label_names" not in arrays:
        raise DataMalformed(f"{path} lacks the array 'label_names'; it has {', '.join(sorted(found))}")
    notes = [STANDARDISED] if windows != "windows" else []
    return _Content(
        arrays[windows].astype(np.float32),
        arrays["label"].astype(np.int64),
        arrays["user"],
        arrays["train"].astype(np.bool_),
        tuple(map(str, arrays["label_names"])),
        tuple([*notes, SWAPPED] if "src_index" in arrays else notes),
    )
