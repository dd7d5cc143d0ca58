"""What `crowdfl train` shows: a learning curve for the terminal and as a picture, and the held-out scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crowdfl.errors import LearningUnavailable, SettingsError
from crowdfl.learning.training import Epoch

__all__ = ["plot_curve", "show", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_ROWS = 8


def sparkline(values: Sequence[float]) -> str:
    """From the lowest to the highest value in eight steps."""
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in values)


def show(result: Mapping[str, Any], console: Console) -> None:
    """Curve, classes, scores."""
    sizes = f"{result['windows']['train']:,} windows to train on, {result['windows']['held_out']:,} held out"
    console.print(f"{escape(result['data'])}: {sizes}; {result['learner']} of {result['parameters']:,} parameters")
    for note in result["notes"]:
        console.print(f"[yellow]Note:[/yellow] {escape(note)}", soft_wrap=True)
    epochs = result["epochs"]
    for name in ("accuracy", "loss"):
        values = [epoch[name] for epoch in epochs]
        console.print(f"held-out {name:8} {sparkline(values)}  {values[0]:.3f} to {values[-1]:.3f}")
    console.print(_curve_table(epochs))
    console.print(_class_table(result["classes"]))
    held_out = result["held_out"]
    console.print("held out: " + ", ".join(f"{name} {value:.4f}" for name, value in held_out.items()))
    for what in ("saved", "plot"):
        if what in result:
            console.print(f"{what}: {escape(result[what])}", soft_wrap=True)


def plot_curve(curve: Sequence[Epoch], title: str, path: Path) -> None:
    """Accuracy and loss, on what was learnt from and on what was held out."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise LearningUnavailable("a picture needs Matplotlib: `pip install 'crowdfl[plots]'`") from error
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    epochs = [epoch.number for epoch in curve]
    for axes, name in zip(figure.subplots(1, 2), ("accuracy", "loss"), strict=True):
        axes.plot(epochs, [getattr(epoch.train, name) for epoch in curve], "--", label="training windows")
        axes.plot(epochs, [getattr(epoch.held_out, name) for epoch in curve], label="held-out windows")
        axes.set(xlabel="epoch", ylabel=name)
        axes.legend()
    figure.suptitle(title)
    try:
        figure.savefig(path, dpi=120)
    except (ValueError, OSError) as error:
        raise SettingsError(f"{path} cannot be written: {error}") from error


def _curve_table(epochs: Sequence[Mapping[str, float]]) -> Table:
    """At most eight rows, the first and the last among them."""
    table = Table("epoch", "accuracy", "loss", "training accuracy", "training loss")
    last = len(epochs) - 1
    for place in sorted({round(row * last / (_ROWS - 1)) for row in range(_ROWS)}):
        epoch = epochs[place]
        values = (epoch[name] for name in ("accuracy", "loss", "train_accuracy", "train_loss"))
        table.add_row(str(epoch["epoch"]), *(f"{value:.3f}" for value in values))
    return table


def _class_table(classes: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table("class", "held-out windows", "precision", "recall", "F1")
    for name, row in classes.items():
        values = (f"{row[key]:.3f}" for key in ("precision", "recall", "f1"))
        table.add_row(escape(name), str(row["windows"]), *values)
    return table
