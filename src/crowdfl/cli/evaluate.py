"""`crowdfl evaluate | predict`: a model, tried on somebody's data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from crowdfl.cli.output import Json, OwnLearnerName, show, tell_code
from crowdfl.cli.waiting import waiting
from crowdfl.errors import SettingsError

if TYPE_CHECKING:
    from rich.table import Table

    from crowdfl.learning.models.learner import Learner
    from crowdfl.learning.recipe import Recipe


_Model = Annotated[
    Path, typer.Argument(help="A model that `crowdfl task fetch` or `train --save` wrote: .safetensors or .npz.")
]
_WHICH = "what is held out of watch:N or other data that `participant run` takes, or a sensor app's .csv file"


def evaluate(
    model: _Model,
    data: Annotated[
        list[str],
        typer.Option(
            help=f"On what: {_WHICH}, with a column `label`. npz:FILE is everyone in it, npz:FILE#2,#5 two of them, watch: "
            "all ten. Repeatable."
        ),
    ],
    left_out: Annotated[
        list[str] | None,
        typer.Option("--except", help="But not on these, such as the people who took part: npz:FILE#2,#5. Repeatable."),
    ] = None,
    learner: OwnLearnerName = None,
    as_json: Json = False,
) -> None:
    from crowdfl.learning.evaluation import evaluated, load_samples

    tell_code(learner)
    with waiting("loading the model and the data", quiet=as_json):
        recipe, model_learner = _loaded(model, learner)
        people = _people(data, left_out or ())
        result = evaluated(recipe, model_learner, {spec: load_samples(spec, recipe) for spec in people})
    tables = [_each_table(result["each"])] if len(people) > 1 else []
    if recipe.learns_values:
        tables.append(value_table(result["values"], "scores of each value"))
        show(result, f"{in_words(result)}, on {result['windows']} windows", *tables, as_json=as_json)
        return
    title = "scores, and the confusion matrix: rows are the true classes"
    tables.append(class_table(result["classes"], title, dict(zip(recipe.labels, result["confusion"], strict=True))))
    words = f"accuracy {result['accuracy']:.3f}, loss {result['loss']:.3f}, on {result['windows']} windows"
    show(result, words, *tables, as_json=as_json)


def _people(data: Sequence[str], left_out: Sequence[str]) -> list[str]:
    """Everyone who is meant, each once."""
    from crowdfl.learning.datasets.sources import each_person

    everyone = dict.fromkeys(spec for text in data for spec in each_person(text))
    gone = {spec for text in left_out for spec in each_person(text)}
    if unknown := sorted(gone - everyone.keys()):  # a slip would evaluate on somebody who took part
        raise SettingsError(f"--except {unknown[0]}: that is not among the data: {', '.join(everyone)}")
    if len(gone) == len(everyone):
        raise SettingsError("--except leaves nobody to evaluate on")
    return [spec for spec in everyone if spec not in gone]


def _each_table(each: Mapping[str, Mapping[str, float]]) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    names = list(dict.fromkeys(name for row in each.values() for name in row if name != "windows"))
    table = Table("data", "windows", *names, title="each person's")
    for spec, row in each.items():
        table.add_row(
            escape(spec), str(row["windows"]), *(f"{row[name]:.3f}" if name in row else "-" for name in names)
        )
    return table


def predict(
    model: _Model,
    data: Annotated[str, typer.Option(help=f"Of what: {_WHICH}.")],
    learner: OwnLearnerName = None,
    as_json: Json = False,
) -> None:
    from crowdfl.learning.evaluation import load_samples, predicted_by

    tell_code(learner)
    with waiting("loading the model and the data", quiet=as_json):
        recipe, model_learner = _loaded(model, learner)
        samples = load_samples(data, recipe)
        names = recipe.labels
        predicted = predicted_by(recipe, model_learner, samples)
    starts = [None] * len(predicted) if samples.starts is None else samples.starts.round(3).tolist()
    columns = names if recipe.learns_values else ("label", "probability")
    rows = []
    lines = [",".join(("window", "start", *columns))]
    for number, (start, row) in enumerate(zip(starts, predicted, strict=True)):
        by_name = dict(zip(names, row.round(6).tolist(), strict=True))
        if recipe.learns_values:
            found = {"values": by_name}
            cells = [f"{value:.6g}" for value in row]
        else:
            label = names[row.argmax()]
            found = {"label": label, "probabilities": by_name}
            cells = [label, f"{row.max():.4f}"]
        rows.append({"start": start, **found})
        lines.append(",".join((str(number), "" if start is None else str(start), *cells)))
    show({"windows": rows}, *lines, as_json=as_json)


def in_words(scores: Mapping[str, float]) -> str:
    """The errors of values as people write them."""
    return f"RMSE {scores['rmse']:.4g}, MAE {scores['mae']:.4g}, R2 {scores['r2']:.3f}"


def value_table(values: Mapping[str, Mapping[str, float]], title: str) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table("value", "RMSE", "MAE", "R2", title=title)
    for name, row in values.items():
        table.add_row(escape(name), f"{row['rmse']:.4g}", f"{row['mae']:.4g}", f"{row['r2']:.3f}")
    return table


def class_table(
    classes: Mapping[str, Mapping[str, float]], title: str, confused: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> "Table":
    """A report of each class as a table, with the rows of the confusion matrix where they are given."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("class", "windows", "precision", "recall", "F1", *map(escape, confused), title=title)
    for name, row in classes.items():
        values = (f"{row[key]:.3f}" for key in ("precision", "recall", "f1"))
        table.add_row(escape(name), str(row["windows"]), *values, *map(str, confused.get(name, ())))
    return table


def _loaded(path: Path, learner: str | None) -> "tuple[Recipe, Learner]":
    """A model that is not trained any more needs no loss, so that an own one need not be named."""
    from crowdfl.learning.recipe import Recipe
    from crowdfl.storage.model_files import read_model

    definition, arrays = read_model(path)
    recipe = Recipe.of(definition.training).changed(loss=None)
    made = recipe.make_learner(learner)
    made.load(arrays)
    return recipe, made
