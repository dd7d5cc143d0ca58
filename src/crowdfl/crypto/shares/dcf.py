"""Distributed comparison: two keys that together tell whether t < alpha, and apart tell nothing of alpha.

After Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar and Rathee (2021), with one bit as output: the XOR of both parties' bits at t
is 1 when t < alpha. A party walks down a binary tree along the bits of t, highest first, with a seed, a control bit and its
output so far. Outside the path of alpha both hold the same seed and control bit; each correction word keeps it so.

The expansion of a seed s is AES_K0(s) ^ s to the left and AES_K1(s) ^ s to the right, AES-128 with two fixed public keys
(Matyas-Meyer-Oseas): a key schedule per seed would cost more than all the rest, and with AES as an ideal cipher both halves
are uniform to whoever does not know s. The two lowest bits of byte 0 of a half are its control bit t and its output bit v; they
are cleared from the seed, which leaves 126 secret bits.

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
    tree, path, count = _Tree(), _path(alphas, bits), len(alphas)
    seeds = np.stack([_seeds_of(seeds_sp, count), _seeds_of(seeds_csp, count)])
    control = np.repeat(np.array([[0], [1]], dtype=np.uint64), count, axis=1)
    value = np.zeros(count, dtype=np.uint64)  # the XOR of both outputs so far, along the path of alpha
    words, outputs = np.empty((count, bits, 2), dtype="<u8"), np.empty((count, bits + 1), dtype=np.uint8)
    for level, goes in enumerate(path):
        halves = tree.both(seeds)
        words[:, level], output = _correction(halves[:, 0] ^ halves[:, 1], goes, value)
        outputs[:, level] = output
        correction = _along(words[:, level], goes, output)
        seeds, control, out = _parts(_kept(halves, goes) ^ (correction & _spread(control)))
        value ^= out[0] ^ out[1]
    outputs[:, bits] = value ^ _last_bit(seeds[0]) ^ _last_bit(seeds[1])
    return _joined(words, outputs)


def evaluate(
    party: int, seeds: bytes, corrections: bytes, instance: npt.NDArray[np.int64], points: Sequence[int], bits: int
) -> Flags:
    """A party's output bits (0: SP, 1: CSP), point by point; `instance` says which key each point is for."""
    if len(instance) != len(points):
        raise LengthMismatch(f"{len(instance)} instances for {len(points)} points")
    count = len(seeds) // SEED_BYTES
    words, outputs = _split(corrections, count, bits)
    tree, seed = _Tree(), _seeds_of(seeds, count)[instance]
    control = np.full(len(points), party, dtype=np.uint64)
    value = np.zeros(len(points), dtype=np.uint64)
    for level, goes in enumerate(_path(points, bits)):
        correction = _along(words[instance, level], goes, outputs[instance, level].astype(np.uint64))
        seed, control, out = _parts(_kept(tree.both(seed), goes) ^ (correction & _spread(control)))
        value ^= out
    value ^= _last_bit(seed) ^ (control & outputs[instance, bits])
    return value.astype(np.uint8)


class _Tree:
    """The expansion of many seeds, uint64[..., 2], at once."""

    def __init__(self) -> None:
        # ECB is what a fixed-key hash is made of: each block is one seed, and no seed is encrypted for secrecy.
        self._ciphers = [Cipher(AES(key), ECB()).encryptor() for key in _KEYS]  # noqa: S305

    def both(self, seeds: Words) -> Words:
        """The left and the right halves, [2, ..., 2]."""
        data = seeds.tobytes()
        halves = [np.frombuffer(cipher.update(data), dtype="<u8").reshape(seeds.shape) for cipher in self._ciphers]
        expanded: Words = np.stack(halves) ^ seeds
        return expanded


def _correction(differ: Words, goes: Words, value: Words) -> tuple[Words, Words]:
    """The correction words of a level, from what the parties' halves differ by, [2, count, 2], and where alpha goes."""
    lost = np.where(goes[:, np.newaxis] == 1, differ[0], differ[1])
    output = (lost[:, 0] >> _ONE & _ONE) ^ value ^ goes  # whoever leaves alpha's path to the left is below it
    left, right = differ[0, :, 0] & _ONE ^ goes ^ _ONE, differ[1, :, 0] & _ONE ^ goes
    lost[:, 0] = lost[:, 0] & ~_CONTROL | left | right << _ONE
    return lost, output


def _along(words: Words, goes: Words, output: Words) -> Words:
    """A level's corrections for a half: of its seed, in bit 0 of its control bit, in bit 1 of its output bit."""
    turned = words.copy()
    turned[:, 0] = words[:, 0] & ~_CONTROL | words[:, 0] >> goes & _ONE | output << _ONE
    return turned


def _kept(halves: Words, goes: Words) -> Words:
    """Of the halves [2, ..., count, 2] those where the path goes."""
    return np.where(goes[:, np.newaxis] == 1, halves[1], halves[0])


def _parts(arrived: Words) -> tuple[Words, Words, Words]:
    """Seed, control bit and output bit of halves that are corrected."""
    low = arrived[..., 0].copy()
    arrived[..., 0] = low & ~_CONTROL
    return arrived, low & _ONE, low >> _ONE & _ONE


def _spread(control: Words) -> Words:
    """All ones where the control bit is set."""
    return (np.uint64(0) - control)[..., np.newaxis]


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


def _seeds_of(seeds: bytes, count: int) -> Words:
    if len(seeds) != count * SEED_BYTES:
        raise LengthMismatch(f"{len(seeds)} bytes of seeds where {count * SEED_BYTES} are expected")
    words = np.frombuffer(seeds, dtype="<u8").reshape(count, 2).copy()
    words[:, 0] &= ~_CONTROL
    return words


def _output_bytes(bits: int) -> int:
    return bits // 8 + 1  # bits + 1 of them


def _joined(words: Words, outputs: Flags) -> bytes:
    packed = np.packbits(outputs, axis=1, bitorder="little")
    return np.concatenate([words.view(np.uint8).reshape(len(words), -1), packed], axis=1).tobytes()


def _split(corrections: bytes, count: int, bits: int) -> tuple[Words, Flags]:
    """Correction words [count, bits, 2] and output corrections [count, bits + 1]."""
    if len(corrections) != corrections_bytes(count, bits):
        expected = corrections_bytes(count, bits)
        raise LengthMismatch(f"{len(corrections)} bytes of corrections where {expected} are expected")
    rows = np.frombuffer(corrections, dtype=np.uint8).reshape(count, SEED_BYTES * bits + _output_bytes(bits))
    words = np.ascontiguousarray(rows[:, : SEED_BYTES * bits]).view("<u8").reshape(count, bits, 2)
    return words, np.unpackbits(rows[:, SEED_BYTES * bits :], axis=1, count=bits + 1, bitorder="little")
