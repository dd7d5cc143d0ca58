"""Table 3 and figure 3: how accurate the models are, without dropouts and with them.

Table 3 has NN, FedAvg after each round, and PriFedAvg from a real `hardened` run. MAD is the mean absolute difference of a
row's four scores to NN's: with this definition the paper's five values come out to the digit. Figure 3 has accuracy and F1
under dropouts, for CrowdFL-D and CrowdFL-R, with NN as a line.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from crowdfl.lab.experiments.crowd import SPLITS, LearnSettings, Strategy
from crowdfl.lab.experiments.experiment import (
    Experiment,
    ExperimentPoint,
    Part,
    Record,
    Records,
    digits,
    number,
    spread,
)
from crowdfl.lab.experiments.federated import Keys, baseline_point, run_point
from crowdfl.lab.experiments.published import FIGURES, TABLE3
from crowdfl.lab.report.plots import Picture, Series, lines, panels
from crowdfl.lab.report.results import ResultTable
from crowdfl.learning.datasets.npz_files import STANDARDISED, SWAPPED
from crowdfl.learning.metrics import Scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG_3", "TABLE_3", "DropSettings", "Table3Settings", "mad"]

_SCORES = ("accuracy", "precision", "recall", "f1")
_COLUMNS = (*_SCORES, "mad")
_DRAWN = {"accuracy": "accuracy", "f1": "F1 score"}
_LINES = {"user": "by real user", "random": "windows dealt at random"}
_STRATEGIES: dict[Strategy, str] = {"discard": "CrowdFL-D", "retransmit": "CrowdFL-R"}


def _key(keys: Keys) -> str:
    return "an insecure test key" if keys.insecure_test_key else f"|N| = {keys.key_bits}"


def _values(rows: Iterable[Record], name: str, **where: str | float | None) -> list[float]:
    """A column of the rows that have these values."""
    return [number(row, name) for row in rows if all(row[key] == value for key, value in where.items())]


def _mean(rows: Iterable[Record], name: str, **where: str | float | None) -> float:
    return float(np.mean(_values(rows, name, **where)))


def _digits(value: object) -> str:
    return digits(value) if isinstance(value, float) else "--"


@dataclass(frozen=True)
class Table3Settings:
    """Plaintext rows for every split and seed; one encrypted run, and the same in the clear, for the first of each."""

    learn: LearnSettings = field(default_factory=LearnSettings)
    encrypted_hidden: int = 1000
    seeds: tuple[int, ...] = (0, 1, 2)
    keys: Keys = field(default_factory=Keys)  # without lanes: this run pays nothing

    def plain(self, split: str, seed: int) -> LearnSettings:
        return replace(self.learn, split=split, seed=seed)

    def encrypted(self) -> LearnSettings:
        return replace(self.plain(SPLITS[0], self.seeds[0]), hidden=self.encrypted_hidden)


def _table3_points(settings: Table3Settings) -> list[ExperimentPoint]:
    plain = [settings.plain(split, seed) for split in SPLITS for seed in settings.seeds]
    central = [settings.plain(SPLITS[0], seed) for seed in settings.seeds]
    small = settings.encrypted()
    return [
        *(baseline_point(each) for each in central),
        *(run_point(each) for each in plain),
        baseline_point(small),
        run_point(small),
        run_point(small, keys=settings.keys),
    ]


def _table3_row(scheme: str, found: Record, baseline: Record | None, **more: str | int) -> Record:
    row: Record = {"scheme": scheme, **more, **{name: found[name] for name in _SCORES}}
    return row | {"mad": None if baseline is None else mad(_scores(found), _scores(baseline))}


def mad(found: Scores, baseline: Scores) -> float:
    """The mean absolute deviation from the baseline's scores."""
    return float(np.abs(np.subtract(astuple(found), astuple(baseline))).mean())


def _scores(row: Record) -> Scores:
    return Scores(*(number(row, name) for name in _SCORES))


