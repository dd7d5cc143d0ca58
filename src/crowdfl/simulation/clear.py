"""A rule of averaging or of pay that somebody wants to try: in the clear, with no server and no privacy.

Everything else of a simulation is as it is: people, data, sampling, dropouts, history. So a rule can be compared with `fedavg`
and with `equal`, which are what the task's own settings do, before anyone works out how two servers could do it blindly.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdfl.errors import LearningError, NothingToAverage, NothingToContribute, SettingsError
from crowdfl.learning import oracle
from crowdfl.learning.functions import EvaluateFunction, TrainingInfo, central_metrics, weighted_mean
from crowdfl.learning.models.forms import ModelForm
from crowdfl.learning.models.shape import Weights
from crowdfl.results import RunResult
from crowdfl.settings import TaskSettings
from crowdfl.simulation.checkpoint import Checkpoint
from crowdfl.simulation.draws import seeded_draw
from crowdfl.simulation.history import FinishedRound, SimulatedRound, earned, unusable_metrics
from crowdfl.simulation.parallel import ParallelTrainer
from crowdfl.simulation.result import SimulationResult
from crowdfl.simulation.shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_PRIVATE = "NOT PRIVATE: a rule of your own, in the clear, without servers"
_MEANT = {"rounds", "profile", "min_participants", "per_round", "budget"}  # of the settings, in the clear
_Floats = npt.NDArray[np.float64]


class ClearUpdate(NamedTuple):
    """What a rule gets of a person: the trained model in your own form, its weight, and its averaged numbers in a row."""

    model: Any
    weight: float
    flat: _Floats


Rule = Callable[[Mapping[str, ClearUpdate], ClearUpdate, TrainingInfo], Any]
"""`rule(updates, start, info)`: the next model, in your own form or as numbers in a row; or (model, {name: amount})."""


def fedavg(updates: Mapping[str, ClearUpdate], _start: ClearUpdate, _info: TrainingInfo) -> _Floats:
    """By weights, as tasks do with weighting = "samples"."""
    return oracle.fedavg([one.flat for one in updates.values()], [one.weight for one in updates.values()])  # type: ignore[misc]


def equal(max_norm: float) -> Rule:
    """Everyone once, within a norm, as tasks do with weighting = "equal"."""

    def rule(updates: Mapping[str, ClearUpdate], start: ClearUpdate, _info: TrainingInfo) -> _Floats:
        changes = [one.flat - start.flat for one in updates.values()]
        scaled = [change * min(1.0, max_norm / max(float(np.linalg.norm(change)), 1e-300)) for change in changes]
        return np.asarray(start.flat + np.mean(scaled, axis=0))

    return rule


@dataclass(frozen=True, eq=False, repr=False)
class ClearResult(SimulationResult):
    """What `simulate(..., in_the_clear=rule)` returns: marked as not private wherever it is shown."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        return RunResult.save(self, path)

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        from crowdfl.results import written

        figure = super().plot()
        figure.suptitle(NOT_PRIVATE)
        return written(figure, path)

    def _precision(self) -> list[str]:
        return [NOT_PRIVATE]


