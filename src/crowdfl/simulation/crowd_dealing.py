"""What KGC deals to two servers that one process plays: the shares that their files give them, and answers in place of keys.

A comparison is by two keys, so that neither server learns the number. Whoever plays both has the number from KGC: SP's share of
an answer is the answer, and CSP's is zero. So it is with the masks of lanes and their squares, unless a share of them is taken
modulo another number later, for which it has to be uniform. Everything else comes from the script and the streams that real
files come from.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.crypto.shares.ring import Ring, Words
from crowdfl.protocols.shares.circuits.compare import Comparison, ComparisonKeys, GatedComparison
from crowdfl.protocols.shares.circuits.program import SP
from crowdfl.protocols.shares.dealing.correlations import CspCards, KgcCards, Masks, SpCards
from crowdfl.protocols.shares.dealing.keys import seeds_of
from crowdfl.protocols.shares.dealing.rounds import (
    CSP_ROLE,
    SP_ROLE,
    WORD,
    DealtCounts,
    DealtLanes,
    DealtRound,
    ReferenceMasks,
    deal_round,
    dealt_stream,
)
from crowdfl.protocols.shares.shape import SharesShape

_PIECE = 1 << 15  # masks that are made together


class _KeyLess:
    """Cards without what both servers' keys have in common."""

    def public(self, length: int, make: Callable[[], Iterable[bytes]]) -> bytes:
        del length, make
        return b""


class _Kgc(_KeyLess, KgcCards): ...


class _Sp(_KeyLess, SpCards): ...


class _Csp(_KeyLess, CspCards): ...


class _WholeKgc(_Kgc):
    """Keeps what it deals of lanes, and corrects none of it. The streams go on where those of a real file do."""

    def masks(self, slots: int, lanes: int, narrow: int, bits: int) -> Masks:
        ring, size = Ring(narrow), bits // 8
        sp, csp = self._sp.aside(slots * lanes * size), self._csp.aside(slots * lanes * ring.bytes)
        words = np.empty(slots * lanes, dtype=np.uint64)
        for start in range(0, len(words), _PIECE):
            piece = words[start : start + _PIECE]
            shares = sp(start * size, len(piece) * size)
            np.copyto(piece, np.ndarray(piece.shape, "<u8", shares, strides=(size,)))
            ring.accumulate(np.add, piece, csp(start * ring.bytes, len(piece) * ring.bytes))
        words &= np.uint64(ring.mask)
        return _masks(words, slots, lanes)

    def derived_rows(self, count: int, bits: int, values: Callable[[], Iterable[Bytes]]) -> Bytes:
        self._sp.aside(count * bits // 8)
        return np.concatenate(list(values()))


class _WholeSp(_Sp):
    """Its shares of lanes are what KGC knows."""

    def masks(self, slots: int, lanes: int, narrow: int, bits: int) -> Masks:
        del narrow
        self._own.aside(slots * lanes * bits // 8)
        return _masks(np.empty(0, dtype=np.uint64), slots, lanes)

    def derived_rows(self, count: int, bits: int, values: Callable[[], Iterable[Bytes]]) -> Bytes:
        del values
        self._own.aside(count * bits // 8)
        return np.empty((0, bits // 8), dtype=np.uint8)


class _EmptyCsp(_Csp):
    """Its shares of lanes are zero."""

    def masks(self, slots: int, lanes: int, narrow: int, bits: int) -> Masks:
        del bits
        self._own.aside(slots * lanes * narrow // 8)
        return _masks(np.broadcast_to(np.uint64(0), slots * lanes), slots, lanes)

    def derived_rows(self, count: int, bits: int, values: Callable[[], Iterable[Bytes]]) -> Bytes:
        del values
        return np.zeros((count, bits // 8), dtype=np.uint8)


def _masks(words: Words, slots: int, lanes: int) -> Masks:
    """Numbers below 2^64, as rows of one word each."""

    def made(first: int, last: int) -> Bytes:
        return np.ascontiguousarray(words[first:last], dtype="<u8").view(np.uint8).reshape(-1, WORD)

    return Masks(slots, lanes, WORD, made)


@dataclass(frozen=True)
class _Answers(ComparisonKeys):
    """The dealt numbers themselves."""

    def evaluate(self, index: int, places: Sequence[int], points: Sequence[int]) -> Bytes:
        if index != SP:
            return np.zeros(len(points), dtype=np.uint8)
        answers = (point < self.numbers[place] for place, point in zip(places, points, strict=True))
        return np.fromiter(answers, dtype=np.uint8, count=len(points))


def dealt_together(shape: SharesShape, source: bytes, file: int) -> tuple[DealtRound, DealtRound]:
    """SP's part and CSP's of what KGC deals for a cohort; files are counted through."""
    is_whole = not (shape.widths.has_sums or shape.widths.has_reference)  # both take shares of lanes' products further

    def streams() -> Iterable[tuple[str, bytes]]:
        return zip((SP_ROLE, CSP_ROLE), seeds_of(source), strict=True)

    kgc = (_WholeKgc if is_whole else _Kgc)(*(dealt_stream(shape, seed, role, file) for role, seed in streams()))
    values = deal_round(kgc, shape)
    corrections = b"".join(kgc.files()[1])
    own = [dealt_stream(shape, seed, role, file) for role, seed in streams()]
    sp = deal_round((_WholeSp if is_whole else _Sp)(own[0], b""), shape)
    csp = deal_round((_EmptyCsp if is_whole else _Csp)(own[1], corrections), shape)
    if is_whole:
        lanes = replace(sp.lanes, lanes=values.lanes.lanes, squares=values.lanes.squares)
        sp = replace(sp, lanes=lanes)
    return _answering(sp, values), _answering(csp, values)


def _answering(dealt: DealtRound, values: DealtRound) -> DealtRound:
    return replace(dealt, lanes=replace(dealt.lanes, checks=_checks(dealt.lanes, values.lanes)))


def _checks(dealt: DealtLanes, values: DealtLanes) -> DealtCounts | Comparison | ReferenceMasks:
    own, known = dealt.checks, values.checks
    if isinstance(own, DealtCounts) and isinstance(known, DealtCounts):
        norm = _gated(own.norm_check, known.norm_check)
        return replace(own, check=_plain(own.check, known.check), norm_check=norm)
    if isinstance(own, ReferenceMasks) and isinstance(known, ReferenceMasks):
        pairs = zip(own.checks.checks, known.checks.checks, strict=True)
        square = _plain(own.checks.square, known.checks.square)
        return replace(own, checks=replace(own.checks, checks=tuple(_plain(*pair) for pair in pairs), square=square))
    assert isinstance(own, Comparison) and isinstance(known, Comparison)  # noqa: S101, PT018 -- one script made both
    return _plain(own, known)


def _plain(own: Comparison, known: Comparison) -> Comparison:
    return replace(own, keys=_answers(known.keys))


def _gated(own: GatedComparison, known: GatedComparison) -> GatedComparison:
    return replace(own, plain=_plain(own.plain, known.plain), gated=_answers(known.gated))


def _answers(keys: ComparisonKeys) -> _Answers:
    return _Answers(keys.bits, b"", b"", keys.numbers)
