"""Beside table 3: what a better recipe makes of the same data, network size and number of rounds.

The paper feeds a network the raw windows. Here it is fed their spectrum, scaled by each person's own training windows; and a
server step may follow each average. The encrypted run is one of `shares`, the profile that has server steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crowdfl_lab.experiments.crowds import SPLITS, LearnSettings
from crowdfl_lab.experiments.experiment import ExperimentPoint, Part
from crowdfl_lab.experiments.federated import Keys, baseline_point, run_point
from crowdfl_lab.experiments.published import remarks
from crowdfl_lab.experiments.records import Record, Records, Value, joined, number, table_of
from crowdfl_lab.experiments.scored import COLUMNS, DIGITS, mean_row, same_digits, scored_row
from crowdfl_lab.report.results import ResultTable


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
