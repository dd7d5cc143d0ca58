"""Blocks: many numbers of one width in one contiguous buffer.

A block is a NumPy array of bytes of shape (rows, width); each row is one unsigned number, big-endian. It is the form in
which numbers lie in memory, go to a compute backend and travel, so that no part of a batch is a Python object per number.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from crowdfl.errors import LengthMismatch

__all__ = ["Block", "at_least", "empty", "from_bytes", "from_ints", "require_rows", "to_ints", "width_of"]

Block = npt.NDArray[np.uint8]


def width_of(modulus: int) -> int:
    """Bytes of a number below `modulus`."""
    return (int(modulus).bit_length() + 7) // 8


def empty(rows: int, width: int) -> Block:
    """A block whose contents do not matter yet."""
    return np.empty((rows, width), dtype=np.uint8)


def from_bytes(data: bytes | bytearray | memoryview, width: int) -> Block:
    """The rows of `data` without a copy."""
    if len(data) % width:
        raise LengthMismatch(f"{len(data)} bytes are no whole number of rows of {width} bytes")
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)


def from_ints(numbers: Iterable[int], width: int) -> Block:
    """A block of non-negative numbers that fit `width` bytes."""
    return from_bytes(b"".join([mpz(x).to_bytes(width, "big") for x in numbers]), width)


def to_ints(block: Block) -> list[mpz]:
    """The numbers of a block."""
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


def require_rows(blocks: Sequence[Block]) -> int:
    """The common number of rows of several blocks."""
    rows = len(blocks[0])
    if any(len(block) != rows for block in blocks):
        raise LengthMismatch(f"vectors of {', '.join(str(len(block)) for block in blocks)} entries do not go together")
    return rows
