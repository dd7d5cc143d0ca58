"""A folder of CSV files as a phone's sensor app exports them: time, x, y, z, perhaps rotation, and a label.

Apps differ in headers, units and ways to write the time; docs/learning.md lists what is understood. All files of a folder are
one person's. A file without a label column is labelled by its name, or by that of the inner folder that it lies in.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.datasets.csv_table import Table, read_table
from crowdfl.learning.datasets.data import Cut, Recording, Split, person_at, split_recordings
from crowdfl.learning.datasets.stream import recordings_of

__all__ = ["CUT", "CsvFolder", "label_of_name"]

CUT = Cut(length=100, step=25, held_out=0.3, gap=100, hertz=50.0)  # the watch's


@dataclass(frozen=True)
class CsvFolder:
    """The folder as a `Source` of one person, with its own name."""

    path: Path
    cut: Cut = CUT

    @property
    def people(self) -> tuple[str, ...]:
        """The one whose folder it is."""
        return (self.path.resolve().name,)

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels met, sorted."""
        return tuple(sorted({label for table in self._tables for label in table.labels}))

    @property
    def notes(self) -> tuple[str, ...]:
        """How many rows were left out, and why."""
        dropped = sum((table.dropped for table in self._tables), Counter[str]())
        return tuple(f"Left out: {kind} in {count:,} rows." for kind, count in sorted(dropped.items()))

    def load_person(self, index: int) -> Split:
        """Their windows, in g and 2 rad/s."""
        name = person_at(self.people, index)
        names = {label: place for place, label in enumerate(self.label_names)}
        hertz = self.cut.hertz or watch.HERTZ
        recordings = [recording for table in self._tables for recording in _recordings(table, names, hertz)]
        return split_recordings(name, recordings, self.label_names, replace(self.cut, hertz=hertz))

    @cached_property
    def _tables(self) -> list[Table]:
        if not self.path.is_dir():
            raise DataMissing(f"{self.path} is not a folder: name one that holds CSV files")
        files = sorted(path for path in self.path.rglob("*") if path.suffix.lower() == ".csv" and path.is_file())
        tables = [(path, read_table(path, self._label(path))) for path in files]
        filled = [(path, table) for path, table in tables if len(table.times)]
        if not filled:
            raise DataMissing(f"{self.path} holds no CSV file with samples: export the recordings into it")
        widths = {table.signal.shape[1]: path for path, table in filled}
        if len(widths) > 1:
            told = " and ".join(f"{path.name} has {width} channels" for width, path in sorted(widths.items()))
            raise DataMalformed(f"{self.path}: {told}; all files need the same")
        return [table for _, table in filled]

    def _label(self, path: Path) -> str:
        first = path.relative_to(self.path).parts[0]
        return label_of_name(first.removesuffix(path.suffix))


def _recordings(table: Table, names: dict[str, int], hertz: float) -> list[Recording]:
    labels = np.array([names[label] for label in table.labels], dtype=np.int64)
    return recordings_of(table.times, table.signal / watch.UNITS[: table.signal.shape[1]], labels, hertz)


def label_of_name(name: str) -> str:
    """`Walking_2024-05-01_10-22` and `walking (3)` mean `walking`: what comes before the first number, in small letters."""
    return re.split(r"[\s_.()-]*\d", name, maxsplit=1)[0].strip(" _-.()").lower()
