"""Count sketch from public coins: a few lanes that keep inner products of long vectors, up to a known error.

Each row puts every coordinate, independently of all others, into one bucket with one sign. A lane is a bucket of a row: the
signed sum of the coordinates in it. It is linear, so each server sketches its own shares.
"""

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from itertools import count

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.shares.expansion import Stream
from crowdfl.crypto.shares.ring import Words
from crowdfl.errors import LengthMismatch

MAX_BUCKETS = 1 << 16
OVERLOAD = 2**40  # one sketch in so many is drawn again

_PIECE = 1 << 15  # coordinates at a time: what is worked on stays in the cache
_HALF_BITS = 32
_DIGITS = 60  # of the binomial tail: sums of a million terms stay right to 50


class Sketch:
    """Where each coordinate goes, for `rows` rows of `buckets` buckets; the same coins give the same sketch everywhere.

    The coins are public. Coordinate j of a row is the j-th little-endian 64-bit word w of the stream of the coins under
    "crowdfl sketch 1 ATTEMPT ROW" (decimal numbers): bucket = ((w >> 16) * buckets) >> 48, and the sign is minus when w is
    odd. A bucket's chance is within 2^-48 of 1/buckets. The first attempt is 0; the next is made while a bucket holds more
    coordinates than `load_bound` says.
    """

    def __init__(self, coins: bytes, parameters: int, rows: int, buckets: int) -> None:
        if parameters < 1 or rows < 1 or not 1 <= buckets <= MAX_BUCKETS:
            raise ValueError(f"no sketch of {parameters} numbers in {rows} rows of {buckets} buckets")
        self.parameters, self.rows, self.buckets = parameters, rows, buckets
        bound = load_bound(parameters, buckets, rows)
        for attempt in count():
            self._places = [self._row(coins, attempt, row) for row in range(rows)]
            loads = [np.bincount(places >> 1, minlength=buckets).max() for places in self._places]
            self.load = int(max(loads))
            if self.load <= bound:
                return

    def lanes(self, block: Words | Sequence[Words]) -> Words:
        """The sketches of a few participants' vectors: [participants, rows * buckets], modulo 2^64."""
        if wrong := [vector.shape for vector in block if vector.shape != (self.parameters,)]:
            raise LengthMismatch(f"a vector of shape {wrong[0]} where {self.parameters} numbers are expected")
        sums = np.zeros((len(block), self.rows, 2 * self.buckets), dtype=np.uint64)
        for row, places in enumerate(self._places):
            for start in range(0, len(places), _PIECE):
                piece = places[start : start + _PIECE].astype(np.intp)  # as `np.add.at` is fast with
                for participant, vector in enumerate(block):
                    np.add.at(sums[participant, row], piece, vector[start : start + len(piece)])
        return (sums[..., 0::2] - sums[..., 1::2]).reshape(len(block), self.rows * self.buckets)

    def whole_lanes(self, block: Sequence[npt.NDArray[np.int64]]) -> Words:
        """The same of signed numbers that nobody has shared: two vectors go as one, a half of a word each, while they are so
        small that no lane of theirs can leave its half."""
        half = np.int64(_HALF_BITS)
        largest = [max(int(vector.max()), -int(vector.min())) for vector in block]
        small = [place for place, most in enumerate(largest) if most * self.load < 1 << (_HALF_BITS - 1)]
        low, high = small[: len(small) // 2], small[len(small) // 2 : len(small) // 2 * 2]
        alone = sorted({*range(len(block))}.difference(low, high))
        pairs = [(block[b] << half) + block[a] for a, b in zip(low, high, strict=True)]
        found = self.lanes([vector.view(np.uint64) for vector in (*pairs, *(block[place] for place in alone))])
        lanes = np.empty((len(block), found.shape[1]), dtype=np.int64)
        both = found[: len(pairs)].view(np.int64)
        lanes[low] = (both << half) >> half
        lanes[high] = (both - lanes[low]) >> half
        lanes[alone] = found[len(pairs) :].view(np.int64)
        return lanes.view(np.uint64)

    def of(self, row: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The bucket and the sign (1 or -1) of every coordinate in a row."""
        places = self._places[row].astype(np.int64)
        return places >> 1, 1 - 2 * (places & 1)

    def _row(self, coins: bytes, attempt: int, row: int) -> npt.NDArray[np.uint32]:
        """2 * bucket, plus one for a minus."""
        stream = Stream(coins, f"crowdfl sketch 1 {attempt} {row}".encode())
        places = np.empty(self.parameters, dtype=np.uint32)
        for start in range(0, self.parameters, _PIECE):
            piece = places[start : start + _PIECE]
            words = np.frombuffer(stream.take(8 * len(piece)), dtype="<u8")
            buckets = ((words >> np.uint64(16)) * np.uint64(self.buckets)) >> np.uint64(48)
            piece[:] = (buckets << np.uint64(1)) | (words & np.uint64(1))
        return places

    def __repr__(self) -> str:
        return f"Sketch({self.parameters}, {self.rows}, {self.buckets})"


@lru_cache(maxsize=64)
def load_bound(parameters: int, buckets: int, rows: int) -> int:
    """The smallest load that all buckets of all rows stay within, but for a chance of 2^-40.

    Smallest l with rows * buckets * P[Binomial(parameters, 1/buckets) > l] <= 2^-40, in decimals of fixed precision: every
    machine finds the same.
    """
    if buckets == 1:
        return parameters
    with localcontext(Context(prec=_DIGITS, Emin=-(10**17), Emax=10**17)):
        most = 1 - Decimal(1) / (OVERLOAD * rows * buckets)
        chance = (1 - Decimal(1) / buckets) ** parameters  # of exactly `load`
        within, load = chance, 0
        while within < most and load < parameters:
            chance = chance * (parameters - load) / ((load + 1) * (buckets - 1))
            within = within + chance
            load = load + 1
    return load
