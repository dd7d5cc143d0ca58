"""Windows to evaluate or predict on: what is held out of a person's data, or all of a sensor app's CSV file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdfl.cli.training import in_labels_of, load_person
from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning import watch
from crowdfl.learning.csv_table import read_table
from crowdfl.learning.data import Labels, Windows, windows_of
from crowdfl.learning.resample import even
from crowdfl.learning.stream import recordings_of

__all__ = ["Samples", "load_samples"]

_NO_LABEL = "?"


@dataclass(frozen=True, eq=False)
class Samples:
    """Windows, the second at which each begins where that is known, and their labels where those are."""

    windows: Windows
    starts: npt.NDArray[np.float64] | None
    labels: Labels | None


def load_samples(spec: str, names: list[str]) -> Samples:
    """A file that ends in .csv, or data as `crowdfl participant run` takes it."""
    if spec.lower().endswith(".csv") and not spec.startswith("csv:"):
        return _from_csv(Path(spec), names)
    held_out = in_labels_of(load_person(spec).held_out, names)
    return Samples(held_out.windows, None, held_out.labels)


def _from_csv(path: Path, names: list[str]) -> Samples:
    if not path.is_file():
        raise DataMissing(f"there is no file {path}")
    table = read_table(path, _NO_LABEL)
    known = {name.lower(): place for place, name in enumerate(names)}
    unknown = sorted(label for label in set(table.labels) - {_NO_LABEL} if label.lower() not in known)
    if unknown:
        raise DataMalformed(f"{path}: the model knows no label {unknown[0]!r}, only {', '.join(names)}")
    labels = np.array([known.get(label.lower(), -1) for label in table.labels], dtype=np.int64)
    signal = table.signal / watch.UNITS[: table.signal.shape[1]]
    windows, starts, found = [], [], []
    for recording in recordings_of(table.times, signal, labels, watch.HERTZ):
        times = recording.times if recording.times is not None else np.arange(len(recording.signal)) / watch.HERTZ
        cut = windows_of(even(times, recording.signal, watch.HERTZ), watch.CUT.length, watch.CUT.step)
        windows.append(cut)
        starts.append(times[0] + np.arange(len(cut)) * watch.CUT.step / watch.HERTZ)
        found.append(np.full(len(cut), recording.label))
    if not sum(map(len, windows)):
        seconds = watch.CUT.length / watch.HERTZ
        raise DataMalformed(f"{path} holds no {seconds:g} s without a gap, which is what a window takes")
    every = np.concatenate(found)
    return Samples(np.concatenate(windows), np.concatenate(starts), every if (every >= 0).all() else None)
