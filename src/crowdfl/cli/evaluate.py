"""`crowdfl evaluate` and `crowdfl predict`: how well a fetched model does, and what it says about new data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crowdfl.cli.output import Json, show, waiting
from crowdfl.learning.evaluation import evaluated, load_samples
from crowdfl.learning.models.learner import Learner
from crowdfl.learning.recipe import Recipe
from crowdfl.storage.model_files import read_model

_Model = Annotated[
    Path, typer.Argument(help="A model that `crowdfl task fetch` or `train --save` wrote: .safetensors or .npz.")
]
_Module = Annotated[
    str | None, typer.Option(help="Your own torch module, where the task has one: package.module:Class.")
]
_WHICH = "what is held out of watch:N or other data that `participant run` takes, or a sensor app's .csv file"


def evaluate(
    model: _Model,
    data: Annotated[list[str], typer.Option(help=f"On what: {_WHICH}, with a column `label`. Repeatable.")],
    module: _Module = None,
    as_json: Json = False,
) -> None:
    """Show how well a model does: accuracy, precision and recall of each class, and the confusion matrix."""
    with waiting("loading the model and the data", quiet=as_json):
        recipe, learner = _loaded(model, module)
        result = evaluated(recipe, learner, {spec: load_samples(spec, recipe) for spec in data})
    title = "scores, and the confusion matrix: rows are the true classes"
    table = class_table(result["classes"], title, dict(zip(recipe.labels, result["confusion"], strict=True)))
    words = f"accuracy {result['accuracy']:.3f}, loss {result['loss']:.3f}, on {result['windows']} windows"
    show(result, words, table, as_json=as_json)


def predict(
    model: _Model,
    data: Annotated[str, typer.Option(help=f"Of what: {_WHICH}.")],
    module: _Module = None,
    as_json: Json = False,
) -> None:
    """Show which label each window gets, and its probability."""
    with waiting("loading the model and the data", quiet=as_json):
        recipe, learner = _loaded(model, module)
        samples, names = load_samples(data, recipe), recipe.labels
        probabilities = learner.predict(recipe.inputs_of(samples.windows))
    starts = [None] * len(probabilities) if samples.starts is None else samples.starts.round(3).tolist()
    rows, lines = [], ["window,start,label,probability"]
    for number, (start, row) in enumerate(zip(starts, probabilities, strict=True)):
        label = names[row.argmax()]
        rows.append(
            {"start": start, "label": label, "probabilities": dict(zip(names, row.round(6).tolist(), strict=True))}
        )
        lines.append(f"{number},{'' if start is None else start},{label},{row.max():.4f}")
    show({"windows": rows}, *lines, as_json=as_json)


def class_table(
    classes: Mapping[str, Mapping[str, float]], title: str, confused: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> Table:
    """A report of each class as a table, with the rows of the confusion matrix where they are given."""
    table = Table("class", "windows", "precision", "recall", "F1", *map(escape, confused), title=title)
    for name, row in classes.items():
        values = (f"{row[key]:.3f}" for key in ("precision", "recall", "f1"))
        table.add_row(escape(name), str(row["windows"]), *values, *map(str, confused.get(name, ())))
    return table


def _loaded(path: Path, module: str | None) -> tuple[Recipe, Learner]:
    definition, arrays = read_model(path)
    recipe = Recipe.of(definition.training)
    learner = recipe.make_learner(module)
    learner.load(arrays)
    return recipe, learner
