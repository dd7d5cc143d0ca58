"""Figure 4, weights against distances and rewards against weights in rounds 2 and 4; and figure 7(a), everyone's rewards."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from crowdfl.lab.experiments.crowd import LearnSettings
from crowdfl.lab.experiments.experiment import Experiment, ExperimentPoint, Part, Records, number
from crowdfl.lab.experiments.federated import Flat, Keys, PaidSettings, paid_point
from crowdfl.lab.experiments.published import FIGURES
from crowdfl.lab.report.plots import Picture, Series, bars, panels, scatter
from crowdfl.lab.report.results import ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG_4", "draw_rewards", "paid_remarks", "reward_table", "reward_trend"]

_ROUNDS = (2, 4)
_NAMES = ("distance", "weight", "reward")


def _points(settings: PaidSettings) -> list[ExperimentPoint]:
    return [paid_point(settings)]


def _present(settings: PaidSettings, results: Sequence[Records]) -> Part:
    rows = [row for row in results[0] if row["round"] in _ROUNDS]
    columns = ("round", "participant", *_NAMES, *(f"{name} in the clear" for name in _NAMES))
    cells = tuple(
        (str(r["round"]), str(r["participant"]), *(f"{number(r, column):.6g}" for column in columns[2:])) for r in rows
    )
    table = ResultTable("Opened with both shares of the key, and in the clear", columns, cells)
    caption = "Weights against distances, rewards against weights"
    picture = Picture("fig4", caption, lambda f: _draw(f, rows), (9.0, 7.0))
    return Part(rows, (table,), (picture,), (*_found(rows), *paid_remarks(settings, rows)))


def _column(rows: Records, round_number: int, name: str) -> Flat:
    return np.array([number(row, name) for row in rows if row["round"] == round_number])


def _found(rows: Records) -> tuple[str, ...]:
    """The paper's statements, and what these rows say to them."""

    def steps(name: str, by: str, n: int) -> Flat:
        return np.diff(_column(rows, n, name)[np.argsort(_column(rows, n, by))])

    falls = all((steps("weight", "distance", n) <= 0).all() for n in _ROUNDS)
    rises = all((steps("reward", "weight", n) >= 0).all() for n in _ROUNDS)
    first, second = (float(_column(rows, n, "distance").mean()) for n in _ROUNDS)
    return (
        *(f"Paper: {said}" for said in FIGURES["fig4"]),
        f"Here the weight {'falls' if falls else 'does not always fall'} with the distance, the "
        f"reward {'rises' if rises else 'does not always rise'} with the weight, and the mean distance goes from {first:.4g} "
        f"in round {_ROUNDS[0]} to {second:.4g} in round {_ROUNDS[1]}.",
    )


def paid_remarks(settings: PaidSettings, rows: Records) -> tuple[str, ...]:
    """How the encrypted values stand to those in the clear, and who saw them."""
    off = {
        name: max(abs(number(r, name) / (number(r, f"{name} in the clear") or 1) - 1) for r in rows)
        for name in ("distance", "reward")
    }
    key = "an insecure test key" if settings.keys.insecure_test_key else f"|N| = {settings.keys.key_bits}"
    return (
        f"From one encrypted `hardened` run, {settings.learn.hidden} hidden units, {key}. In a task nobody sees a distance "
        "or a weight, and each participant its own reward alone; here the experiment, which dealt the keys, opens them.",
        f"Distances come from a sketch of {settings.keys.lanes} lanes, exact where the model has no more parameters than that: "
        f"the largest relative difference is {off['distance']:.2%} for distances, {off['reward']:.2%} for rewards.",
    )


def _draw(figure: "Figure", rows: Records) -> None:
    pairs = [(n, *axis) for n in _ROUNDS for axis in (("distance", "weight"), ("weight", "reward"))]
    for axes, (n, x, y) in zip(panels(figure, 4, rows=2), pairs, strict=True):
        series = {}
        for name, kind, mark, colour in (
            ("in the clear", " in the clear", "x", "grey"),
            ("encrypted run", "", "o", None),
        ):
            across, up = (_column(rows, n, axis + kind).tolist() for axis in (x, y))
            series[name] = Series(across, up, style=mark, colour=colour)
        label = "distance to the average" if x == "distance" else x
        scatter(axes, series, xlabel=label, ylabel=y, title=f"round {n}")


def _by_person(settings: PaidSettings, rows: Records, name: str) -> dict[str, list[float]]:
    people = sorted({str(row["participant"]) for row in rows}, key=lambda who: (len(who), who))
    values = {(str(r["participant"]), r["round"]): number(r, name) for r in rows}
    return {who: [values[who, n] for n in range(1, settings.learn.rounds + 1)] for who in people}


def reward_trend(settings: PaidSettings, rows: Records) -> str:
    """Does who earns much in the first round earn more in the last? Counted, for the paper says so."""
    earned = _by_person(settings, rows, "reward")
    even = float(settings.budget) / len(earned)
    above = [v for v in earned.values() if v[0] > even]
    below = [v for v in earned.values() if v[0] <= even]
    grew, shrank = sum(v[-1] > v[0] for v in above), sum(v[-1] < v[0] for v in below)
    return (
        f"Here, of {len(above)} who earn above the mean in round 1, {grew} earn more in round {settings.learn.rounds}; of the "
        f"other {len(below)}, {shrank} earn less."
    )


def reward_table(settings: PaidSettings, rows: Records) -> ResultTable:
    earned, clear = (_by_person(settings, rows, name) for name in ("reward", "reward in the clear"))
    cells = tuple(
        (who, *(f"{v:.6f}" for v in values), f"{sum(values):.6f}", f"{sum(clear[who]):.6f}")
        for who, values in earned.items()
    )
    rounds = (f"round {n}" for n in range(1, settings.learn.rounds + 1))
    title = f"Rewards as everyone opened its own, {settings.budget} a round"
    return ResultTable(title, ("participant", *rounds, "sum", "sum in the clear"), cells)


def draw_rewards(figure: "Figure", settings: PaidSettings, rows: Records) -> None:
    """Figure 7(a): the rounds stacked, with the sum in the clear as a mark."""
    (axes,) = panels(figure, 1)
    earned, clear = (_by_person(settings, rows, name) for name in ("reward", "reward in the clear"))
    people = [str(place) for place in range(1, len(earned) + 1)]
    axes.plot(range(len(people)), [sum(values) for values in clear.values()], "kx", label="sum, in the clear")
    rounds = {f"round {n + 1}": [values[n] for values in earned.values()] for n in range(settings.learn.rounds)}
    bars(axes, people, rounds, stacked=True, xlabel="participant", ylabel="reward")


FIG_4 = Experiment(
    "fig4",
    "Figure 4: weights and rewards",
    PaidSettings(LearnSettings(), Keys(lanes=1024)),
    PaidSettings(),
    "quick",
    _points,
    _present,
)
