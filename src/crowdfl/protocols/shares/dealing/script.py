"""What KGC deals for one round: the script that KGC, SP and CSP run alike, and the files it makes.

A file ends with a tag that only its server and KGC can make: one that was truncated, altered, or dealt for another task or
round is refused before anything is computed with it.
"""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from crowdfl.crypto.shares.ring import Stream, expand
from crowdfl.errors import DealtMaterialDamaged
from crowdfl.protocols.shares import rules
from crowdfl.protocols.shares.chain import ROUND_BYTES, bind
from crowdfl.protocols.shares.dealing import masks
from crowdfl.protocols.shares.dealing.correlations import Bytes, Cards, CspCards, Dealt, DealtRows, KgcCards, SpCards
from crowdfl.protocols.shares.dealing.keys import seeds_of
from crowdfl.protocols.shares.dealing.masks import DealtLanes
from crowdfl.protocols.shares.rules import DealtRewards
from crowdfl.protocols.shares.shape import SharesShape

TAG_BYTES = 32
SP_ROLE, CSP_ROLE = "sp", "csp"


@dataclass(frozen=True)
class DealtRound:
    """What one server has of a round's correlations."""

    lanes: DealtLanes
    rewards: DealtRewards | None  # None in a task that pays nothing


def deal_round(cards: Cards, shape: SharesShape) -> DealtRound:
    """The script: whoever runs it gets its own part, in the same order."""
    lanes = masks.deal(cards, shape.widths)
    return DealtRound(lanes, rules.deal(cards, shape.rule_widths, lanes.roots) if shape.payment else None)


def files(shape: SharesShape, source: bytes, number: int) -> dict[str, bytes]:
    """KGC: what it deals to both servers for a round; the same each time."""
    if not shape.widths.is_checked:
        return {SP_ROLE: b"", CSP_ROLE: b""}
    seeds = dict(zip((SP_ROLE, CSP_ROLE), seeds_of(source), strict=True))
    cards = KgcCards(*(_stream(shape, seeds[role], role, number) for role in (SP_ROLE, CSP_ROLE)))
    deal_round(cards, shape)
    bodies = dict(zip((SP_ROLE, CSP_ROLE), cards.files(), strict=True))
    return {role: bodies[role] + _tag(shape, seeds[role], role, number, bodies[role]) for role in bodies}


def file_bytes(shape: SharesShape) -> dict[str, int]:
    """The length of both servers' files of a round, without dealing anything."""
    if not shape.widths.is_checked:
        return {}
    cards = _CountingCards()
    deal_round(cards, shape)
    return {SP_ROLE: cards.sp + TAG_BYTES, CSP_ROLE: cards.csp + TAG_BYTES}


def received(shape: SharesShape, seed: bytes, role: str, number: int, file: bytes) -> DealtRound:
    """A server: its part of a round's correlations, from its seed and its file."""
    body, tag = memoryview(file)[:-TAG_BYTES], file[-TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(shape, seed, role, number, body)):
        raise DealtMaterialDamaged(
            f"what KGC dealt for round {number} is truncated, altered, or of another task or round: the round is void"
        )
    cards = (SpCards if role == SP_ROLE else CspCards)(_stream(shape, seed, role, number), body)
    dealt = deal_round(cards, shape)
    cards.require_end()
    return dealt


def _stream(shape: SharesShape, seed: bytes, role: str, number: int) -> Stream:
    """What a server's own part of a round's correlations comes from."""
    return Stream(seed, _context("crowdfl dealt 1", shape, role, number))


def _tag(shape: SharesShape, seed: bytes, role: str, number: int, body: bytes | memoryview) -> bytes:
    key = expand(seed, _context("crowdfl dealt tag 1", shape, role, number), 32)
    return hmac.digest(key, body, "sha256")


def _context(label: str, shape: SharesShape, role: str, number: int) -> bytes:
    return bind(label, shape.spec.name.encode(), role.encode(), number.to_bytes(ROUND_BYTES, "big"))


class _CountingCards:
    """Runs the script for the lengths of its files: all numbers are zero, and take no memory where there are many."""

    def __init__(self) -> None:
        self.sp = self.csp = 0

    def uniform(self, count: int, bits: int) -> Dealt:
        return Dealt(bits, [0] * count)

    private_sp = private_csp = uniform

    def derived(self, count: int, bits: int, values: Callable[[], Sequence[int]]) -> Dealt:
        del values
        self.csp += count * bits // 8
        return self.uniform(count, bits)

    def uniform_rows(self, count: int, bits: int) -> DealtRows:
        return DealtRows(bits, np.broadcast_to(np.uint8(0), (count, bits // 8)))

    def narrow_rows(self, count: int, narrow: int, bits: int) -> DealtRows:
        self.csp += count * (bits - narrow) // 8
        return self.uniform_rows(count, bits)

    def derived_rows(self, count: int, bits: int, values: Callable[[], Bytes]) -> DealtRows:
        del values
        self.csp += count * bits // 8
        return self.uniform_rows(count, bits)

    def flips(self, count: int) -> Bytes:
        return np.zeros(count, dtype=np.uint8)

    def derived_flips(self, count: int, values: Callable[[], Bytes]) -> Bytes:
        del values
        self.csp += (count + 7) // 8
        return self.flips(count)

    def seeds(self, count: int, size: int) -> tuple[bytes, bytes]:
        return bytes(count * size), b""

    def public(self, length: int, make: Callable[[], bytes]) -> bytes:
        del make
        self.sp, self.csp = self.sp + length, self.csp + length
        return b""
