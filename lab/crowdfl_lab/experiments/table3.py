"""Rows of scores: accuracy, precision, recall and F1 of a model, and MAD, its mean absolute difference to NN's four.

Beside table 3: what a better recipe makes of the same data, network size and number of rounds.

The paper feeds a network the raw windows. Here it is fed their spectrum, scaled by each person's own training windows; and a
server step may follow each average. The encrypted run is one of `shares`, the profile that has server steps.

Table 3: how accurate the models are. NN, FedAvg after each round, and PriFedAvg from a real run of each profile.

MAD is the mean absolute difference of a row's four scores to NN's: with this definition the paper's five values come out to
the digit.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from crowdfl.learning.evaluation import Scores
from crowdfl_lab.experiments.crowds import SPLITS, LearnSettings
from crowdfl_lab.experiments.experiment import (
    TABLE3,
    Experiment,
    ExperimentPoint,
    Part,
    Record,
    Records,
    Value,
    joined,
    joined_parts,
    number,
    remarks,
    table_of,
)
from crowdfl_lab.experiments.federated import TRAINING, Keys, ProfileRun, RunSettings, baseline_point, run_point
from crowdfl_lab.report.plots import Canvas, Picture, Series, lines, panels
from crowdfl_lab.report.results import ResultTable

SCORES = ("accuracy", "precision", "recall", "f1")
COLUMNS = (*SCORES, "mad")
DRAWN = {"accuracy": "accuracy", "f1": "F1 score"}
SPLIT_WORDS = {"user": "by real user", "random": "windows dealt at random"}
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
    return all(f"{number(a, name):{DIGITS}}" == f"{number(b, name):{DIGITS}}" for name in COLUMNS if name in a)


def level(x: Sequence[float], y: float, style: str = "-", colour: str = "black") -> Series:
    return Series(x, [y] * len(x), style=style, colour=colour)


def mad(found: Scores, baseline: Scores) -> float:
    return float(np.abs(np.subtract(astuple(found), astuple(baseline))).mean())


def scored_row(found: Record, baselines: Mapping[Value, Record]) -> Record:
    scheme = "PriFedAvg" if "key_bits" in found else f"FedAvg_{found['round']}" if "round" in found else "NN"
    row = found | {"scheme": scheme, "mad": None}
    if scheme != "NN":
        pair = found, baselines[found["seed"]]
        row["mad"] = mad(*(Scores(*(number(each, name) for name in SCORES)) for each in pair))
    return {name: row[name] for name in ("scheme", "split", "seed", "hidden", *COLUMNS)}


def mean_row(rows: Records, scheme: Value, split: Value) -> Record:
    """Mean and deviation over the seeds."""
    columns = SCORES if scheme == "NN" else COLUMNS
    found: Record = {name: spread(values_of(rows, name, scheme=scheme, split=split)) for name in columns}
    return {"scheme": scheme, "data": SPLIT_WORDS.get(str(split), split)} | found


@dataclass(frozen=True)
class Variation:
    """A recipe other than the paper's: what it is called, and the settings that differ."""

    name: str
    changes: Mapping[str, Any]

    def of(self, learn: LearnSettings) -> LearnSettings:
        return replace(learn, **self.changes)


_SPECTRAL = {"features": "spectral", "scale_inputs": True}
VARIATIONS = (
    Variation("spectral", _SPECTRAL),
    Variation("spectral, FedAvgM", {**_SPECTRAL, "server_step": "fedavgm", "server_momentum": 0.7}),
    Variation(
        "spectral, FedAdam", {**_SPECTRAL, "server_step": "fedadam", "server_rate": 0.01, "server_momentum": 0.5}
    ),
)
"""The server steps' rates and momenta are the best of those tried with seed 0, by real user (lab/docs/experiments.md)."""


