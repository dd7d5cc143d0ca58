"""`crowdfl train`: a model without encryption, tried before a campaign."""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfl.cli.output import Json, OwnLearnerName, OwnLossName, marked, show, tell_code
from crowdfl.cli.waiting import waiting
from crowdfl.errors import LearningUnavailable, SettingsError
from crowdfl.settings import LEARNERS, TaskSettings

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from crowdfl.learning.datasets.data import Cut, Split
    from crowdfl.learning.learning_curve import Epoch
    from crowdfl.learning.models.learner import Learner
    from crowdfl.learning.recipe import Recipe


_BARS = "▁▂▃▄▅▆▇█"
_ROWS = 8


def train(  # noqa: PLR0913, PLR0917 -- each is an option
    data: Annotated[
        str, typer.Option(help="Whose data: watch:0 to watch:9, csv:FOLDER and others; docs/learning.md lists them.")
    ],
    task: Annotated[Path | None, typer.Option(help="A task file: its \\[training] section says what to train.")] = None,
    model: Annotated[str | None, typer.Option(help=f"Without a task file: {', '.join(LEARNERS)}.")] = None,
    learner: OwnLearnerName = None,
    loss: OwnLossName = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data.")] = None,
    entries: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any entry of \\[training], such as window_samples=90 or layers=\\[64]."
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the model for `crowdfl evaluate` and `predict`: .npz or .safetensors.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the learning curve as a picture, such as curve.png.")] = None,
    look: Annotated[
        bool,
        typer.Option("--look", help="Show who is in the data, with how many windows of each label; train nothing."),
    ] = False,
    as_json: Json = False,
) -> None:
    from crowdfl.cli.data import show_data
    from crowdfl.learning.recipe import Recipe
    from crowdfl.storage.model_files import require_model_path

    if look:
        if any((task, model, learner, loss, epochs, entries, save, plot)):
            raise SettingsError(
                "--look shows the data and trains nothing: leave out every option but --data and --json"
            )
        show_data(data, as_json=as_json)
        return
    if save is not None:
        require_model_path(save)
    tell_code(learner, loss)
    options = {"learner": model or learner, "loss": loss, "epochs": epochs}
    chosen = _entries(entries or []) | {key: value for key, value in options.items() if value is not None}
    with waiting("reading the data", quiet=as_json):
        training, split, notes = _prepared(data, task, chosen)
        recipe = Recipe.of(training)
        made = recipe.make_learner(learner, loss=loss)
    curve = _train(recipe, made, split, quiet=as_json)
    result = _result(data, notes, recipe, made, split, curve)
    if save is not None:
        _save(save, made, training)
        result["saved"] = str(save)
    if plot is not None:
        _plot(curve, data, plot)
        result["plot"] = str(plot)
    show(result, *_told(result), as_json=as_json)


def _entries(texts: Sequence[str]) -> dict[str, Any]:
    """Each text as a line of a task file; a single word is a string."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (equals and key.isidentifier()):
            raise SettingsError(f"--set takes KEY=VALUE, not {text!r}")
        line = f'{key} = "{value}"' if value.isidentifier() and value not in ("true", "false") else f"{key} = {value}"
        try:
            found |= tomllib.loads(line)
        except tomllib.TOMLDecodeError as wrong:
            raise SettingsError(f"--set {text}: the value is not as a task file would have it: {wrong}") from None
    return found


def _prepared(data: str, task: Path | None, chosen: dict[str, Any]) -> "tuple[dict[str, Any], Split, tuple[str, ...]]":
    """The [training] section, the data, and its notes. Without a task file, labels and sizes are those of the data."""
    from crowdfl.learning.datasets.sources import open_person
    from crowdfl.learning.recipe import Recipe
    from crowdfl.storage.settings_file import read_settings

    if task is not None:
        training = {**read_settings(task).get("training", {}), **chosen}
        recipe = Recipe.of(training)
        source, index = open_person(data, recipe.cut, recipe.value_names, recipe.beside)
        return training, recipe.adapt(source.load_person(index)), source.notes
    values = chosen.get("labels", ["value"]) if chosen.get("target") == "value" else []
    source, index = open_person(data, _cut(chosen), values)
    split = source.load_person(index)
    length, channels = split.train.windows.shape[1:]
    usual = {"features": "flat"} if chosen.get("learner") == "conv" else {}
    named = values if "labels" in chosen else list(split.train.value_names) or values
    own = {"labels": named if values else list(source.label_names), "channels": channels, "window_samples": length}
    training = {**usual, **own, **chosen}
    return training, Recipe.of(training).adapt(split), source.notes


def _cut(chosen: dict[str, Any]) -> "Cut | None":
    """As asked for; None is the usual one of the data."""
    from crowdfl.learning.recipe import Recipe

    if "window_samples" in chosen:
        return Recipe.of({**chosen, "labels": ["any"]}).cut
    if alone := sorted({"step", "hertz", "held_out"} & set(chosen)):
        raise SettingsError(f"{', '.join(alone)} without a length of windows: add --set window_samples=SAMPLES")
    return None


def _save(path: Path, model: "Learner", training: dict[str, Any]) -> None:
    """With the definition that `crowdfl evaluate` and `predict` need, though there is no task."""
    from crowdfl.documents.signed import Definition
    from crowdfl.storage.model_files import write_model

    about = "tried on one person's data, without encryption"
    definition = Definition(about, "none", "whoever has the file", model.shape, TaskSettings(), 0, training)
    try:
        write_model(path, definition, model.weights())
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from error


def _train(recipe: "Recipe", model: "Learner", split: "Split", *, quiet: bool) -> "list[Epoch]":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from crowdfl.learning.learning_curve import learning_curve

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as progress:
        bar = progress.add_task("training", total=recipe.training.epochs)

        def show_epoch(epoch: "Epoch") -> None:
            name, value = next(iter(epoch.held_out.numbers.items()))
            progress.update(bar, completed=epoch.number, description=f"{name} {value:.3f}")

        return learning_curve(recipe, model, split, show_epoch)


def _result(
    data: str, notes: tuple[str, ...], recipe: "Recipe", model: "Learner", split: "Split", curve: "list[Epoch]"
) -> dict[str, Any]:
    from crowdfl.learning.bounds import suggested_bound

    held_out = split.held_out
    return {
        "data": data,
        "notes": list(notes),
        "training": {key: getattr(recipe.training, key) for key in ("epochs", "batch", "rate", "seed")},
        "learner": recipe.learner,
        "parameters": model.shape.parameters,
        "windows": {"train": len(split.train), "held_out": len(held_out)},
        "epochs": [_epoch_row(epoch) for epoch in curve],
        **_held_out(recipe, model, split),
        "update_norm": {"last": curve[-1].norm, "largest": (largest := max(epoch.norm for epoch in curve))},
        "max_norm": suggested_bound([largest]),
    }


def _held_out(recipe: "Recipe", model: "Learner", split: "Split") -> dict[str, Any]:
    """The scores of the last epoch, and those of each class or value."""
    import numpy as np

    from crowdfl.learning.evaluation import class_report, scores, value_report
    from crowdfl.learning.models.learner import value_score

    predicted = model.predict(recipe.both_inputs(split)[1])
    names = recipe.labels
    if recipe.learns_values:
        values = np.asarray(recipe.targets_of(split.held_out), dtype=np.float32)
        every = value_score(predicted, values).numbers
        return {"held_out": every, "values": value_report(values, predicted, names)}
    labels = split.held_out.labels
    chosen = predicted.argmax(axis=1)
    return {"held_out": asdict(scores(labels, chosen, len(names))), "classes": class_report(labels, chosen, names)}


def _epoch_row(epoch: "Epoch") -> dict[str, float]:
    row = {"epoch": epoch.number, **{f"train_{name}": value for name, value in epoch.train.numbers.items()}}
    return {**row, **epoch.held_out.numbers, "norm": epoch.norm}


def _curves(numbers: Mapping[str, Any]) -> tuple[str, str]:
    """The two scores that are drawn."""
    return ("accuracy", "loss") if "accuracy" in numbers else ("rmse", "r2")


def sparkline(values: Sequence[float]) -> str:
    """From the lowest to the highest value in eight steps; what has diverged is a question mark."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] if math.isfinite(value) else "?" for value in values)


