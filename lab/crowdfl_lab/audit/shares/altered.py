"""A deviating server with one participant: what the participant's own reward tells about another's upload.

A reward is a share of the sum of all weights. A server forces every comparison of a rule by shifting its own shares, so that
all weights but the accomplice's and the victim's are zero, whichever server it is: the accomplice's reward then shows the
victim's weight. Under `gate` that is the victim's number of samples. Under `agreement` weights are inner products; if CSP
also shifts the opened sum of lanes, the victim's weight is a linear function of its update, of CSP's choice.

What is conceded, measured: one bit of a comparison for each participant and round, and what a claim says by itself.

A CSP that adds a large number to its share of a divisor, to find the mask in the upper half of what it sees.

SP multiplies a divisor y by a mask m that it draws; CSP sees m*y. If CSP could add 2^j of its choice to y, it would see
m*2^j + m*y, and read both. Against that stands the length of what CSP sends of its share where a rule divides; and `gate`
divides nothing: the reciprocal of its sum is looked up, behind a dealt shift.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import log2

import numpy as np

from crowdfl.crypto.shares.ring import Stream
from crowdfl.protocols.claims import Claim
from crowdfl.protocols.shares import rule_widths, table
from crowdfl.protocols.shares.circuits.program import CspRun, CspSide, Half, SpSide
from crowdfl.protocols.shares.circuits.reciprocal import ReciprocalWidths
from crowdfl.protocols.shares.circuits.scalars import whole_bytes
from crowdfl.protocols.shares.dealing.correlations import CspCards, KgcCards, SpCards
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Floats, difference, relative, rms
from crowdfl_lab.audit.shares.deviating_round import (
    BUDGET,
    CHECK,
    COMPARE,
    FLIPS,
    MOST_SAMPLES,
    PAYMENT,
    PEOPLE,
    SIZE,
    SUM,
    Bend,
    added_to,
    bend_server,
    integers,
    lanes_opened,
    paying,
    phone,
    played,
    server_sp,
    shape_of,
    sketch_of,
    stage,
    switched,
    updates,
)
from crowdfl_lab.parties import LocalParties

VICTIM, ACCOMPLICE = "p2", "p0"
_NAMES = sorted(PEOPLE)
_LINEAR_COMPARE = 7  # the step of `agreement` in which T is compared
_FACTOR, _CERTAIN = 30, 42  # bits: of the shift of the sum of lanes; of a weight that the accomplice knows
_OFF_SAMPLES = "relative error; blind: half of max_samples"
_OFF_ENTRY = "relative error of one entry of an update; blind: zero"
_SAMPLES_TITLE = "a sample count, by {} that forces gates, with one participant"
_LINEAR_TITLE = "an entry of an upload, by CSP that shifts the sum of lanes, with one participant ({})"


def attack_gates() -> list[Finding]:
    """Conceded: the number of samples of anyone, for a round in which the others are paid nothing."""
    return [_count_by("CSP"), _count_by("SP")]


def _count_by(server: str) -> Finding:
    parties = paying()
    bend = forcing(parties, {VICTIM, ACCOMPLICE})
    bend_server(parties, server, bend)
    reward = played(parties, 1, updates()).rewards[ACCOMPLICE]
    guess = round((PAYMENT - len(PEOPLE)) * PEOPLE[ACCOMPLICE] / reward) - PEOPLE[ACCOMPLICE]
    attack = Attack(
        "forced gates", "new", _SAMPLES_TITLE.format(server), (server, "participant"), relative, _OFF_SAMPLES, True
    )
    recovered = f"{guess} samples where {PEOPLE[VICTIM]} is true"
    note = f"of {BUDGET}, {reward} millionths to the accomplice: its share of the sum of two weights; one sum a round"
    return attack.score(SHARES, guess, MOST_SAMPLES // 2, PEOPLE[VICTIM], recovered, note)


def forcing(parties: LocalParties, paid: set[str]) -> Bend:
    """Every number that `gate` compares with zero is moved far to one side of it."""
    widths = shape_of(parties).rule_widths

    def bend(step: int, message: bytes) -> bytes:
        if step != COMPARE:
            return message
        place = 0
        for bits in (widths.compare_bits, widths.gate_bits):
            for who in _NAMES:
                message = added_to(message, place, bits, (1 if who in paid else -1) << (bits - 2))
                place += bits // 8
        return message

    return bend


def attack_shifted_sum() -> list[Finding]:
    """`agreement`, for which it is conceded; and `gate` under the same attack."""
    return [_entry_by("agreement", conceded=True), _entry_by("gate", conceded=False)]


def _entry_by(rule: str, *, conceded: bool) -> Finding:
    """An entry that stands alone in a lane: the lane is moved by 2^30, and every T with it."""
    parties, trained = paying(rule=rule), updates()
    shifting = _Shifting(parties, _LINEAR_COMPARE if rule == "agreement" else COMPARE)
    bend_server(parties, "CSP", shifting)
    reward = played(parties, 1, trained).rewards[ACCOMPLICE]
    mine, truth = (float(integers(parties, trained[who])[shifting.entry]) for who in (ACCOMPLICE, VICTIM))
    own = (1 << _CERTAIN) + shifting.sign * mine * (1 << _FACTOR)
    other = own * ((PAYMENT - len(PEOPLE)) / reward - 1) if reward else 0.0
    guess = shifting.sign * (other - (1 << _CERTAIN)) / (1 << _FACTOR)
    attack = Attack(
        "shifted sum", "new", _LINEAR_TITLE.format(rule), ("CSP", "participant"), _apart, _OFF_ENTRY, conceded
    )
    recovered = f"{guess:.1f} where {truth:.0f} is true"
    note = "a number of a reward's precision a round" if conceded else "a weight is a number of samples, or zero"
    return attack.score(SHARES, guess, 0.0, truth, recovered, note)


def _apart(guess: float, truth: float) -> float:
    return abs(guess - truth) / abs(truth)


class _Shifting:
    """CSP adds 2^30 to one lane of the sum, then moves the two weights above zero and all others below."""

    def __init__(self, parties: LocalParties, compare: int) -> None:
        self._parties, self._compare = parties, compare
        self.entry = self.sign = self._place = -1

    def __call__(self, step: int, message: bytes) -> bytes:
        shape = shape_of(self._parties)
        if step == SUM:
            return added_to(message, self._lane() * shape.widths.R // 8, shape.widths.R, 1 << _FACTOR)
        if step != self._compare:
            return message
        rule = shape.rule_widths
        bits = rule.agreement_bits if rule.rule == "agreement" else rule.compare_bits
        for place, who in enumerate(_NAMES):
            shift = 1 << _CERTAIN if who in (VICTIM, ACCOMPLICE) else -(1 << (bits - 2))
            message = added_to(message, place * bits // 8, bits, shift)
        return message

    def _lane(self) -> int:
        """The place, among the lanes that are kept, of one where some entry stands alone."""
        if self._place < 0:
            kept = lanes_opened(self._parties, list(range(len(PEOPLE)))).places.tolist()
            self._place, self.entry, self.sign = next(_alone(self._parties, kept))
        return self._place


def _alone(parties: LocalParties, kept: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Places, entries and signs; that no row has one would be a chance of less than 2^-80."""
    widths, sketch = shape_of(parties).widths, sketch_of(parties)
    for row in range(widths.rows):
        buckets, signs = sketch.of(row)
        for entry, bucket in enumerate(buckets.tolist()):
            lane = row * widths.buckets + bucket
            if np.count_nonzero(buckets == bucket) == 1 and lane in kept:
                yield kept.index(lane), entry, int(signs[entry])


