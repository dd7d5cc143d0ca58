"""How well a model does on somebody's data: the scores, each class, and the confusion matrix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.datasets.csv_files import read_table
from crowdfl.learning.datasets.data import Labels, Windows
from crowdfl.learning.datasets.recordings import recordings_of, resampled, windows_of
from crowdfl.learning.datasets.sources import csv_file
from crowdfl.learning.metrics import class_scores, confusion
from crowdfl.learning.models.learner import Learner, score
from crowdfl.learning.recipe import Recipe

_NO_LABEL = "?"


@dataclass(frozen=True, eq=False)
class Samples:
    """Windows, the second at which each begins where that is known, and their labels where those are."""

    windows: Windows
    starts: npt.NDArray[np.float64] | None
    labels: Labels | None

    def require_labels(self, spec: str) -> Labels:
        if self.labels is None:
            raise DataMalformed(f"{spec} has no labels to compare with: add a column `label`, or use `predict`")
        return self.labels


def load_samples(spec: str, recipe: Recipe) -> Samples:
    """All of one CSV file, or what is held out of data as `crowdfl participant run` takes it."""
    if (file := csv_file(spec)) is not None:
        return _from_csv(file, recipe)
    held_out = recipe.load(spec).held_out
    return Samples(held_out.windows, None, held_out.labels)


def evaluated(recipe: Recipe, learner: Learner, data: Mapping[str, Samples]) -> dict[str, Any]:
    """A learner with its weights loaded, on labelled samples by the text that names them."""
    windows = np.concatenate([samples.windows for samples in data.values()])
    labels = np.concatenate([samples.require_labels(spec) for spec, samples in data.items()])
    probabilities = learner.predict(recipe.inputs_of(windows))
    metrics, predicted = score(probabilities, labels), probabilities.argmax(axis=1)
    return {
        "accuracy": metrics.accuracy,
        "loss": metrics.loss,
        "windows": metrics.samples,
        "classes": class_report(labels, predicted, recipe.labels),
        "confusion": confusion(labels, predicted, len(recipe.labels)).tolist(),
    }


def class_report(labels: Labels, predicted: Labels, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of each class, and how many windows it has."""
    each = class_scores(confusion(labels, predicted, len(names)))
    columns = {"windows": each.support, "precision": each.precision, "recall": each.recall, "f1": each.f1}
    return {name: {key: column[i].item() for key, column in columns.items()} for i, name in enumerate(names)}


def _from_csv(path: Path, recipe: Recipe) -> Samples:
    if not path.is_file():
        raise DataMissing(f"there is no file {path}")
    if recipe.standardise:
        raise DataMalformed("this model takes standardised windows, which needs all of a person's data: use csv:FOLDER")
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
        raise DataMalformed(f"{path} has no {cut.length / hertz:g} s without a gap, the length of a window")
    labels = np.concatenate(found)
    return Samples(np.concatenate(windows), np.concatenate(starts), labels if (labels >= 0).all() else None)


def _places(path: Path, labels: Sequence[str], recipe: Recipe) -> Labels:
    """Each label's place among the model's; -1 where the file gives none."""
    known = {name.lower(): place for place, name in enumerate(recipe.labels)} | {_NO_LABEL: -1}
    unknown = sorted(label for label in set(labels) if label.lower() not in known)
    if unknown:
        raise DataMalformed(f"{path}: the model has no label {unknown[0]!r}; its labels are {', '.join(recipe.labels)}")
    return np.array([known[label.lower()] for label in labels], dtype=np.int64)
