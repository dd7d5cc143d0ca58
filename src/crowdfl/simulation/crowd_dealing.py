"""What KGC deals to two servers that one process plays: the shares that their files give them, and answers in place of keys.

A comparison is by two keys, so that neither server learns the number. Whoever plays both has the number from KGC: SP's share of
an answer is the answer, and CSP's is zero. Everything else comes from the script and the streams that real files come from.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.protocols.shares.circuits.compare import Comparison, ComparisonKeys, GatedComparison
from crowdfl.protocols.shares.circuits.program import SP
from crowdfl.protocols.shares.dealing.correlations import CspCards, KgcCards, SpCards
from crowdfl.protocols.shares.dealing.keys import seeds_of
from crowdfl.protocols.shares.dealing.rounds import (
    CSP_ROLE,
    SP_ROLE,
    DealtCounts,
    DealtLanes,
    DealtRound,
    ReferenceMasks,
    deal_round,
    dealt_stream,
)
from crowdfl.protocols.shares.shape import SharesShape


class _KeyLess:
    """Cards without what both servers' keys have in common."""

    def public(self, length: int, make: Callable[[], Iterable[bytes]]) -> bytes:
        del length, make
        return b""


class _Kgc(_KeyLess, KgcCards): ...


class _Sp(_KeyLess, SpCards): ...


class _Csp(_KeyLess, CspCards): ...


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

    def streams() -> Iterable[tuple[str, bytes]]:
        return zip((SP_ROLE, CSP_ROLE), seeds_of(source), strict=True)

    kgc = _Kgc(*(dealt_stream(shape, seed, role, file) for role, seed in streams()))
    values = deal_round(kgc, shape)
    corrections = b"".join(kgc.files()[1])
    own = [dealt_stream(shape, seed, role, file) for role, seed in streams()]
    sp = deal_round(_Sp(own[0], b""), shape)
    csp = deal_round(_Csp(own[1], corrections), shape)
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
