"""Lanes of a server's own shares: a few uploads at a time, so that memory holds little more than the lanes themselves."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from crowdfl.crypto.shares.ring import Words
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.protocols.shares.shape import SharesShape

_BLOCK_BYTES = 8 * 2**20  # of decoded shares held at once
_BLOCK = 8  # more at once gain nothing


class LaneMaker:
    """The sketch of a round, drawn once from its coins."""

    def __init__(self, shape: SharesShape, coins: bytes) -> None:
        widths = shape.widths
        self._ring, self._sketch = shape.ring, Sketch(coins, widths.parameters, widths.rows, widths.buckets)
        self._block = max(1, min(_BLOCK, _BLOCK_BYTES // (8 * widths.parameters)))
        self._lanes = widths.lanes

    def lanes(self, shares: Iterable[bytes]) -> Words:
        """[uploads, lanes], modulo 2^k."""
        blocks = [self._ring.reduced(self._sketch.lanes(block)) for block in self._blocks(iter(shares))]
        return np.concatenate(blocks) if blocks else np.empty((0, self._lanes), dtype=np.uint64)

    def _blocks(self, shares: Iterator[bytes]) -> Iterator[Words]:
        while group := list(islice(shares, self._block)):
            yield self._stacked(group)

    def _stacked(self, group: Sequence[bytes]) -> Words:
        block = np.empty((len(group), self._sketch.parameters), dtype=np.uint64)
        for row, share in zip(block, group, strict=True):
            row[:] = self._ring.decode(share)
        return block
