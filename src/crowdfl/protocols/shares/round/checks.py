"""Whether each upload is within its bounds, as one bit for each participant, before anything else is opened.

The exchanges, as `round.steps` declares them:
  lanes    the servers open c = z + bound + a for every lane z, and every number of samples behind two masks
  lengths  they open Q + r, where Q is what a squared length falls short of its bound by, and the count's bit behind a dealt bit
  commit   each commits to its shares of the answers
  show     each shows them; CSP's reply carries its word on the round too (`attached`)

What a server sends before it commits is covered by its dealt shares, which are uniform to the other and serve once. In the last
one both learn the same bit for each participant: its samples lie in 1..max_samples *and* its length is within the bound. Where
everyone counts once there are no samples: the bit is of the length alone, and the bound is `max_norm`, whatever is declared.
With a reference (`protocols.shares.reference`) `lengths` is three exchanges, and the bit is of all conditions.

A round that must not go on (too many lanes unusable, too many uploads rejected, SP's bits not those it committed to) is void:
that is a result, not an error, for CSP has to answer with its signed word that nothing was or will be opened.
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from crowdfl.crypto.shares.limbs import Bytes
from crowdfl.crypto.shares.ring import Ring, Words
from crowdfl.errors import RoundEnded
from crowdfl.protocols.shares.circuits import compare
from crowdfl.protocols.shares.circuits.compare import Comparison
from crowdfl.protocols.shares.circuits.lanes import OpenLanes, covered, opened, squares, with_reference
from crowdfl.protocols.shares.circuits.program import CSP, SP, CspSide, Half, SpSide
from crowdfl.protocols.shares.circuits.scalars import Pieces, added, pack, pack_flips, unpack_flips
from crowdfl.protocols.shares.dealing.rounds import DealtCounts, DealtLanes, ReferenceMasks
from crowdfl.protocols.shares.reference import ReferenceScores, in_line
from crowdfl.protocols.shares.round.steps import SALT_BYTES
from crowdfl.protocols.shares.shape import Quorum
from crowdfl.protocols.shares.widths import SAMPLE_BITS, SharesWidths
from crowdfl.reasons import Reason

_Side = SpSide | CspSide


@dataclass(frozen=True)
class CheckInputs:
    """What one server brings: its shares of the uploads whose seals opened, in the order of their slots; the last, of a task
    that has one, is the reference's."""

    slots: list[int]  # places in the sorted manifest, increasing
    lanes: Words = field(repr=False)  # [slots, lanes]
    samples: list[int] = field(repr=False)  # modulo 2^128
    listed: int  # uploads in the manifest, those with broken seals too
    quorum: Quorum
    context: bytes  # what commitments are bound to: the transcript so far
    salt: bytes = field(repr=False)  # this server's, for its commitment
    sums: list[int] = field(default_factory=list, repr=False)  # of products with references, over the rounds before


@dataclass(frozen=True)
class CheckVerdict:
    """Who is in the round, by slot; or why the round is void."""

    accepted: list[int]
    void: Reason | None = None
    products: tuple[int, ...] = field(default=(), repr=False)  # this server's shares of theirs with the reference


@dataclass(frozen=True)
class Checked:
    """The verdict, and this server's shares modulo 2^R for the accepted slots: squared lengths, samples, their squares.

    `samples_shown` is samples + b, opened; b are the dealt `roots`. Where everyone counts once there are none of samples.
    """

    verdict: CheckVerdict
    attached: bytes
    lanes: OpenLanes
    lengths: list[int] = field(repr=False)
    samples: list[int] = field(repr=False)
    sample_squares: list[int] = field(repr=False)
    samples_shown: list[int] = field(repr=False)


@dataclass(frozen=True)
class _Samples:
    """Numbers of samples, widened to R bits, and what was opened of them."""

    dealt: DealtCounts
    shares: list[int] = field(repr=False)
    squares: list[int] = field(repr=False)
    shown: list[int]
    in_range: Bytes = field(repr=False)  # XOR shares


_Attach = Callable[[CheckVerdict], bytes]


