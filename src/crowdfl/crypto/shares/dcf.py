"""Distributed comparison: two keys that together tell whether t < alpha, and apart tell nothing of alpha.

After Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar and Rathee (2021), with one bit as output: the XOR of both parties' bits at t
is 1 when t < alpha. A party walks down a binary tree along the bits of t, highest first, with a seed, a control bit and its
output so far. Outside the path of alpha both hold the same seed and control bit; each correction word keeps it so.

The expansion of a seed s is AES_K0(s) ^ s to the left and AES_K1(s) ^ s to the right, AES-128 with two fixed public keys
(Matyas-Meyer-Oseas): a key schedule per seed would cost more than all the rest, and with AES as an ideal cipher both halves
are uniform to whoever does not know s. The two lowest bits of byte 0 of a half are its control bit t and its output bit v; they
are cleared from the seed, which leaves 126 secret bits. One key serves all levels and instances, so q calls of AES find one of
2^23 seeds (8,000 numbers of a thousand levels) with a chance of q / 2^103.

Corrections, for each instance one after the other: for each level 16 bytes, the correction of the seed, with the corrections of
the control bits in the two lowest bits of byte 0 (bit 0 to the left, bit 1 to the right); then the corrections of the output,
one bit per level and one after the last, lowest bit of a byte first, zeros behind.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from crowdfl.crypto.long_bytes import Wire
from crowdfl.crypto.shares.ring import Words
from crowdfl.errors import LengthMismatch

SEED_BYTES = 16

Flags: TypeAlias = npt.NDArray[np.uint8]

_KEYS = [hashlib.sha256(f"crowdfl comparison 1 {side}".encode()).digest()[:16] for side in ("left", "right")]
_ONE, _CONTROL = np.uint64(1), np.uint64(3)


def corrections_bytes(count: int, bits: int) -> int:
    """Length of what `generate` makes."""
    return count * (SEED_BYTES * bits + _output_bytes(bits))


def generate(alphas: Sequence[int], bits: int, seeds_sp: bytes, seeds_csp: bytes) -> bytes:
    """The corrections for numbers below 2^bits; each party's key is its own 16-byte seed per number and the corrections."""
    count = len(alphas)
    path = _path(alphas, bits)
    walk = _Walk(
        np.stack([_seeds_of(seeds_sp, count), _seeds_of(seeds_csp, count)]),
        np.repeat(np.array([[0], [1]], dtype=np.uint64), count, axis=1),
    )
    words = np.empty((bits, count, 2), dtype="<u8")
    outputs = np.empty((bits + 1, count), dtype=np.uint64)
    value, halves = np.zeros(count, dtype=np.uint64), np.empty((2, 2, count, 2), dtype="<u8")  # side, party
    for goes, right, word, output in zip(path, _masks(path), words, outputs, strict=False):
        walk.expand(halves)
        differ = halves[:, 0] ^ halves[:, 1]
        kept = differ[..., 0] & _ONE ^ goes
        np.bitwise_xor((differ[0] ^ differ[1]) & right, differ[1], out=word)  # of the half that alpha leaves
        low = word[:, 0]
        # Whoever leaves alpha's path to the left is below alpha.
        np.bitwise_and(low >> _ONE ^ value ^ goes, _ONE, out=output)
        low &= ~_CONTROL
        low |= kept[0] ^ _ONE | kept[1] << _ONE
        value ^= _differ(walk.go(halves, right, _turned(word, output, goes)))
    outputs[bits] = value ^ _differ(_last_bit(walk.seed))
    return _joined(words, outputs)


def evaluate(
    party: int, seeds: bytes, corrections: Wire, instance: npt.NDArray[np.int64], points: Sequence[int], bits: int
) -> Flags:
    """A party's output bits (0: SP, 1: CSP), point by point; `instance` says which key each point is for."""
    if party not in (0, 1):
        raise ValueError(f"the parties are 0 and 1, not {party}")
    if len(instance) != len(points):
        raise LengthMismatch(f"{len(points)} points for {len(instance)} instances")
    count = len(seeds) // SEED_BYTES
    path = _path(points, bits)
    if len(corrections) != corrections_bytes(count, bits):
        expected = corrections_bytes(count, bits)
        raise LengthMismatch(f"{len(corrections)} bytes of corrections where {expected} are expected")
    rows = np.frombuffer(corrections, dtype=np.uint8).reshape(count, SEED_BYTES * bits + _output_bytes(bits))
    rows = rows[instance]  # of many keys, only those asked for
    words = np.ascontiguousarray(rows[:, : SEED_BYTES * bits]).view("<u8").reshape(len(rows), bits, 2)
    outputs = np.unpackbits(rows[:, SEED_BYTES * bits :], axis=1, count=bits + 1, bitorder="little")
    turned = _turned(words.swapaxes(0, 1), outputs[:, :bits].T.astype(np.uint64), path)
    walk = _Walk(_seeds_of(seeds, count, instance), np.full(len(points), party, dtype=np.uint64))
    value = np.zeros_like(walk.control)
    halves = np.empty((2, len(points), 2), dtype="<u8")
    for right, correction in zip(_masks(path), turned, strict=True):
        walk.expand(halves)
        value ^= walk.go(halves, right, correction)
    value ^= _last_bit(walk.seed) ^ walk.control & outputs[:, bits].astype(np.uint64)
    return value.astype(np.uint8)


