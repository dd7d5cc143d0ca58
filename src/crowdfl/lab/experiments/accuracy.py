"""Table 3 and figure 3: how accurate the models are, without dropouts and with them.

Table 3 has NN, FedAvg after each round, and PriFedAvg from a real `hardened` run. MAD is the mean absolute difference of a
row's four scores to NN's: with this definition the paper's five values come out to the digit. Figure 3 has accuracy and F1
under dropouts, for CrowdFL-D and CrowdFL-R, with NN as a line.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

import numpy as np

from crowdfl.lab.experiments.experiment import Experiment, ExperimentPoint, Part
from crowdfl.lab.experiments.federated import SPLITS, Keys, LearnSettings, Strategy, baseline_point, run_point
from crowdfl.lab.experiments.published import TABLE3, remarks
from crowdfl.lab.experiments.records import Record, Records, Value, joined, number, table_of
from crowdfl.lab.report.plots import Canvas, Picture, Series, lines, panels
from crowdfl.learning.datasets.npz_files import STANDARDISED, SWAPPED
from crowdfl.learning.metrics import Scores

_SCORES = ("accuracy", "precision", "recall", "f1")
_COLUMNS = (*_SCORES, "mad")
_SHOWN = (*_COLUMNS, *(f"paper: {name}" for name in _COLUMNS))
_DRAWN = {"accuracy": "accuracy", "f1": "F1 score"}
_PAIR = {"accuracy": "accuracy", "F1": "f1"}
_LINES = {"user": "by real user", "random": "windows dealt at random"}
_STRATEGIES: dict[Strategy, str] = {"discard": "CrowdFL-D", "retransmit": "CrowdFL-R"}
_DIGITS = ".4f"  # as the paper's table 3 prints


def spread(values: Sequence[float]) -> str:
    """Mean and sample standard deviation; of one value, the value."""
    mean = f"{statistics.fmean(values):{_DIGITS}}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):{_DIGITS}}"


def _values(rows: Records, name: str, **where: Value) -> list[float]:
    return [number(row, name) for row in rows if all(row[key] == value for key, value in where.items())]


def _mean(rows: Records, name: str, **where: Value) -> float:
    return statistics.fmean(_values(rows, name, **where))


def _same_digits(a: Record, b: Record) -> bool:
    return all(f"{number(a, name):{_DIGITS}}" == f"{number(b, name):{_DIGITS}}" for name in _COLUMNS if name in a)


def _level(x: Sequence[float], y: float, style: str = "-", colour: str = "black") -> Series:
    return Series(x, [y] * len(x), style=style, colour=colour)


@dataclass(frozen=True)
class AccuracySettings:
    """Plaintext runs for every split and seed; one encrypted run, and the same in the clear, for the first of each."""

    learn: LearnSettings = field(default_factory=LearnSettings)
    encrypted_hidden: int = 1000
    seeds: tuple[int, ...] = (0, 1, 2)
    keys: Keys = field(default_factory=Keys)  # without lanes: these runs pay nothing

    def plain(self, seed: int, split: str = SPLITS[0]) -> LearnSettings:
        return replace(self.learn, split=split, seed=seed)

    def encrypted(self) -> LearnSettings:
        return replace(self.plain(self.seeds[0]), hidden=self.encrypted_hidden)


def _table3_points(settings: AccuracySettings) -> list[ExperimentPoint]:
    small = settings.encrypted()
    return [
        *(baseline_point(settings.plain(seed)) for seed in settings.seeds),
        *(run_point(settings.plain(seed, split)) for split in SPLITS for seed in settings.seeds),
        baseline_point(small),
        run_point(small),
        run_point(small, keys=settings.keys),
    ]


def mad(found: Scores, baseline: Scores) -> float:
    return float(np.abs(np.subtract(astuple(found), astuple(baseline))).mean())


def _table3_row(found: Record, baselines: Mapping[Value, Record]) -> Record:
    scheme = "PriFedAvg" if "key_bits" in found else f"FedAvg_{found['round']}" if "round" in found else "NN"
    row = found | {"scheme": scheme, "mad": None}
    if scheme != "NN":
        pair = found, baselines[found["seed"]]
        row["mad"] = mad(*(Scores(*(number(each, name) for name in _SCORES)) for each in pair))
    return {name: row[name] for name in ("scheme", "split", "seed", "hidden", *_COLUMNS)}


def _present_table3(settings: AccuracySettings, results: Sequence[Records]) -> Part:
    found, pair = joined(results[:-3]), [rows[-1] for rows in results[-3:]]
    baselines = {row["seed"]: row for row in found if "round" not in row}
    plain = [_table3_row(row, baselines) | ({} if "round" in row else {"split": "-"}) for row in found]
    pair = [_table3_row(row, {settings.seeds[0]: pair[0]}) | {"of": "pair"} for row in pair]
    kinds = dict.fromkeys((row["scheme"], row["split"]) for row in plain)
    means = f"In the clear, {settings.learn.hidden:,} hidden units, mean and deviation over {len(settings.seeds)} seeds"
    beside = f"Encrypted beside the same run in the clear: {settings.encrypted_hidden:,} hidden units, one seed, by real user"
    tables = (
        table_of(means, [_mean_row(plain, *kind) for kind in kinds], ("scheme", "data", *_SHOWN), _DIGITS),
        table_of(beside, [row | _printed(row["scheme"]) for row in pair], ("scheme", *_SHOWN), _DIGITS),
    )
    picture = Picture("table3", "Accuracy and F1 after each round", lambda f: _draw_table3(f, settings, plain))
    data = (STANDARDISED, SWAPPED) if settings.learn.source == "wisdm" else ("The data is made up.",)
    return Part([*plain, *pair], tables, (picture,), (*_table3_remarks(settings, plain, pair), *data))


def _mean_row(rows: Records, scheme: Value, split: Value) -> Record:
    columns = _SCORES if scheme == "NN" else _COLUMNS
    found = {name: spread(_values(rows, name, scheme=scheme, split=split)) for name in columns}
    return {"scheme": scheme, "data": _LINES.get(str(split), split)} | found | _printed(scheme)


def _printed(scheme: Value) -> Record:
    values = TABLE3.get(str(scheme), [None] * len(_COLUMNS))
    return {f"paper: {name}": value for name, value in zip(_COLUMNS, values, strict=True)}


def _table3_remarks(settings: AccuracySettings, plain: Records, pair: Records) -> tuple[str, ...]:
    last, before = f"FedAvg_{settings.learn.rounds}", f"FedAvg_{settings.learn.rounds - 1}"
    nn, (printed, fifth) = _mean(plain, "accuracy", scheme="NN"), (TABLE3[s][0] or 0 for s in ("NN", "FedAvg_5"))
    end, start = ({s: _mean(plain, "accuracy", scheme=scheme, split=s) for s in SPLITS} for scheme in (last, before))
    return remarks(
        "table3",
        settings,
        nn=nn,
        printed=printed,
        printed_behind=printed - fifth,
        last=last,
        behind=", ".join(f"{nn - end[split]:.3f} {_LINES[split]}" for split in SPLITS),
        gains=", ".join(f"{end[split] - start[split]:.3f} {_LINES[split]}" for split in SPLITS),
        equal="equal" if _same_digits(pair[1], pair[2]) else "NOT equal",
    )


def _draw_table3(figure: Canvas, settings: AccuracySettings, rows: Records) -> None:
    numbers = list(range(1, settings.learn.rounds + 1))
    for axes, (name, label) in zip(panels(figure, 2), _DRAWN.items(), strict=True):
        series = {}
        for split, mark in zip(SPLITS, ("o-", "s-"), strict=True):
            means = [_mean(rows, name, scheme=f"FedAvg_{n}", split=split) for n in numbers]
            series[f"FedAvg, {_LINES[split]}"] = Series(numbers, means, style=mark)
        series["NN"] = _level(numbers, _mean(rows, name, scheme="NN"))
        printed = [_printed(f"FedAvg_{n}")[f"paper: {name}"] for n in numbers]
        paper = [float("nan") if value is None else float(value) for value in printed]
        series["FedAvg, paper"] = Series(numbers, paper, style="x--", colour="grey")
        series["NN, paper"] = _level(numbers, number(_printed("NN"), f"paper: {name}"), ":", "grey")
        lines(axes, series, xlabel="round", ylabel=label)
        axes.set_xticks(numbers)


@dataclass(frozen=True)
class DropSettings(AccuracySettings):
    """Runs in the clear for every rate and seed; one rate of each strategy also through an encrypted run."""

    encrypted_hidden: int = 50
    rates: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    checked_rate: float = 0.3


def _drop_points(settings: DropSettings) -> list[ExperimentPoint]:
    points = [baseline_point(settings.plain(seed)) for seed in settings.seeds]
    for strategy in _STRATEGIES:
        for rate in settings.rates:
            points += [run_point(settings.plain(seed), rate=rate, strategy=strategy) for seed in settings.seeds]
    for strategy in _STRATEGIES:
        for keys in (None, settings.keys):
            points.append(run_point(settings.encrypted(), keys=keys, rate=settings.checked_rate, strategy=strategy))
    return points


def _present_drops(settings: DropSettings, results: Sequence[Records]) -> Part:
    rest = iter(results)
    kinds = [("NN", None), *((scheme, rate) for scheme in _STRATEGIES.values() for rate in settings.rates)]
    rows = [_drop_row(*kind, "clear", next(rest)[-1]) for kind in kinds for _ in settings.seeds]
    checks = [
        _drop_row(scheme, settings.checked_rate, f"check, {how}", next(rest)[-1])
        for scheme in _STRATEGIES.values()
        for how in ("clear", "encrypted")
    ]
    means: Records = []
    for scheme, rate in kinds:
        found: Record = {label: spread(_values(rows, name, scheme=scheme, rate=rate)) for label, name in _PAIR.items()}
        means.append(found | {"scheme": scheme, "dropout rate": None if rate is None else f"{rate:.0%}"})
    checked = [r | {"dropout rate": f"{r['rate']:.0%}", "run": str(r["how"])[7:], "F1": r["f1"]} for r in checks]
    title = f"After {settings.learn.rounds} rounds, {settings.learn.hidden:,} hidden units, over {len(settings.seeds)} seeds"
    beside = "One point of each, encrypted and in the clear"
    tables = (
        table_of(title, means, ("scheme", "dropout rate", *_PAIR)),
        table_of(beside, checked, ("scheme", "dropout rate", "run", *_PAIR), _DIGITS),
    )
    picture = Picture("fig3", "Accuracy and F1 against the dropout rate", lambda f: _draw_drops(f, settings, rows))
    return Part(rows + checks, tables, (picture,), _drop_remarks(settings, rows, checks))


def _drop_row(scheme: str, rate: float | None, how: str, found: Record) -> Record:
    row: Record = {"scheme": scheme, "rate": rate, "seed": found["seed"], "hidden": found["hidden"], "how": how}
    return row | {name: found[name] for name in _SCORES}


def _drop_remarks(settings: DropSettings, rows: Records, checks: Records) -> tuple[str, ...]:
    nn = _mean(rows, "accuracy", scheme="NN")
    drop, again = (
        {rate: _mean(rows, "accuracy", scheme=scheme, rate=rate) for rate in settings.rates}
        for scheme in _STRATEGIES.values()
    )
    return remarks(
        "fig3",
        settings,
        better=sum(again[rate] > drop[rate] for rate in settings.rates if rate),
        dropping=sum(rate > 0 for rate in settings.rates),
        above=sum(accuracy > nn for accuracy in drop.values()),
        rates=len(settings.rates),
        equal="equal" if all(map(_same_digits, checks[0::2], checks[1::2])) else "do NOT equal",
    )


def _draw_drops(figure: Canvas, settings: DropSettings, rows: Records) -> None:
    percent = [100 * rate for rate in settings.rates]
    for axes, (name, label) in zip(panels(figure, 2), _DRAWN.items(), strict=True):
        series = {}
        for scheme, mark in zip(_STRATEGIES.values(), ("o-", "s--"), strict=True):
            found = [_values(rows, name, scheme=scheme, rate=rate) for rate in settings.rates]
            spreads = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in found]
            series[scheme] = Series(percent, list(map(statistics.fmean, found)), spreads, mark)
        series["NN"] = _level(percent, _mean(rows, name, scheme="NN"))
        lines(axes, series, xlabel="dropout rate, %", ylabel=label)


_FULL, _QUICK = AccuracySettings(), AccuracySettings(encrypted_hidden=50)
TABLE_3 = Experiment(
    "table3", "Table 3: NN, FedAvg and PriFedAvg", _table3_points, _present_table3, _FULL, _QUICK, "quick"
)
_QUICK_DROPS = DropSettings(LearnSettings(hidden=50))
FIG_3 = Experiment("fig3", "Figure 3: dropouts", _drop_points, _present_drops, DropSettings(), _QUICK_DROPS)
