"""Blocks: many numbers of one width in one contiguous buffer.

A block is a NumPy array of bytes of shape (rows, width); each row is one unsigned number, big-endian. It is the form in
which numbers lie in memory, go to a compute backend and travel, so that no part of a batch is a Python object per number.
"""

from collections.abc import Iterable, Sequence
from operator import index

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from crowdfl.errors import LengthMismatch, NotAnInteger

Block = npt.NDArray[np.uint8]
Limbs = npt.NDArray[np.uint64]  # (limbs, numbers), lowest limb first: array operations run along numbers
LIMB_BITS = 32
_PIECE = 1 << 14  # rows of a product at a time: what the processor's cache holds
_MASK = np.uint64((1 << LIMB_BITS) - 1)
_SHIFT = np.uint64(LIMB_BITS)


def width_of(modulus: int) -> int:
    return (int(modulus).bit_length() + 7) // 8


def empty(rows: int, width: int) -> Block:
    return np.empty((rows, width), dtype=np.uint8)


def from_bytes(data: bytes | bytearray | memoryview, width: int) -> Block:
    """The rows of `data` without a copy."""
    if len(data) % width:
        raise LengthMismatch(f"{len(data)} bytes are not a whole number of rows of {width} bytes")
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)


def as_mpz(number: int) -> mpz:
    """An integer of any type as gmpy2's own; whatever would have to be rounded, parsed or guessed at is refused."""
    if type(number) is mpz:
        return number
    try:
        if not isinstance(number, bool):
            return mpz(index(number))
    except TypeError:
        pass
    raise NotAnInteger(f"expected an integer, not a {type(number).__name__}: encode other values as integers first")


