"""`crowdfl evaluate` and `crowdfl predict`: how well a fetched model does, and what it says about new data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.markup import escape
from rich.table import Table

from crowdfl.cli.output import Json, show, waiting
from crowdfl.cli.task.files import read_model
from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.datasets.csv_files import read_table
from crowdfl.learning.datasets.data import Labels, Windows
from crowdfl.learning.datasets.recordings import recordings_of, resampled, windows_of
from crowdfl.learning.metrics import class_scores, confusion
from crowdfl.learning.models.learner import score
from crowdfl.learning.recipe import Recipe

_Model = Annotated[
    Path, typer.Argument(help="A model that `crowdfl task fetch` or `train --save` wrote: .safetensors or .npz.")
]
_Module = Annotated[
    str | None, typer.Option(help="Your own torch module, where the task has one: package.module:Class.")
]
_WHICH = "what is held out of watch:N or other data that `participant run` takes, or a sensor app's .csv file"
_NO_LABEL = "?"


# Windows, the second at which each begins where that is known, and their labels where those are.
_Samples = tuple[Windows, npt.NDArray[np.float64] | None, Labels | None]


def evaluate(
    model: _Model,
    data: Annotated[list[str], typer.Option(help=f"On what: {_WHICH}, with a column `label`. Repeatable.")],
    module: _Module = None,
    as_json: Json = False,
) -> None:
    """Show how well a model does: accuracy, precision and recall of each class, and the confusion matrix."""
    found = []
    with waiting("loading the model and the data", quiet=as_json):
        for spec in data:
            (_, _, labels), probabilities, names = _predicted(model, spec, module)
            if labels is None:
                raise DataMalformed(f"{spec} has no labels to compare with: add a column `label`, or use `predict`")
            found.append((probabilities, labels))
    probabilities, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    metrics = score(probabilities, labels)
    matrix = confusion(labels, probabilities.argmax(axis=1), len(names)).tolist()
    classes = class_report(labels, probabilities.argmax(axis=1), names)
    title = "scores, and the confusion matrix: rows are the true classes"
    table = class_table(classes, title, dict(zip(names, matrix, strict=True)))
    result = {"accuracy": metrics.accuracy, "loss": metrics.loss, "windows": metrics.samples}
    words = f"accuracy {metrics.accuracy:.3f}, loss {metrics.loss:.3f}, on {metrics.samples} windows"
    show({**result, "classes": classes, "confusion": matrix}, words, table, as_json=as_json)


def predict(
    model: _Model,
    data: Annotated[str, typer.Option(help=f"Of what: {_WHICH}.")],
    module: _Module = None,
    as_json: Json = False,
) -> None:
    """Show which label each window gets, and its probability."""
    with waiting("loading the model and the data", quiet=as_json):
        (_, seconds, _), probabilities, names = _predicted(model, data, module)
    starts = [None] * len(probabilities) if seconds is None else seconds.round(3).tolist()
    rows, lines = [], ["window,start,label,probability"]
    for number, (start, row) in enumerate(zip(starts, probabilities, strict=True)):
        label = names[row.argmax()]
        rows.append(
            {"start": start, "label": label, "probabilities": dict(zip(names, row.round(6).tolist(), strict=True))}
        )
        lines.append(f"{number},{'' if start is None else start},{label},{row.max():.4f}")
    show({"windows": rows}, *lines, as_json=as_json)


def class_report(labels: Labels, predicted: Labels, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of each class, and how many windows it has."""
    each = class_scores(confusion(labels, predicted, len(names)))
    columns = {"windows": each.support, "precision": each.precision, "recall": each.recall, "f1": each.f1}
    return {name: {key: column[i].item() for key, column in columns.items()} for i, name in enumerate(names)}


def class_table(
    classes: Mapping[str, Mapping[str, float]], title: str, confused: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> Table:
    """Such a report as a table, with the rows of the confusion matrix where they are given."""
    table = Table("class", "windows", "precision", "recall", "F1", *map(escape, confused), title=title)
    for name, row in classes.items():
        values = (f"{row[key]:.3f}" for key in ("precision", "recall", "f1"))
        table.add_row(escape(name), str(row["windows"]), *values, *map(str, confused.get(name, ())))
    return table


def _predicted(path: Path, spec: str, module: str | None) -> tuple[_Samples, Any, list[str]]:
    definition, arrays = read_model(path)
    recipe = Recipe.of(definition.training)
    samples = _load_samples(spec, recipe)
    learner = recipe.make_learner(module)
    learner.load(arrays)
    return samples, learner.predict(recipe.inputs_of(samples[0])), list(recipe.labels)


def _load_samples(spec: str, recipe: Recipe) -> _Samples:
    """A file that ends in .csv, or data as `crowdfl participant run` takes it."""
    if spec.lower().endswith(".csv") and not spec.startswith("csv:"):
        return _from_csv(Path(spec), recipe)
    held_out = recipe.load(spec).held_out
    return held_out.windows, None, held_out.labels


def _from_csv(path: Path, recipe: Recipe) -> _Samples:
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
    return np.concatenate(windows), np.concatenate(starts), labels if (labels >= 0).all() else None


def _places(path: Path, labels: Sequence[str], recipe: Recipe) -> Labels:
    """Each label's place among the model's; -1 where the file gives none."""
    known = {name.lower(): place for place, name in enumerate(recipe.labels)} | {_NO_LABEL: -1}
    unknown = sorted(label for label in set(labels) if label.lower() not in known)
    if unknown:
        raise DataMalformed(f"{path}: the model has no label {unknown[0]!r}; its labels are {', '.join(recipe.labels)}")
    return np.array([known[label.lower()] for label in labels], dtype=np.int64)
