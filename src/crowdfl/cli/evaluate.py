"""`crowdfl evaluate` and `crowdfl predict`: what a fetched model is worth, and what it says about new data."""

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from crowdfl.cli.samples import Samples, load_samples
from crowdfl.cli.task.files import read_model
from crowdfl.cli.waiting import waiting
from crowdfl.errors import DataMalformed
from crowdfl.learning.metrics import class_scores, confusion
from crowdfl.learning.models.learner import score
from crowdfl.learning.recipe import Recipe

__all__ = ["evaluate", "predict"]

_Model = Annotated[
    Path, typer.Argument(help="A model that `crowdfl task fetch` or `train --save` wrote: .safetensors or .npz.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
_Module = Annotated[
    str | None, typer.Option(help="Your own torch module, where the task has one: package.module:Class.")
]
_WHICH = "what is held out of watch:N or other data that `participant run` takes, or a sensor app's .csv file"


def evaluate(
    model: _Model,
    data: Annotated[list[str], typer.Option(help=f"On what: {_WHICH}, with a column `label`. May be given again.")],
    module: _Module = None,
    as_json: _Json = False,
) -> None:
    """How well a model does: accuracy, precision and recall of each class, and what was taken for what."""
    names: list[str] = []
    found = []
    with waiting("loading the model and the data", quiet=as_json):
        for spec in data:
            samples, probabilities, names = _asked(model, spec, module)
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
    as_json: _Json = False,
) -> None:
    """Which label each window gets, and how sure the model is."""
    with waiting("loading the model and the data", quiet=as_json):
        samples, probabilities, names = _asked(model, data, module)
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


def _asked(path: Path, spec: str, module: str | None) -> tuple[Samples, Any, list[str]]:
    definition, arrays = read_model(path)
    recipe = Recipe.of(definition.training)
    samples = load_samples(spec, recipe)
    learner = recipe.make_learner(module)
    learner.load(arrays)
    return samples, learner.predict(recipe.inputs_of(samples.windows)), list(recipe.labels)


def _show(result: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(f"accuracy {result['accuracy']:.3f}, loss {result['loss']:.3f}, on {result['windows']} windows")
    names = list(result["classes"])
    table = Table("class", "windows", "precision", "recall", *names, title="right, and taken for")
    for (name, row), line in zip(result["classes"].items(), result["confusion"], strict=True):
        table.add_row(name, str(row["windows"]), f"{row['precision']:.3f}", f"{row['recall']:.3f}", *map(str, line))
    console.print(table)
