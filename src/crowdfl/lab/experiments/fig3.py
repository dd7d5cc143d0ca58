"""Figure 3: accuracy and F1 under dropouts, for CrowdFL-D and CrowdFL-R, with NN as a line."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from crowdfl.lab.experiments.crowd import LearnSettings, Strategy
from crowdfl.lab.experiments.federated import Keys, baseline_point, run_point
from crowdfl.lab.experiments.frame import Experiment, Part, Picture, Table, digits, spread
from crowdfl.lab.experiments.pictures import panels
from crowdfl.lab.experiments.points import Point, Row, Rows
from crowdfl.lab.experiments.published import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG_3", "DropSettings"]

_STRATEGIES: dict[Strategy, str] = {"discard": "CrowdFL-D", "retransmit": "CrowdFL-R"}


@dataclass(frozen=True)
class DropSettings:
    """Runs in the clear for every rate and seed; one rate of each strategy also through an encrypted run."""

    learn: LearnSettings = field(default_factory=LearnSettings)
    encrypted_hidden: int = 50
    rates: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    checked_rate: float = 0.3
    seeds: tuple[int, ...] = (0, 1, 2)
    keys: Keys = field(default_factory=Keys)

    def plain(self, seed: int) -> LearnSettings:
        """A run's in the clear."""
        return replace(self.learn, seed=seed)


def _points(settings: DropSettings) -> list[Point]:
    small = replace(settings.plain(settings.seeds[0]), hidden=settings.encrypted_hidden)
    points = [baseline_point(settings.plain(seed)) for seed in settings.seeds]
    for strategy in _STRATEGIES:
        for rate in settings.rates:
            points += [run_point(settings.plain(seed), rate=rate, strategy=strategy) for seed in settings.seeds]
    for strategy in _STRATEGIES:
        for used in (None, settings.keys):
            points.append(run_point(small, keys=used, rate=settings.checked_rate, strategy=strategy))
    return points


def _present(settings: DropSettings, results: Sequence[Rows]) -> Part:
    rest = iter(results)
    rows: Rows = []
    for seed in settings.seeds:
        rows.append(_row("NN", None, seed, settings.learn.hidden, "clear", next(rest)[-1]))
    for name in _STRATEGIES.values():
        for rate in settings.rates:
            for seed in settings.seeds:
                rows.append(_row(name, rate, seed, settings.learn.hidden, "clear", next(rest)[-1]))
    checks: Rows = []
    for name in _STRATEGIES.values():
        for how in ("check, clear", "check, encrypted"):
            found = next(rest)[-1]
            checks.append(_row(name, settings.checked_rate, settings.seeds[0], settings.encrypted_hidden, how, found))
    picture = Picture("fig3", "Accuracy and F1 against the dropout rate", lambda f: _draw(f, settings, rows))
    return Part(
        rows + checks, (_table(settings, rows), _check_table(checks)), (picture,), _remarks(settings, rows, checks)
    )


def _row(scheme: str, rate: float | None, seed: int, hidden: int, how: str, found: Row) -> Row:
    row: Row = {"scheme": scheme, "rate": rate, "seed": seed, "hidden": hidden, "how": how}
    return row | {name: found[name] for name in ("accuracy", "precision", "recall", "f1")}


def _values(rows: Rows, scheme: str, rate: float | None, name: str) -> list[float]:
    return [float(r[name] or 0) for r in rows if r["scheme"] == scheme and r["rate"] == rate]


def _table(settings: DropSettings, rows: Rows) -> Table:
    cells = [("NN", "-", *(spread(_values(rows, "NN", None, name)) for name in ("accuracy", "f1")))]
    for scheme in _STRATEGIES.values():
        for rate in settings.rates:
            found = (spread(_values(rows, scheme, rate, name)) for name in ("accuracy", "f1"))
            cells.append((scheme, f"{rate:.0%}", *found))
    title = f"After {settings.learn.rounds} rounds, {settings.learn.hidden:,} hidden units, over {len(settings.seeds)} seeds"
    return Table(title, ("scheme", "dropout rate", "accuracy", "F1"), tuple(cells))


def _check_table(checks: Rows) -> Table:
    cells = tuple(
        (
            str(r["scheme"]),
            f"{r['rate']:.0%}",
            str(r["how"]).removeprefix("check, "),
            *(digits(float(r[n] or 0)) for n in ("accuracy", "f1")),
        )
        for r in checks
    )
    return Table(
        "One point of each, encrypted and in the clear", ("scheme", "dropout rate", "run", "accuracy", "F1"), cells
    )


def _remarks(settings: DropSettings, rows: Rows, checks: Rows) -> tuple[str, ...]:
    def mean(scheme: str, rate: float | None) -> float:
        return float(np.mean(_values(rows, scheme, rate, "accuracy")))

    better = [rate for rate in settings.rates if rate and mean("CrowdFL-R", rate) > mean("CrowdFL-D", rate)]
    dropping = [rate for rate in settings.rates if rate]
    above = [rate for rate in settings.rates if mean("CrowdFL-D", rate) > mean("NN", None)]
    pairs = zip(checks[0::2], checks[1::2], strict=True)
    same = all(
        digits(float(a[n] or 0)) == digits(float(b[n] or 0))
        for a, b in pairs
        for n in ("accuracy", "precision", "recall", "f1")
    )
    key = "an insecure test key" if settings.keys.insecure_test_key else f"|N| = {settings.keys.key_bits}"
    return (
        *(f"Paper: {said}" for said in FIGURES["fig3"]),
        f"Here CrowdFL-R is more accurate than CrowdFL-D at {len(better)} of {len(dropping)} rates, and CrowdFL-D above NN at "
        f"{len(above)} of {len(settings.rates)}.",
        "In every round the given share of the people is drawn to drop out, the same people under both strategies; with "
        "CrowdFL-R every other one of them sends again in time.",
        f"The encrypted runs ({settings.encrypted_hidden} hidden units, {key}): everyone encrypts, lost uploads never reach "
        "SP, late ones reach it after the others. "
        + (
            "They equal the runs in the clear in every printed digit."
            if same
            else "They do NOT equal the runs in the clear."
        ),
    )


def _draw(figure: "Figure", settings: DropSettings, rows: Rows) -> None:
    for axes, name in zip(panels(figure, 2), ("accuracy", "f1"), strict=True):
        for scheme, mark in zip(_STRATEGIES.values(), ("o-", "s--"), strict=True):
            found = [_values(rows, scheme, rate, name) for rate in settings.rates]
            middle, spreads = [float(np.mean(v)) for v in found], [float(np.std(v, ddof=len(v) > 1)) for v in found]
            axes.errorbar([100 * r for r in settings.rates], middle, spreads, fmt=mark, capsize=3, label=scheme)
        axes.axhline(float(np.mean(_values(rows, "NN", None, name))), color="black", label="NN")
        axes.set(xlabel="dropout rate, %", ylabel="F1 score" if name == "f1" else name)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)


FIG_3 = Experiment(
    "fig3",
    "Figure 3: dropouts",
    DropSettings(),
    DropSettings(LearnSettings(hidden=50)),
    "full",
    _points,
    _present,
)