def _table3_rows(settings: Table3Settings, results: Sequence[Records]) -> Records:
    rest = iter(results)
    central = {seed: next(rest)[0] for seed in settings.seeds}
    hidden = settings.learn.hidden
    rows = [_table3_row("NN", found, None, split="-", seed=seed, hidden=hidden) for seed, found in central.items()]
    for split in SPLITS:
        for seed in settings.seeds:
            for count, found in enumerate(next(rest), start=1):
                where: dict[str, str | int] = {"split": split, "seed": seed, "hidden": hidden}
                rows.append(_table3_row(f"FedAvg_{count}", found, central[seed], **where))
    small, plain, encrypted = next(rest)[0], next(rest)[-1], next(rest)[-1]
    pair: dict[str, str | int] = {"split": SPLITS[0], "seed": settings.seeds[0], "hidden": settings.encrypted_hidden}
    rows.append(_table3_row("NN", small, None, **pair, of="pair"))
    rows.append(_table3_row(f"FedAvg_{settings.learn.rounds}", plain, small, **pair, of="pair"))
    rows.append(_table3_row("PriFedAvg", encrypted, small, **pair, of="pair"))
    return rows


def _present_table3(settings: Table3Settings, results: Sequence[Records]) -> Part:
    rows = _table3_rows(settings, results)
    pair = [row for row in rows if row.get("of") == "pair"]
    plain = [row for row in rows if row.get("of") != "pair"]
    tables = (_plain_table(settings, plain), _pair_table(settings, pair))
    picture = Picture("table3", "Accuracy and F1 after each round", lambda f: _draw_table3(f, settings, plain))
    return Part(rows, tables, (picture,), _table3_remarks(settings, plain, pair))


def _plain_table(settings: Table3Settings, rows: Records) -> ResultTable:
    cells = [("NN", "-", *_spreads(r for r in rows if r["scheme"] == "NN"), *_printed("NN"))]
    for split in SPLITS:
        for count in range(1, settings.learn.rounds + 1):
            name = f"FedAvg_{count}"
            mine = [r for r in rows if r["scheme"] == name and r["split"] == split]
            cells.append((name, _LINES[split], *_spreads(mine), *_printed(name)))
    seeds = len(settings.seeds)
    title = f"In the clear, {settings.learn.hidden:,} hidden units, mean and deviation over {seeds} seeds"
    return ResultTable(title, ("scheme", "data", *_COLUMNS, *(f"paper: {name}" for name in _COLUMNS)), tuple(cells))


def _pair_table(settings: Table3Settings, rows: Records) -> ResultTable:
    cells = tuple(
        (str(row["scheme"]), *(_digits(row[name]) for name in _COLUMNS), *_printed(str(row["scheme"]))) for row in rows
    )
    title = f"Encrypted beside the same run in the clear: {settings.encrypted_hidden:,} hidden units, one seed, by real user"
    return ResultTable(title, ("scheme", *_COLUMNS, *(f"paper: {name}" for name in _COLUMNS)), cells)


def _spreads(rows: Iterable[Record]) -> list[str]:
    found = list(rows)
    columns = [[row[name] for row in found] for name in _COLUMNS]
    return [spread([float(v or 0) for v in column]) if None not in column else "--" for column in columns]


def _printed(scheme: str) -> list[str]:
    return [_digits(value) for value in TABLE3.get(scheme, (None,) * 5)]


