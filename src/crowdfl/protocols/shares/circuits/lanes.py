"""Lanes behind masks: opened without wrap, and all inner products that checks and rewards ask for, as shares modulo 2^R.

Opened is c = z + bound + a modulo 2^k, uniform whatever z is. Where c >= 2 * bound nothing has wrapped: z = c' - a over the
integers, with c' = c - bound (a lane out of range is then outside [-bound, bound] too, whatever its representative). A block of
lanes with any other c, of anyone, is left out for everyone; its masks are never combined with anything that is opened.

With c' public, <z, z> = <c', c'> - 2 <c', a> + <a, a> is linear in what is dealt. The sum U of the accepted lanes is opened
behind a_Z, uniform modulo 2^R: E = U + a_Z. Both halves are the same but for who adds public numbers: SP.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.shares.limbs import Bytes, add_rows, dots, from_words, subtract_rows, sum_rows, to_ints
from crowdfl.crypto.shares.ring import Words
from crowdfl.crypto.shares.sketch import Sketch
from crowdfl.errors import RewardsOff
from crowdfl.protocols.shares.chain import Integers
from crowdfl.protocols.shares.circuits.program import SP, Half, Side
from crowdfl.protocols.shares.dealing.rounds import DealtLanes, ReferenceMasks, SumMasks, low_words
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.protocols.shares.widths import SharesWidths

Places = npt.NDArray[np.intp]
_TOGETHER = 64


def coins(manifest_digest: bytes, nonce: bytes) -> bytes:
    """What the sketch of a round is drawn from: nobody knows it before the manifest is frozen."""
    return hashlib.sha256(b"crowdfl coins 1" + manifest_digest + nonce).digest()


@dataclass(frozen=True)
class OpenLanes:
    """What an opening has shown of the lanes of some slots: c', the lanes that are kept. The same for both servers."""

    slots: list[int]
    blocks: Places  # kept
    places: Places  # the lanes in them
    shown: Words  # [slots, kept lanes]

    @property
    def kept(self) -> int:
        return len(self.places)

    def only(self, slots: Sequence[int]) -> "OpenLanes":
        """The same for some of the slots."""
        place_of = {slot: place for place, slot in enumerate(self.slots)}
        chosen = self.shown if list(slots) == self.slots else self.shown[[place_of[slot] for slot in slots]]
        return OpenLanes(list(slots), self.blocks, self.places, chosen)

    def parts(self) -> Iterator["OpenLanes"]:
        """A few slots at a time, so that no more of the masks is copied at once."""
        for first in range(0, len(self.slots), _TOGETHER):
            part = slice(first, first + _TOGETHER)
            yield OpenLanes(self.slots[part], self.blocks, self.places, self.shown[part])