@dataclass
class ClearCampaign:
    """The rounds of such a trial. `begin` says who trains in one."""

    rule: Rule
    form: ModelForm
    trainers: Mapping[str, ParallelTrainer]
    begin: Callable[[Weights, int], Sequence[ParallelTrainer]]
    asked: Mapping[str, Any]
    seed: int
    evaluate_central: EvaluateFunction | None
    stops: Callable[[FinishedRound], bool]

    history: list[SimulatedRound] = field(default_factory=list)
    arrays: Weights = field(default_factory=list, repr=False)

    def run(self, arrays: Weights, told: Shown) -> ClearResult:
        if foreign := sorted(self.asked.keys() - _MEANT):
            raise SettingsError(f"`{foreign[0]}` has no effect in the clear: leave it out")
        for number in range(1, self.settings.rounds + 1):
            arrays, one = self._round(arrays, number, self.settings)
            self.arrays = arrays
            self.history.append(one)
            told.finished(one)
            if self.stops(FinishedRound(**vars(one), model=self.form.model(arrays), costs={})):
                break
        result = self.result()
        if result is None or not any(one.is_averaged for one in self.history):
            raise NothingToAverage(f"no round found {self.settings.min_participants} participants")
        return result

    @cached_property
    def settings(self) -> TaskSettings:
        return TaskSettings.of(**{"max_participants": len(self.trainers)} | dict(self.asked))

    def result(self) -> ClearResult | None:
        """Of the rounds so far."""
        if not self.history:
            return None
        own = {name: trainer.own for name, trainer in self.trainers.items()}
        samples = {name: trainer.samples for name, trainer in self.trainers.items()}
        history = tuple(self.history)
        state = Checkpoint(
            history=history, settings=self.settings, asked={}, samples=samples, units=1, is_stopped=True, costs={},
            seed=self.seed, form=self.form, arrays=self.arrays, moments=(), own=own,
        )  # fmt: skip
        personal = {name: {key: own[name][key] for key in self.form.personal if key in own[name]} for name in own}
        shown = personal if self.form.personal else {}
        model, notes = self.form.model(self.arrays), tuple(unusable_metrics(history))
        return ClearResult(model, history, earned(history), {}, notes, self.settings, state, shown)

    def _round(self, arrays: Weights, number: int, settings: TaskSettings) -> tuple[Weights, SimulatedRound]:
        began = time.perf_counter()
        shape = self.form.shape
        training = {}
        present, updates = self.begin(arrays, number), dict[str, ClearUpdate]()
        for trainer in present:
            try:
                weights, _ = trainer.train(arrays, {}, number)
            except NothingToContribute:
                continue
            training[trainer.person] = trainer.metrics
            model = self.form.model(weights, trainer.own)
            updates[trainer.person] = ClearUpdate(model, trainer.samples or 0, shape.flat(weights))
        info = TrainingInfo.of(number, settings.rounds, "", self.seed)
        names = list(self.trainers)
        drawn = seeded_draw(self.seed)(number, names, settings.per_round) if settings.per_round is not None else ()
        sampled = tuple(name for name in names if name in drawn)
        came = {trainer.person for trainer in present}
        averaged, pay = len(updates) >= settings.min_participants, dict[str, Decimal]()
        if averaged:
            start = ClearUpdate(self.form.model(arrays), 0, shape.flat(arrays))
            arrays, pay = self._next(self.rule(updates, start, info), updates)
        found = {name: trainer.evaluate(arrays, number) for name, trainer in self.trainers.items()}
        model = self.form.model(arrays)
        return arrays, SimulatedRound(
            number=number,
            metrics=weighted_mean([(one, self.trainers[name].weight) for name, one in found.items()]),
            participants=tuple(updates) if averaged else (),
            sampled=sampled,
            dropped=tuple(name for name in sampled or names if name not in came),
            rewards=pay,
            seconds=time.perf_counter() - began,
            is_averaged=averaged,
            by_person=found,
            central={} if self.evaluate_central is None else central_metrics(self.evaluate_central, model, info),
            training=weighted_mean([(one, updates[name].weight) for name, one in training.items()]),
            training_by_person={name: one for name, one in training.items() if one},
        )

    def _next(self, returned: Any, updates: Mapping[str, ClearUpdate]) -> tuple[Weights, dict[str, Decimal]]:  # noqa: ANN401
        pay: Mapping[str, Any] = {}
        if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
            returned, pay = returned
        if strangers := sorted(pay.keys() - updates.keys()):
            raise LearningError(f"the rule pays {strangers[0]}, who is not in the round")
        parameters = self.form.shape.parameters
        if isinstance(returned, np.ndarray) and returned.shape == (parameters,):
            returned = self.form.model(self.form.shape.arrays(returned.astype(np.float64)))
        return self.form.arrays(returned), {name: Decimal(str(amount)) for name, amount in pay.items()}
