"""What KGC deals for the lanes of one round: a mask for every lane, and the inner products of masks, block by block.

A lane's mask is uniform in [0, 2^k) and shared modulo 2^R: what it hides is opened modulo 2^k and computed with over the
integers. The mask of the sum is uniform modulo 2^R. Products are dealt for each block alone: where a block is left out, its
masks are never combined with anything.
"""

from dataclasses import dataclass, field

import numpy as np

from crowdfl.crypto.shares.limbs import block_dots
from crowdfl.crypto.shares.ring import Words
from crowdfl.protocols.shares.circuits import compare
from crowdfl.protocols.shares.circuits.compare import Comparison, GatedComparison
from crowdfl.protocols.shares.dealing.correlations import Bytes, Cards, Dealt
from crowdfl.protocols.shares.widths import SAMPLE_BITS, SharesWidths

WORD = 8


@dataclass(frozen=True)
class SumMasks:
    """For products with the sum of accepted lanes: its mask a_Z [lanes], <a_i, a_Z> [slots, blocks], <a_Z, a_Z> [blocks]."""

    mask: Bytes = field(repr=False)
    with_lanes: Bytes = field(repr=False)
    square: Bytes = field(repr=False)


@dataclass(frozen=True)
class DealtLanes:
    """This server's shares of one round's masks; every array ends in an axis of bytes, numbers modulo 2^R.

    `lanes` [slots, lanes]: a; the last slot is the previous sum's, where the rule has one. `squares` [slots, blocks]:
    <a_i, a_i>. `with_previous` [participants, blocks]: <a_i, a_previous>. For samples: `zeros` modulo 2^128, `roots` b, b^2.
    """

    lanes: Bytes = field(repr=False)
    squares: Bytes = field(repr=False)
    sums: SumMasks | None
    with_previous: Bytes | None = field(repr=False)
    zeros: Dealt
    count_check: Comparison
    roots: Dealt
    root_squares: Dealt
    norm_check: GatedComparison


def deal(cards: Cards, widths: SharesWidths) -> DealtLanes:
    slots, size = widths.slots, widths.R // 8
    lanes = cards.narrow_rows(slots * widths.lanes, widths.k, widths.R).share.reshape(slots, widths.lanes, size)
    people, bits = widths.participants, widths.R
    return DealtLanes(
        lanes=lanes,
        squares=_products(cards, widths, lanes, lanes),
        sums=_deal_sums(cards, widths, lanes[:people]) if widths.is_paid else None,
        with_previous=_products(cards, widths, lanes[:people], lanes[people:]) if widths.has_previous else None,
        zeros=cards.derived(people, SAMPLE_BITS, lambda: [0] * people),
        count_check=compare.deal(cards, people, SAMPLE_BITS),
        roots=(roots := cards.uniform(people, bits)),
        root_squares=cards.derived(people, bits, lambda: [root * root for root in roots.share]),
        norm_check=compare.deal_gated(cards, people, bits),
    )


def _deal_sums(cards: Cards, widths: SharesWidths, lanes: Bytes) -> SumMasks:
    mask = cards.uniform_rows(widths.lanes, widths.R).share
    sizes = _sizes(widths)
    square = cards.derived_rows(len(sizes), widths.R, lambda: block_dots(mask, mask, sizes, widths.R)[0]).share
    return SumMasks(mask, _products(cards, widths, lanes, mask[np.newaxis]), square)


def _products(cards: Cards, widths: SharesWidths, left: Bytes, right: Bytes) -> Bytes:
    """Inner products of masks block by block; KGC alone holds the masks themselves, all but the sum's narrow."""
    sizes, size = _sizes(widths), widths.R // 8
    shape = (len(left), len(sizes), size)

    def made() -> Bytes:
        words = low_words(left, widths.k)
        other = words if right is left else right
        return block_dots(words, other, sizes, widths.R).reshape(-1, size)

    return cards.derived_rows(len(left) * len(sizes), widths.R, made).share.reshape(shape)


def _sizes(widths: SharesWidths) -> list[int]:
    return [end - start for start, end in widths.blocks]


def low_words(rows: Bytes, bits: int) -> Words:
    """Numbers of at least 64 bits, modulo 2^bits, bits at most 64."""
    words = np.ascontiguousarray(rows[..., :WORD]).view("<u8")[..., 0]
    return words & np.uint64((1 << bits) - 1)