@dataclass(frozen=True)
class VariedRuns:
    """The runs of some variations: in the clear for every split and seed and, if keys are given, one encrypted run each."""

    variations: Sequence[Variation]
    learn: LearnSettings
    seeds: Sequence[int]
    keys: Keys | None
    hidden: int  # of the encrypted runs

    def points(self) -> list[ExperimentPoint]:
        """NN with the first variation's inputs, then by variation the clear runs, the pair last."""
        if not self.variations:
            return []
        found = [baseline_point(self.variations[0].of(replace(self.learn, seed=s))) for s in self.seeds]
        for variation in self.variations:
            for split in SPLITS:
                found += [run_point(variation.of(replace(self.learn, split=split, seed=s))) for s in self.seeds]
            found += [] if self.keys is None else self._pair(variation, self.keys)
        return found

    def _pair(self, variation: Variation, keys: Keys) -> list[ExperimentPoint]:
        learn = variation.of(replace(self.learn, seed=self.seeds[0], hidden=self.hidden))
        return [run_point(learn), run_point(learn, keys=keys)]

    def taken_apart(self, results: Sequence[Records]) -> tuple[Records, dict[str, Records], dict[str, Records]]:
        """NN's rows; by variation the rows of the clear runs; and the last rows of its pair."""
        rest = iter(results)
        baselines = joined([next(rest) for _ in self.seeds])
        clear, pairs = dict[str, Records](), dict[str, Records]()
        for variation in self.variations:
            clear[variation.name] = joined([next(rest) for _ in range(len(SPLITS) * len(self.seeds))])
            pairs[variation.name] = [] if self.keys is None else [next(rest)[-1], next(rest)[-1]]
        return baselines, clear, pairs


def recipe_part(runs: VariedRuns, results: Sequence[Records]) -> Part:
    """A table of each variation, with MAD to the NN of the same inputs, and whether encryption changes it."""
    if not runs.variations:
        return Part([])
    own, clear, pairs = runs.taken_apart(results)
    first, baselines = runs.variations[0].name, {row["seed"]: row for row in own}
    trained = [_row(row, baselines, first) | {"split": "-"} for row in own]
    records, tables, said = list(trained), list[ResultTable](), list[str]()
    for name, found in clear.items():
        rows = [_row(row, baselines, name) for row in found]
        shown = [*trained, *rows] if name == first else rows
        kinds = dict.fromkeys((row["scheme"], row["split"]) for row in shown)
        means = [mean_row(shown, *kind) for kind in kinds]
        tables.append(table_of(f"The recipe `{name}`, in the clear", means, ("scheme", "data", *COLUMNS), DIGITS))
        pair = [_row(row, baselines, name) | {"of": "recipe pair", "profile": "shares"} for row in pairs[name]]
        said += _equality(runs, name, pair)
        records += [*rows, *pair]
    return Part(records, tuple(tables), remarks=(*remarks("recipes", runs), *said))


def _row(found: Record, baselines: Mapping[Value, Record], name: str) -> Record:
    return scored_row(found, baselines) | {"of": "recipe", "recipe": name}


def _equality(runs: VariedRuns, name: str, pair: Records) -> tuple[str, ...]:
    if not pair:
        return ()
    equal = "equal" if same_digits(*pair) else "NOT equal"
    return remarks("encrypted recipe", runs, recipe=name, equal=equal, accuracy=number(pair[1], "accuracy"))


_SHOWN = (*COLUMNS, *(f"paper: {name}" for name in COLUMNS))
RUNS = (ProfileRun("paper", 2), ProfileRun("hardened", 50), ProfileRun("shares", 1000))  # what two cores have time for


@dataclass(frozen=True)
class AccuracySettings(RunSettings):
    """Plaintext runs for every split and seed; for each profile an encrypted run, and the same in the clear, of the first."""

    runs: tuple[ProfileRun, ...] = RUNS
    seeds: tuple[int, ...] = (0, 1, 2)
    variations: tuple[Variation, ...] = VARIATIONS

    @property
    def varied(self) -> VariedRuns:
        """Through `shares` too, where that is chosen."""
        run = next((run for run in self.chosen if run.profile == "shares"), None)
        keys, hidden = (None, 0) if run is None else (self.keys_of(run), run.hidden)
        return VariedRuns(self.variations, self.learn, self.seeds, keys, hidden)

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
    return points + settings.varied.points()