def check_program(
    side: _Side, dealt: DealtLanes, widths: SharesWidths, inputs: CheckInputs, attach: _Attach = lambda _: b""
) -> Half[Checked]:
    """All of them. `attach` makes what CSP's last reply carries; CSP's half is over when the round is void."""
    lanes, samples = yield from _open(side, dealt, widths, inputs)
    is_usable = len(widths.blocks) - len(lanes.blocks) <= widths.max_dropped_blocks
    side.course.opened(lanes.kept, is_usable=is_usable)
    if not is_usable:
        return (yield from _unusable(side, lanes, attach))
    lengths = squares(side, dealt, widths, lanes)
    products = list[int]()
    if isinstance(dealt.checks, ReferenceMasks):
        products = with_reference(side, dealt, dealt.checks, widths, lanes)
        short = _short(widths, lanes, lengths, [int(side.index == SP)] * len(lengths))
        scores = ReferenceScores(inputs.slots, short, lengths, products, inputs.sums)
        bits = yield from in_line(side, widths, dealt.checks.checks, scores)
    else:
        bits = yield from _compare(side, dealt.checks, widths, lanes, lengths, samples)
    verdict, attached = yield from _show(side, inputs, bits, products, attach)
    place_of = {slot: place for place, slot in enumerate(inputs.slots)}
    places = [place_of[slot] for slot in verdict.accepted]
    counts = ([], [], []) if samples is None else (samples.shares, samples.squares, samples.shown)
    shares = ([of[place] for place in places] if of else [] for of in (lengths, *counts))
    return Checked(verdict, attached, lanes.only(verdict.accepted), *shares)


def _open(
    side: _Side, dealt: DealtLanes, widths: SharesWidths, inputs: CheckInputs
) -> Half[tuple[OpenLanes, _Samples | None]]:
    """The lanes, and the numbers of samples."""
    slots = inputs.slots
    ring = Ring(widths.k)
    mine = covered(side, dealt, widths, slots, inputs.lanes)
    counts = _CoveredSamples.of(side, dealt.checks, widths, inputs) if isinstance(dealt.checks, DealtCounts) else None
    message = ring.encode(mine.reshape(-1)) + (b"" if counts is None else counts.packed())
    reply = yield from side.swap(message)
    length = mine.size * ring.bytes
    del message  # as long as the lanes: rounds of a thousand are large enough
    theirs = ring.eights(memoryview(reply)[:length]).reshape(mine.shape)
    rest = reply[length:]
    del reply
    samples = None if counts is None else counts.opened(side, widths, slots, Pieces(rest))
    return opened(widths, slots, mine, theirs), samples


@dataclass(frozen=True)
class _CoveredSamples:
    """This server's shares of the numbers of samples, widened to R bits, and what it sends of them."""

    dealt: DealtCounts
    bits: int  # R
    wide: list[int] = field(repr=False)
    checked: list[int] = field(repr=False)
    roots: list[int] = field(repr=False)

    @classmethod
    def of(cls, side: _Side, dealt: DealtCounts, widths: SharesWidths, inputs: CheckInputs) -> Self:
        fresh = added(inputs.samples, [dealt.zeros.share[slot] for slot in inputs.slots], SAMPLE_BITS)
        wide = fresh if side.index == SP else [share - (1 << SAMPLE_BITS) for share in fresh]
        checked = compare.masked(dealt.check, inputs.slots, [share - (side.index == SP) for share in fresh])
        roots = added(wide, [dealt.roots.share[slot] for slot in inputs.slots], widths.R)
        return cls(dealt, widths.R, wide, checked, roots)

    def packed(self) -> bytes:
        return pack(self.checked, SAMPLE_BITS) + pack(self.roots, self.bits)

    def opened(self, side: _Side, widths: SharesWidths, slots: list[int], theirs: Pieces) -> _Samples:
        counts = added(self.checked, theirs.numbers(len(slots), SAMPLE_BITS), SAMPLE_BITS)
        shown = added(self.roots, theirs.numbers(len(slots), self.bits), self.bits)
        in_range = compare.less_than(side, self.dealt.check, slots, counts, widths.max_samples)
        return _Samples(self.dealt, self.wide, self._squared(side, slots, shown), shown, in_range)

    def _squared(self, side: _Side, slots: list[int], shown: list[int]) -> list[int]:
        """(d - b)^2 for d = samples + b."""
        roots, squares = self.dealt.roots.share, self.dealt.root_squares.share
        return [
            (d * d * (side.index == SP) - 2 * d * roots[slot] + squares[slot]) % (1 << self.bits)
            for slot, d in zip(slots, shown, strict=True)
        ]


