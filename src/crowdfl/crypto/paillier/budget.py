"""The width budget: how wide a slot must be so that no honest campaign can overflow it.

Computed from a task's bounds before the task exists; bounds that cannot be packed are refused with the numbers. Every width
is derived, none is a constant: see docs/width-budget.md for the proofs.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.blocks import as_int64, as_mpz
from crowdfl.crypto.encoding import FixedPoint
from crowdfl.crypto.paillier.packing import Packing
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.errors import SlotOverflow, WidthBudgetExceeded

_WORD = 63  # uploads before they are packed and sums once unpacked are int64


def bits(number: int) -> int:
    return int(number).bit_length()


@dataclass(frozen=True)
class WidthBudget:
    """A task's bounds and what follows from them.

    `lanes` is 0 without rewards, None for exact distances, else the number of sketched lanes (rounded up to whole
    plaintexts). `sigma` is the statistical security of the masks, over all openings of the task together.
    """

    key_bits: int
    parameters: int
    max_participants: int
    max_samples: int
    clip: float = 16.0
    decimals: int = 6
    rounds: int = 1
    sigma: int = 40
    lanes: int | None = 0
    total: Literal["shown", "hidden"] = "shown"

    def __post_init__(self) -> None:
        if self.parameters < 1:  # the settings see to the rest
            raise WidthBudgetExceeded("the model has no parameter")
        if bits(self.sum_bound) > _WORD:
            raise WidthBudgetExceeded(
                f"the sum of all uploads reaches {self.sum_bound}, {bits(self.sum_bound)} bits of {_WORD}: "
                "lower max_participants, max_samples, clip or decimals"
            )
        if self.slots < 1:
            raise WidthBudgetExceeded(
                f"a slot needs {self._slot_bits_with(1)} bits and |N| = {self.key_bits} holds {self.key_bits - 1}:\n"
                f"{self.explain()}\nlower max_participants, max_samples, clip or decimals, or take a longer key"
            )

    @cached_property
    def encoding(self) -> FixedPoint:
        return FixedPoint(self.decimals, self.clip)

    @cached_property
    def upload_bound(self) -> int:
        """Largest |delta_i * [w]| of an honest upload."""
        return self.max_samples * self.encoding.bound

    @cached_property
    def sum_bound(self) -> int:
        """Largest absolute slot of the sum of all uploads."""
        return self.max_participants * self.upload_bound

    @cached_property
    def slots(self) -> int:
        """K: the most slots a plaintext holds."""
        most = (self.key_bits - 1) // self._slot_bits_for_sums
        # Sketched lanes narrow as K falls (fewer ciphertexts a bucket) or widen; take the largest K that is consistent.
        return next((k for k in range(most, 0, -1) if k * self._slot_bits_with(k) <= self.key_bits - 1), 0)

    @cached_property
    def slot_bits(self) -> int:
        return self._slot_bits_with(self.slots)

    @cached_property
    def ciphertexts(self) -> int:
        """Ciphertexts of an upload, the sample count's not included."""
        return self._ciphertexts_with(self.slots)

    @cached_property
    def upload_bytes(self) -> int:
        """Bytes of an upload's ciphertexts, the sample count's included."""
        return (self.ciphertexts + 1) * -(-2 * self.key_bits // 8)

    @cached_property
    def buckets(self) -> int:
        """Sums that the sketch opens for each participant (with exact distances, all the ciphertexts)."""
        return self._buckets_with(self.slots)

    @cached_property
    def lane_bound(self) -> int:
        """Largest |lane|: a slot of an upload, or of a signed sum of as many uploads' ciphertexts as a bucket has."""
        return self._lane_bound_with(self.slots)

    @cached_property
    def lane_mask_bits(self) -> int:
        """Bits of the mask on a lane: lane width + sigma + bits of all the lanes the task opens."""
        return self._lane_mask_bits_with(self.slots)

    @cached_property
    def dither_bits(self) -> int:
        """k of a hidden total: the average is opened at scale 10^L * 2^k under masks of k bits."""
        return bits(self.sum_bound) + 1 + self.sigma + bits(self.parameters * self.rounds)

    def packing(self, public: PublicKey) -> Packing:
        if public.bits != self.key_bits:
            raise WidthBudgetExceeded(f"the budget is for |N| = {self.key_bits}, the key has {public.bits}")
        return Packing(public.n, self.slots, self.slot_bits)

    def weigh(self, values: npt.NDArray[np.int64], samples: int) -> npt.NDArray[np.int64]:
        """delta_i * [w_i], refused when the samples or a value exceed the task's bounds."""
        samples = int(as_mpz(samples))
        if not 0 <= samples <= self.max_samples:
            raise SlotOverflow(f"{samples} samples; the task allows 0..{self.max_samples}")
        if len(values) != self.parameters:
            raise SlotOverflow(f"{len(values)} parameters; the task has {self.parameters}")
        values = as_int64(values)  # a narrower type would wrap in the product
        beyond = np.flatnonzero((values > self.encoding.bound) | (values < -self.encoding.bound))
        if beyond.size:
            raise SlotOverflow(f"{beyond.size} values exceed {self.encoding.bound}, the first at position {beyond[0]}")
        return values * samples

    def check_sum(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """A decoded sum, refused when it exceeds what honest uploads can reach (the guard bit makes that visible)."""
        beyond = np.flatnonzero((values > self.sum_bound) | (values < -self.sum_bound))
        if beyond.size:
            raise SlotOverflow(
                f"{beyond.size} sums exceed {self.sum_bound}, the first at position {beyond[0]}: an upload was out of bounds"
            )
        return values

    def explain(self) -> str:
        k = max(1, self.slots)
        lines = [
            f"one upload     {self.max_samples} samples * {self.clip} * 10^{self.decimals} = {self.upload_bound}",
            f"sum of uploads {self.max_participants} participants: {self.sum_bound}, "
            f"{bits(self.sum_bound)} bits, slot {self._slot_bits_for_sums}",
        ]
        if self.lanes != 0:
            lines.append(
                f"masked lanes   {bits(self._lane_bound_with(k)) + 1} bits + sigma {self.sigma} + "
                f"{bits(self._openings_with(k))} for {self._openings_with(k)} openings, slot {self._slot_bits_for_lanes(k)}"
            )
        if self.total == "hidden":
            lines.append(
                f"hidden total   k = {self.dither_bits} bits of dither, slot {self._slot_bits_for_hidden_total}"
            )
        lines.append(f"packing        {self.slots} slots of {self._slot_bits_with(k)} bits in |N| = {self.key_bits}")
        return "\n".join(lines)

    @cached_property
    def _slot_bits_for_sums(self) -> int:
        return bits(self.sum_bound) + 2  # a sign, and a guard so that one sum too many is seen and not wrapped

    @cached_property
    def _slot_bits_for_hidden_total(self) -> int:
        return bits(self.encoding.bound) + self.dither_bits + 2

    def _slot_bits_for_lanes(self, slots: int) -> int:
        return self._lane_mask_bits_with(slots) + 1  # lane + mask stays below 2^mask_bits

    def _slot_bits_with(self, slots: int) -> int:
        needs = [self._slot_bits_for_sums]
        if self.lanes != 0:
            needs.append(self._slot_bits_for_lanes(slots))
        if self.total == "hidden":
            needs.append(self._slot_bits_for_hidden_total)
        return max(needs)

    def _ciphertexts_with(self, slots: int) -> int:
        return -(-self.parameters // slots)

    def _buckets_with(self, slots: int) -> int:
        everything = self._ciphertexts_with(slots)
        return everything if self.lanes is None else min(everything, -(-self.lanes // slots))

    def _lane_bound_with(self, slots: int) -> int:
        return -(-self._ciphertexts_with(slots) // max(1, self._buckets_with(slots))) * self.upload_bound

    def _openings_with(self, slots: int) -> int:
        return self.max_participants * self._buckets_with(slots) * slots * self.rounds

    def _lane_mask_bits_with(self, slots: int) -> int:
        return bits(self._lane_bound_with(slots)) + 1 + self.sigma + bits(self._openings_with(slots))