def _present_table3(settings: AccuracySettings, results: Sequence[Records]) -> Part:
    count = len(settings.seeds) * (1 + len(SPLITS))
    end = count + 3 * len(settings.chosen)
    found, beside, varied = joined(results[:count]), results[count:end], results[end:]
    baselines = {row["seed"]: row for row in found if "round" not in row}
    plain = [scored_row(row, baselines) | ({} if "round" in row else {"split": "-"}) for row in found]
    triples = [[rows[-1] for rows in beside[start : start + 3]] for start in range(0, len(beside), 3)]
    pairs = [_pair(settings, run.profile, rows) for run, rows in zip(settings.chosen, triples, strict=True)]
    kinds = dict.fromkeys((row["scheme"], row["split"]) for row in plain)
    means = f"In the clear, {settings.learn.hidden:,} hidden units, mean and deviation over {len(settings.seeds)} seeds"
    tables = [
        table_of(
            means, [mean_row(plain, *kind) | _printed(kind[0]) for kind in kinds], ("scheme", "data", *_SHOWN), DIGITS
        )
    ]
    for run, pair in zip(settings.chosen, pairs, strict=True):
        title = f"Encrypted by `{run.profile}` beside the clear: {run.hidden:,} hidden units, one seed, by real user"
        tables.append(table_of(title, [row | _printed(row["scheme"]) for row in pair], ("scheme", *_SHOWN), DIGITS))
    picture = Picture("table3", "Accuracy and F1 after each round", lambda f: _draw_table3(f, settings, plain))
    remarks_ = (*_table3_remarks(settings, plain), *_equalities(settings, pairs))
    part = Part([*plain, *joined(pairs)], tuple(tables), (picture,), remarks_)
    return joined_parts(part, recipe_part(settings.varied, varied))


def _pair(settings: AccuracySettings, profile: str, rows: Records) -> Records:
    """NN, FedAvg and PriFedAvg of one size."""
    made = [scored_row(row, {settings.seeds[0]: rows[0]}) for row in rows]
    return [row | {"of": "pair", "profile": profile} for row in made]


def _equalities(settings: AccuracySettings, pairs: Sequence[Records]) -> tuple[str, ...]:
    said: list[str] = []
    for run, (_, plain, encrypted) in zip(settings.chosen, pairs, strict=True):
        equal = "equal" if same_digits(plain, encrypted) else "NOT equal"
        said += remarks("encrypted", settings, run=run, key=settings.keys_of(run), equal=equal)
    return tuple(said)


def _printed(scheme: Value) -> Record:
    values = TABLE3.get(str(scheme), [None] * len(COLUMNS))
    return {f"paper: {name}": value for name, value in zip(COLUMNS, values, strict=True)}


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
        behind=", ".join(f"{nn - end[split]:.3f} {SPLIT_WORDS[split]}" for split in SPLITS),
        gains=", ".join(f"{end[split] - start[split]:.3f} {SPLIT_WORDS[split]}" for split in SPLITS),
    )


def _draw_table3(figure: Canvas, settings: AccuracySettings, rows: Records) -> None:
    numbers = list(range(1, settings.learn.rounds + 1))
    for axes, (name, label) in zip(panels(figure, 2), DRAWN.items(), strict=True):
        series = {}
        for split, mark in zip(SPLITS, ("o-", "s-"), strict=True):
            means = [mean_of(rows, name, scheme=f"FedAvg_{n}", split=split) for n in numbers]
            series[f"FedAvg, {SPLIT_WORDS[split]}"] = Series(numbers, means, style=mark)
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
