"""People's CSV files: a file or a folder of one person, or a folder with an inner folder for each person.

A file without a column of labels is labelled by its place: by the one name, from the folder down to the file, that is not just
a sensor, a date or a number. `walking_2.csv` and `walking-2/Accelerometer.csv` are walking. In `alice/walking.csv` there are
two such names: alice may be a person or an activity, and which of them must be said.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.datasets.csv_files import CsvTable, read_table
from crowdfl.learning.datasets.data import UNLABELLED, Cut, Recording, Source, Split, person_at, relabelled
from crowdfl.learning.datasets.recordings import recordings_of, split_recordings, with_values

CUT = Cut(length=100, step=25, held_out=0.3, gap=100, hertz=50.0)  # the watch's

# What apps call files and folders, whatever was recorded; `phone` or `user` alone may be a person's.
_OF_AN_APP = re.compile(
    r"((watch|wrist|phone|device|user)(?=[\s_.-]*[a-z])|total|linear|raw|without|uncalibrated|sensors?|motion|data|log|logger|g|"
    r"acc|accel|acceleration|accelerometer|gyr|gyro|gyroscope|rotation|gravity|magnet|magnetometer|orientation|barometer|"
    r"rec|record|recordings?|export|session|trial|take|csv|[\s_.-])+"
)
_DATE = re.compile(r"\d{4}[-_.]?\d\d[-_.]?\d\d.*")


@dataclass(frozen=True)
class CsvFolder(Source):
    """One person's file or folder, named after it. With `by_folder`, inner folders are labels whatever they are called."""

    path: Path
    cut: Cut = CUT
    by_folder: bool = False
    values: tuple[str, ...] = ()  # numbers to learn; labels then do not matter

    @property
    def people(self) -> tuple[str, ...]:
        place = self.path.resolve()
        return (place.stem if place.is_file() else place.name,)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(sorted({label for table in self._tables for label in table.labels}))

    @property
    def notes(self) -> tuple[str, ...]:
        dropped = sum((table.dropped for table in self._tables), Counter[str]())
        return tuple(f"Left out: {kind} in {count:,} rows." for kind, count in sorted(dropped.items())) + self._merged()

    @property
    def inner(self) -> list[str]:
        """The folders in it that hold CSV files."""
        return sorted({parts[0] for parts in map(self._parts, _files(self.path)) if len(parts) > 1})

    @property
    def unclear(self) -> Path | None:
        """A file without labels of its own in a place that names two things."""
        return (
            None
            if self.by_folder
            else next((path for path in self._bare if len(names_in(self._parts(path))) > 1), None)
        )

    def load_person(self, index: int) -> Split:
        """In units of g and 2 rad/s."""
        name = person_at(self.people, index)
        names = (UNLABELLED,) if self.values else self.label_names
        places = {label: 0 if self.values else place for place, label in enumerate(self.label_names)}
        hertz = self.cut.hertz or watch.HERTZ
        recordings = [recording for table in self._tables for recording in _recordings(table, places, hertz)]
        split = split_recordings(name, recordings, names, replace(self.cut, hertz=hertz))
        return with_values(split, self.values) if self.values else split

    @cached_property
    def _tables(self) -> list[CsvTable]:
        if not self._read:
            raise DataMissing(f"{self.path} holds no CSV file with samples: export the recordings into it")
        widths = {table.signal.shape[1]: path for path, table in self._read.items()}
        if len(widths) > 1:
            found = " and ".join(f"{path.name} has {width} channels" for width, path in sorted(widths.items()))
            raise DataMalformed(f"{self.path}: {found}; all files need the same")
        if unclear := self.unclear:
            raise DataMalformed(two_readings(self.path, unclear))
        if self._bare:
            raise DataMalformed(
                f"{self._bare[0]}: there is no label: add a column `label`, or name the file after the activity"
            )
        return list(self._read.values())

    @cached_property
    def _read(self) -> Mapping[Path, CsvTable]:
        tables = {path: read_table(path, self._label(path), self.values) for path in _files(self.path)}
        return {path: table for path, table in tables.items() if len(table.times)}

    @property
    def _bare(self) -> list[Path]:
        return [path for path, table in self._read.items() if not all(table.labels)]

    def _parts(self, path: Path) -> tuple[str, ...]:
        """The names from the folder down to the file, without the file's ending."""
        return (path.stem,) if path == self.path else path.relative_to(self.path).with_suffix("").parts

    def _label(self, path: Path) -> str:
        parts = self._parts(path)
        if self.values:
            return UNLABELLED
        if self.by_folder:
            return label_of_name(parts[0])
        names = names_in(parts)
        return names[0] if len(names) == 1 else ""

    def _merged(self) -> tuple[str, ...]:
        """Two people's files with labels of their own are one person's, unless one of them is named."""
        labels = set(self.label_names)
        others = [name for name in self.inner if _activity(name) and _activity(name) not in labels]
        if self.by_folder or len(others) < 2:
            return ()
        return (
            f"The folders {', '.join(others)} are read as one person's; csv:{self.path}#{others[0]} reads one of them.",
        )


