"""Table 3: how accurate the models are. NN, FedAvg after each round, and PriFedAvg from a real run of each profile.

MAD is the mean absolute difference of a row's four scores to NN's: with this definition the paper's five values come out to
the digit.

Beside it, what a better recipe makes of the same data, network size and number of rounds. The paper feeds a network the raw
windows. Here it is fed their spectrum, scaled by each person's own training windows; and a server step may follow each average.
The encrypted run is one of `shares`, the profile that has server steps.

Figure 3: accuracy and F1 under dropouts, for CrowdFL-D and CrowdFL-R, with NN as a line.
"""

import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from crowdfl.errors import SettingsError
from crowdfl.learning.evaluation import Scores
from crowdfl_lab.experiments.experiment import (
    TABLE3,
    Experiment,
    ExperimentPoint,
    Found,
    Part,
    Points,
    Record,
    Records,
    Value,
    number,
    remarks,
    table_of,
)
from crowdfl_lab.experiments.federated import (
    SPLITS,
    TRAINING,
    LearnSettings,
    ProfileRun,
    RunSettings,
    Strategy,
    baseline_point,
    run_point,
)
from crowdfl_lab.report.plots import Canvas, Picture, Series, lines, panels
from crowdfl_lab.report.results import ResultTable

SCORES = ("accuracy", "precision", "recall", "f1")
COLUMNS = (*SCORES, "mad")
DRAWN = {"accuracy": "accuracy", "f1": "F1 score"}
DIGITS = ".4f"  # as the paper's table 3 prints
# What two cores have time for.
RUNS = (ProfileRun("paper", 1, people=12), ProfileRun("hardened", 50), ProfileRun("shares", 1000))
_SPLIT_WORDS = {"user": "by real user", "random": "windows dealt at random"}
_SHOWN = (*COLUMNS, *(f"paper: {name}" for name in COLUMNS))
_SPECTRAL = {"features": "spectral", "scale_inputs": True}
# The server steps' rates and momenta are the best of those tried with seed 0, by real user: lab/docs/experiments.md lists them.
RECIPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "spectral": _SPECTRAL,
        "spectral, FedAvgM": {**_SPECTRAL, "server_step": "fedavgm", "server_momentum": 0.7},
        "spectral, FedAdam": {**_SPECTRAL, "server_step": "fedadam", "server_rate": 0.01, "server_momentum": 0.5},
    }
)


@dataclass(frozen=True)
class AccuracySettings(RunSettings):
    """Plaintext runs for every split and seed; for each profile an encrypted run, and the same in the clear, of the first."""

    runs: tuple[ProfileRun, ...] = RUNS
    seeds: tuple[int, ...] = (0, 1, 2)

    @property
    def shared(self) -> ProfileRun | None:
        """The run through `shares`, where that is chosen: recipes take it too."""
        return next((run for run in self.chosen if run.profile == "shares"), None)

    def plain(self, seed: int, split: str = SPLITS[0], recipe: str = "") -> LearnSettings:
        return replace(self.learn, split=split, seed=seed, **RECIPES.get(recipe, {}))

    def encrypted(self, run: ProfileRun, recipe: str = "") -> LearnSettings:
        return run.of(self.plain(self.seeds[0], recipe=recipe))


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


def _scored_row(found: Record, baseline: Record) -> Record:
    scheme = "PriFedAvg" if "key_bits" in found else f"FedAvg_{found['round']}" if "round" in found else "NN"
    row = found | {"scheme": scheme, "mad": None}
    if scheme == "NN":
        row["split"] = "-"
    else:
        row["mad"] = mad(*(Scores(*(number(each, name) for name in SCORES)) for each in (found, baseline)))
    return {name: row.get(name) for name in ("scheme", "split", "seed", "hidden", "people", *COLUMNS, "off by")}


def _mean_rows(rows: Records) -> Records:
    """Mean and deviation over the seeds, for each scheme and split."""
    means: Records = []
    for scheme, split in dict.fromkeys((row["scheme"], row["split"]) for row in rows):
        columns = SCORES if scheme == "NN" else COLUMNS
        found: Record = {name: spread(values_of(rows, name, scheme=scheme, split=split)) for name in columns}
        means.append({"scheme": scheme, "data": _SPLIT_WORDS.get(str(split), split)} | found | _printed(scheme))
    return means


