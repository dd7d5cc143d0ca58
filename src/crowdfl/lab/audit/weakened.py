"""`hardened` with its masks shortened on purpose, to show that the audit notices. No option of the protocols leads here."""

import secrets
from dataclasses import dataclass, fields, replace
from functools import cached_property

from crowdfl.crypto.budget import WidthBudget, bits
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.local import LocalFederation
from crowdfl.protocols.exchange import Exchange
from crowdfl.protocols.hardened.prirwd import RewardSp, RewardWidths
from crowdfl.protocols.hardened.profile import HardenedSp
from crowdfl.protocols.sdiv import SdivWidths

__all__ = ["ShortBudget", "ShortRewardWidths", "ShortSp", "shorten", "weaken"]


@dataclass(frozen=True)
class ShortBudget(WidthBudget):
    """The packing of the true budget, masks of hardly more bits than what they mask."""

    packed: int = 1

    @cached_property
    def slots(self) -> int:
        """As packed."""
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
        """None."""
        return 0

    def _sdiv(self, ybits: int, qbits: int) -> SdivWidths:
        return replace(super()._sdiv(ybits, qbits), sigma=self.budget.sigma)


class ShortSp(HardenedSp):
    """An SP that pays rewards under short masks."""

    def reward(self, payment: int) -> Exchange:
        """As `HardenedSp`, with other widths."""
        side = RewardSp(self.party, shorten(self._shape.widths()), self._shape.packing)
        context = self._shape.task.context(self.round_number)
        self._envelopes = yield from side.run(self._averaged(), payment, context, secrets.token_bytes(SEED_BYTES))


def shorten(widths: RewardWidths) -> ShortRewardWidths:
    """sigma = 1, and no room for the number of openings."""
    values = {field.name: getattr(widths.budget, field.name) for field in fields(WidthBudget)}
    budget = ShortBudget(**values | {"sigma": 1}, packed=widths.budget.slots)
    return ShortRewardWidths(budget, widths.epsilon_units, widths.largest_payment)


def weaken(fed: LocalFederation) -> None:
    """Give a dealt federation the SP above in place of its own."""
    sp = fed.sp
    if not isinstance(sp, HardenedSp):
        raise TypeError("only the profile hardened has masks to shorten")
    sp.__class__ = ShortSp