def covered(side: Side, dealt: DealtLanes, widths: SharesWidths, slots: Sequence[int], lanes: Words) -> Words:
    """This server's shares of c, from its shares of lanes [slots, lanes], which are used up."""
    for start in range(0, len(slots), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        lanes[part] += low_words(dealt.lanes[slots[part]], widths.k)
    if side.index == SP:
        lanes += np.uint64(widths.lane_bound)
    lanes &= np.uint64((1 << widths.k) - 1)
    return lanes


def opened(widths: SharesWidths, slots: Sequence[int], mine: Words, theirs: Words) -> OpenLanes:
    """Both servers' shares of c put together, blocks with an unusable lane left out. `theirs` is used up."""
    bound = np.uint64(widths.lane_bound)
    shown = np.add(theirs, mine, out=theirs)
    shown &= np.uint64((1 << widths.k) - 1)
    starts = np.array([start for start, _ in widths.blocks])
    usable = np.logical_and.reduceat((shown >= bound + bound).all(axis=0), starts)
    places = np.flatnonzero(np.repeat(usable, [end - start for start, end in widths.blocks]))
    shown -= bound
    if len(places) < widths.lanes:
        shown = shown[:, places]
    return OpenLanes(list(slots), np.flatnonzero(usable), places, shown)


def squares(side: Side, dealt: DealtLanes, widths: SharesWidths, lanes: OpenLanes) -> list[int]:
    """Shares of <z, z> of each slot."""
    found: list[int] = []
    for part in lanes.parts():
        crossed = dots(part.shown, _masks(dealt, part), widths.R)
        own = dots(part.shown, part.shown, widths.R) if side.index == SP else [0] * len(crossed)
        both = _summed(dealt.squares[part.slots], part)
        found += [(o - 2 * c + b) % (1 << widths.R) for o, c, b in zip(own, crossed, both, strict=True)]
    return found


def with_reference(
    side: Side, dealt: DealtLanes, masks: ReferenceMasks, widths: SharesWidths, lanes: OpenLanes
) -> list[int]:
    """Shares of <z_i, z_c> = <c'_i, c'_c - a_c> - <a_i, c'_c> + <a_i, a_c> of each slot; the last one is the reference."""
    shown = lanes.shown[-1]
    own = _own_part(side, from_words(shown, widths.R), dealt.lanes[lanes.slots[-1:]][0, lanes.places])
    found: list[int] = []
    for part in lanes.parts():
        public = dots(part.shown, own, widths.R)
        hidden = dots(_masks(dealt, part), shown, widths.R)
        both = _summed(masks.products[part.slots], part)
        found += [(p - h + b) % (1 << widths.R) for p, h, b in zip(public, hidden, both, strict=True)]
    return found


@dataclass(frozen=True)
class Products:
    """Shares modulo 2^R: B = <z_i, U> of each slot, and <U, U>."""

    with_sum: list[int] = field(repr=False)
    sum_square: int = field(repr=False)
    beside: bytes = field(repr=False)


def products_program(
    side: Side, dealt: DealtLanes, widths: SharesWidths, lanes: OpenLanes, extra: bytes = b""
) -> Half[Products]:
    """One exchange: E, and beside it what a rule opens at the same time. `lanes` are those of the accepted slots."""
    if dealt.sums is None:
        raise RewardsOff("the task pays no rewards by distance, and nothing was dealt for them")
    hidden = sum_rows(np.array([_sum_share(side, dealt, widths, part) for part in lanes.parts()]))
    share = add_rows(hidden, dealt.sums.mask[lanes.places])
    theirs = yield from side.swap(share.tobytes() + extra)
    shown = add_rows(share, np.frombuffer(theirs[: share.size], dtype=np.uint8).reshape(share.shape))
    return Products(
        with_sum=[one for part in lanes.parts() for one in _with_sum(side, dealt, dealt.sums, widths, part, shown)],
        sum_square=_sum_square(side, dealt.sums, widths, lanes, shown),
        beside=theirs[share.size :],
    )


def _sum_share(side: Side, dealt: DealtLanes, widths: SharesWidths, lanes: OpenLanes) -> Bytes:
    """Of U = sum of c' - a."""
    hidden = sum_rows(_masks(dealt, lanes))
    shown = sum_rows(from_words(lanes.shown, widths.R)) if side.index == SP else np.zeros_like(hidden)
    return subtract_rows(shown, hidden)


def _with_sum(
    side: Side, dealt: DealtLanes, sums: SumMasks, widths: SharesWidths, lanes: OpenLanes, shown: Bytes
) -> list[int]:
    """<c' - a, E - a_Z>."""
    public = dots(lanes.shown, _own_part(side, shown, sums.mask[lanes.places]), widths.R)
    hidden = dots(_masks(dealt, lanes), shown, widths.R)
    both = _summed(sums.with_lanes[lanes.slots], lanes)
    return [(p - h + b) % (1 << widths.R) for p, h, b in zip(public, hidden, both, strict=True)]


def _own_part(side: Side, shown: Bytes, mask: Bytes) -> Bytes:
    """This server's part of what was shown less the mask: SP's holds what was shown."""
    return subtract_rows(shown if side.index == SP else np.zeros_like(mask), mask)


def _sum_square(side: Side, sums: SumMasks, widths: SharesWidths, lanes: OpenLanes, shown: Bytes) -> int:
    mask = sums.mask[lanes.places]
    own = dots(shown, shown, widths.R)[0] if side.index == SP else 0
    crossed = dots(shown, mask, widths.R)[0]
    both = _summed(sums.square[np.newaxis], lanes)[0]
    return (own - 2 * crossed + both) % (1 << widths.R)


def _masks(dealt: DealtLanes, lanes: OpenLanes) -> Bytes:
    """[slots, kept lanes, bytes]."""
    masks = dealt.lanes[lanes.slots]
    return masks if lanes.kept == masks.shape[1] else masks[:, lanes.places]


def _summed(blocks: Bytes, lanes: OpenLanes) -> list[int]:
    """Dealt scalars [slots, blocks, bytes], over the blocks that are kept."""
    return to_ints(sum_rows(blocks[:, lanes.blocks].transpose(1, 0, 2)))


_BLOCK_BYTES = 8 * 2**20  # of decoded shares held at once
_BLOCK = 8  # more at once gain nothing


class LaneMaker:
    """The sketch of a round, drawn once from its coins."""

    def __init__(self, shape: SharesShape, coins: bytes) -> None:
        widths = shape.widths
        self._ring = shape.ring
        self._sketch = Sketch(coins, widths.parameters, widths.rows, widths.buckets)
        self._block = max(1, min(_BLOCK, _BLOCK_BYTES // (8 * widths.parameters)))
        self._lanes = widths.lanes

    def lanes(self, shares: Iterable[Long], count: int) -> Words:
        """[uploads, lanes] of so many, modulo 2^k."""
        lanes = np.empty((count, self._lanes), dtype=np.uint64)
        start = 0
        rest = iter(shares)
        while group := list(islice(rest, self._block)):
            block = np.zeros((len(group), self._sketch.parameters), dtype=np.uint64)
            for row, share in zip(block, group, strict=True):
                self._ring.accumulate(np.add, row, share)
            lanes[start : start + len(block)] = self._ring.reduced(self._sketch.lanes(block))
            start += len(block)
        return lanes

    def of_whole(self, rows: Sequence[Integers], times: Sequence[int]) -> Words:
        """Of a few updates that nobody has shared, each so many times."""
        lanes = self._sketch.whole_lanes(rows)
        lanes *= np.array(times, dtype=np.uint64)[:, np.newaxis]
        return self._ring.reduced(lanes)
