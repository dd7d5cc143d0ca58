"""Numbers as 32-bit limbs, one limb of all the numbers after the other: array operations run along numbers."""

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.blocks import Block, require_rows

__all__ = ["BITS", "Limbs", "add_constant", "subtract_mod", "to_block", "to_limbs"]

BITS = 32
Limbs = npt.NDArray[np.uint64]  # (limbs, numbers), lowest limb first
_MASK = np.uint64((1 << BITS) - 1)
_BITS = np.uint64(BITS)


def to_limbs(block: Block, size: int) -> Limbs:
    """Rows of bytes as numbers of `size` limbs."""
    padded = np.zeros((len(block), 4 * size), dtype=np.uint8)
    padded[:, : block.shape[1]] = block[:, ::-1]
    return np.ascontiguousarray(padded.view("<u4").T.astype(np.uint64))


def to_block(limbs: Limbs, width: int) -> Block:
    """Numbers as rows of `width` bytes, which must be enough."""
    rows = np.ascontiguousarray(limbs.T.astype("<u4")).view(np.uint8)
    return np.ascontiguousarray(rows[:, :width][:, ::-1])


def add_constant(limbs: Limbs, constant: int) -> tuple[Limbs, npt.NDArray[np.bool_]]:
    """Each number plus a signed constant, modulo the numbers' width; and which sums were negative."""
    size, count = limbs.shape
    addend = constant % (1 << (BITS * size))
    out = np.empty_like(limbs)
    carry = np.zeros(count, dtype=np.uint64)
    for place in range(size):
        total = limbs[place] + np.uint64((addend >> (BITS * place)) & int(_MASK)) + carry
        out[place] = total & _MASK
        carry = total >> _BITS
    return out, np.asarray((carry == 0) & (constant < 0))


def subtract_mod(left: Block, right: Block, n: int) -> Block:
    """left - right modulo n, row by row; all rows below n."""
    require_rows((left, right))
    size = -(-left.shape[1] // 4)
    a, b = to_limbs(left, size), to_limbs(right, size)
    out = np.empty_like(a)
    carry = np.ones(a.shape[1], dtype=np.uint64)  # a + ~b + 1
    for place in range(size):
        total = a[place] + (b[place] ^ _MASK) + carry
        out[place] = total & _MASK
        carry = total >> _BITS
    borrowed = carry == 0
    out[:, borrowed], _ = add_constant(out[:, borrowed], int(n))
    return to_block(out, left.shape[1])
