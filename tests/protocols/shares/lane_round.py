"""A round's checks and products in one process, and what they should come to, in Python's whole numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.shares.expansion import Stream
from crowdfl.crypto.shares.ring import Ring, Words
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.protocols.shares.circuits import lanes
from crowdfl.protocols.shares.circuits.program import CSP, SP, CspRun, CspSide, Half, SpSide
from crowdfl.protocols.shares.dealing import rounds
from crowdfl.protocols.shares.round import checks
from crowdfl.protocols.shares.round.checks import CheckInputs
from crowdfl.protocols.shares.shape import Quorum
from crowdfl.protocols.shares.widths import SharesWidths
from crowdfl.settings import TaskSettings
from tests.protocols.shares.dealing import deal_with

COINS = bytes(range(32))


def widths_of(parameters: int = 60, **settings: Any) -> SharesWidths:
    usual = {"decimals": 3, "clip": 4.0, "max_participants": 6, "max_samples": 50, "lanes": 260, "max_norm": 2.0}
    task = TaskSettings.of(**{"profile": "shares", "budget": "1.00", "pay": "distance", **usual, **settings})
    return SharesWidths.of(task, parameters)


@dataclass(frozen=True)
class Upload:
    """What a phone shares: entries modulo 2^k, samples modulo 2^128."""

    entries: npt.NDArray[np.int64]
    samples: int


def honest(update: npt.ArrayLike, samples: int) -> Upload:
    return Upload(np.asarray(update, dtype=np.int64) * samples, samples)


class Round:
    """Uploads, split for the two servers; slot = place in the list, None for a seal that does not open."""

    def __init__(
        self,
        widths: SharesWidths,
        uploads: Sequence[Upload | None],
        seed: int = 1,
        least: int = 3,
    ) -> None:
        self.widths, self.uploads, self.seed, self.least = widths, uploads, seed, least
        self.slots = [slot for slot, upload in enumerate(uploads) if upload is not None]
        self.sketch = Sketch(COINS, widths.parameters, widths.rows, widths.buckets)
        self.ring = Ring(widths.k)
        self._stream = Stream(seed.to_bytes(32, "big"), b"phones")
        split = [self._split(upload.entries) for upload in uploads if upload is not None]
        self.lanes = [self._sketched([pair[side] for pair in split]) for side in (SP, CSP)]
        self.samples = self._split_samples()
        given = deal_with(lambda cards: rounds.deal_lanes(cards, widths), seed)
        self.dealt: tuple[rounds.DealtLanes, ...] = (given.sp, given.csp, given.kgc)
        self.sent: list[list[bytes]] = [[], []]

    def _split(self, entries: npt.NDArray[np.int64]) -> tuple[Words, Words]:
        csp = self.ring.decode(self._stream.take(len(entries) * self.ring.bytes))
        return self.ring.reduced(self.ring.of_signed(entries) - csp), csp

    def _sketched(self, shares: Sequence[Words]) -> Words:
        return self.ring.reduced(self.sketch.lanes(np.array(shares)))

    def _split_samples(self) -> list[list[int]]:
        theirs = [int.from_bytes(self._stream.take(16), "little") for _ in self.slots]
        whole = [upload.samples for upload in self.uploads if upload is not None]
        return [[(a - b) % (1 << 128) for a, b in zip(whole, theirs, strict=True)], theirs]

    def inputs(self, side: int) -> CheckInputs:
        return CheckInputs(
            slots=self.slots,
            lanes=self.lanes[side].copy(),
            samples=self.samples[side],
            listed=len(self.uploads),
            quorum=Quorum(self.least, self.widths.has_reference),
            context=b"round 1",
            salt=bytes([side + 1]) * 32,
        )

    def program(self, side: SpSide | CspSide, *, products: bool) -> Half[Any]:
        own = self.dealt[side.index]
        checked = yield from checks.check_program(side, own, self.widths, self.inputs(side.index), self.attach)
        if checked.verdict.void or not products:
            return checked, None
        extra = bytes([side.index]) * 5
        return checked, (yield from lanes.products_program(side, own, self.widths, checked.lanes, extra))

    def attach(self, verdict: checks.CheckVerdict) -> bytes:
        return b"verdict " + repr(verdict.void).encode()

    def run(self, *, products: bool = True) -> tuple[Any, Any]:
        """Both servers' results; `sent` holds their messages."""
        results: list[Any] = [None, None]
        csp = CspRun(lambda side: self._ending(side, results, products=products))
        sp = self.program(SpSide(), products=products)
        try:
            message = next(sp)
            while True:
                self.sent[SP].append(message)
                self.sent[CSP].append(csp.answer(message))
                message = sp.send(self.sent[CSP][-1])
        except StopIteration as end:
            results[SP] = end.value
        if not csp.is_over:
            csp.answer(b"over")
        return results[SP], results[CSP]

    def _ending(self, side: CspSide, results: list[Any], *, products: bool) -> Half[None]:
        results[CSP] = yield from self.program(side, products=products)
        side.finish(side.last or b"")

    def lanes_of(self, entries: npt.NDArray[np.int64]) -> list[int]:
        found = np.zeros(self.widths.lanes, dtype=object)
        for row in range(self.widths.rows):
            buckets, signs = self.sketch.of(row)
            np.add.at(found, row * self.widths.buckets + buckets, entries.astype(object) * signs)
        return [int(lane) for lane in found]