def _table3_remarks(settings: Table3Settings, plain: Records, pair: Records) -> tuple[str, ...]:
    last, before = f"FedAvg_{settings.learn.rounds}", f"FedAvg_{settings.learn.rounds - 1}"
    nn = _mean(plain, "accuracy", scheme="NN")
    after, gains = [], []
    for split in SPLITS:
        end, start = (_mean(plain, "accuracy", scheme=scheme, split=split) for scheme in (last, before))
        after.append(f"{nn - end:.3f} {_LINES[split]}")
        gains.append(f"{end - start:.3f} {_LINES[split]}")
    printed = TABLE3["NN"][0], TABLE3["FedAvg_5"][0]
    same = [_digits(pair[1][name]) for name in _COLUMNS] == [_digits(pair[2][name]) for name in _COLUMNS]
    return (
        "MAD: the mean over accuracy, precision, recall and F1 of the absolute difference to NN's. The paper names it and does "
        "not define it; its five values follow from this to the digit. Precision, recall and F1 are means over the classes.",
        f"NN's accuracy is {nn:.4f}, the paper's {printed[0]:.4f}. {last} stays behind NN by {', '.join(after)}; the paper's "
        f"by {printed[0] - printed[1]:.4f}. From the last round but one it gains {', '.join(gains)}.",
        "Learning rate, batch, epochs, rounds and layers are the paper's. It names no optimiser, activation or first weights: "
        "Adam, ReLU and PyTorch's are used; docs/experiments.md has what else was tried.",
        f"PriFedAvg is the model that the requester read at the end of a `hardened` run ({settings.encrypted_hidden} hidden "
        f"units, {_key(settings.keys)}): {'' if same else 'NOT '}equal to FedAvg in every printed digit.",
        *((STANDARDISED, SWAPPED) if settings.learn.source == "wisdm" else ("The data is made up.",)),
    )


def _draw_table3(figure: "Figure", settings: Table3Settings, rows: Records) -> None:
    numbers = list(range(1, settings.learn.rounds + 1))
    for axes, (name, label) in zip(panels(figure, 2), _DRAWN.items(), strict=True):
        place = _COLUMNS.index(name)
        series = {
            f"FedAvg, {_LINES[split]}": Series(
                numbers, [_mean(rows, name, scheme=f"FedAvg_{n}", split=split) for n in numbers], style=mark
            )
            for split, mark in zip(SPLITS, ("o-", "s-"), strict=True)
        }
        series["NN"] = _level(numbers, _mean(rows, name, scheme="NN"))
        printed = [TABLE3.get(f"FedAvg_{n}", (None,) * 5)[place] for n in numbers]
        paper = [float("nan") if value is None else value for value in printed]
        series["FedAvg, paper"] = Series(numbers, paper, style="x--", colour="grey")
        series["NN, paper"] = _level(numbers, TABLE3["NN"][place] or 0, ":", "grey")
        lines(axes, series, xlabel="round", ylabel=label)
        axes.set_xticks(numbers)


def _level(x: Sequence[float], y: float, style: str = "-", colour: str = "black") -> Series:
    return Series(x, [y] * len(x), style=style, colour=colour)


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
        return replace(self.learn, seed=seed)


def _drop_points(settings: DropSettings) -> list[ExperimentPoint]:
    small = replace(settings.plain(settings.seeds[0]), hidden=settings.encrypted_hidden)
    points = [baseline_point(settings.plain(seed)) for seed in settings.seeds]
    for strategy in _STRATEGIES:
        for rate in settings.rates:
            points += [run_point(settings.plain(seed), rate=rate, strategy=strategy) for seed in settings.seeds]
    for strategy in _STRATEGIES:
        for used in (None, settings.keys):
            points.append(run_point(small, keys=used, rate=settings.checked_rate, strategy=strategy))
    return points