@dataclass(frozen=True)
class CsvPeople(Source):
    """A folder with an inner folder for each person."""

    path: Path
    cut: Cut = CUT

    @cached_property
    def people(self) -> tuple[str, ...]:
        return tuple(CsvFolder(self.path).inner)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(sorted({label for folder in self._folders for label in folder.label_names}))

    @property
    def notes(self) -> tuple[str, ...]:
        found = [f"{folder.people[0]}: {note}" for folder in self._folders for note in folder.notes]
        about = f"Each inner folder is a person; if they are activities, write csv-by-folder:{self.path}."
        return (*found, about)

    def load_person(self, index: int) -> Split:
        person_at(self.people, index)
        return relabelled(self._folders[index].load_person(0), self.label_names)

    @cached_property
    def _folders(self) -> list[CsvFolder]:
        return [CsvFolder(self.path / name, self.cut) for name in self.people]


def csv_source(
    path: Path, person: str | None, *, by_folder: bool = False, cut: Cut = CUT, values: tuple[str, ...] = ()
) -> Source:
    """One person's, or everyone's where the inner folders can be people."""
    whole = CsvFolder(path, cut, by_folder, values)
    if person is None:
        return CsvPeople(path, cut) if whole.unclear else whole
    if not (path / person).is_dir():
        raise DataMissing(
            f"{path} has no folder {person!r} with CSV files; there are {', '.join(whole.inner) or 'none'}"
        )
    return replace(whole, path=path / person)


def two_readings(folder: Path, file: Path | None = None) -> str:
    """What to write where inner folders may be people or activities."""
    inner = CsvFolder(folder).inner
    place = file.relative_to(folder) if file else f"{inner[0]}/..."
    return (
        f"{folder}: in {place} the label is not clear. If {inner[0]} is a person, write csv:{folder}#{inner[0]} "
        f"(there are {', '.join(inner)}). If it is what was done, write csv-by-folder:{folder}"
    )


def names_in(parts: Sequence[str]) -> list[str]:
    """The names that may be a label, each once; a number above one of them may be a person."""
    activities = [_activity(part) for part in parts]
    last = max((place for place, name in enumerate(activities) if name), default=-1) + 1
    names = zip(parts[:last], activities[:last], strict=True)
    return list(dict.fromkeys(name or part for part, name in names if name or _is_number(part)))


def label_of_name(name: str) -> str:
    """`Walking_2024-05-01_10-22` and `walking (3)` mean `walking`: what comes before the first number, in lower case."""
    return re.split(r"[\s_.()-]*\d", name, maxsplit=1)[0].strip(" _-.()").lower()


def _activity(part: str) -> str:
    name = label_of_name(part)
    return "" if _OF_AN_APP.fullmatch(name) else name


def _is_number(part: str) -> bool:
    return not label_of_name(part) and not _DATE.fullmatch(part)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataMissing(f"{path} is not a folder, nor a CSV file: name one of them")
    return sorted(found for found in path.rglob("*") if found.suffix.lower() == ".csv" and found.is_file())


def _recordings(table: CsvTable, places: Mapping[str, int], hertz: float) -> list[Recording]:
    labels = np.array([places[label] for label in table.labels], dtype=np.int64)
    signal = np.append(table.signal / watch.UNITS[: table.signal.shape[1]], table.values, axis=1)
    return recordings_of(table.times, signal, labels, hertz)
