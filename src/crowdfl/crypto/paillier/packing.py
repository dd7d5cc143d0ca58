"""Packing: K signed slots of W bits in one plaintext.

A packed plaintext is T = sum of v_j * 2^(W*j), with every |v_j| < 2^(W-1). Sums of packed plaintexts are packed sums, slot
by slot, as long as every sum stays in its bound: `crowdfl.crypto.paillier.budget` sees to that. To read T, the offset
sum of 2^(W-1) * 2^(W*j) is added first: every slot is then non-negative, and no borrow crosses from one slot to the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from crowdfl.crypto.blocks import (
    LIMB_BITS,
    Block,
    Limbs,
    add_constant,
    as_int64,
    from_limbs,
    to_limbs,
    width_of,
)
from crowdfl.crypto.paillier.wide_ints import WideInts
from crowdfl.errors import LengthMismatch, SlotOverflow, WidthError

_MASK = np.uint64((1 << LIMB_BITS) - 1)


@dataclass(frozen=True)
class Packing:
    """How the values of a vector lie in plaintexts modulo N."""

    n: mpz
    slots: int
    slot_bits: int

    def __post_init__(self) -> None:
        if self.slots < 1 or self.slot_bits < 2:
            raise WidthError(f"{self.slots} slots of {self.slot_bits} bits pack nothing")
        if self.slots * self.slot_bits > self.n.bit_length() - 1:
            raise WidthError(
                f"{self.slots} slots of {self.slot_bits} bits need {self.slots * self.slot_bits} bits, "
                f"|N| = {self.n.bit_length()} leaves {self.n.bit_length() - 1}"
            )

    def rows_for(self, count: int) -> int:
        return -(-count // self.slots)

    @property
    def bound(self) -> int:
        """Every slot's value lies strictly between -bound and bound."""
        return int(2 ** (self.slot_bits - 1))

    def pack(self, values: npt.NDArray[np.int64]) -> Block:
        """Values as plaintext residues modulo N; the last plaintext is padded with zeros."""
        values = as_int64(values)
        if self.slot_bits <= 64:  # in a wider slot every int64 fits
            self._refuse_outside((values > self.bound - 1) | (values < 1 - self.bound))
        fields = np.empty((self._field_limbs, len(values)), dtype=np.uint64)
        for limb in range(self._field_limbs):
            # An arithmetic shift by 63 leaves the sign in every bit: two's complement, as wide as the slot.
            fields[limb] = (values >> min(LIMB_BITS * limb, 63)).astype(np.uint64) & _MASK
        return self._join(fields)

    def pack_wide(self, values: Sequence[int] | WideInts) -> Block:
        """As `pack`, for values that may exceed 64 bits."""
        wide = values if isinstance(values, WideInts) else WideInts.of(values)
        self._refuse_outside(wide.beyond(self.bound))
        return self._join(wide.to_fields(self._field_limbs).T)

    def unpack(self, residues: Block, count: int) -> npt.NDArray[np.int64]:
        """The first `count` values; `SlotOverflow` if one of them exceeds 64 bits."""
        fields = self._refusing(*self._split(residues, count))
        low = fields[0] | (fields[1] << np.uint64(LIMB_BITS)) if self._field_limbs > 1 else fields[0]
        if self.slot_bits < 64:
            sign = np.uint64(1 << (self.slot_bits - 1))
            return np.asarray((low ^ sign) - sign).astype(np.int64)
        values: npt.NDArray[np.int64] = low.astype(np.int64)
        for limb in range(2, self._field_limbs):
            top_bits = min(LIMB_BITS, self.slot_bits - LIMB_BITS * limb)
            extension = (values >> 63).astype(np.uint64) & np.uint64((1 << top_bits) - 1)
            self._refuse_outside(fields[limb] != extension)
        return values

    def unpack_wide(self, residues: Block, count: int) -> list[int]:
        """The first `count` values, of any size."""
        return self.unpack_many(residues, count).to_ints()

    def unpack_many(self, residues: Block, count: int) -> WideInts:
        return WideInts.from_fields(self._refusing(*self._split(residues, count)).T, self.slot_bits)

    def unpack_clamped(self, residues: Block, bound: int) -> tuple[WideInts, bool]:
        """All values, those outside [0, bound) as 0, and whether there were none. Takes the same steps whatever they are."""
        fields, wrong = self._split(residues, len(residues) * self.slots)
        values, fits = WideInts.from_fields(fields.T, self.slot_bits).clamped(bound)
        return values, not wrong.any() and fits

    @property
    def _field_limbs(self) -> int:
        return -(-self.slot_bits // LIMB_BITS)

    @property
    def _row_limbs(self) -> int:
        return -(-self.n.bit_length() // LIMB_BITS) + 1

    @cached_property
    def _offset(self) -> int:
        return sum(self.bound << (self.slot_bits * slot) for slot in range(self.slots))

    def _join(self, fields: Limbs) -> Block:
        """Two's complement fields, one per value, into residues modulo N."""
        count = fields.shape[1]
        rows = self.rows_for(count)
        padded = np.zeros((self._field_limbs, rows * self.slots), dtype=np.uint64)
        padded[:, :count] = fields
        self._trim(padded)
        padded[-1] ^= self._top_bit  # two's complement plus 2^(W-1) flips the top bit
        grid = np.ascontiguousarray(padded.reshape(self._field_limbs, rows, self.slots).swapaxes(1, 2))
        limbs = np.zeros((self._row_limbs, rows), dtype=np.uint64)
        for slot in range(self.slots):
            for limb in range(self._field_limbs):
                place, shift = divmod(slot * self.slot_bits + limb * LIMB_BITS, LIMB_BITS)
                piece = grid[limb, slot] << np.uint64(shift)
                limbs[place] |= piece & _MASK
                if place + 1 < self._row_limbs:
                    limbs[place + 1] |= piece >> np.uint64(LIMB_BITS)
        signed, negative = add_constant(limbs, -self._offset)
        signed[:, negative], _ = add_constant(limbs[:, negative], int(self.n) - self._offset)
        return from_limbs(signed, width_of(self.n))

    def _split(self, residues: Block, count: int) -> tuple[Limbs, npt.NDArray[np.bool_]]:
        """Residues modulo N into two's complement fields, one per value; and which rows are not made of such fields."""
        if not 0 <= count <= len(residues) * self.slots:
            raise LengthMismatch(f"{len(residues)} plaintexts hold {len(residues) * self.slots} values, not {count}")
        given = to_limbs(residues, self._row_limbs)
        _, below_half = add_constant(given, -((int(self.n) + 1) // 2))
        limbs, _ = add_constant(given, self._offset)
        negative, borrowed = add_constant(given[:, ~below_half], self._offset - int(self.n))
        limbs[:, ~below_half] = negative
        wrong = self._has_bits_beyond(limbs)
        wrong[~below_half] |= borrowed
        rows = limbs.shape[1]
        grid = np.empty((self._field_limbs, self.slots, rows), dtype=np.uint64)
        for slot in range(self.slots):
            for limb in range(self._field_limbs):
                place, shift = divmod(slot * self.slot_bits + limb * LIMB_BITS, LIMB_BITS)
                piece = limbs[place] >> np.uint64(shift)
                if place + 1 < self._row_limbs:
                    piece = piece | (limbs[place + 1] << np.uint64(LIMB_BITS - shift))
                grid[limb, slot] = piece & _MASK
        fields = grid.swapaxes(1, 2).reshape(self._field_limbs, rows * self.slots)[:, :count]
        self._trim(fields)
        fields[-1] ^= self._top_bit
        return fields, wrong

    @property
    def _top_bit(self) -> np.uint64:
        return np.uint64(1 << ((self.slot_bits - 1) % LIMB_BITS))

    def _trim(self, fields: Limbs) -> None:
        fields[-1] &= np.uint64((1 << ((self.slot_bits - 1) % LIMB_BITS + 1)) - 1)

    def _has_bits_beyond(self, limbs: Limbs) -> npt.NDArray[np.bool_]:
        place, shift = divmod(self.slots * self.slot_bits, LIMB_BITS)
        top = (limbs[place] >> np.uint64(shift)) != 0
        return np.asarray(top | limbs[place + 1 :].any(axis=0))

    def _refuse_outside(self, outside: npt.NDArray[np.bool_]) -> None:
        if outside.any():
            count = int(outside.sum())
            first = int(np.argmax(outside))
            raise SlotOverflow(
                f"{count} values do not fit a slot of {self.slot_bits} bits, the first at position {first}"
            )

    def _refusing(self, fields: Limbs, outside: npt.NDArray[np.bool_]) -> Limbs:
        if outside.any():
            raise SlotOverflow(
                f"plaintext {int(np.argmax(outside))} is not {self.slots} slots of {self.slot_bits} bits: "
                "a slot overflowed, or it was packed in another way"
            )
        return fields