def _present_drops(settings: DropSettings, results: Sequence[Records]) -> Part:
    rest = iter(results)
    kinds: list[tuple[str, float | None]] = [("NN", None)]
    kinds += [(scheme, rate) for scheme in _STRATEGIES.values() for rate in settings.rates]
    hidden, small = settings.learn.hidden, settings.encrypted_hidden
    rows = [_drop_row(*kind, seed, hidden, "clear", next(rest)[-1]) for kind in kinds for seed in settings.seeds]
    checks = [
        _drop_row(scheme, settings.checked_rate, settings.seeds[0], small, how, next(rest)[-1])
        for scheme in _STRATEGIES.values()
        for how in ("check, clear", "check, encrypted")
    ]
    title = f"After {settings.learn.rounds} rounds, {hidden:,} hidden units, over {len(settings.seeds)} seeds"
    cells = [
        (
            scheme,
            "-" if rate is None else f"{rate:.0%}",
            *(spread(_values(rows, n, scheme=scheme, rate=rate)) for n in _DRAWN),
        )
        for scheme, rate in kinds
    ]
    checked = [
        (str(r["scheme"]), f"{r['rate']:.0%}", str(r["how"]).removeprefix("check, "), *(_digits(r[n]) for n in _DRAWN))
        for r in checks
    ]
    tables = (
        ResultTable(title, ("scheme", "dropout rate", "accuracy", "F1"), tuple(cells)),
        ResultTable(
            "One point of each, encrypted and in the clear",
            ("scheme", "dropout rate", "run", "accuracy", "F1"),
            tuple(checked),
        ),
    )
    picture = Picture("fig3", "Accuracy and F1 against the dropout rate", lambda f: _draw_drops(f, settings, rows))
    return Part(rows + checks, tables, (picture,), _drop_remarks(settings, rows, checks))


def _drop_row(scheme: str, rate: float | None, seed: int, hidden: int, how: str, found: Record) -> Record:
    row: Record = {"scheme": scheme, "rate": rate, "seed": seed, "hidden": hidden, "how": how}
    return row | {name: found[name] for name in _SCORES}


def _drop_remarks(settings: DropSettings, rows: Records, checks: Records) -> tuple[str, ...]:
    def mean(scheme: str, rate: float | None) -> float:
        return _mean(rows, "accuracy", scheme=scheme, rate=rate)

    dropping = [rate for rate in settings.rates if rate]
    better = [rate for rate in dropping if mean("CrowdFL-R", rate) > mean("CrowdFL-D", rate)]
    above = [rate for rate in settings.rates if mean("CrowdFL-D", rate) > mean("NN", None)]
    pairs = zip(checks[0::2], checks[1::2], strict=True)
    same = all(_digits(a[name]) == _digits(b[name]) for a, b in pairs for name in _SCORES)
    return (
        *(f"Paper: {said}" for said in FIGURES["fig3"]),
        f"Here CrowdFL-R is more accurate than CrowdFL-D at {len(better)} of {len(dropping)} rates, and CrowdFL-D above NN at "
        f"{len(above)} of {len(settings.rates)}.",
        "In every round the given share of the people is drawn to drop out, the same people under both strategies; with "
        "CrowdFL-R every other one of them sends again in time.",
        f"The encrypted runs ({settings.encrypted_hidden} hidden units, {_key(settings.keys)}): everyone encrypts, lost "
        "uploads never reach SP, late ones reach it after the others. They "
        f"{'equal' if same else 'do NOT equal'} the runs in the clear in every printed digit.",
    )


def _draw_drops(figure: "Figure", settings: DropSettings, rows: Records) -> None:
    percent = [100 * rate for rate in settings.rates]
    for axes, (name, label) in zip(panels(figure, 2), _DRAWN.items(), strict=True):
        series = {}
        for scheme, mark in zip(_STRATEGIES.values(), ("o-", "s--"), strict=True):
            found = [_values(rows, name, scheme=scheme, rate=rate) for rate in settings.rates]
            spreads = [float(np.std(values, ddof=len(values) > 1)) for values in found]
            series[scheme] = Series(percent, [float(np.mean(values)) for values in found], spreads, mark)
        series["NN"] = _level(percent, _mean(rows, name, scheme="NN"))
        lines(axes, series, xlabel="dropout rate, %", ylabel=label)


TABLE_3 = Experiment(
    "table3",
    "Table 3: NN, FedAvg and PriFedAvg",
    Table3Settings(),
    Table3Settings(encrypted_hidden=50),
    "quick",
    _table3_points,
    _present_table3,
)

FIG_3 = Experiment(
    "fig3",
    "Figure 3: dropouts",
    DropSettings(),
    DropSettings(LearnSettings(hidden=50)),
    "full",
    _drop_points,
    _present_drops,
)
