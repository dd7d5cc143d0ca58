"""Exact arithmetic modulo 2^bits on many numbers at once: rows of little-endian bytes."""

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def add_rows(a: Bytes, b: Bytes) -> Bytes:
    """a + b, row by row, modulo 2^(8 * columns)."""
    return _carried(a.astype(np.int64) + b)


def subtract_rows(a: Bytes, b: Bytes) -> Bytes:
    return _carried(a.astype(np.int64) - b)


def _carried(columns: npt.NDArray[np.int64]) -> Bytes:
    carry = np.zeros(columns.shape[:-1], dtype=np.int64)
    for column in range(columns.shape[-1]):
        total = columns[..., column] + carry
        columns[..., column] = total & 0xFF
        carry = total >> 8
    return columns.astype(np.uint8)
