"""A CSP that adds a large number to its share of a divisor, to find the mask in the upper half of what it sees.

SP multiplies a divisor y by a mask m that it draws; CSP sees m*y. If CSP could add 2^j of its choice to y, it would see
m*2^j + m*y, and read both. Against that stands the length of what CSP sends of its share where a rule divides; and `gate`
divides nothing: the reciprocal of its sum is looked up, behind a dealt shift.
"""

from contextlib import ExitStack
from math import log2

import numpy as np

from crowdfl.crypto.shares.ring import Stream
from crowdfl.protocols.shares import rule_widths, table
from crowdfl.protocols.shares.circuits.program import CspRun, CspSide, Half, SpSide
from crowdfl.protocols.shares.circuits.reciprocal import ReciprocalWidths
from crowdfl.protocols.shares.circuits.scalars import whole_bytes
from crowdfl.protocols.shares.dealing.correlations import CspCards, KgcCards, SpCards
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, difference
from crowdfl_lab.audit.shares.accomplices import VICTIM, forcing
from crowdfl_lab.audit.shares.deviating_round import (
    FLIPS,
    MOST_SAMPLES,
    PEOPLE,
    Bend,
    added_to,
    bend_server,
    integers,
    paying,
    played,
    shape_of,
    sketch_of,
    switched,
    updates,
)
from crowdfl_lab.parties import LocalParties

_OFF_LOG = "error of log2 of the divisor; blind: the middle of its range"
_OFF_COUNT = "share of wrong guesses; blind: always the same guess"
_TITLE = "the sum that rewards are divided by, by CSP adding to its share ({})"
_SIZE, _LOOK_UPS = 64, 200


class _Unguarded(ReciprocalWidths):
    """CSP's share as long as CSP likes; the masks are those of the guarded division."""

    @property
    def f_bits(self) -> int:
        return whole_bytes(self.hi + self.high + 64)

    @property
    def lo(self) -> int:
        return self.g + super().f_bits + 45


def attack_inflated() -> list[Finding]:
    """`gate` with a division in place of its table, unguarded; `agreement` as built; the table."""
    with ExitStack() as switches:
        switches.enter_context(switched(rule_widths, "ReciprocalWidths", _Unguarded))
        switches.enter_context(switched(rule_widths, "_LARGEST_TABLE", 0))
        switches.enter_context(switched(SharesShape, "longest_payload", property(lambda _: 1 << 20)))
        weakened = _inflate("shares, gate that divides unguarded", "gate", FLIPS + 1)
    return [weakened, _inflate(SHARES, "agreement", FLIPS), attack_table()]


def _inflate(subject: str, rule: str, step: int) -> Finding:
    parties, trained = paying(rule=rule, rounds=2), updates()
    widths = shape_of(parties).rule_widths.payout
    shift = 1 << (widths.reciprocal.f_bits - 1)
    alone = forcing(parties, {VICTIM}) if rule == "gate" else None
    bend_server(parties, "CSP", _adding(widths.reciprocal, step, shift - (1 << widths.reciprocal.b_bits), alone))
    played(parties, 1, trained)
    (seen,) = parties.csp.party.view.of("sum")[-1]
    added = shift - (1 << widths.reciprocal.b_bits)
    mask, rest = divmod(seen, added)
    guess = max(1, -(-rest // mask)) if mask else 1
    total = PEOPLE[VICTIM] if rule == "gate" else _agreement(parties)
    truth, blind = log2((total << widths.s) + 1), (widths.low + widths.high) / 2
    attack = Attack("inflated divisor", "new", _TITLE.format(rule), ("CSP",), difference, _OFF_LOG)
    recovered = f"{guess} where {(total << widths.s) + 1} is true"
    note = f"2^{added.bit_length()} added, masks of 2^{widths.reciprocal.lo} to 2^{widths.reciprocal.hi}"
    return attack.score(subject, log2(guess), blind, truth, recovered, note)


def _adding(widths: ReciprocalWidths, step: int, number: int, forced: Bend | None) -> Bend:
    """To CSP's own share of the divisor, which is shorter than what it hears."""

    def bend(at: int, message: bytes) -> bytes:
        if at == step and len(message) == widths.f_bits // 8:
            return added_to(message, 0, widths.f_bits, number)
        return message if forced is None else forced(at, message)

    return bend


def _agreement(parties: LocalParties) -> int:
    """The sum of weights, from the plaintexts and the round's sketch."""
    ring, sketch = shape_of(parties).ring, sketch_of(parties)
    rows = np.array([ring.of_signed(integers(parties, update).astype(np.int64)) for update in updates().values()])
    lanes = [[int(v) for v in row] for row in ring.signed(ring.reduced(sketch.lanes(rows)))]
    total = [sum(column) for column in zip(*lanes, strict=True)]
    others = ([whole - own for whole, own in zip(total, row, strict=True)] for row in lanes)
    return sum(
        max(0, sum(a * b for a, b in zip(row, rest, strict=True))) for row, rest in zip(lanes, others, strict=True)
    )


def attack_table() -> Finding:
    """Many look-ups of sums of one person's samples, CSP's share of the place shifted in each."""
    rng = np.random.default_rng(5)
    truths = rng.integers(1, MOST_SAMPLES + 1, _LOOK_UPS)
    guesses = np.array([_looked_up(int(truth), rng) for truth in truths])
    right = int(np.count_nonzero(guesses == truths))
    wrong, blind = 1 - right / _LOOK_UPS, 1 - float(np.bincount(truths).max()) / _LOOK_UPS
    attack = Attack("inflated divisor", "new", _TITLE.format("gate"), ("CSP",), difference, _OFF_COUNT)
    recovered = f"{right} of {_LOOK_UPS} sums"
    note = f"a place among {_SIZE}, uniform whatever the sum is and whatever CSP adds"
    return attack.score(SHARES, wrong, blind, 0.0, recovered, note)


def _looked_up(truth: int, rng: np.random.Generator) -> int:
    """What CSP makes of the place that it sees, less everything it knows."""
    seeds, share = (rng.bytes(32), rng.bytes(32)), int(rng.integers(0, _SIZE))
    kgc = KgcCards(*(Stream(seed, b"audit") for seed in seeds))
    values = [0, *((1 << 40) // total for total in range(1, _SIZE))]
    table.deal(kgc, _SIZE, 64, lambda: values)
    sp_file, csp_file = kgc.files()
    sp = table.deal(SpCards(Stream(seeds[0], b"audit"), sp_file), _SIZE, 64, lambda: values)
    csp = table.deal(CspCards(Stream(seeds[1], b"audit"), csp_file), _SIZE, 64, lambda: values)

    def answering(side: CspSide) -> Half[int]:
        return (yield from table.look_up(side, csp, share + _SIZE // 2))

    asked = next(table.look_up(SpSide(), sp, truth - share))
    CspRun(answering).answer(asked)
    return (int.from_bytes(asked, "little") + share) % _SIZE
