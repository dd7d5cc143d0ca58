"""What KGC deals for one round: the script that KGC, SP and CSP run alike, and the files it makes.

For the lanes: a mask for every lane, uniform in [0, 2^k) and shared modulo 2^R: what it hides is opened modulo 2^k and computed
with over the integers. The mask of the sum is uniform modulo 2^R. Inner products of masks are dealt for each block alone: where
a block is left out, its masks are never combined with anything.

A file ends with a tag that only its server and KGC can make: one that was truncated, altered, or dealt for another task or
round is refused before anything is computed with it.
"""

import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.shares.expansion import Stream, expand
from crowdfl.crypto.shares.limbs import Bytes, block_dots
from crowdfl.crypto.shares.ring import Words
from crowdfl.errors import DealtMaterialDamaged, RewardsOff
from crowdfl.protocols.common.binding import bind
from crowdfl.protocols.shares import reference, rules
from crowdfl.protocols.shares.chain import ROUND_BYTES
from crowdfl.protocols.shares.circuits import compare
from crowdfl.protocols.shares.circuits.compare import Comparison, GatedComparison
from crowdfl.protocols.shares.dealing.correlations import (
    Cards,
    CountingCards,
    CspCards,
    Dealt,
    KgcCards,
    Masks,
    Part,
    SpCards,
)
from crowdfl.protocols.shares.dealing.keys import seeds_of
from crowdfl.protocols.shares.reference import DealtReference
from crowdfl.protocols.shares.rules import DealtRewards
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.protocols.shares.widths import SAMPLE_BITS, SharesWidths

TAG_BYTES = 32
SP_ROLE, CSP_ROLE = "sp", "csp"
WORD = 8
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class SumMasks:
    """For products with the sum of accepted lanes: its mask a_Z [lanes], <a_i, a_Z> [slots, blocks], <a_Z, a_Z> [blocks]."""

    mask: Bytes = field(repr=False)
    with_lanes: Bytes = field(repr=False)
    square: Bytes = field(repr=False)


@dataclass(frozen=True)
class ReferenceMasks:
    """<a_i, a_c> [slots, blocks], with the masks of the reference's lanes; and what its conditions are checked with."""

    products: Bytes = field(repr=False)
    checks: DealtReference


@dataclass(frozen=True)
class DealtCounts:
    """For numbers of samples: `zeros` modulo 2^128, `roots` b, b^2; and the check of lengths that is gated by theirs."""

    zeros: Dealt
    check: Comparison
    roots: Dealt
    root_squares: Dealt
    norm_check: GatedComparison


@dataclass(frozen=True)
class DealtLanes:
    """This server's shares of one round's masks; every array ends in an axis of bytes, numbers modulo 2^R.

    `lanes` [slots, lanes]: a. `squares` [slots, blocks]: <a_i, a_i>. Last, what the conditions of an upload are checked with:
    its count and its length; or, where everyone counts once, its length alone, or how it stands to the reference.
    """

    lanes: Masks | Bytes = field(repr=False)
    squares: Bytes = field(repr=False)
    sums: SumMasks | None
    checks: DealtCounts | Comparison | ReferenceMasks

    @property
    def counts(self) -> DealtCounts:
        if not isinstance(self.checks, DealtCounts):
            raise RewardsOff('with weighting = "equal" nothing was dealt for numbers of samples')
        return self.checks


def deal_lanes(cards: Cards, widths: SharesWidths) -> DealtLanes:
    lanes = cards.masks(widths.slots, widths.lanes, widths.k, widths.R)
    squares = _products(cards, widths, lanes)
    sums = _deal_sums(cards, widths, lanes) if widths.has_sums else None
    checks: DealtCounts | Comparison | ReferenceMasks
    if widths.has_counts:
        checks = _deal_counts(cards, widths.cohort, widths.R)
    elif widths.has_reference:
        checks = ReferenceMasks(_products(cards, widths, lanes, lambda: lanes[-1:]), reference.deal(cards, widths))
    else:
        checks = compare.deal(cards, widths.cohort, widths.R)
    return DealtLanes(lanes, squares, sums, checks)


def _deal_counts(cards: Cards, people: int, bits: int) -> DealtCounts:
    return DealtCounts(
        zeros=cards.derived(people, SAMPLE_BITS, lambda: [0] * people),
        check=compare.deal(cards, people, SAMPLE_BITS),
        roots=(roots := cards.uniform(people, bits)),
        root_squares=cards.derived(people, bits, lambda: [root * root for root in roots.share]),
        norm_check=compare.deal_gated(cards, people, bits),
    )