class _Walk:
    """Many walks down the tree at once, each with its seed uint64[2] and its control bit.

    Arrays of any shape; where both parties walk, they are its first axis.
    """

    def __init__(self, seed: Words, control: Words) -> None:
        # ECB is what a fixed-key hash is made of: each block is one seed, and nothing is encrypted for secrecy.
        self._ciphers = [Cipher(AES(key), ECB()).encryptor() for key in _KEYS]  # noqa: S305
        self.seed, self.control = seed, control

    def expand(self, halves: Words) -> None:
        """The left and the right halves."""
        data = self.seed.tobytes()
        for half, cipher in zip(halves, self._ciphers, strict=True):
            half[...] = np.frombuffer(cipher.update(data), dtype="<u8").reshape(half.shape)
        halves ^= self.seed

    def go(self, halves: Words, right: Words, turned: Words) -> Words:
        """One level down, right where that is all ones, corrected where the control bit is set; the output bits there."""
        seed: Words = (halves[0] ^ halves[1]) & right
        seed ^= halves[0]
        seed ^= turned & (np.uint64(0) - self.control)[..., np.newaxis]
        low = seed[..., 0]
        value: Words = low >> _ONE & _ONE
        self.control = low & _ONE
        low &= ~_CONTROL
        self.seed = seed
        return value


def _masks(path: Words) -> Words:
    """For each bit of a path [levels, numbers], all ones or zeros: [levels, numbers, 1]."""
    masks: Words = (np.uint64(0) - path)[..., np.newaxis]
    return masks


def _differ(both: Words) -> Words:
    """What SP's part of an array and CSP's differ by."""
    difference: Words = both[0] ^ both[1]
    return difference


def _turned(words: Words, outputs: Words, goes: Words) -> Words:
    """Corrections for the half that a walk goes to: of its seed, in bit 0 of its control bit, in bit 1 of its output bit."""
    turned = words.copy()
    low = words[..., 0]
    turned[..., 0] = low & ~_CONTROL | low >> goes & _ONE | outputs << _ONE
    return turned


def _last_bit(seed: Words) -> Words:
    """A bit of the seed that is reached at the end: the lowest that is not cleared."""
    return seed[..., 0] >> np.uint64(2) & _ONE


def _path(numbers: Sequence[int], bits: int) -> Words:
    """The bits of numbers, highest first: [bits, numbers]."""
    if any(not 0 <= number < 1 << bits for number in numbers):
        raise ValueError(f"a number to compare is not below 2^{bits}")
    size = -(-bits // 8)
    data = b"".join(number.to_bytes(size, "big") for number in numbers)
    rows = np.frombuffer(data, dtype=np.uint8).reshape(len(numbers), size)
    return np.ascontiguousarray(np.unpackbits(rows, axis=1)[:, 8 * size - bits :].T.astype(np.uint64))


def _seeds_of(seeds: bytes, count: int, instance: npt.NDArray[np.int64] | slice = slice(None)) -> Words:
    if len(seeds) != count * SEED_BYTES:
        raise LengthMismatch(f"{len(seeds)} bytes of seeds where {count * SEED_BYTES} are expected")
    words = np.frombuffer(seeds, dtype="<u8").reshape(count, 2)[instance].copy()
    words[:, 0] &= ~_CONTROL
    return words


def _output_bytes(bits: int) -> int:
    return bits // 8 + 1  # bits + 1 of them


def _joined(words: Words, outputs: Words) -> bytes:
    """Both [levels, numbers]; what belongs to one number comes together."""
    bits, count, _ = words.shape
    rows = np.empty((count, SEED_BYTES * bits + _output_bytes(bits)), dtype=np.uint8)
    rows[:, SEED_BYTES * bits :] = np.packbits(outputs.T.astype(np.uint8), axis=1, bitorder="little")
    rows[:, : SEED_BYTES * bits] = words.swapaxes(0, 1).reshape(count, 2 * bits).view(np.uint8)
    return rows.tobytes()