def as_int64(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """An array of integers; one of floats or truth values is refused, even if each is whole."""
    found = np.asarray(values)
    if found.size and found.dtype.kind not in "iu":
        found = np.asarray([int(as_mpz(value)) for value in found.reshape(-1)]).reshape(found.shape)
    return found.astype(np.int64, copy=False)


def from_ints(numbers: Iterable[int], width: int) -> Block:
    """A block of non-negative numbers that fit `width` bytes."""
    return from_bytes(b"".join([as_mpz(x).to_bytes(width, "big") for x in numbers]), width)


def signed_residues(values: npt.NDArray[np.int64], n: int) -> Block:
    """Signed integers modulo n, which has more than 65 bits."""
    n, width = int(n), width_of(n)
    out = np.zeros((len(values), width), dtype=np.uint8)
    below = values < 0
    distance = np.where(below, -values.astype(np.uint64), values.astype(np.uint64))
    low = np.where(below, np.uint64(n & (1 << 64) - 1) - distance, distance)
    borrows = below & (distance > n & (1 << 64) - 1)
    for rows, high in ((below & ~borrows, n >> 64), (borrows, (n >> 64) - 1)):
        out[rows, :-8] = np.frombuffer(high.to_bytes(width - 8, "big"), dtype=np.uint8)
    out[:, -8:] = low.astype(">u8").view(np.uint8).reshape(-1, 8)
    return out


def to_ints(block: Block) -> list[mpz]:
    width = block.shape[1]
    data = block.tobytes()
    read = mpz.from_bytes
    return [read(data[i : i + width], "big") for i in range(0, len(data), width)]


def at_least(block: Block, bound: int) -> npt.NDArray[np.bool_]:
    """Which rows are >= bound: the first byte that differs decides."""
    width = block.shape[1]
    if int(bound) >> (8 * width):
        return np.zeros(len(block), dtype=np.bool_)
    limit = np.frombuffer(int(bound).to_bytes(width, "big"), dtype=np.uint8)
    differs = block != limit
    first = np.argmax(differs, axis=1)
    rows = np.arange(len(block))
    return np.asarray(np.where(differs[rows, first], block[rows, first] > limit[first], True))


def widened(block: Block, width: int) -> Block:
    """The same numbers as rows of more bytes."""
    wide = np.zeros((len(block), width), dtype=np.uint8)
    wide[:, width - block.shape[1] :] = block
    return wide


def products(left: Block, right: Block, n: int) -> Block:
    """Row times row modulo n. Only rows whose product may reach n become integers one by one."""
    require_rows((left, right))
    short = (int(n).bit_length() - 1) // 16  # bytes of factors whose product stays below n
    small = ~(
        left[:, : max(0, left.shape[1] - short)].any(axis=1) | right[:, : max(0, right.shape[1] - short)].any(axis=1)
    )
    out = np.zeros((len(left), width_of(n)), dtype=np.uint8)
    out[small] = _short_products(left[small, -short:], right[small, -short:], out.shape[1])
    if not small.all():
        pairs = zip(to_ints(left[~small]), to_ints(right[~small]), strict=True)
        out[~small] = from_ints((a * b % n for a, b in pairs), out.shape[1])
    return out


def _short_products(left: Block, right: Block, width: int) -> Block:
    """Exact, of numbers whose product fits `width` bytes: school's way, on limbs of 16 bits."""
    out = np.zeros((len(left), width), dtype=np.uint8)
    for start in range(0, len(left), _PIECE):
        a, b = (_half_limbs(side[start : start + _PIECE]) for side in (left, right))
        sums = np.zeros((len(a) + len(b), a.shape[1]), dtype=np.uint64)
        for place, limb in enumerate(a):
            sums[place : place + len(b)] += limb * b
        for place in range(len(sums) - 1):
            sums[place + 1] += sums[place] >> np.uint64(16)
        low = np.ascontiguousarray(sums.T.astype("<u2")).view(np.uint8)
        used = min(width, low.shape[1])
        out[start : start + _PIECE, width - used :] = low[:, :used][:, ::-1]
    return out


def _half_limbs(block: Block) -> Limbs:
    """Limbs of 16 bits, lowest first; without those that no number fills."""
    filled = np.flatnonzero(block.any(axis=0))
    used = block.shape[1] - filled[0] if filled.size else 1
    padded = np.zeros((len(block), used + used % 2), dtype=np.uint8)
    padded[:, :used] = block[:, block.shape[1] - used :][:, ::-1]
    return np.ascontiguousarray(padded.view("<u2").T.astype(np.uint64))


def require_rows(blocks: Sequence[Block]) -> int:
    rows = len(blocks[0])
    if any(len(block) != rows for block in blocks):
        raise LengthMismatch(f"vectors of {', '.join(str(len(block)) for block in blocks)} entries do not go together")
    return rows


def to_limbs(block: Block, size: int) -> Limbs:
    padded = np.zeros((len(block), 4 * size), dtype=np.uint8)
    padded[:, : block.shape[1]] = block[:, ::-1]
    return np.ascontiguousarray(padded.view("<u4").T.astype(np.uint64))


def from_limbs(limbs: Limbs, width: int) -> Block:
    """Numbers as rows of `width` bytes, which must be enough."""
    rows = np.ascontiguousarray(limbs.T.astype("<u4")).view(np.uint8)
    return np.ascontiguousarray(rows[:, :width][:, ::-1])


def add_constant(limbs: Limbs, constant: int) -> tuple[Limbs, npt.NDArray[np.bool_]]:
    """Each number plus a signed constant, modulo the numbers' width; and which sums were negative."""
    size = len(limbs)
    addend = constant % (1 << (LIMB_BITS * size))
    digits = [np.uint64((addend >> (LIMB_BITS * place)) & int(_MASK)) for place in range(size)]
    out, carried = _sum(limbs, digits, 0)
    return out, np.asarray(~carried & (constant < 0))


def subtract_mod(left: Block, right: Block, n: int) -> Block:
    """left - right modulo n, row by row; all rows below n."""
    require_rows((left, right))
    size = -(-left.shape[1] // 4)
    a, b = to_limbs(left, size), to_limbs(right, size)
    out, carried = _sum(a, b ^ _MASK, 1)  # a + ~b + 1
    out[:, ~carried], _ = add_constant(out[:, ~carried], int(n))
    return from_limbs(out, left.shape[1])


def _sum(a: Limbs, b: Limbs | list[np.uint64], carry_in: int) -> tuple[Limbs, npt.NDArray[np.bool_]]:
    """a + b + carry_in, limb by limb; and which sums carried over the last one."""
    out = np.empty_like(a)
    carry = np.full(a.shape[1], carry_in, dtype=np.uint64)
    for place, addend in enumerate(b):
        total = a[place] + addend + carry
        out[place] = total & _MASK
        carry = total >> _SHIFT
    return out, np.asarray(carry != 0)