def _short(widths: SharesWidths, lanes: OpenLanes, lengths: list[int], squares: list[int]) -> list[int]:
    """What each length falls short of its bound by, scaled; `squares` are those of the samples."""
    allowed = lanes.kept * widths.K
    return [allowed * square - widths.buckets * length for square, length in zip(squares, lengths, strict=True)]


def _compare(
    side: _Side,
    checks: DealtCounts | Comparison,
    widths: SharesWidths,
    lanes: OpenLanes,
    lengths: list[int],
    samples: _Samples | None,
) -> Half[Bytes]:
    """Shares of the answers."""
    bound = 1 << (widths.R - 1)
    squares = [int(side.index == SP)] * len(lengths) if samples is None else samples.squares
    short = _short(widths, lanes, lengths, squares)
    plain = checks if isinstance(checks, Comparison) else checks.norm_check.plain
    masked = compare.masked(plain, lanes.slots, short)
    gate = None if samples is None else samples.in_range ^ samples.dealt.norm_check.flips[lanes.slots]
    pieces = Pieces((yield from side.swap(pack(masked, widths.R) + (b"" if gate is None else pack_flips(gate)))))
    shown = added(masked, pieces.numbers(len(masked), widths.R), widths.R)
    if samples is None or gate is None:
        return compare.less_than(side, plain, lanes.slots, shown, bound)
    gate = gate ^ pieces.flips(len(gate))
    return compare.gated_less_than(side, samples.dealt.norm_check, lanes.slots, shown, bound, gate)


def _show(
    side: _Side, inputs: CheckInputs, bits: Bytes, products: list[int], attach: _Attach
) -> Half[tuple[CheckVerdict, bytes]]:
    """Commitments, then what they are to."""
    mine = inputs.salt + pack_flips(bits)
    bound = yield from side.swap(_commitment(side.index, inputs.context, mine))
    if isinstance(side, SpSide):
        answer = yield from side.swap(mine)
        theirs = answer[: len(mine)]
        attached = answer[len(mine) :]
        if not hmac.compare_digest(bound, _commitment(CSP, inputs.context, theirs)):
            raise RoundEnded("what CSP showed is not what it had committed to: the round is void")
        return _verdict(side, inputs, bits, theirs, products), attached
    theirs = side.heard()
    if not hmac.compare_digest(bound, _commitment(SP, inputs.context, theirs)):
        return (yield from _answer(side, bytes(len(mine)), CheckVerdict([], Reason.ALTERED_BITS), attach))
    return (yield from _answer(side, mine, _verdict(side, inputs, bits, theirs, products), attach))


def _commitment(index: int, context: bytes, shown: bytes) -> bytes:
    """Of one server: a copy of the other's commitment is none."""
    return hashlib.sha256(b"crowdfl accept 1" + bytes([index]) + hashlib.sha256(context).digest() + shown).digest()


def _answer(side: CspSide, mine: bytes, verdict: CheckVerdict, attach: _Attach) -> Half[tuple[CheckVerdict, bytes]]:
    attached = attach(verdict)
    if verdict.void is None:
        yield from side.answer(mine + attached)
    else:
        side.finish(mine + attached)
    return verdict, attached


def _verdict(side: _Side, inputs: CheckInputs, mine: Bytes, theirs: bytes, products: list[int]) -> CheckVerdict:
    bits = mine ^ unpack_flips(theirs[SALT_BYTES:], len(mine))
    slots = inputs.slots[:-1] if inputs.quorum.has_reference else inputs.slots
    if len(slots) < len(bits) and not bits[-1]:
        return CheckVerdict([], Reason.REFERENCE_UNUSABLE)
    accepted = [slot for slot, bit in zip(slots, bits, strict=False) if bit]
    side.course.judged(len(accepted))
    own = tuple(product for product, bit in zip(products, bits[: len(slots)], strict=False) if bit)
    return CheckVerdict(accepted, inputs.quorum.why_void(len(accepted), inputs.listed), own)


def _unusable(side: _Side, lanes: OpenLanes, attach: _Attach) -> Half[Checked]:
    """Too many lanes cannot be used: nothing more is opened, CSP says so in its next answer."""
    verdict = CheckVerdict([], Reason.ALTERED_SHARES)
    if isinstance(side, SpSide):
        attached = yield from side.swap(b"")
    else:
        side.heard()
        _, attached = yield from _answer(side, b"", verdict, attach)
    return Checked(verdict, attached, lanes.only([]), [], [], [], [])
