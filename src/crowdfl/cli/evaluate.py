"""`crowdfl evaluate` and `crowdfl predict`: how well a fetched model does, and what it says about new data."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.table import Table

from crowdfl.cli.output import Json, waiting
from crowdfl.cli.task.files import read_model
from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.datasets.csv_files import read_table
from crowdfl.learning.datasets.data import Labels, Windows
from crowdfl.learning.datasets.recordings import recordings_of, resampled, windows_of
from crowdfl.learning.metrics import class_scores, confusion
from crowdfl.learning.models.learner import score
from crowdfl.learning.recipe import Recipe

__all__ = ["evaluate", "predict"]

_Model = Annotated[
    Path, typer.Argument(help="A model that `crowdfl task fetch` or `train --save` wrote: .safetensors or .npz.")
]
_Module = Annotated[
    str | None, typer.Option(help="Your own torch module, where the task has one: package.module:Class.")
]
_WHICH = "what is held out of watch:N or other data that `participant run` takes, or a sensor app's .csv file"
_NO_LABEL = "?"


@dataclass(frozen=True, eq=False)
class _Samples:
    """Windows, the second at which each begins where that is known, and their labels where those are."""

    windows: Windows
    starts: npt.NDArray[np.float64] | None
    labels: Labels | None


def evaluate(
    model: _Model,
    data: Annotated[list[str], typer.Option(help=f"On what: {_WHICH}, with a column `label`. Repeatable.")],
    module: _Module = None,
    as_json: Json = False,
) -> None:
    """Show how well a model does: accuracy, precision and recall of each class, and the confusion matrix."""
    names: list[str] = []
    found = []
    with waiting("loading the model and the data", quiet=as_json):
        for spec in data:
            samples, probabilities, names = _predicted(model, spec, module)
            if samples.labels is None:
                raise DataMalformed(
                    f"{spec} has no labels to compare with: add a column `label`, or use `crowdfl predict`"
                )
            found.append((probabilities, samples.labels))
    probabilities, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    metrics = score(probabilities, labels)
    table = confusion(labels, probabilities.argmax(axis=1), len(names))
    each = class_scores(table)
    result = {
        "accuracy": metrics.accuracy,
        "loss": metrics.loss,
        "windows": metrics.samples,
        "classes": {
            name: {
                "precision": float(each.precision[i]),
                "recall": float(each.recall[i]),
                "windows": int(each.support[i]),
            }
            for i, name in enumerate(names)
        },
        "confusion": table.tolist(),
    }
    if as_json:
        typer.echo(json.dumps(result))
    else:
        _show(result)


def predict(
    model: _Model,
    data: Annotated[str, typer.Option(help=f"Of what: {_WHICH}.")],
    module: _Module = None,
    as_json: Json = False,
) -> None:
    """Show which label each window gets, and its probability."""
    with waiting("loading the model and the data", quiet=as_json):
        samples, probabilities, names = _predicted(model, data, module)
    chosen = probabilities.argmax(axis=1)
    starts = [None] * len(chosen) if samples.starts is None else [round(float(start), 3) for start in samples.starts]
    rows: list[dict[str, Any]] = [
        {
            "start": start,
            "label": names[label],
            "probabilities": dict(zip(names, row.round(6).tolist(), strict=True)),
        }
        for start, label, row in zip(starts, chosen, probabilities, strict=True)
    ]
    if as_json:
        typer.echo(json.dumps({"windows": rows}))
        return
    typer.echo("window,start,label,probability")
    for number, row in enumerate(rows):
        start = "" if row["start"] is None else row["start"]
        typer.echo(f"{number},{start},{row['label']},{row['probabilities'][row['label']]:.4f}")


def _predicted(path: Path, spec: str, module: str | None) -> tuple[_Samples, Any, list[str]]:
    definition, arrays = read_model(path)
    recipe = Recipe.of(definition.training)
    samples = _load_samples(spec, recipe)
    learner = recipe.make_learner(module)
    learner.load(arrays)
    return samples, learner.predict(recipe.inputs_of(samples.windows)), list(recipe.labels)


def _load_samples(spec: str, recipe: Recipe) -> _Samples:
    """A file that ends in .csv, or data as `crowdfl participant run` takes it."""
    if spec.lower().endswith(".csv") and not spec.startswith("csv:"):
        return _from_csv(Path(spec), recipe)
    held_out = recipe.load(spec).held_out
    return _Samples(held_out.windows, None, held_out.labels)


def _from_csv(path: Path, recipe: Recipe) -> _Samples:
    """All of the file, cut as the recipe says."""
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
    return _Samples(np.concatenate(windows), np.concatenate(starts), labels if (labels >= 0).all() else None)


def _places(path: Path, labels: Sequence[str], recipe: Recipe) -> Labels:
    """Each label's place among the model's; -1 where the file gives none."""
    known = {name.lower(): place for place, name in enumerate(recipe.labels)} | {_NO_LABEL: -1}
    unknown = sorted(label for label in set(labels) if label.lower() not in known)
    if unknown:
        raise DataMalformed(f"{path}: the model has no label {unknown[0]!r}; its labels are {', '.join(recipe.labels)}")
    return np.array([known[label.lower()] for label in labels], dtype=np.int64)


def _show(result: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(f"accuracy {result['accuracy']:.3f}, loss {result['loss']:.3f}, on {result['windows']} windows")
    names = list(result["classes"])
    table = Table(
        "class",
        "windows",
        "precision",
        "recall",
        *names,
        title="scores, and the confusion matrix: rows are the true classes",
    )
    for (name, row), line in zip(result["classes"].items(), result["confusion"], strict=True):
        table.add_row(name, str(row["windows"]), f"{row['precision']:.3f}", f"{row['recall']:.3f}", *map(str, line))
    console.print(table)
