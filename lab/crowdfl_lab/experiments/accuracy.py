"""Table 3: how accurate the models are. NN, FedAvg after each round, and PriFedAvg from a real run of each profile.

MAD is the mean absolute difference of a row's four scores to NN's: with this definition the paper's five values come out to
the digit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crowdfl_lab.experiments.crowds import SPLITS, LearnSettings
from crowdfl_lab.experiments.experiment import Experiment, ExperimentPoint, Part, joined_parts
from crowdfl_lab.experiments.federated import baseline_point, run_point
from crowdfl_lab.experiments.options import TRAINING, ProfileRun, RunSettings
from crowdfl_lab.experiments.published import TABLE3, remarks
from crowdfl_lab.experiments.recipes import VARIATIONS, Variation, VariedRuns, recipe_part
from crowdfl_lab.experiments.records import Record, Records, Value, joined, number, table_of
from crowdfl_lab.experiments.scored import (
    COLUMNS,
    DIGITS,
    DRAWN,
    SPLIT_WORDS,
    level,
    mean_of,
    mean_row,
    same_digits,
    scored_row,
)
from crowdfl_lab.report.plots import Canvas, Picture, Series, lines, panels

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