def _deal_sums(cards: Cards, widths: SharesWidths, lanes: Masks) -> SumMasks:
    mask = cards.uniform_rows(widths.lanes, widths.R)
    sizes = _sizes(widths)
    square = cards.derived_rows(len(sizes), widths.R, lambda: [block_dots(mask, mask, sizes, widths.R)[0]])
    return SumMasks(mask, _products(cards, widths, lanes, lambda: mask[np.newaxis]), square)


def _products(cards: Cards, widths: SharesWidths, left: Masks, right: Callable[[], Bytes] | None = None) -> Bytes:
    """Inner products of masks block by block, with themselves or with one other; all but the sum's are narrow."""
    sizes = _sizes(widths)
    size = widths.R // 8

    def made() -> Iterator[Bytes]:
        other = None if right is None else right()
        for part in left.parts():
            words = low_words(left[part], widths.k)
            yield block_dots(words, words if other is None else other, sizes, widths.R).reshape(-1, size)

    return cards.derived_rows(len(left) * len(sizes), widths.R, made).reshape(-1, len(sizes), size)


def _sizes(widths: SharesWidths) -> list[int]:
    return [end - start for start, end in widths.blocks]


def low_words(rows: Bytes, bits: int) -> Words:
    """Numbers of at least 64 bits, modulo 2^bits, bits at most 64."""
    words = np.ascontiguousarray(rows[..., :WORD]).view("<u8")[..., 0]
    return words & np.uint64((1 << bits) - 1)


@dataclass(frozen=True)
class DealtRound:
    """What one server has of a round's correlations."""

    lanes: DealtLanes
    rewards: DealtRewards | None  # None where the rewards need no arithmetic, or there are none


def deal_round(cards: Cards, shape: SharesShape) -> DealtRound:
    """The script: whoever runs it gets its own part, in the same order."""
    lanes = deal_lanes(cards, shape.widths)
    if not shape.is_reward_computed:
        return DealtRound(lanes, None)
    return DealtRound(lanes, rules.deal(cards, shape.rule_widths, lanes.counts.roots))


def dealt_file(shape: SharesShape, source: bytes, role: str, number: int) -> Iterator[bytes]:
    """KGC: what it deals to a server for a cohort of a round, in pieces, made as they are asked for; the same each time."""
    if not shape.widths.is_checked:
        return
    seeds = dict(zip((SP_ROLE, CSP_ROLE), seeds_of(source), strict=True))
    cards = KgcCards(*(dealt_stream(shape, seed, owner, number) for owner, seed in seeds.items()))
    deal_round(cards, shape)
    tag = _tag(shape, seeds[role], role, number)
    for piece in cards.files()[role == CSP_ROLE]:
        tag.update(piece)
        yield piece
    yield tag.digest()


@lru_cache(maxsize=16)
def file_bytes(shape: SharesShape) -> Mapping[str, int]:
    """The length of both servers' files of a round, without dealing anything."""
    if not shape.widths.is_checked:
        return {}
    cards = CountingCards()
    deal_round(cards, shape)
    return {role: length + TAG_BYTES for role, length in zip((SP_ROLE, CSP_ROLE), cards.lengths(), strict=True)}


def received(shape: SharesShape, seed: bytes, role: str, number: int, file: Long) -> DealtRound:
    """A server: its part of a round's correlations, from its seed and its file."""
    body = Part(file, 0, max(0, len(file) - TAG_BYTES))
    tag = _tag(shape, seed, role, number)
    for start in range(0, len(body), _PIECE_BYTES):
        tag.update(body[start : start + _PIECE_BYTES])
    if not hmac.compare_digest(bytes(file[len(body) :]), tag.digest()):
        raise DealtMaterialDamaged(
            f"what KGC dealt for round {number} is truncated, altered, or of another task or round: the round is void"
        )
    cards = (SpCards if role == SP_ROLE else CspCards)(dealt_stream(shape, seed, role, number), body)
    dealt = deal_round(cards, shape)
    cards.require_end()
    return dealt


def dealt_stream(shape: SharesShape, seed: bytes, role: str, number: int) -> Stream:
    """What a server's own part of a round's correlations comes from."""
    return Stream(seed, _context("crowdfl dealt 1", shape, role, number))


def _tag(shape: SharesShape, seed: bytes, role: str, number: int) -> "hmac.HMAC":
    key = expand(seed, _context("crowdfl dealt tag 1", shape, role, number), 32)
    return hmac.new(key, digestmod="sha256")


def _context(label: str, shape: SharesShape, role: str, number: int) -> bytes:
    """A file is of one cohort of one round; they are counted through."""
    place = divmod(number - 1, shape.spec.settings.most_cohorts)
    counted = (part.to_bytes(ROUND_BYTES, "big") for part in (place[0] + 1, place[1] + 1))
    return bind(label, shape.spec.name.encode(), role.encode(), *counted)
