"""Signed integers of a hundred bits or so, by array operations."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.blocks import (
    Block,
    as_mpz,
    from_ints,
)

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
        too_low = self.plus(bound - 1)
        too_high = self.plus(-bound)
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