def _printed(scheme: Value) -> Record:
    values = TABLE3.get(str(scheme), [None] * len(COLUMNS))
    return {f"paper: {name}": value for name, value in zip(COLUMNS, values, strict=True)}


def _points(settings: AccuracySettings) -> Points:
    """In the clear by recipe ("" is the paper's), split and seed; NN has the recipe's inputs, which all others share."""
    points: dict[Hashable, ExperimentPoint] = {}
    for recipe in ("", *RECIPES):
        if recipe in ("", "spectral"):
            points |= {
                (recipe, "NN", seed): baseline_point(settings.plain(seed, recipe=recipe)) for seed in settings.seeds
            }
        for split in SPLITS:
            points |= {(recipe, split, seed): run_point(settings.plain(seed, split, recipe)) for seed in settings.seeds}
        if recipe and (run := settings.shared) is not None:
            learn = settings.encrypted(run, recipe)
            points |= {(recipe, "clear"): run_point(learn)}
            points |= {(recipe, "encrypted"): run_point(learn, keys=settings.keys_of(run))}
    for run in settings.chosen:
        small = settings.encrypted(run)
        points |= {(run, "NN"): baseline_point(small), (run, "clear"): run_point(small)}
        points |= {(run, "encrypted"): run_point(small, keys=settings.keys_of(run))}
    return points


def _in_the_clear(settings: AccuracySettings, found: Found, recipe: str) -> Records:
    inputs = "spectral" if recipe else ""
    keys = [(place, seed) for place in ("NN", *SPLITS) for seed in settings.seeds]
    rows = [(row, found[inputs, "NN", s][0]) for place, s in keys for row in found.get((recipe, place, s), ())]
    return [_scored_row(row, baseline) for row, baseline in rows]


def _present(settings: AccuracySettings, found: Found) -> Part:
    plain = _in_the_clear(settings, found, "")
    means = f"In the clear, {settings.learn.hidden:,} hidden units, mean and deviation over {len(settings.seeds)} seeds"
    tables, records = [table_of(means, _mean_rows(plain), ("scheme", "data", *_SHOWN), DIGITS)], list(plain)
    said = list(_remarks(settings, plain))
    for run in settings.chosen:
        rows = [found[run, kind][-1] for kind in ("NN", "clear", "encrypted")]
        trio = [_scored_row(row, rows[0]) | {"of": "pair", "profile": run.profile} for row in rows]
        size = f"{run.hidden:,} hidden units, {settings.encrypted(run).people} people"
        title = f"Encrypted by `{run.profile}` beside the clear: {size}, one seed, by real user"
        tables.append(table_of(title, [row | _printed(row["scheme"]) for row in trio], ("scheme", *_SHOWN), DIGITS))
        equal = "equal" if same_digits(*trio[1:]) else "NOT equal"
        said += remarks("encrypted", settings, run=run, key=settings.keys_of(run), equal=equal)
        if all("off by" in row for row in found[run, "encrypted"]):
            largest = max(number(row, "off by") for row in found[run, "encrypted"])
            said += remarks("encrypted weights", settings, run=run, off=f"{largest:.2g}")
        records += trio
    picture = Picture("table3", "Accuracy and F1 after each round", lambda f: _draw(f, settings, plain))
    return Part(records, tuple(tables), (picture,), tuple(said)) + _recipe_part(settings, found)


def _recipe_part(settings: AccuracySettings, found: Found) -> Part:
    """A table of each recipe, with MAD to the NN of the same inputs, and whether encryption changes it."""
    records, tables, said = list[Record](), list[ResultTable](), [*remarks("recipes", settings)]
    first = found["spectral", "NN", settings.seeds[0]][0]
    for recipe in RECIPES:
        rows = [row | {"of": "recipe", "recipe": recipe} for row in _in_the_clear(settings, found, recipe)]
        title = f"The recipe `{recipe}`, in the clear"
        tables.append(table_of(title, _mean_rows(rows), ("scheme", "data", *COLUMNS), DIGITS))
        records += rows
        if (run := settings.shared) is not None:
            pair = [_scored_row(found[recipe, kind][-1], first) for kind in ("clear", "encrypted")]
            words = {"equal": "equal" if same_digits(*pair) else "NOT equal", "accuracy": number(pair[1], "accuracy")}
            said += remarks("encrypted recipe", settings, run=run, recipe=recipe, **words)
            records += [row | {"of": "recipe pair", "profile": "shares", "recipe": recipe} for row in pair]
    return Part(records, tuple(tables), remarks=tuple(said))


