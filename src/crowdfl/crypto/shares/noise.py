"""Discrete Gaussian noise from a seed, exactly: no float decides a sample.

The sampler of Canonne, Kamath and Steinke (2020) for whole numbers `sigma`: a discrete Laplace of scale sigma, of which y is
taken with chance exp(-(|y| - sigma)^2 / (2 sigma^2)). Every coin is a comparison of uniform integers below 2^64, so that the
same seed gives the same noise on every machine.
"""

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.shares.expansion import Stream
from crowdfl.crypto.shares.ring import Words
from crowdfl.errors import WidthError

LARGEST_SIGMA = 1 << 24
_FURTHEST = 180  # times sigma, with a chance below 2^-250: further out a square would not fit 64 bits
_WORDS = 1 << 64


def discrete_gaussian(seed: bytes, context: bytes, sigma: int, count: int) -> npt.NDArray[np.int64]:
    """`count` samples y, each with a chance proportional to exp(-y^2 / (2 sigma^2))."""
    if not 1 <= sigma <= LARGEST_SIGMA:
        raise WidthError(f"noise of standard deviation {sigma}; expected 1 to {LARGEST_SIGMA}")
    coins = _Coins(seed, context)
    found = list[npt.NDArray[np.int64]]()
    missing = count
    while missing:
        tried = coins.laplace(sigma, missing + missing // 2 + 16)
        size = np.abs(tried).astype(np.uint64)
        away = np.where(size > np.uint64(sigma), size - np.uint64(sigma), np.uint64(sigma) - size)
        taken = tried[coins.exp_minus(away * away, 2 * sigma * sigma)][:missing]
        found.append(taken)
        missing -= len(taken)
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


class _Coins:
    """Exact coins from one stream, many at a time."""

    def __init__(self, seed: bytes, context: bytes) -> None:
        self._stream = Stream(seed, context)

    def below(self, bound: int, count: int) -> Words:
        """Uniform in [0, bound): words beyond the last whole multiple of it are drawn again."""
        words = self._words(count)
        if _WORDS % bound:
            limit = np.uint64(_WORDS - _WORDS % bound)
            while len(late := np.flatnonzero(words >= limit)):
                words[late] = self._words(len(late))
        return words % np.uint64(bound)

    def _words(self, count: int) -> Words:
        return np.frombuffer(bytearray(self._stream.take(8 * count)), dtype="<u8").astype(np.uint64, copy=False)

    def exp_minus(self, parts: Words, whole: int) -> npt.NDArray[np.bool_]:
        """Coins that show heads with chance exp(-parts / whole)."""
        times, rest = np.divmod(parts, np.uint64(whole))
        heads = np.ones(len(parts), dtype=np.bool_)
        alive = np.flatnonzero(times)
        while len(alive):  # exp(-1) for each whole time
            heads[alive] = self._small(np.ones(len(alive), dtype=np.uint64), 1)
            times[alive] -= np.uint64(1)
            alive = alive[heads[alive] & (times[alive] > 0)]
        last = np.flatnonzero(heads)
        heads[last] = self._small(rest[last], whole)
        return heads

    def _small(self, parts: Words, whole: int) -> npt.NDArray[np.bool_]:
        """The same for parts <= whole: whether the first k at which a coin of parts / (whole k) fails is odd."""
        heads = np.zeros(len(parts), dtype=np.bool_)
        alive = np.arange(len(parts))
        k = 1
        while len(alive):
            goes_on = self.below(whole * k, len(alive)) < parts[alive]
            heads[alive[~goes_on]] = k % 2 == 1
            alive = alive[goes_on]
            k = k + 1
        return heads

    def laplace(self, scale: int, tries: int) -> npt.NDArray[np.int64]:
        """Discrete Laplace of a whole scale: as many as `tries` give."""
        low = self.below(scale, tries)
        low = low[self._small(low, scale)]
        high = np.zeros(len(low), dtype=np.uint64)
        alive = np.arange(len(low))
        while len(alive):
            alive = alive[self._small(np.ones(len(alive), dtype=np.uint64), 1)]
            high[alive] += np.uint64(1)
        negative = self.below(2, len(low)).astype(np.bool_)
        size = low + high * np.uint64(scale)
        kept = (high < _FURTHEST) & ~(negative & (size == 0))  # zero once, not as +0 and -0
        signed = size.astype(np.int64)
        signed[negative] *= -1
        found: npt.NDArray[np.int64] = signed[kept]
        return found
