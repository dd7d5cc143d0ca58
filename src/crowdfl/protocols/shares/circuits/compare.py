"""Whether a shared number lies in an interval: one opening, exact for every number, and the answer stays shared.

KGC deals r, uniform modulo 2^m, and keys of the distributed comparison function f(t) = [t < r]. The servers open c = x + r,
which is uniform whatever x is. Then x lies in [0, S) exactly if f(c) ^ f(c - S) ^ [c < S] is 1: modulo 2^m, r lies among the
S numbers up to c. Each server evaluates its key at both points and has an XOR share of the answer.

A gated comparison answers "and" with a bit x that is shared already, without an exchange of its own. KGC deals a bit rho and
keys of rho * f, which is [t < rho * r]. While c is opened, x ^ rho is opened too; if it is e, then x * y = e * y ^ rho * y.

A server that alters its share of x before c is opened compares another number: it gets one bit, of a number shifted by what it
chose. It can do no more: c is uniform for every shift, and evaluations of a key at other points are shares that it cannot read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain

import numpy as np

from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.shares import dcf
from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.protocols.shares.circuits.program import SP, Side
from crowdfl.protocols.shares.dealing.correlations import Cards, Dealt

_TOGETHER = 128  # numbers compared at once
_MADE_TOGETHER = 512


@dataclass(frozen=True)
class ComparisonKeys:
    """Of f(t) = [t < a dealt number], one for each number: this server's seeds, and the corrections that both have.

    `numbers` are those at KGC, who knows them; a server has its shares there.
    """

    bits: int
    seeds: bytes = field(repr=False)
    corrections: Long = field(repr=False)
    numbers: Sequence[int] = field(default=(), repr=False)

    def evaluate(self, index: int, places: Sequence[int], points: Sequence[int]) -> Bytes:
        """A server's share of f at each point, by the keys at these places."""
        first = min(places)
        last = max(places) + 1
        each = dcf.corrections_bytes(1, self.bits)
        own = slice(first * dcf.SEED_BYTES, last * dcf.SEED_BYTES)
        corrections = self.corrections[first * each : last * each]
        instances = np.array(places, dtype=np.int64) - first
        return dcf.evaluate(index, self.seeds[own], corrections, instances, points, self.bits)


@dataclass(frozen=True)
class Comparison:
    """For some numbers modulo 2^bits: this server's shares of the masks r, and its keys."""

    mask: Dealt
    keys: ComparisonKeys


@dataclass(frozen=True)
class GatedComparison:
    """The same; dealt bits, XOR-shared; and keys that answer only where the dealt bit is 1."""

    plain: Comparison
    gated: ComparisonKeys
    flips: Bytes = field(repr=False)


def deal(cards: Cards, count: int, bits: int) -> Comparison:
    mask = cards.uniform(count, bits)
    seeds = cards.seeds(count, dcf.SEED_BYTES)
    (keys,) = _keys(cards, bits, [(mask.share, *seeds)])
    return Comparison(mask, keys)


def deal_gated(cards: Cards, count: int, bits: int) -> GatedComparison:
    mask = cards.uniform(count, bits)
    seeds = cards.seeds(count, dcf.SEED_BYTES)
    flips = cards.flips(count)
    gated = cards.seeds(count, dcf.SEED_BYTES)
    flipped = [number * int(flip) for flip, number in zip(flips, mask.share, strict=True)]
    plain, only = _keys(cards, bits, [(mask.share, *seeds), (flipped, *gated)])
    return GatedComparison(Comparison(mask, plain), only, flips)


def _keys(cards: Cards, bits: int, kinds: Sequence[tuple[Sequence[int], bytes, bytes]]) -> list[ComparisonKeys]:
    """For each kind, numbers and both servers' seeds. KGC makes a few hundred keys at a time, which stay in a processor's
    cache; if there are fewer, those of all kinds at once, which takes hardly longer than one of them."""
    count = len(kinds[0][1] or kinds[0][2]) // dcf.SEED_BYTES
    each = dcf.corrections_bytes(1, bits)

    @cache
    def together() -> bytes:
        numbers, sp, csp = zip(*kinds, strict=True)
        return dcf.generate([*chain(*numbers)], bits, b"".join(sp), b"".join(csp))

    def made(kind: int) -> Iterator[bytes]:
        if count <= _MADE_TOGETHER:
            yield together()[kind * count * each : (kind + 1) * count * each]
            return
        numbers, sp, csp = kinds[kind]
        for start in range(0, count, _MADE_TOGETHER):
            part = slice(start, start + _MADE_TOGETHER)
            own = slice(start * dcf.SEED_BYTES, part.stop * dcf.SEED_BYTES)
            yield dcf.generate(numbers[part], bits, sp[own], csp[own])

    return [
        ComparisonKeys(bits, sp or csp, cards.public(count * each, partial(made, kind)), numbers)
        for kind, (numbers, sp, csp) in enumerate(kinds)
    ]


def masked(dealt: Comparison, places: Sequence[int], shares: Sequence[int]) -> list[int]:
    """This server's shares of what is opened: number i is covered by the mask of place i."""
    modulus = 1 << dealt.mask.bits
    return [(share + dealt.mask.share[place]) % modulus for place, share in zip(places, shares, strict=True)]


def less_than(side: Side, dealt: Comparison, places: Sequence[int], opened: Sequence[int], bound: int) -> Bytes:
    """XOR shares of [x in [0, bound)], from the opened c = x + r of each place."""
    answer = _evaluated(side, dealt.keys, places, opened, bound)
    return answer ^ _below(opened, bound) if side.index == SP else answer


def gated_less_than(
    side: Side, dealt: GatedComparison, places: Sequence[int], opened: Sequence[int], bound: int, gate: Bytes
) -> Bytes:
    """XOR shares of [x in [0, bound)] and the shared bit of which `gate` is the opened sum with the dealt one."""
    below: Bytes = dealt.flips[places] & _below(opened, bound)
    plain: Bytes = gate & less_than(side, dealt.plain, places, opened, bound)
    return _evaluated(side, dealt.gated, places, opened, bound) ^ below ^ plain


def _evaluated(side: Side, keys: ComparisonKeys, places: Sequence[int], opened: Sequence[int], bound: int) -> Bytes:
    """A few at a time: all of a thousand would take a multiple of the memory of their keys."""
    found = np.empty(len(opened), dtype=np.uint8)
    for start in range(0, len(opened), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        here, shown = places[part], opened[part]
        points = [*shown, *((c - bound) % (1 << keys.bits) for c in shown)]
        values = keys.evaluate(side.index, [*here, *here], points)
        found[part] = values[: len(shown)] ^ values[len(shown) :]
    return found


def _below(opened: Sequence[int], bound: int) -> Bytes:
    return np.array([c < bound for c in opened], dtype=np.uint8)
