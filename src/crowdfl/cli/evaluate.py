"""`crowdfl evaluate` and `crowdfl predict`: how well a fetched model does, and what it says about new data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.markup import escape
from rich.table import Table

from crowdfl.cli.output import Json, Module, OwnLearnerName, show, tell_code, waiting
from crowdfl.learning.evaluation import evaluated, load_samples, predicted_by
from crowdfl.learning.models.learner import Learner
from crowdfl.learning.recipe import Recipe
from crowdfl.storage.model_files import read_model

_Model = Annotated[
    Path, typer.Argument(help="A model that `crowdfl task fetch` or `train --save` wrote: .safetensors or .npz.")
]
_WHICH = "what is held out of watch:N or other data that `participant run` takes, or a sensor app's .csv file"


def evaluate(
    model: _Model,
    data: Annotated[list[str], typer.Option(help=f"On what: {_WHICH}, with a column `label`. Repeatable.")],
    module: Module = None,
    learner: OwnLearnerName = None,
    as_json: Json = False,
) -> None:
    """Show how well a model does: accuracy and scores of each class and the confusion matrix, or the errors of values."""
    tell_code(module, learner)
    with waiting("loading the model and the data", quiet=as_json):
        recipe, model_learner = _loaded(model, module, learner)
        result = evaluated(recipe, model_learner, {spec: load_samples(spec, recipe) for spec in data})
    if recipe.learns_values:
        table = value_table(result["values"], "scores of each value")
        show(result, f"{in_words(result)}, on {result['windows']} windows", table, as_json=as_json)
        return
    title = "scores, and the confusion matrix: rows are the true classes"
    table = class_table(result["classes"], title, dict(zip(recipe.labels, result["confusion"], strict=True)))
    words = f"accuracy {result['accuracy']:.3f}, loss {result['loss']:.3f}, on {result['windows']} windows"
    show(result, words, table, as_json=as_json)


def predict(
    model: _Model,
    data: Annotated[str, typer.Option(help=f"Of what: {_WHICH}.")],
    module: Module = None,
    learner: OwnLearnerName = None,
    as_json: Json = False,
) -> None:
    """Show which label each window gets, and its probability; or its values."""
    tell_code(module, learner)
    with waiting("loading the model and the data", quiet=as_json):
        recipe, model_learner = _loaded(model, module, learner)
        samples, names = load_samples(data, recipe), recipe.labels
        probabilities = predicted_by(recipe, model_learner, samples)
    starts = [None] * len(probabilities) if samples.starts is None else samples.starts.round(3).tolist()
    if recipe.learns_values:
        _show_values(names, starts, probabilities, as_json=as_json)
        return
    rows, lines = [], ["window,start,label,probability"]
    for number, (start, row) in enumerate(zip(starts, probabilities, strict=True)):
        label = names[row.argmax()]
        rows.append(
            {"start": start, "label": label, "probabilities": dict(zip(names, row.round(6).tolist(), strict=True))}
        )
        lines.append(f"{number},{'' if start is None else start},{label},{row.max():.4f}")
    show({"windows": rows}, *lines, as_json=as_json)


def _show_values(
    names: Sequence[str], starts: Sequence[float | None], values: npt.NDArray[np.float64], *, as_json: bool
) -> None:
    rows, lines = [], [",".join(["window", "start", *names])]
    for number, (start, row) in enumerate(zip(starts, values, strict=True)):
        rows.append({"start": start, "values": dict(zip(names, row.round(6).tolist(), strict=True))})
        lines.append(",".join([str(number), "" if start is None else str(start), *(f"{value:.6g}" for value in row)]))
    show({"windows": rows}, *lines, as_json=as_json)


def in_words(scores: Mapping[str, float]) -> str:
    """The errors of values as people write them."""
    return f"RMSE {scores['rmse']:.4g}, MAE {scores['mae']:.4g}, R2 {scores['r2']:.3f}"


def value_table(values: Mapping[str, Mapping[str, float]], title: str) -> Table:
    table = Table("value", "RMSE", "MAE", "R2", title=title)
    for name, row in values.items():
        table.add_row(escape(name), f"{row['rmse']:.4g}", f"{row['mae']:.4g}", f"{row['r2']:.3f}")
    return table


def class_table(
    classes: Mapping[str, Mapping[str, float]], title: str, confused: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> Table:
    """A report of each class as a table, with the rows of the confusion matrix where they are given."""
    table = Table("class", "windows", "precision", "recall", "F1", *map(escape, confused), title=title)
    for name, row in classes.items():
        values = (f"{row[key]:.3f}" for key in ("precision", "recall", "f1"))
        table.add_row(escape(name), str(row["windows"]), *values, *map(str, confused.get(name, ())))
    return table


def _loaded(path: Path, module: str | None, learner: str | None) -> tuple[Recipe, Learner]:
    """A model that is not trained any more needs no loss, so that an own one need not be named."""
    definition, arrays = read_model(path)
    recipe = Recipe.of(definition.training).changed(loss=None)
    made = recipe.make_learner(module, learner=learner)
    made.load(arrays)
    return recipe, made
