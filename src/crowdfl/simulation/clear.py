"""A rule of averaging or of pay that somebody wants to try: in the clear, with no server and no privacy.

Everything else of a simulation is as it is: people, data, sampling, dropouts, history. So a rule can be compared with `fedavg`
and with `equal`, which are what the task's own settings do, before anyone works out how two servers could do it blindly.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdfl.errors import LearningError, SettingsError
from crowdfl.learning import oracle
from crowdfl.learning.functions import FunctionTrainer, TrainingInfo
from crowdfl.learning.models.forms import ModelForm
from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.party import Costs
from crowdfl.protocols.shares.server_optimizers import Moments
from crowdfl.results import RunResult
from crowdfl.simulation.crowd_engine import Averaged
from crowdfl.simulation.parallel import ParallelTrainer
from crowdfl.simulation.result import SimulationResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_PRIVATE = "NOT PRIVATE: a rule of your own, in the clear, without servers"
_MEANT = {"rounds", "profile", "min_participants", "per_round", "budget"}  # of the settings, in the clear
_Floats = npt.NDArray[np.float64]


def require_meant(asked: Mapping[str, Any]) -> None:
    """Refuse settings of servers."""
    if foreign := sorted(asked.keys() - _MEANT):
        raise SettingsError(f"`{foreign[0]}` has no effect in the clear: leave it out")


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
class RuleAveraging:
    """Such a rule in the place of the servers."""

    rule: Rule
    form: ModelForm
    rounds: int
    seed: int
    upload_bytes: int = 0
    _updates: dict[str, ClearUpdate] = field(default_factory=dict, repr=False)

    def open(self, number: int) -> None:
        del number
        self._updates = {}

    def refer(self, trainer: FunctionTrainer, arrays: Weights, number: int) -> None:
        raise NotImplementedError  # a rule has what it compares with

    def take(self, trainer: ParallelTrainer, weights: Weights, samples: int) -> Mapping[str, Any]:
        del samples  # counted in the servers' units
        weight = trainer.samples or 0
        model = self.form.model(weights, trainer.own)
        self._updates[trainer.person] = ClearUpdate(model, weight, self.form.shape.flat(weights))
        return {"samples": weight, "clipped": 0}

    def close(self, arrays: Weights, number: int) -> Averaged:
        start = ClearUpdate(self.form.model(arrays), 0, self.form.shape.flat(arrays))
        info = TrainingInfo.of(number, self.rounds, "", self.seed)
        after, pay = self._next(self.rule(self._updates, start, info))
        return Averaged(after, accepted=frozenset(self._updates), rewards=pay)

    def moments(self) -> Moments:
        return ()

    def costs(self) -> Mapping[str, Costs]:
        return {}

    def _next(self, returned: Any) -> tuple[Weights, dict[str, Decimal]]:  # noqa: ANN401
        pay: Mapping[str, Any] = {}
        if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
            returned, pay = returned
        if strangers := sorted(pay.keys() - self._updates.keys()):
            raise LearningError(f"the rule pays {strangers[0]}, who is not in the round")
        parameters = self.form.shape.parameters
        if isinstance(returned, np.ndarray) and returned.shape == (parameters,):
            returned = self.form.model(self.form.shape.arrays(returned.astype(np.float64)))
        return self.form.arrays(returned), {name: Decimal(str(amount)) for name, amount in pay.items()}