def _told(result: Mapping[str, Any]) -> "Iterator[str | Text | Table]":
    from crowdfl.cli.evaluate import class_table, value_table

    sizes = f"{result['windows']['train']:,} windows to train on, {result['windows']['held_out']:,} held out"
    yield f"{result['data']}: {sizes}; {result['learner']} of {result['parameters']:,} parameters"
    yield from marked(result["notes"])
    for name in _curves(result["epochs"][0]):
        values = [epoch[name] for epoch in result["epochs"]]
        yield f"held-out {name:8} {sparkline(values)}  {values[0]:.3f} to {values[-1]:.3f}"
    yield _curve_table(result["epochs"])
    if "classes" in result:
        yield class_table(result["classes"], "held-out windows")
    else:
        yield value_table(result["values"], "held-out windows")
    yield "held out: " + ", ".join(f"{name} {value:.4f}" for name, value in result["held_out"].items())
    yield _norms_told(result)
    yield from (f"{what}: {result[what]}" for what in ("saved", "plot") if what in result)


def _norms_told(result: Mapping[str, Any]) -> str:
    found = result["update_norm"]
    shown = f"update norm: {found['last']:.4g} after the last epoch, {found['largest']:.4g} at most"
    if result["max_norm"] is None:
        return f"{shown}; no bound follows from it"
    return f"{shown}; for the profile shares set max_norm = {result['max_norm']:g} (more if others differ)"


def _plot(curve: "Sequence[Epoch]", title: str, path: Path) -> None:
    """Accuracy and loss over the epochs, on training and on held-out windows, as a picture."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise LearningUnavailable("a picture needs Matplotlib: `pip install 'crowdfl[plots]'`") from error
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    epochs = [epoch.number for epoch in curve]
    for axes, name in zip(figure.subplots(1, 2), _curves(curve[0].held_out.numbers), strict=True):
        axes.plot(epochs, [epoch.train.numbers[name] for epoch in curve], "--", label="training windows")
        axes.plot(epochs, [epoch.held_out.numbers[name] for epoch in curve], label="held-out windows")
        axes.set(xlabel="epoch", ylabel=name)
        axes.legend()
    figure.suptitle(title)
    try:
        figure.savefig(path, dpi=120)
    except (ValueError, OSError) as error:
        raise SettingsError(f"{path} cannot be written: {error}") from error


def _curve_table(epochs: Sequence[Mapping[str, float]]) -> "Table":
    """At most eight rows, the first and the last among them."""
    from rich.table import Table

    first, second = _curves(epochs[0])
    table = Table("epoch", first, second, f"training {first}", f"training {second}", "update norm")
    last = len(epochs) - 1
    for place in sorted({round(row * last / (_ROWS - 1)) for row in range(_ROWS)}):
        epoch = epochs[place]
        values = (epoch[name] for name in (first, second, f"train_{first}", f"train_{second}", "norm"))
        table.add_row(str(epoch["epoch"]), *(f"{value:.3f}" for value in values))
    return table
