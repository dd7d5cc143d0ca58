"""Table 3: how accurate the models are. NN, FedAvg after each round, and PriFedAvg from a real run of each profile.

MAD is the mean absolute difference of a row's four scores to NN's: with this definition the paper's five values come out to
the digit.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from crowdfl.lab.experiments.crowds import SPLITS, LearnSettings
from crowdfl.lab.experiments.experiment import Experiment, ExperimentPoint, Part
from crowdfl.lab.experiments.federated import baseline_point, run_point
from crowdfl.lab.experiments.options import TRAINING, ProfileRun, RunSettings
from crowdfl.lab.experiments.published import TABLE3, remarks
from crowdfl.lab.experiments.records import Record, Records, Value, joined, number, table_of
from crowdfl.lab.report.plots import Canvas, Picture, Series, lines, panels
from crowdfl.learning.metrics import Scores

SCORES = ("accuracy", "precision", "recall", "f1")
_COLUMNS = (*SCORES, "mad")
_SHOWN = (*_COLUMNS, *(f"paper: {name}" for name in _COLUMNS))
DRAWN = {"accuracy": "accuracy", "f1": "F1 score"}
_LINES = {"user": "by real user", "random": "windows dealt at random"}
DIGITS = ".4f"  # as the paper's table 3 prints


def spread(values: Sequence[float]) -> str:
    """Mean and sample standard deviation; of one value, the value."""
    mean = f"{statistics.fmean(values):{DIGITS}}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):{DIGITS}}"


def values_of(rows: Records, name: str, **where: Value) -> list[float]:
    return [number(row, name) for row in rows if all(row[key] == value for key, value in where.items())]


def mean_of(rows: Records, name: str, **where: Value) -> float:
    return statistics.fmean(values_of(rows, name, **where))


def same_digits(a: Record, b: Record) -> bool:
    return all(f"{number(a, name):{DIGITS}}" == f"{number(b, name):{DIGITS}}" for name in _COLUMNS if name in a)


def level(x: Sequence[float], y: float, style: str = "-", colour: str = "black") -> Series:
    return Series(x, [y] * len(x), style=style, colour=colour)


RUNS = (ProfileRun("paper", 2), ProfileRun("hardened", 50), ProfileRun("shares", 1000))  # what two cores have time for


@dataclass(frozen=True)
class AccuracySettings(RunSettings):
    """Plaintext runs for every split and seed; for each profile an encrypted run, and the same in the clear, of the first."""

    runs: tuple[ProfileRun, ...] = RUNS
    seeds: tuple[int, ...] = (0, 1, 2)

    def plain(self, seed: int, split: str = SPLITS[0]) -> LearnSettings:
        return replace(self.learn, split=split, seed=seed)

    def encrypted(self, run: ProfileRun) -> LearnSettings:
        return replace(self.plain(self.seeds[0]), hidden=run.hidden)


def _table3_points(settings: AccuracySettings) -> list[ExperimentPoint]:
    points = [baseline_point(settings.plain(seed)) for seed in settings.seeds]
    points += [run_point(settings.plain(seed, split)) for split in SPLITS for seed in settings.seeds]
    for run in settings.chosen:
        small = settings.encrypted(run)
        points += [baseline_point(small), run_point(small), run_point(small, keys=settings.keys_of(run))]
    return points


def mad(found: Scores, baseline: Scores) -> float:
    return float(np.abs(np.subtract(astuple(found), astuple(baseline))).mean())


def _table3_row(found: Record, baselines: Mapping[Value, Record]) -> Record:
    scheme = "PriFedAvg" if "key_bits" in found else f"FedAvg_{found['round']}" if "round" in found else "NN"
    row = found | {"scheme": scheme, "mad": None}
    if scheme != "NN":
        pair = found, baselines[found["seed"]]
        row["mad"] = mad(*(Scores(*(number(each, name) for name in SCORES)) for each in pair))
    return {name: row[name] for name in ("scheme", "split", "seed", "hidden", *_COLUMNS)}


def _present_table3(settings: AccuracySettings, results: Sequence[Records]) -> Part:
    count = len(settings.seeds) * (1 + len(SPLITS))
    found, beside = joined(results[:count]), results[count:]
    baselines = {row["seed"]: row for row in found if "round" not in row}
    plain = [_table3_row(row, baselines) | ({} if "round" in row else {"split": "-"}) for row in found]
    triples = [[rows[-1] for rows in beside[start : start + 3]] for start in range(0, len(beside), 3)]
    pairs = [_pair(settings, run.profile, rows) for run, rows in zip(settings.chosen, triples, strict=True)]
    kinds = dict.fromkeys((row["scheme"], row["split"]) for row in plain)
    means = f"In the clear, {settings.learn.hidden:,} hidden units, mean and deviation over {len(settings.seeds)} seeds"
    tables = [table_of(means, [_mean_row(plain, *kind) for kind in kinds], ("scheme", "data", *_SHOWN), DIGITS)]
    for run, pair in zip(settings.chosen, pairs, strict=True):
        title = f"Encrypted by `{run.profile}` beside the clear: {run.hidden:,} hidden units, one seed, by real user"
        tables.append(table_of(title, [row | _printed(row["scheme"]) for row in pair], ("scheme", *_SHOWN), DIGITS))
    picture = Picture("table3", "Accuracy and F1 after each round", lambda f: _draw_table3(f, settings, plain))
    remarks_ = (*_table3_remarks(settings, plain), *_equalities(settings, pairs))
    return Part([*plain, *joined(pairs)], tuple(tables), (picture,), remarks_)


def _pair(settings: AccuracySettings, profile: str, rows: Records) -> Records:
    """NN, FedAvg and PriFedAvg of one size."""
    made = [_table3_row(row, {settings.seeds[0]: rows[0]}) for row in rows]
    return [row | {"of": "pair", "profile": profile} for row in made]


def _equalities(settings: AccuracySettings, pairs: Sequence[Records]) -> tuple[str, ...]:
    said: list[str] = []
    for run, (_, plain, encrypted) in zip(settings.chosen, pairs, strict=True):
        equal = "equal" if same_digits(plain, encrypted) else "NOT equal"
        said += remarks("encrypted", settings, run=run, key=settings.keys_of(run), equal=equal)
    return tuple(said)


def _mean_row(rows: Records, scheme: Value, split: Value) -> Record:
    columns = SCORES if scheme == "NN" else _COLUMNS
    found = {name: spread(values_of(rows, name, scheme=scheme, split=split)) for name in columns}
    return {"scheme": scheme, "data": _LINES.get(str(split), split)} | found | _printed(scheme)


def _printed(scheme: Value) -> Record:
    values = TABLE3.get(str(scheme), [None] * len(_COLUMNS))
    return {f"paper: {name}": value for name, value in zip(_COLUMNS, values, strict=True)}


def _table3_remarks(settings: AccuracySettings, plain: Records) -> tuple[str, ...]:
    last, before = (f"FedAvg_{max(1, settings.learn.rounds - back)}" for back in (0, 1))
    nn, (printed, fifth) = mean_of(plain, "accuracy", scheme="NN"), (TABLE3[s][0] or 0 for s in ("NN", "FedAvg_5"))
    end, start = ({s: mean_of(plain, "accuracy", scheme=scheme, split=s) for s in SPLITS} for scheme in (last, before))
    return remarks(
        "table3",
        settings,
        nn=nn,
        printed=printed,
        printed_behind=printed - fifth,
        last=last,
        behind=", ".join(f"{nn - end[split]:.3f} {_LINES[split]}" for split in SPLITS),
        gains=", ".join(f"{end[split] - start[split]:.3f} {_LINES[split]}" for split in SPLITS),
    )


def _draw_table3(figure: Canvas, settings: AccuracySettings, rows: Records) -> None:
    numbers = list(range(1, settings.learn.rounds + 1))
    for axes, (name, label) in zip(panels(figure, 2), DRAWN.items(), strict=True):
        series = {}
        for split, mark in zip(SPLITS, ("o-", "s-"), strict=True):
            means = [mean_of(rows, name, scheme=f"FedAvg_{n}", split=split) for n in numbers]
            series[f"FedAvg, {_LINES[split]}"] = Series(numbers, means, style=mark)
        series["NN"] = level(numbers, mean_of(rows, name, scheme="NN"))
        printed = [_printed(f"FedAvg_{n}")[f"paper: {name}"] for n in numbers]
        paper = [float("nan") if value is None else float(value) for value in printed]
        series["FedAvg, paper"] = Series(numbers, paper, style="x--", colour="grey")
        series["NN, paper"] = level(numbers, number(_printed("NN"), f"paper: {name}"), ":", "grey")
        lines(axes, series, xlabel="round", ylabel=label)
        axes.set_xticks(numbers)


_QUICK = AccuracySettings()
_FULL = AccuracySettings(runs=tuple(replace(run, hidden=1000) if run.profile == "hardened" else run for run in RUNS))
TABLE_3 = Experiment(
    "table3",
    "Table 3: NN, FedAvg and PriFedAvg",
    _table3_points,
    _present_table3,
    _FULL,
    _QUICK,
    "quick",
    options=TRAINING,
)
