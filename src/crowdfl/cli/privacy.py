"""`crowdfl privacy`: how many people, and how small a model, differential privacy takes."""

import math
from json import loads
from pathlib import Path
from typing import Annotated

import typer

from crowdfl.cli.output import Json, show
from crowdfl.errors import SettingsError
from crowdfl.settings import DELTA, TaskSettings

app = typer.Typer(no_args_is_help=True)
_EPSILONS = (1.0, 2.0, 4.0, 8.0)
_CROWDS = (36, 100, 360, 1000, 3600, 10_000, 100_000)
_SHORTER = 0.1  # of the usual length, by `crowdfl reproduce privacy`: directions are learnt, and lengths are not
_LEARNS = 0.5  # noise of half of the longest update costs less than three points, by `crowdfl reproduce privacy`


@app.command()
def plan(
    parameters: Annotated[
        int | None, typer.Option(min=1, help="Weights of the model: noise grows with their root.")
    ] = None,
    trial: Annotated[
        Path | None,
        typer.Option(help="What `crowdfl train --data DATA --json` wrote: has them, and suggests `max_norm`."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of the task.")] = 20,
    delta: Annotated[float, typer.Option(min=1e-12, max=0.01, help="The chance that epsilon does not hold.")] = DELTA,
    people: Annotated[list[int] | None, typer.Option(min=3, help="In a round; repeatable.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file.")] = None,
    json: Json = False,
) -> None:
    """Show the noise on an average, beside the longest update, by epsilon and number of people."""
    from rich.table import Table

    crowds = people or list(_CROWDS)
    longest = None
    if trial is not None:
        tried, longest = _tried(trial)
        parameters = parameters or tried
    if parameters is None:
        raise SettingsError("say how many weights the model has: --parameters N, or --trial FILE")
    ratios = {epsilon: _ratio(epsilon, rounds, delta) for epsilon in _EPSILONS}
    noise = {
        epsilon: [math.sqrt(2 * parameters) * ratio / count for count in crowds] for epsilon, ratio in ratios.items()
    }
    table = Table(title="noise on an average, in lengths of the longest update")
    for name in ("epsilon", "z", *(f"{count:,} people" for count in crowds)):
        table.add_column(name, justify="right")
    for epsilon, row in noise.items():
        table.add_row(f"{epsilon:g}", f"{ratios[epsilon]:.3g}", *(f"{value:.2g}" for value in row))
    told = {"delta": delta, "rounds": rounds, "parameters": parameters, "people": crowds, "z": ratios, "noise": noise}
    told |= {} if longest is None else {"max_norm": longest * _SHORTER}
    show(told, table, _advice(ratios, parameters, crowds, longest), as_json=json)
    if plot is not None:
        _draw(crowds, noise, plot)


def _tried(path: Path) -> tuple[int, float]:
    """Of a trial: how many weights the model has, and how long updates are."""
    try:
        found = loads(path.read_text())
        return int(found["parameters"]), float(found["update_norm"]["largest"])
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise SettingsError(f"{path} is not what `crowdfl train --data DATA --json` writes: {wrong!r}") from None


def _ratio(epsilon: float, rounds: int, delta: float) -> float:
    """z, as a task of these settings has it."""
    return TaskSettings.of(weighting="equal", max_norm=1.0, rounds=rounds, epsilon=epsilon, delta=delta).noise_ratio


def _advice(ratios: dict[float, float], parameters: int, crowds: list[int], longest: float | None) -> str:
    needed = {epsilon: math.ceil(math.sqrt(2 * parameters) * ratio / _LEARNS) for epsilon, ratio in ratios.items()}
    words = ", ".join(f"{count:,} people at epsilon {epsilon:g}" for epsilon, count in needed.items())
    said = [f"For noise of at most half of the longest update: {words}."]
    if too_small := [f"{count:,}" for count in crowds if count < min(needed.values())]:
        said += [f"A crowd of {', '.join(too_small)} is too small for this model at every epsilon shown."]
    said += [
        "Fewer weights, fewer rounds or a larger epsilon need fewer people. Epsilon adds up over a person's tasks."
    ]
    if longest is not None:
        said += [
            f"Updates are up to {longest:.3g} long. Noise grows with `max_norm`: take max_norm = {longest * _SHORTER:.2g}, to "
            'which all are scaled down, and server_step = "fedavgm", which makes up for it.'
        ]
    return " ".join(said)


def _draw(crowds: list[int], noise: dict[float, list[float]], path: Path) -> None:
    from crowdfl.results import new_figure, written

    drawn = new_figure(5.2, 3.6)
    axes = drawn.subplots()
    for epsilon, row in noise.items():
        axes.loglog(crowds, row, marker="o", label=f"epsilon {epsilon:g}")
    axes.axhline(_LEARNS, linestyle=":", color="gray")
    axes.set(xlabel="people in a round", ylabel="noise / longest update")
    axes.legend()
    written(drawn, path)
