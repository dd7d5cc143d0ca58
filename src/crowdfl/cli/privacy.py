"""`crowdfl privacy`: how many people, and how small a model, differential privacy takes."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from crowdfl.cli.output import Json, show
from crowdfl.results import new_figure, written
from crowdfl.settings import DELTA, TaskSettings

app = typer.Typer(help="Plan a task with differential privacy.", no_args_is_help=True)
_EPSILONS = (1.0, 2.0, 4.0, 8.0)
_CROWDS = (36, 100, 360, 1000, 3600, 10_000, 100_000)
_LEARNS = 0.5  # noise above half of the longest update drowns most of what is learnt


@app.command()
def plan(
    parameters: Annotated[int, typer.Option(min=1, help="Weights of the model: noise grows with their root.")],
    rounds: Annotated[int, typer.Option(min=1, help="Of the task.")] = 20,
    max_norm: Annotated[
        float, typer.Option(min=1e-9, help="The longest update; `task explain --try` suggests it.")
    ] = 1.0,
    delta: Annotated[float, typer.Option(min=1e-12, max=0.01, help="The chance that epsilon does not hold.")] = DELTA,
    people: Annotated[list[int] | None, typer.Option(min=3, help="In a round; repeatable.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file.")] = None,
    json: Json = False,
) -> None:
    """Show the noise on an average, beside the longest update, by epsilon and number of people."""
    crowds = people or list(_CROWDS)
    ratios = {epsilon: _ratio(epsilon, rounds, max_norm, delta) for epsilon in _EPSILONS}
    noise = {
        epsilon: [math.sqrt(2 * parameters) * ratio / count for count in crowds] for epsilon, ratio in ratios.items()
    }
    table = Table(title="noise on an average, in lengths of the longest update")
    for name in ("epsilon", "z", *(f"{count:,} people" for count in crowds)):
        table.add_column(name, justify="right")
    for epsilon, row in noise.items():
        table.add_row(f"{epsilon:g}", f"{ratios[epsilon]:.3g}", *(f"{value:.2g}" for value in row))
    told = {"delta": delta, "rounds": rounds, "parameters": parameters, "people": crowds, "z": ratios, "noise": noise}
    show(told, table, _advice(ratios, parameters), as_json=json)
    if plot is not None:
        _draw(crowds, noise, plot)


def _ratio(epsilon: float, rounds: int, max_norm: float, delta: float) -> float:
    """z, as a task of these settings has it."""
    made = TaskSettings.of(weighting="equal", max_norm=max_norm, rounds=rounds, epsilon=epsilon, delta=delta)
    return made.noise_ratio


def _advice(ratios: dict[float, float], parameters: int) -> str:
    needed = {epsilon: math.ceil(math.sqrt(2 * parameters) * ratio / _LEARNS) for epsilon, ratio in ratios.items()}
    words = ", ".join(f"{count:,} people at epsilon {epsilon:g}" for epsilon, count in needed.items())
    return (
        f"For noise of at most half of the longest update: {words}. With fewer, the crowd is too small for this model: "
        "take one with fewer weights, fewer rounds, or a larger epsilon. Epsilon adds up over a person's tasks."
    )


def _draw(crowds: list[int], noise: dict[float, list[float]], path: Path) -> None:
    drawn = new_figure(5.2, 3.6)
    axes = drawn.subplots()
    for epsilon, row in noise.items():
        axes.loglog(crowds, row, marker="o", label=f"epsilon {epsilon:g}")
    axes.axhline(_LEARNS, linestyle=":", color="gray")
    axes.set(xlabel="people in a round", ylabel="noise / longest update")
    axes.legend()
    written(drawn, path)
