"""`hardened` with its masks shortened on purpose, to show that the audit notices. No option of the protocols leads here."""

from dataclasses import dataclass, fields, replace
from functools import cached_property

from crowdfl.crypto.budget import WidthBudget, bits
from crowdfl.crypto.packing import Packing
from crowdfl.protocols.hardened.prirwd import RewardSp, RewardWidths
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.party import Party
from crowdfl.protocols.sdiv import SdivWidths

__all__ = ["SHORTENED", "ShortBudget", "ShortRewardWidths", "shorten", "weaken"]

SHORTENED = "hardened, masks shortened"


@dataclass(frozen=True)
class ShortBudget(WidthBudget):
    """The packing of the true budget, masks of hardly more bits than what they mask."""

    packed: int = 1

    @cached_property
    def slots(self) -> int:
        return self.packed

    @property
    def lane_mask_bits(self) -> int:
        """One bit more than a lane, with its sign."""
        return bits(self.lane_bound) + 2


@dataclass(frozen=True)
class ShortRewardWidths(RewardWidths):
    """Masks as if the task opened nothing."""

    @property
    def masks_in_task(self) -> int:
        return 0

    @property
    def weights(self) -> SdivWidths:
        return replace(super().weights, sigma=self.budget.sigma)

    @property
    def rewards(self) -> SdivWidths:
        return replace(super().rewards, sigma=self.budget.sigma)


def shorten(widths: RewardWidths) -> ShortRewardWidths:
    """sigma = 1, and no room for the number of openings."""
    values = {field.name: getattr(widths.budget, field.name) for field in fields(WidthBudget)}
    budget = ShortBudget(**values | {"sigma": 1}, packed=widths.budget.slots)
    return ShortRewardWidths(budget, widths.epsilon_units, widths.largest_payment)


def weaken(sp: HardenedSp) -> None:
    """Let SP pay its rewards under short masks."""

    def short_side(party: Party, widths: RewardWidths, packing: Packing) -> RewardSp:
        return RewardSp(party, shorten(widths), packing)

    sp.reward_side = short_side
