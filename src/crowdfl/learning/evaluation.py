"""How good a classifier is: the columns of the paper's table 3.

Precision, recall and F1 are macro averages: computed for each class alone, then averaged, every class counting once. A class
that neither occurs nor is ever predicted is left out; one that is never predicted has precision 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets import supplied as watch
from crowdfl.learning.datasets.csv_files import label_of_name, read_table, value_columns
from crowdfl.learning.datasets.data import Labels, Values, Windows, recordings_of, resampled, windows_of
from crowdfl.learning.datasets.sources import csv_file
from crowdfl.learning.models.learner import Learner, scored, value_score
from crowdfl.learning.recipe import Recipe

_Floats = npt.NDArray[np.float64]
_NO_LABEL = "?"


@dataclass(frozen=True)
class Scores:
    """A row of table 3 without its last column."""

    accuracy: float
    precision: float
    recall: float
    f1: float


def confusion(labels: Labels, predicted: Labels, classes: int) -> Labels:
    """The confusion matrix: a row per true class, a column per predicted one."""
    if labels.shape != predicted.shape or labels.ndim != 1:
        raise DataMalformed(f"{predicted.shape} predictions do not match {labels.shape} labels")
    both = np.concatenate([labels, predicted])
    if len(both) and not 0 <= both.min() <= both.max() < classes:
        raise DataMalformed(f"a label or prediction is outside 0 to {classes - 1}")
    return np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def class_scores(labels: Labels, predicted: Labels, classes: int) -> dict[str, npt.NDArray[Any]]:
    """How often each class occurs, and its scores: never predicted is precision 0, and one that does not occur has recall 0."""
    matrix = confusion(labels, predicted, classes)
    right = np.diag(matrix)
    occurs = matrix.sum(axis=1)
    found = matrix.sum(axis=0)
    shares = {"precision": (right, found), "recall": (right, occurs), "f1": (2 * right, occurs + found)}
    return {"windows": occurs} | {name: _share(*pair) for name, pair in shares.items()}


def scores(labels: Labels, predicted: Labels, classes: int) -> Scores:
    if not len(labels):
        raise DataMalformed("there is nothing to score: no samples are held out")
    each = class_scores(labels, predicted, classes)
    seen = np.union1d(labels, predicted)
    means = (float(each[name][seen].mean()) for name in ("precision", "recall", "f1"))
    return Scores(float((labels == predicted).mean()), *means)


def _share(part: Labels, whole: Labels) -> _Floats:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


@dataclass(frozen=True, eq=False)
class Samples:
    """Windows, the second at which each begins where that is known, and their labels or values where those are.

    `own` are the person's training windows, where inputs are scaled by them.
    """

    windows: Windows
    starts: npt.NDArray[np.float64] | None
    labels: Labels | None
    values: Values | None = None
    own: Windows | None = None

    def targets(self, spec: str, recipe: Recipe) -> npt.NDArray[Any]:
        """What a model of this recipe is compared with."""
        found, what = (self.values, "values") if recipe.learns_values else (self.labels, "labels")
        if found is None:
            column = "a column for each" if recipe.learns_values else "a column `label`"
            raise DataMalformed(f"{spec} has no {what} to compare with: add {column}, or use `predict`")
        return found


def load_samples(spec: str, recipe: Recipe) -> Samples:
    """All of one CSV file, or what is held out of data as `crowdfl participant run` takes it."""
    if (file := csv_file(spec)) is not None:
        return _from_csv(file, recipe)
    split = recipe.load(spec)
    held_out = split.held_out
    return Samples(held_out.windows, None, held_out.labels, held_out.values, split.train.windows)


def predicted_by(recipe: Recipe, learner: Learner, samples: Samples) -> npt.NDArray[np.float64]:
    """The probability of each label, or the values, of each window."""
    return learner.predict(recipe.inputs_of(samples.windows, samples.own))


def evaluated(recipe: Recipe, learner: Learner, data: Mapping[str, Samples]) -> dict[str, Any]:
    """A learner with its weights loaded, on samples with labels or values, by the text that names them."""
    found = {spec: (predicted_by(recipe, learner, one), one.targets(spec, recipe)) for spec, one in data.items()}
    predicted, targets = (np.concatenate(side) for side in zip(*found.values(), strict=True))
    metrics = scored(predicted, targets)
    if recipe.learns_values:
        report: dict[str, Any] = {"values": value_report(targets, predicted, recipe.labels)}
    else:
        report = _label_report(recipe, targets, predicted.argmax(axis=1))
    each = {
        spec: {"windows": len(own), **(scored(at, own).numbers if len(own) else {})}
        for spec, (at, own) in found.items()
    }
    return {**metrics.numbers, "windows": metrics.samples, **report, "each": each}


def value_report(
    values: Values, predicted: npt.NDArray[np.float64], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """The scores of each value alone."""
    return {name: value_score(predicted[:, [i]], values[:, [i]]).numbers for i, name in enumerate(names)}


def _label_report(recipe: Recipe, labels: Labels, predicted: Labels) -> dict[str, Any]:
    matrix = confusion(labels, predicted, len(recipe.labels)).tolist()
    return {"classes": class_report(labels, predicted, recipe.labels), "confusion": matrix}


def class_report(labels: Labels, predicted: Labels, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of each class, and how many windows it has."""
    columns = class_scores(labels, predicted, len(names))
    return {name: {key: column[i].item() for key, column in columns.items()} for i, name in enumerate(names)}


