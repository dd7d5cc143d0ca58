"""Exact arithmetic modulo 2^bits on many numbers at once: rows of little-endian bytes.

Dot products are matrix products of 16-bit limbs in float64. They are exact: a sum of up to 2^21 products below 2^32 stays below
2^53, in whatever order it is added.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.shares.ring import Words
from crowdfl.errors import LengthMismatch

Bytes: TypeAlias = npt.NDArray[np.uint8]
"""Numbers [..., bits / 8]."""
Numbers: TypeAlias = "Words | Bytes"
"""Either uint64[..., lanes] or uint8[..., lanes, bytes]: the dtype says which."""
_Limbs: TypeAlias = npt.NDArray[np.float64]
_Step: TypeAlias = Callable[[Words, Words, Words], tuple[Words, Words]]

_LIMB_BITS = 16
_MAX_LANES = 1 << (53 - 2 * _LIMB_BITS)
_WORD = 8
_PIECE = 1 << 14


def from_ints(numbers: Iterable[int], bits: int) -> Bytes:
    """Numbers, reduced modulo 2^bits, as rows."""
    data = b"".join((number & ((1 << bits) - 1)).to_bytes(bits // 8, "little") for number in numbers)
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, bits // 8)


def to_ints(rows: Bytes) -> list[int]:
    """The numbers of rows [count, bytes]."""
    return [int.from_bytes(row.tobytes(), "little") for row in rows]


def from_words(words: Words, bits: int) -> Bytes:
    """Numbers below 2^64, and below 2^bits, as rows of bits / 8 bytes."""
    own = np.ascontiguousarray(words, dtype="<u8")[..., np.newaxis].view(np.uint8)
    rows = np.zeros((*words.shape, bits // 8), dtype=np.uint8)
    rows[..., :_WORD] = own[..., : bits // 8]
    return rows


def add_rows(a: Bytes, b: Bytes) -> Bytes:
    """a + b, number by number, modulo 2^(8 * bytes); both of the same shape."""
    return _by_words(a, b, _added)


def subtract_rows(a: Bytes, b: Bytes) -> Bytes:
    return _by_words(a, b, _subtracted)


def sum_rows(rows: Bytes) -> Bytes:
    """The sum over the first axis, modulo 2^(8 * bytes): [n, ..., bytes] gives [..., bytes]."""
    columns: npt.NDArray[np.int64] = np.add.reduce(rows, axis=0, dtype=np.int64)
    return _carried(columns, 8).astype(np.uint8)


def dots(left: Numbers, right: Numbers, bits: int) -> list[int]:
    """Dot products modulo 2^bits, one for each of the n vectors of either side; a side with a single vector serves all.

    A side is uint64[lanes] or uint64[n, lanes], or uint8[lanes, bytes] or uint8[n, lanes, bytes]. Two single vectors give
    a list of one.
    """
    pairs = _pairs(left, right, lambda vector: _limbs_of(vector, bits))
    return to_ints(_collected([a.T @ b for a, b in pairs], bits))


def block_dots(left: Numbers, right: Numbers, sizes: Sequence[int], bits: int) -> Bytes:
    """The same block by block, `sizes` being the lanes of the successive blocks: uint8[n, blocks, bits / 8]."""
    pairs = _pairs(left, right, lambda vector: _in_blocks(_limbs_of(vector, bits), sizes))
    return _collected([a.transpose(0, 2, 1) @ b for a, b in pairs], bits)


def _pairs(left: Numbers, right: Numbers, form: Callable[[Numbers], _Limbs]) -> Iterator[tuple[_Limbs, _Limbs]]:
    """The vectors that meet, as limbs, one pair at a time: a thousand of them at once would not fit the cache."""
    lefts, rights = _vectors(left), _vectors(right)
    n = len(lefts) if len(rights) == 1 else len(rights)
    if len(lefts) not in (1, n) or lefts.shape[1] != rights.shape[1]:
        raise LengthMismatch(f"vectors of shapes {left.shape} and {right.shape} do not meet")
    if left is right:
        return ((limbs, limbs) for limbs in map(form, lefts))
    sides = (repeat(form(side[0]), n) if len(side) == 1 else map(form, side) for side in (lefts, rights))
    return zip(*sides, strict=True)


def _vectors(side: Numbers) -> Numbers:
    """[n, lanes] or [n, lanes, bytes], also where n was left out."""
    single = {np.dtype(np.uint64): 1, np.dtype(np.uint8): 2}.get(side.dtype, -1)
    vectors = side[np.newaxis] if side.ndim == single else side
    if vectors.ndim != single + 1:
        raise ValueError(f"no vectors of numbers: {side.dtype} of shape {side.shape}")
    if vectors.shape[1] > _MAX_LANES:
        raise LengthMismatch(f"{vectors.shape[1]} lanes at a time: at most {_MAX_LANES} are exact")
    return vectors


def _limbs_of(vector: Numbers, bits: int) -> _Limbs:
    """A vector as float64[lanes, limbs]; what lies above 2^bits is left out."""
    if vector.ndim == 1:
        rows = np.ascontiguousarray(vector, dtype="<u8").view(np.uint8).reshape(-1, _WORD)
    else:
        rows = vector.astype(np.uint8, copy=False)
    size = min(rows.shape[1], bits // 8)
    even = np.zeros((len(rows), size + size % 2), dtype=np.uint8)
    even[:, :size] = rows[:, :size]
    return even.view("<u2").astype(np.float64)


def _in_blocks(limbs: _Limbs, sizes: Sequence[int]) -> _Limbs:
    """[lanes, limbs] as [blocks, longest block, limbs], with zeros behind shorter blocks."""
    lanes = np.asarray(sizes)
    longest = max(sizes)
    if lanes.sum() != len(limbs):
        raise LengthMismatch(f"blocks of {lanes.sum()} lanes in all where there are {len(limbs)}")
    padded = np.zeros((len(sizes), longest, limbs.shape[1]))
    padded[np.arange(longest) < lanes[:, np.newaxis]] = limbs
    return padded


def _collected(products: Sequence[_Limbs], bits: int) -> Bytes:
    """Products of limbs [n][..., i, j] as numbers: the sum of each times 2^(16 (i + j))."""
    if not products:
        raise LengthMismatch("no vectors: there is nothing to multiply")
    grid = np.array(products).astype(np.int64)
    count = -(-bits // _LIMB_BITS)
    columns = np.zeros((*grid.shape[:-2], count), dtype=np.int64)
    for i in range(grid.shape[-2]):
        part = grid[..., i, : count - i]
        columns[..., i : i + part.shape[-1]] += part
    limbs = _carried(columns, _LIMB_BITS).astype("<u2")
    return limbs.view(np.uint8)[..., : bits // 8]


def _carried(columns: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.int64]:
    """Columns [..., digit] of any size as digits of so many bits; what is carried out of the last one is lost."""
    carry = np.zeros(columns.shape[:-1], dtype=np.int64)
    for digit in range(columns.shape[-1]):
        total = columns[..., digit] + carry
        columns[..., digit] = total & ((1 << bits) - 1)
        carry = total >> bits
    return columns


def _by_words(a: Bytes, b: Bytes, step: _Step) -> Bytes:
    """a and b number by number, a piece at a time: what is worked on stays in the cache."""
    if a.shape != b.shape:
        raise LengthMismatch(f"numbers of shapes {a.shape} and {b.shape} do not meet")
    size = a.shape[-1]
    x = a.reshape(-1, size)
    y = b.reshape(-1, size)
    result = np.empty((a.size // size, size), dtype=np.uint8)
    for start in range(0, len(result), _PIECE):
        piece = slice(start, start + _PIECE)
        result[piece] = _piece_by_words(x[piece], y[piece], step)
    return result.reshape(a.shape)


def _piece_by_words(a: Bytes, b: Bytes, step: _Step) -> Bytes:
    """Both numbers as 64-bit words, from the lowest on, with the carry of the words before."""
    x, y = _word_columns(a), _word_columns(b)
    carry = np.zeros(len(a), dtype=np.uint64)
    for j in range(len(x)):
        x[j], carry = step(x[j], y[j], carry)
    return np.ascontiguousarray(x.T, dtype="<u8").view(np.uint8)[:, : a.shape[1]]


def _added(x: Words, y: Words, carry: Words) -> tuple[Words, Words]:
    first = x + y
    total = first + carry
    return total, ((first < y) | (total < first)).astype(np.uint64)


def _subtracted(x: Words, y: Words, borrow: Words) -> tuple[Words, Words]:
    first = x - y
    total = first - borrow
    return total, ((x < y) | (first < borrow)).astype(np.uint64)


def _word_columns(rows: Bytes) -> Words:
    """[words, numbers]: the j-th 64-bit word of every number; above its last byte lies its neighbour's, which never counts."""
    count, size = rows.shape
    flat = np.concatenate([np.ascontiguousarray(rows).ravel(), np.zeros(_WORD, dtype=np.uint8)])
    columns = np.empty((-(-size // _WORD), count), dtype=np.uint64)
    for j, column in enumerate(columns):
        column[:] = np.ndarray((count,), "<u8", flat, offset=_WORD * j, strides=(size,))
    return columns
