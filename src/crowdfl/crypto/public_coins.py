"""Public coins: what anyone can recompute from a seed."""

import hashlib

import numpy as np
import numpy.typing as npt


def public_stream(seed: bytes, purpose: str, length: int) -> bytes:
    """The first `length` bytes of SHAKE-256(len(purpose) || purpose || seed): coins that anyone can recompute."""
    label = purpose.encode()
    return hashlib.shake_256(len(label).to_bytes(2, "big") + label + seed).digest(length)


def public_permutation(seed: bytes, purpose: str, count: int) -> npt.NDArray[np.int64]:
    """A permutation of range(count): positions ordered by big-endian 64-bit keys from `public_stream`, ties by position."""
    keys = np.frombuffer(public_stream(seed, purpose, 8 * count), dtype=">u8")
    return np.argsort(keys, kind="stable").astype(np.int64)
