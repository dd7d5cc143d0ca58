"""Packing: K signed slots of W bits in one plaintext, and integers of a hundred bits or so, by array operations.

A packed plaintext is T = sum of v_j * 2^(W*j), with every |v_j| < 2^(W-1). Sums of packed plaintexts are packed sums, slot
by slot, as long as every sum stays in its bound: `crowdfl.crypto.paillier.budget` sees to that. To read T, the offset
sum of 2^(W-1) * 2^(W*j) is added first: every slot is then non-negative, and no borrow crosses from one slot to the next.
"""

from collections.abc import Iterable, Sequence
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
    as_mpz,
    from_ints,
    from_limbs,
    to_limbs,
    width_of,
)
from crowdfl.errors import LengthMismatch, SlotOverflow, WidthError

_MASK = np.uint64((1 << LIMB_BITS) - 1)
_HALF = 16  # bits of a limb of `WideInts`
_LOW = (1 << _HALF) - 1
_EXACT = 1 << 20  # products of two limbs that a float64 sums without rounding: 2^20 * 2^32 < 2^53
_Limbs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class WideInts:
    """Many signed integers: masks, lanes and their inner products.

    Rows of 16-bit limbs, lowest first; every limb but the last in [0, 2^16), the last in [-2^15, 2^15).
    """

    limbs: _Limbs

    def __len__(self) -> int:
        return len(self.limbs)

    def __repr__(self) -> str:
        return f"WideInts({len(self)} numbers)"  # they may be masks

    @classmethod
    def from_block(cls, block: Block) -> "WideInts":
        rows, width = block.shape
        size = width // 2 + 1  # a limb more than it takes: the sign's
        padded = np.zeros((rows, 2 * size), dtype=np.uint8)
        padded[:, :width] = block[:, ::-1]
        return cls(padded.view("<u2").astype(np.int64))

    @classmethod
    def from_fields(cls, fields: npt.NDArray[np.uint64], bits: int) -> "WideInts":
        """Two's complement fields of `bits` bits, as rows of 32-bit limbs."""
        limbs = np.ascontiguousarray(fields.astype("<u4")).view("<u2").astype(np.int64)
        top, place = divmod(bits - 1, _HALF)
        limbs = limbs[:, : top + 1]
        limbs[:, top] -= (limbs[:, top] >> place) << (place + 1)
        return cls(limbs)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "WideInts":
        numbers = [int(as_mpz(x)) for x in numbers]
        size = max((x.bit_length() for x in numbers), default=0) // _HALF + 1
        data = b"".join(x.to_bytes(2 * size, "little", signed=True) for x in numbers)
        limbs = np.frombuffer(data, dtype="<u2").reshape(-1, size).astype(np.int64)
        limbs[:, -1] -= (limbs[:, -1] >> (_HALF - 1)) << _HALF
        return cls(limbs)

    def to_ints(self) -> list[int]:
        width = 2 * self.limbs.shape[1]
        data = (self.limbs & _LOW).astype("<u2").tobytes()
        return [int.from_bytes(data[i : i + width], "little", signed=True) for i in range(0, len(data), width)]

    def to_fields(self, size: int) -> npt.NDArray[np.uint64]:
        """Two's complement, as rows of so many 32-bit limbs, which must be enough."""
        limbs = self._extended(2 * size) & _LOW
        return np.ascontiguousarray(limbs.astype("<u2")).view("<u4").astype(np.uint64)

    def to_block(self, width: int) -> Block:
        """Non-negative numbers as rows of so many bytes, which must be enough."""
        low = np.ascontiguousarray(self.limbs.astype("<u2")).view(np.uint8)
        used = min(width, low.shape[1])
        block = np.zeros((len(self), width), dtype=np.uint8)
        block[:, width - used :] = low[:, :used][:, ::-1]
        return block

    def residues(self, n: int, width: int) -> Block:
        """The numbers modulo n, which is more than twice as large as any of them."""
        minus = np.asarray(self.limbs[:, -1] < 0)
        if not minus.any():
            return self.to_block(width)
        block = WideInts(np.where(minus[:, None], 0, self.limbs)).to_block(width)
        block[minus] = from_ints((x % n for x in WideInts(self.limbs[minus]).to_ints()), width)
        return block

    def plus(self, constant: int) -> "WideInts":
        size = max(self.limbs.shape[1], abs(constant).bit_length() // _HALF + 1) + 1
        addend = np.array([(constant >> (_HALF * j)) & _LOW for j in range(size)], dtype=np.int64)
        addend[-1] = constant >> (_HALF * (size - 1))
        return WideInts(_carried(self._extended(size) + addend))

    def clamped(self, bound: int) -> tuple["WideInts", bool]:
        """Those outside [0, bound) replaced by 0, and whether there were none."""
        outside = np.asarray(self.limbs[:, -1] < 0) | self.beyond(bound)
        return WideInts(np.where(outside[:, None], 0, self.limbs)), not outside.any()

    def beyond(self, bound: int) -> npt.NDArray[np.bool_]:
        """Which are not strictly between -bound and bound."""
        too_low, too_high = self.plus(bound - 1), self.plus(-bound)
        return np.asarray((too_low.limbs[:, -1] < 0) | (too_high.limbs[:, -1] >= 0))

    def columns(self, rows: int) -> "WideInts":
        """The numbers as `rows` rows of a table, one after the other: the sum of each column."""
        table = self._extended(self.limbs.shape[1] + 1 + rows.bit_length() // _HALF)
        return WideInts(_carried(table.reshape(rows, -1, table.shape[1]).sum(axis=0)))

    def inner_products(self, other: "WideInts", rows: int) -> list[int]:
        """The numbers as `rows` rows of a table: each times the same row of `other`, or times its only row."""
        left = self.limbs.reshape(rows, -1, self.limbs.shape[1]).astype(np.float64)
        right = other.limbs.reshape(-1, left.shape[1], other.limbs.shape[1]).astype(np.float64)
        totals = [0] * rows
        for start in range(0, left.shape[1], _EXACT):
            part = slice(start, start + _EXACT)
            products = np.matmul(left[:, part].transpose(0, 2, 1), right[:, part])
            totals = [a + b for a, b in zip(totals, _weighed(products.astype(np.int64)), strict=True)]
        return totals

    def _extended(self, size: int) -> _Limbs:
        """As `size` limbs; the sign runs on."""
        have = self.limbs.shape[1]
        if size <= have:  # what is cut off holds nothing, by the caller's word
            return self.limbs[:, :size]
        out = np.empty((len(self), size), dtype=np.int64)
        out[:, :have] = self.limbs
        for j in range(have, size):
            out[:, j] = out[:, j - 1] >> _HALF
            out[:, j - 1] &= _LOW
        return out


def _carried(limbs: _Limbs) -> _Limbs:
    for j in range(1, limbs.shape[1]):
        limbs[:, j] += limbs[:, j - 1] >> _HALF
        limbs[:, j - 1] &= _LOW
    return limbs


def _weighed(tables: _Limbs) -> list[int]:
    """Of each table the sum of entries [a, b] * 2^(16 * (a + b)); the few with the same a + b fit an int64 together."""
    count, rows, columns = tables.shape
    diagonals = np.zeros((count, rows + columns - 1), dtype=np.int64)
    for a in range(rows):
        diagonals[:, a : a + columns] += tables[:, a]
    return [sum(entry << (_HALF * place) for place, entry in enumerate(line)) for line in diagonals.tolist()]


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
            count, first = int(outside.sum()), int(np.argmax(outside))
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
