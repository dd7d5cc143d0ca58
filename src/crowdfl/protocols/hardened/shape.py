"""What every side of a `hardened` task derives from the task alone."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.errors import RewardsOff
from crowdfl.protocols.hardened.prifedavg import ModelCodec
from crowdfl.protocols.hardened.prirwd import RewardWidths
from crowdfl.protocols.profile import KeyedTask, width_budget
from crowdfl.settings import TaskSettings, to_millionths

_SIGMA = 40
_LARGEST_PAYMENT = to_millionths(1_000_000)  # a round's, where the settings name none


@dataclass(frozen=True)
class Shape:
    """What every side derives from the task alone."""

    task: KeyedTask
    seed: bytes

    @cached_property
    def budget(self) -> WidthBudget:
        return hardened_budget(self.task.settings, self.task.parameters)

    @cached_property
    def packing(self) -> Packing:
        return self.budget.packing(self.task.public)

    @cached_property
    def codec(self) -> ModelCodec:
        return ModelCodec(self.budget, self.packing, self.seed)

    @property
    def budget_of_a_round(self) -> int | None:
        """Millionths that every round pays, where the task's settings say so."""
        budget = self.task.settings.budget
        return None if budget is None or to_millionths(budget) == 0 else to_millionths(budget)

    def widths(self) -> RewardWidths:
        if self.task.settings.lanes == 0:
            raise RewardsOff("the task was made with lanes=0: its packing leaves no room for rewards")
        return reward_widths(self.task.settings, self.task.parameters)


@lru_cache(maxsize=16)
def hardened_budget(settings: TaskSettings, parameters: int) -> WidthBudget:
    return width_budget(settings, parameters, settings.mask_bits or _SIGMA)


@lru_cache(maxsize=16)
def reward_widths(settings: TaskSettings, parameters: int) -> RewardWidths:
    """The widths of a task's rewards, or a refusal with the numbers."""
    largest = _LARGEST_PAYMENT if settings.budget is None else max(1, to_millionths(settings.budget))
    return RewardWidths(hardened_budget(settings, parameters), settings.floor_units, largest)
