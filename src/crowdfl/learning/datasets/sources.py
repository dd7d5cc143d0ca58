"""A person's data by a short text, as the command line takes it: `watch:3`, `csv:FOLDER`, `FILE.csv`, `npz:FILE#7`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from crowdfl.errors import DataMissing, SettingsError
from crowdfl.learning.datasets.csv_files import Beside, CsvPeople, csv_source, two_readings
from crowdfl.learning.datasets.data import Cut, Source, Split
from crowdfl.learning.datasets.motion_sense import MotionSense
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.datasets.supplied import Synthetic, Watch

FORMS: Mapping[str, str] = MappingProxyType(
    {
        "watch": "watch:N, person N (0 to 9) of the watch data that comes with crowdfl",
        "synthetic": "synthetic:N, a made-up person",
        "csv": "csv:FOLDER or FILE.csv, one person's recordings as a phone's sensor app exports them; csv:FOLDER#PERSON, "
        "those in a person's inner folder",
        "csv-by-folder": "csv-by-folder:FOLDER, the same where each inner folder is named after what was done",
        "npz": "npz:FILE#USER, windows cut already, in the arrays windows, label, label_names, user and train",
        "motionsense": "motionsense:FILE#SUBJECT, the MotionSense stream",
    }
)
_LINES = [f"\n  {form}" for form in FORMS.values()]
_CSV = ("csv", "csv-by-folder")
_SEVERAL = re.compile("(.*?)((?:#[^#,]+,)+#[^#,]+)")
_NUMBERED = ("watch", "synthetic")  # their people have numbers, and there is no file


@dataclass(frozen=True)
class Spec:
    """Such a text, parsed: the kind, its path, and the person, if one is named."""

    kind: str
    path: Path
    person: str | None


def parse_spec(text: str) -> Spec:
    """A path that ends in .csv is a file; anything else begins with its kind."""
    kind, colon, rest = text.partition(":")
    if kind not in FORMS and text.lower().endswith(".csv"):
        return Spec("csv", Path(text).expanduser(), None)
    if not colon or kind not in FORMS or not rest:
        raise SettingsError(f"{text!r} does not name any data; {_hint(text)}write one of:" + "".join(_LINES))
    if kind in _NUMBERED:
        if not rest.isdecimal():
            raise SettingsError(f"{text!r}: after the colon comes a number, as in {kind}:3")
        return Spec(kind, Path(), rest)
    named = "#" in rest and not (kind in _CSV and Path(rest).expanduser().exists())  # a folder's name may have a #
    path, _, person = rest.rpartition("#") if named else (rest, "", "")
    return Spec(kind, Path(path).expanduser(), person or None)


def csv_file(text: str) -> Path | None:
    """The one CSV file that a text names, if it names one."""
    kind = text.partition(":")[0]
    spec = parse_spec(text) if kind in _CSV or text.lower().endswith(".csv") else None
    named = spec is not None and spec.person is None and (spec.path.suffix.lower() == ".csv" or spec.path.is_file())
    return spec.path if spec is not None and named and not spec.path.is_dir() else None


def _hint(text: str) -> str:
    """What was meant, if a path was."""
    path = Path(text.partition("#")[0]).expanduser()
    kind = "csv" if path.is_dir() else "npz" if path.suffix.lower() == ".npz" else None
    return f"perhaps {kind}:{text}? Or " if kind and text and path.exists() else ""


def open_source(spec: Spec, cut: Cut | None = None, values: Sequence[str] = (), beside: Beside = ()) -> Source:
    """`values` are the numbers that a task learns, `beside` what it records beside motion: CSV files have them in columns."""
    chosen: dict[str, Any] = {} if cut is None else {"cut": cut}
    columns: dict[str, Any] = {"values": tuple(values), "beside": beside, **chosen}
    makers: Mapping[str, Callable[[], Source]] = {
        "watch": lambda: Watch(**chosen),
        "synthetic": lambda: Synthetic(max(10, int(spec.person or 0) + 1), **chosen),
        "csv": lambda: csv_source(spec.path, spec.person, **columns),
        "csv-by-folder": lambda: csv_source(spec.path, spec.person, by_folder=True, **columns),
        "npz": lambda: WindowFile(spec.path),
        "motionsense": lambda: MotionSense(spec.path, **chosen),
    }
    return makers[spec.kind]()


def open_crowd(text: str) -> Source:
    """Everyone of a data set: `watch:`, `synthetic:`, or a spec that names no person."""
    kind, colon, rest = text.partition(":")
    spec = Spec(kind, Path(), None) if colon and not rest and kind in _NUMBERED else parse_spec(text)
    if spec.person is not None:
        raise SettingsError(f"{text!r} names one person: leave that out, as in watch: or npz:FILE")
    return open_source(spec)


def each_person(text: str) -> list[str]:
    """A text for each person that one means: those after a #, as in npz:FILE#2,#5; without a #, everyone."""
    kind, _, rest = text.partition(":")
    if kind in _NUMBERED and not rest:
        return [f"{text}{number}" for number in range(len(open_crowd(text).people))]
    if several := _SEVERAL.fullmatch(text):
        return [f"{several[1]}#{person}" for person in several[2][1:].split(",#")]
    spec = parse_spec(text)
    if spec.person is not None or csv_file(text) is not None:
        return [text]
    source = open_source(spec)
    alone = len(source.people) == 1 and not isinstance(source, CsvPeople)
    return [text] if alone else [f"{text}#{person}" for person in source.people]


def open_person(
    text: str, cut: Cut | None = None, values: Sequence[str] = (), beside: Beside = ()
) -> tuple[Source, int]:
    spec = parse_spec(text)
    source = open_source(spec, cut, values, beside)
    people = list(source.people)
    if spec.kind in _NUMBERED:
        return source, int(spec.person or 0)
    if spec.person is None and isinstance(source, CsvPeople):
        raise DataMissing(two_readings(spec.path))
    if spec.person is None and len(people) == 1:
        return source, 0
    if spec.person not in people:
        problem = f"no person {spec.person!r}" if spec.person else "more than one person: name one after a #"
        raise DataMissing(f"{spec.path} has {problem}; there are {', '.join(people)}")
    return source, people.index(spec.person)


def load_split(text: str, cut: Cut | None = None, values: Sequence[str] = (), beside: Beside = ()) -> Split:
    source, index = open_person(text, cut, values, beside)
    return source.load_person(index)