def _from_csv(path: Path, recipe: Recipe) -> Samples:
    if not path.is_file():
        raise DataMissing(f"there is no file {path}")
    if recipe.standardise:
        raise DataMalformed("this model takes standardised windows, which needs all of a person's data: use csv:FOLDER")
    if recipe.scale_inputs:
        raise DataMalformed("this model takes scaled inputs, which needs all of a person's data: use csv:FOLDER")
    named = value_columns(path, recipe.value_names)
    table = read_table(path, _label_of(path, recipe), named, recipe.beside)
    cut = recipe.cut
    hertz = recipe.cut.hertz or watch.HERTZ
    if table.signal.shape[1] != recipe.channels:
        raise DataMalformed(f"{path} has {table.signal.shape[1]} channels, the model takes {recipe.channels}")
    signal = np.concatenate([table.signal / watch.UNITS[: recipe.channels], table.beside, table.values], axis=1)
    windows = []
    starts = []
    found = []
    places = np.full(len(signal), -1) if recipe.learns_values else _places(path, table.labels, recipe)
    for recording in recordings_of(table.times, signal, places, hertz):
        times = recording.times if recording.times is not None else np.arange(len(recording.signal)) / hertz
        windows.append(windows_of(resampled(times, recording.signal, hertz), cut.length, cut.step))
        starts.append(times[0] + np.arange(len(windows[-1])) * cut.step / hertz)
        found.append(np.full(len(windows[-1]), recording.label))
    if not sum(map(len, windows)):
        raise DataMalformed(f"{path} has no {cut.length / hertz:g} s without a gap, the length of a window")
    labels, every = np.concatenate(found), np.concatenate(windows)
    values = every[:, :, recipe.width :].mean(axis=1, dtype=np.float64).astype(np.float32) if named else None
    kept = np.ascontiguousarray(every[:, :, : recipe.width])
    return Samples(kept, np.concatenate(starts), labels if (labels >= 0).all() else None, values)


def _label_of(path: Path, recipe: Recipe) -> str:
    """By the file's name, as in training, where that is one of the model's labels."""
    name = label_of_name(path.stem)
    return name if name in {label.lower() for label in recipe.labels} else _NO_LABEL


def _places(path: Path, labels: Sequence[str], recipe: Recipe) -> Labels:
    """Each label's place among the model's; -1 where the file gives none."""
    known = {name.lower(): place for place, name in enumerate(recipe.labels)} | {_NO_LABEL: -1}
    unknown = sorted(label for label in set(labels) if label.lower() not in known)
    if unknown:
        raise DataMalformed(f"{path}: the model has no label {unknown[0]!r}; its labels are {', '.join(recipe.labels)}")
    return np.array([known[label.lower()] for label in labels], dtype=np.int64)
