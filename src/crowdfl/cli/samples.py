"""Windows to evaluate or predict on: what is held out of a person's data, or all of a sensor app's CSV file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.datasets.csv_files import read_table
from crowdfl.learning.datasets.data import Labels, Windows
from crowdfl.learning.datasets.recordings import recordings_of, resampled, windows_of
from crowdfl.learning.recipe import Recipe

__all__ = ["Samples", "load_samples"]

_NO_LABEL = "?"


@dataclass(frozen=True, eq=False)
class Samples:
    """Windows, the second at which each begins where that is known, and their labels where those are."""

    windows: Windows
    starts: npt.NDArray[np.float64] | None
    labels: Labels | None


def load_samples(spec: str, recipe: Recipe) -> Samples:
    """A file that ends in .csv, or data as `crowdfl participant run` takes it."""
    if spec.lower().endswith(".csv") and not spec.startswith("csv:"):
        return _from_csv(Path(spec), recipe)
    held_out = recipe.load(spec).held_out
    return Samples(held_out.windows, None, held_out.labels)


def _from_csv(path: Path, recipe: Recipe) -> Samples:
    """All of the file, cut as the recipe says."""
    if not path.is_file():
        raise DataMissing(f"there is no file {path}")
    if recipe.standardise:
        raise DataMalformed(
            "this model is for standardised windows, which takes all of a person's data: say csv:FOLDER"
        )
    table, cut, hertz = read_table(path, _NO_LABEL), recipe.cut, recipe.cut.hertz or watch.HERTZ
    if table.signal.shape[1] != recipe.channels:
        raise DataMalformed(f"{path} has {table.signal.shape[1]} channels, the model takes {recipe.channels}")
    signal = table.signal / watch.UNITS[: recipe.channels]
    windows, starts, found = [], [], []
    for recording in recordings_of(table.times, signal, _places(path, table.labels, recipe), hertz):
        times = recording.times if recording.times is not None else np.arange(len(recording.signal)) / hertz
        windows.append(windows_of(resampled(times, recording.signal, hertz), cut.length, cut.step))
        starts.append(times[0] + np.arange(len(windows[-1])) * cut.step / hertz)
        found.append(np.full(len(windows[-1]), recording.label))
    if not sum(map(len, windows)):
        raise DataMalformed(f"{path} holds no {cut.length / hertz:g} s without a gap, which is what a window takes")
    labels = np.concatenate(found)
    return Samples(np.concatenate(windows), np.concatenate(starts), labels if (labels >= 0).all() else None)


def _places(path: Path, labels: Sequence[str], recipe: Recipe) -> Labels:
    """Each label's place among the model's; -1 where the file gives none."""
    known = {name.lower(): place for place, name in enumerate(recipe.labels)} | {_NO_LABEL: -1}
    unknown = sorted(label for label in set(labels) if label.lower() not in known)
    if unknown:
        raise DataMalformed(f"{path}: the model knows no label {unknown[0]!r}, only {', '.join(recipe.labels)}")
    return np.array([known[label.lower()] for label in labels], dtype=np.int64)