def _remarks(settings: AccuracySettings, plain: Records) -> tuple[str, ...]:
    last, before = (f"FedAvg_{max(1, settings.learn.rounds - back)}" for back in (0, 1))
    nn = mean_of(plain, "accuracy", scheme="NN")
    (printed, fifth) = (TABLE3[s][0] or 0 for s in ("NN", "FedAvg_5"))
    end, start = ({s: mean_of(plain, "accuracy", scheme=scheme, split=s) for s in SPLITS} for scheme in (last, before))
    behind = ", ".join(f"{nn - end[split]:.3f} {_SPLIT_WORDS[split]}" for split in SPLITS)
    gains = ", ".join(f"{end[split] - start[split]:.3f} {_SPLIT_WORDS[split]}" for split in SPLITS)
    gap = {"printed": printed, "printed_behind": printed - fifth}
    return remarks("table3", settings, nn=nn, last=last, behind=behind, gains=gains, **gap)


def _draw(figure: Canvas, settings: AccuracySettings, rows: Records) -> None:
    numbers = list(range(1, settings.learn.rounds + 1))
    for axes, (name, label) in zip(panels(figure, 2), DRAWN.items(), strict=True):
        series = {}
        for split, mark in zip(SPLITS, ("o-", "s-"), strict=True):
            means = [mean_of(rows, name, scheme=f"FedAvg_{n}", split=split) for n in numbers]
            series[f"FedAvg, {_SPLIT_WORDS[split]}"] = Series(numbers, means, style=mark)
        series["NN"] = level(numbers, mean_of(rows, name, scheme="NN"))
        printed = [_printed(f"FedAvg_{n}")[f"paper: {name}"] for n in numbers]
        paper = [float("nan") if value is None else float(value) for value in printed]
        series["FedAvg, paper"] = Series(numbers, paper, style="x--", colour="grey")
        series["NN, paper"] = level(numbers, number(_printed("NN"), f"paper: {name}"), ":", "grey")
        lines(axes, series, xlabel="round", ylabel=label)
        axes.set_xticks(numbers)


_FULL = AccuracySettings(runs=tuple(replace(run, hidden=1000) if run.profile == "hardened" else run for run in RUNS))
TABLE_3 = Experiment(
    "table3",
    "Table 3: NN, FedAvg and PriFedAvg",
    _points,
    _present,
    _FULL,
    AccuracySettings(),
    "quick",
    options=TRAINING,
)


_PAIR = {"accuracy": "accuracy", "F1": "f1"}
_STRATEGIES: dict[Strategy, str] = {"discard": "CrowdFL-D", "retransmit": "CrowdFL-R"}


@dataclass(frozen=True)
class DropSettings(AccuracySettings):
    """Runs in the clear for every rate and seed; one rate of each strategy also through an encrypted run of each profile."""

    rates: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    checked_rate: float = 0.3


def _drop_points(settings: DropSettings) -> Points:
    points: dict[Hashable, ExperimentPoint] = {
        ("NN", None, s): baseline_point(settings.plain(s)) for s in settings.seeds
    }
    for strategy, scheme in _STRATEGIES.items():
        for rate in settings.rates:
            for seed in settings.seeds:
                points[scheme, rate, seed] = run_point(settings.plain(seed), rate=rate, strategy=strategy)
        for run in settings.chosen:
            for how, keys in (("clear", None), ("encrypted", settings.keys_of(run))):
                learn, rate = settings.encrypted(run), settings.checked_rate
                points[run, scheme, how] = run_point(learn, keys=keys, rate=rate, strategy=strategy)
    return points