_MEASURED = "p4"
_PATTERN = (1, 0, 0, 1, 0, 1, 1, 0)  # in which rounds the victim's update is long
_SHORT, _LONG, _BETWEEN = 0.5, 2.0, 1.25
_OFF_BIT = "share of wrong guesses; blind: always the same guess"
_OFF_COUNTS = "root mean square error of a sample count; blind: half of max_samples"
_CLAIMS = Attack(
    "claimed counts", "new", "sample counts, by SP from what was claimed (gate)", ("SP",), rms, _OFF_COUNTS, True
)


def attack_bits() -> list[Finding]:
    """By either server, shifting its share before the check of a length."""
    return [_guess_lengths("CSP"), _guess_lengths("SP")]


def _guess_lengths(server: str) -> Finding:
    parties = stage()
    bend_server(parties, server, _threshold(parties))
    rejected = []
    for number, long in enumerate(_PATTERN, start=1):
        played(parties, number, _Trained(parties, {_MEASURED: _LONG if long else _SHORT}).models)
        rejected.append(_MEASURED in server_sp(parties).rejected())
    wrong = sum(guess != bool(long) for guess, long in zip(rejected, _PATTERN, strict=True)) / len(_PATTERN)
    title = f"whether an update is longer than {_BETWEEN}, by {server} shifting its share before the check"
    attack = Attack("one bit", "new", title, (server,), difference, _OFF_BIT, conceded=True)
    recovered = f"{round((1 - wrong) * len(_PATTERN))} of {len(_PATTERN)} bits in as many rounds"
    note = f"{_information(wrong):.1f} bits a round; {sum(rejected)} rejections of the victim in CSP's signed records"
    return attack.score(SHARES, wrong, 0.5, 0.0, recovered, note)


