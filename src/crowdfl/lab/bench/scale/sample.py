"""A backend that computes the dear rows of a batch up to a number and accounts for the rest."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from crowdfl.crypto.blocks import Block
from crowdfl.crypto.compute import Backend, Kernel, Progress
from crowdfl.crypto.kernels import Combine, FixedBasePower, PartialDecrypt

__all__ = ["Sampled"]


@dataclass
class Sampled:
    """Of partial decryptions and randomizers, the first `rows` are computed; the others are filled in and counted.

    The servers open their vectors in the same order, so that the rows both have computed decrypt and the others are not
    tried. For measuring alone: a publication made this way is worth nothing past its first rows.
    """

    inner: Backend
    rows: int
    name: str = "sampled"
    done: defaultdict[type, int] = field(default_factory=lambda: defaultdict(int))
    skipped: defaultdict[type, int] = field(default_factory=lambda: defaultdict(int))
    spent: defaultdict[type, float] = field(default_factory=lambda: defaultdict(float))

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        """What is dear, in part; everything else whole."""
        kind = type(kernel)
        if kind not in (PartialDecrypt, FixedBasePower, Combine):
            return self.inner.map(kernel, *blocks, out=out, progress=progress)
        count = len(blocks[0])
        take = min(count, max(0, self.rows - self.done[kind]))
        start = time.process_time()
        computed = self.inner.map(kernel, *(block[:take] for block in blocks), progress=progress)
        self.spent[kind] += time.process_time() - start
        self.done[kind] += take
        self.skipped[kind] += count - take
        result = np.empty((count, kernel.out_width), dtype=np.uint8) if out is None else out
        result[:take] = computed
        result[take:] = blocks[0][take:] if kind is PartialDecrypt else 0
        if kind is FixedBasePower:
            result[take:, -1] = 1  # a randomizer of 1: the ciphertext stays a ciphertext
        return result

    @property
    def missing(self) -> float:
        """Processor seconds that the rows left out would have taken, by those computed."""
        return sum(self.spent[kind] / self.done[kind] * count for kind, count in self.skipped.items() if count)