def _present_drops(settings: DropSettings, found: Found) -> Part:
    kinds = [("NN", None), *((scheme, rate) for scheme in _STRATEGIES.values() for rate in settings.rates)]
    rows = [_drop_row(*kind, "clear", found[*kind, seed][-1]) for kind in kinds for seed in settings.seeds]
    means: Records = []
    for scheme, rate in kinds:
        scores: Record = {
            label: spread(values_of(rows, name, scheme=scheme, rate=rate)) for label, name in _PAIR.items()
        }
        means.append(scores | {"scheme": scheme, "dropout rate": None if rate is None else f"{rate:.0%}"})
    checks, said = list[Record](), list(_drop_remarks(settings, rows))
    for run in settings.chosen:
        own = [
            _drop_row(scheme, settings.checked_rate, f"check, {how}", found[run, scheme, how][-1])
            | {"profile": run.profile}
            for scheme in _STRATEGIES.values()
            for how in ("clear", "encrypted")
        ]
        equal = "equal" if all(map(same_digits, own[0::2], own[1::2])) else "do NOT equal"
        said += remarks("encrypted with dropouts", settings, run=run, key=settings.keys_of(run), equal=equal)
        checks += own
    checked = [r | {"dropout rate": f"{r['rate']:.0%}", "run": str(r["how"])[7:], "F1": r["f1"]} for r in checks]
    title = f"After {settings.learn.rounds} rounds, {settings.learn.hidden:,} hidden units, over {len(settings.seeds)} seeds"
    beside = "One point of each, encrypted and in the clear"
    tables = (
        table_of(title, means, ("scheme", "dropout rate", *_PAIR)),
        table_of(beside, checked, ("scheme", "dropout rate", "profile", "hidden", "run", *_PAIR), DIGITS),
    )
    picture = Picture("fig3", "Accuracy and F1 against the dropout rate", lambda f: _draw_drops(f, settings, rows))
    return Part(rows + checks, tables, (picture,), tuple(said))


def _drop_row(scheme: str, rate: float | None, how: str, found: Record) -> Record:
    row: Record = {"scheme": scheme, "rate": rate, "seed": found["seed"], "hidden": found["hidden"], "how": how}
    return row | {name: found[name] for name in SCORES} | {"off by": found.get("off by")}


def _drop_remarks(settings: DropSettings, rows: Records) -> tuple[str, ...]:
    nn = mean_of(rows, "accuracy", scheme="NN")
    drop, again = (
        {rate: mean_of(rows, "accuracy", scheme=scheme, rate=rate) for rate in settings.rates}
        for scheme in _STRATEGIES.values()
    )
    counts = {
        "better": sum(again[rate] > drop[rate] for rate in settings.rates if rate),
        "dropping": sum(rate > 0 for rate in settings.rates),
        "above": sum(accuracy > nn for accuracy in drop.values()),
        "rates": len(settings.rates),
    }
    return remarks("fig3", settings, **counts)


def _draw_drops(figure: Canvas, settings: DropSettings, rows: Records) -> None:
    percent = [100 * rate for rate in settings.rates]
    for axes, (name, label) in zip(panels(figure, 2), DRAWN.items(), strict=True):
        series = {}
        for scheme, mark in zip(_STRATEGIES.values(), ("o-", "s--"), strict=True):
            found = [values_of(rows, name, scheme=scheme, rate=rate) for rate in settings.rates]
            spreads = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in found]
            series[scheme] = Series(percent, list(map(statistics.fmean, found)), spreads, mark)
        series["NN"] = level(percent, mean_of(rows, name, scheme="NN"))
        lines(axes, series, xlabel="dropout rate, %", ylabel=label)


def _with_dropout(settings: DropSettings, rates: Sequence[float]) -> DropSettings:
    """These rates alone; the first is the one that is also run encrypted."""
    if not all(0 <= rate < 1 for rate in rates):
        raise SettingsError("--dropout is a share of the people, from 0 to below 1, as in --dropout 0.3")
    return replace(settings, rates=tuple(sorted(set(rates))), checked_rate=rates[0])


_CHECKED = tuple(replace(run, hidden=min(run.hidden, 50)) for run in RUNS)
FIG_3 = Experiment(
    "fig3",
    "Figure 3: dropouts",
    _drop_points,
    _present_drops,
    DropSettings(),
    DropSettings(LearnSettings(hidden=50), runs=_CHECKED),
    options={**TRAINING, "dropout": _with_dropout},
)