def _information(wrong: float) -> float:
    """Bits that a guess of a fair coin tells."""
    return 1 + sum(p * log2(p) for p in (wrong, 1 - wrong) if p > 0)


@dataclass
class _Trained:
    """Models whose change is one entry; everyone's is short but for whom it is said."""

    parties: LocalParties = field(repr=False)
    lengths: dict[str, float]

    @property
    def models(self) -> dict[str, tuple[Floats, int]]:
        return {who: (self._model(who, entry), samples) for entry, (who, samples) in enumerate(PEOPLE.items())}

    def _model(self, who: str, entry: int) -> Floats:
        return np.asarray(
            phone(self.parties, who).weights() + np.eye(SIZE)[entry] * self.lengths.get(who, _SHORT), dtype=np.float64
        )


def _threshold(parties: LocalParties) -> Bend:
    """The bound of the victim's length, moved: its number of samples is taken as known."""
    widths, place = shape_of(parties).widths, _NAMES.index(_MEASURED)

    def bend(step: int, message: bytes) -> bytes:
        if step != CHECK or not message:
            return message
        kept = lanes_opened(parties, list(range(len(PEOPLE)))).kept
        squared = kept * round(PEOPLE[_MEASURED] * _BETWEEN * widths.unit) ** 2
        shift = squared - kept * widths.K * PEOPLE[_MEASURED] ** 2
        return added_to(message, place * widths.R // 8, widths.R, shift)

    return bend


def attack_claims() -> Finding:
    """Rewards of `gate` are to each other as samples are: the smallest whole numbers that fit."""
    parties = paying()
    played(parties, 1, updates())
    limits = shape_of(parties).limits()
    claims = [Claim.from_bytes(parties.people[who].claim(), limits) for who in _NAMES]
    amounts = np.array([claim.amounts[0] for claim in claims], dtype=np.float64)
    truth, blind = np.array([float(PEOPLE[who]) for who in _NAMES]), np.full(len(_NAMES), MOST_SAMPLES / 2)
    guess = next(
        (fit for total in range(1, len(_NAMES) * MOST_SAMPLES + 1) if (fit := _fits(amounts, total)) is not None), blind
    )
    recovered = f"{np.count_nonzero(guess == truth)} of {len(truth)} counts"
    note = "up to a common factor, which a reader's total gives; amounts are claimed round by round"
    return _CLAIMS.score(SHARES, guess, blind, truth, recovered, note)


def _fits(amounts: Floats, total: int) -> Floats | None:
    counts = amounts * total / (PAYMENT - len(_NAMES))
    return np.rint(counts) if np.all(np.abs(counts - np.rint(counts)) < 1e-4) else None


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
