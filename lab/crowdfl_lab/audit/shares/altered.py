"""A server that alters its shares, alone or with one participant, and what is conceded of that, measured.

**With a participant.** A reward is a share of the sum of all weights. A server forces every comparison of a rule by shifting
its own shares, so that all weights but the accomplice's and the victim's are zero, whichever server it is: the accomplice's
reward then shows the victim's weight. Under `gate` that is the victim's number of samples. Under `agreement` weights are inner
products; if CSP also shifts the opened sum of lanes, the victim's weight is a linear function of its update, of CSP's choice.

**Alone.** One bit of a comparison for each participant and round; and what a claim says by itself.

**A divisor.** SP multiplies a divisor y by a mask m that it draws; CSP sees m*y. If CSP could add 2^j of its choice to y, it
would see m*2^j + m*y, and read both. Against that stands the length of what CSP sends of its share where a rule divides; and
`gate` divides nothing: the reciprocal of its sum is looked up, behind a dealt shift.
"""

from collections.abc import Iterator
from contextlib import ExitStack
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
from crowdfl_lab.audit.finding import (
    DIVISOR_LOG,
    SAMPLES_OFF,
    SHARES,
    WRONG_GUESSES,
    Attack,
    Finding,
    Floats,
    Measure,
    found_in,
    relative,
    rms,
)
from crowdfl_lab.audit.shares.deviating_round import (
    BUDGET,
    CHECK,
    COMPARE,
    FLIPS,
    MOST_SAMPLES,
    NAMES,
    PAYMENT,
    PEOPLE,
    SIZE,
    SUM,
    DeviatingRound,
    Tamper,
    added_to,
    switched,
    updates,
)

_VICTIM, _ACCOMPLICE = "p2", "p0"
_PAID = PAYMENT - len(PEOPLE)  # a millionth each is rounded away at most
_LINEAR_COMPARE = 7  # the step of `agreement` in which T is compared
_FACTOR, _CERTAIN = 30, 42  # bits: of the shift of the sum of lanes; of a weight that the accomplice knows
_MEASURED = "p4"  # whose length is guessed
_PATTERN = (1, 0, 0, 1, 0, 1, 1, 0)  # in which rounds its update is long
_SHORT, _LONG, _BETWEEN = 0.5, 2.0, 1.25
_PLACES, _LOOK_UPS = 64, 200

_ENTRY_OFF = Measure(relative, "relative error of one entry of an update; blind: zero")
_COUNTS_OFF = Measure(rms, "root mean square error of a sample count; blind: half of max_samples")
_INFLATED = "the sum that rewards are divided by, by CSP adding to its share ({})"


def attack_gates() -> Iterator[Finding]:
    """Conceded: the number of samples of anyone, for a round in which the others are paid nothing."""
    for server in ("CSP", "SP"):
        round_ = DeviatingRound.paying()
        round_.tamper(server, _forcing(round_, {_VICTIM, _ACCOMPLICE}))
        reward = round_.play_all(1, updates()).rewards[_ACCOMPLICE]
        guess, truth = round(_PAID * PEOPLE[_ACCOMPLICE] / reward) - PEOPLE[_ACCOMPLICE], PEOPLE[_VICTIM]
        title = f"a sample count, by {server} that forces gates, with one participant"
        attack = Attack("forced gates", "new", title, (server, "participant"), SAMPLES_OFF, conceded=True)
        note = (
            f"of {BUDGET}, {reward} millionths to the accomplice: its share of the sum of two weights; one sum a round"
        )
        yield attack.score(SHARES, guess, MOST_SAMPLES // 2, truth, f"{guess} samples where {truth} is true", note)


def _forcing(round_: DeviatingRound, paid: set[str]) -> Tamper:
    """Every number that `gate` compares with zero is moved far to one side of it."""
    widths = round_.shape.rule_widths

    def tamper(step: int, message: bytes) -> bytes:
        if step != COMPARE:
            return message
        place = 0
        for bits in (widths.compare_bits, widths.gate_bits):
            for who in NAMES:
                message = added_to(message, place, bits, (1 if who in paid else -1) << (bits - 2))
                place += bits // 8
        return message

    return tamper


def attack_shifted_sum() -> Iterator[Finding]:
    """An entry that stands alone in a lane: the lane is moved by 2^30, and every T with it. Under `agreement`, for which it is
    conceded; and under `gate`."""
    for rule, compare in (("agreement", _LINEAR_COMPARE), ("gate", COMPARE)):
        round_, trained = DeviatingRound.paying(rule=rule), updates()
        shifting = _Shifting(round_, compare)
        round_.tamper("CSP", shifting)
        reward = round_.play_all(1, trained).rewards[_ACCOMPLICE]
        mine, truth = (float(round_.integers(trained[who])[shifting.entry]) for who in (_ACCOMPLICE, _VICTIM))
        own = (1 << _CERTAIN) + shifting.sign * mine * (1 << _FACTOR)
        other = own * (_PAID / reward - 1) if reward else 0.0
        guess = shifting.sign * (other - (1 << _CERTAIN)) / (1 << _FACTOR)
        title = f"an entry of an upload, by CSP that shifts the sum of lanes, with one participant ({rule})"
        conceded = rule == "agreement"
        attack = Attack("shifted sum", "new", title, ("CSP", "participant"), _ENTRY_OFF, conceded)
        note = "a number of a reward's precision a round" if conceded else "a weight is a number of samples, or zero"
        yield attack.score(SHARES, guess, 0.0, truth, f"{guess:.1f} where {truth:.0f} is true", note)


class _Shifting:
    """CSP adds 2^30 to one lane of the sum, then moves the two weights above zero and all others below."""

    def __init__(self, round_: DeviatingRound, compare: int) -> None:
        self._round, self._compare = round_, compare
        self.entry = self.sign = self._place = -1

    def __call__(self, step: int, message: bytes) -> bytes:
        shape = self._round.shape
        if step == SUM:
            if self._place < 0:
                self._place, self.entry, self.sign = next(self._alone())
            return added_to(message, self._place * shape.widths.R // 8, shape.widths.R, 1 << _FACTOR)
        if step != self._compare:
            return message
        rule = shape.rule_widths
        bits = rule.agreement_bits if rule.rule == "agreement" else rule.compare_bits
        for place, who in enumerate(NAMES):
            shift = 1 << _CERTAIN if who in (_VICTIM, _ACCOMPLICE) else -(1 << (bits - 2))
            message = added_to(message, place * bits // 8, bits, shift)
        return message

    def _alone(self) -> Iterator[tuple[int, int, int]]:
        """Places, among the lanes that are kept, where an entry stands alone, with that entry and its sign; that no row has one
        would be a chance of less than 2^-80."""
        widths, sketch, kept = self._round.shape.widths, self._round.sketch, self._round.open_lanes.places.tolist()
        for row in range(widths.rows):
            buckets, signs = sketch.of(row)
            for entry, bucket in enumerate(buckets.tolist()):
                lane = row * widths.buckets + bucket
                if np.count_nonzero(buckets == bucket) == 1 and lane in kept:
                    yield kept.index(lane), entry, int(signs[entry])


def attack_bits() -> Iterator[Finding]:
    """By either server, shifting its share before the check of a length."""
    for server in ("CSP", "SP"):
        round_ = DeviatingRound()
        round_.tamper(server, _threshold(round_))
        rejected = []
        for number, long in enumerate(_PATTERN, start=1):
            lengths = {_MEASURED: _LONG if long else _SHORT}
            trained = {  # changes of one entry each
                who: (round_.phone(who).weights() + np.eye(SIZE)[entry] * lengths.get(who, _SHORT), samples)
                for entry, (who, samples) in enumerate(PEOPLE.items())
            }
            round_.play_all(number, trained)
            rejected.append(_MEASURED in round_.sp.rejected())
        wrong = sum(guess != bool(long) for guess, long in zip(rejected, _PATTERN, strict=True)) / len(_PATTERN)
        told = 1 + sum(p * log2(p) for p in (wrong, 1 - wrong) if p > 0)  # bits that a guess of a fair coin tells
        title = f"whether an update is longer than {_BETWEEN}, by {server} shifting its share before the check"
        attack = Attack("one bit", "new", title, (server,), WRONG_GUESSES, conceded=True)
        recovered = f"{round((1 - wrong) * len(_PATTERN))} of {len(_PATTERN)} bits in as many rounds"
        note = f"{told:.1f} bits a round; {sum(rejected)} rejections of the victim in CSP's signed records"
        yield attack.score(SHARES, wrong, 0.5, 0.0, recovered, note)


def _threshold(round_: DeviatingRound) -> Tamper:
    """The bound of the victim's length, moved: its number of samples is taken as known."""
    widths, place, samples = round_.shape.widths, NAMES.index(_MEASURED), PEOPLE[_MEASURED]

    def tamper(step: int, message: bytes) -> bytes:
        if step != CHECK or not message:
            return message
        kept = round_.open_lanes.kept
        shift = kept * round(samples * _BETWEEN * widths.unit) ** 2 - kept * widths.K * samples**2
        return added_to(message, place * widths.R // 8, widths.R, shift)

    return tamper


def attack_claims() -> Finding:
    """Rewards of `gate` are to each other as samples are: the smallest whole numbers that fit."""
    round_ = DeviatingRound.paying()
    round_.play_all(1, updates())
    limits = round_.shape.limits()
    claims = [Claim.from_bytes(round_.people[who].claim(), limits) for who in NAMES]
    amounts = np.array([claim.amounts[0] for claim in claims], dtype=np.float64)
    truth, blind = np.array([float(PEOPLE[who]) for who in NAMES]), np.full(len(NAMES), MOST_SAMPLES / 2)
    scaled = (amounts * total / _PAID for total in range(1, len(NAMES) * MOST_SAMPLES + 1))
    guess: Floats = next((np.rint(fit) for fit in scaled if np.all(np.abs(fit - np.rint(fit)) < 1e-4)), blind)
    title = "sample counts, by SP from what was claimed (gate)"
    note = "up to a common factor, which a reader's total gives; amounts are claimed round by round"
    attack = Attack("claimed counts", "new", title, ("SP",), _COUNTS_OFF, conceded=True)
    return attack.score(SHARES, guess, blind, truth, found_in(guess, truth, "counts"), note)


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
    return [weakened, _inflate(SHARES, "agreement", FLIPS), _look_up()]


def _inflate(subject: str, rule: str, step: int) -> Finding:
    """CSP adds to its own share of the divisor, which is shorter than what it hears; of `gate`, one weight is left."""
    round_ = DeviatingRound.paying(rule=rule, rounds=2)
    widths = round_.shape.rule_widths.payout
    reciprocal, forced = widths.reciprocal, _forcing(round_, {_VICTIM}) if rule == "gate" else None
    added = (1 << (reciprocal.f_bits - 1)) - (1 << reciprocal.b_bits)

    def tamper(at: int, message: bytes) -> bytes:
        if at == step and len(message) == reciprocal.f_bits // 8:
            return added_to(message, 0, reciprocal.f_bits, added)
        return message if forced is None else forced(at, message)

    round_.tamper("CSP", tamper)
    round_.play_all(1, updates())
    (seen,) = round_.csp.party.view.of("sum")[-1]
    mask, rest = divmod(seen, added)
    guess = max(1, -(-rest // mask)) if mask else 1
    truth = ((PEOPLE[_VICTIM] if rule == "gate" else _agreement(round_)) << widths.s) + 1
    attack = Attack("inflated divisor", "new", _INFLATED.format(rule), ("CSP",), DIVISOR_LOG)
    note = f"2^{added.bit_length()} added, masks of 2^{reciprocal.lo} to 2^{reciprocal.hi}"
    middle = (widths.low + widths.high) / 2
    return attack.score(subject, log2(guess), middle, log2(truth), f"{guess} where {truth} is true", note)


def _agreement(round_: DeviatingRound) -> int:
    """The sum of weights, from the plaintexts and the round's sketch."""
    ring = round_.shape.ring
    rows = np.array([ring.of_signed(round_.integers(update).astype(np.int64)) for update in updates().values()])
    lanes = ring.signed(ring.reduced(round_.sketch.lanes(rows))).astype(object)
    return sum(max(0, int(row @ (lanes.sum(axis=0) - row))) for row in lanes)


def _look_up() -> Finding:
    """Many look-ups of sums of one person's samples, CSP's share of the place shifted in each."""
    rng = np.random.default_rng(5)
    truths = rng.integers(1, MOST_SAMPLES + 1, _LOOK_UPS)
    right = sum(_looked_up(int(truth), rng) == truth for truth in truths)
    wrong, blind = 1 - right / _LOOK_UPS, 1 - float(np.bincount(truths).max()) / _LOOK_UPS
    attack = Attack("inflated divisor", "new", _INFLATED.format("gate"), ("CSP",), WRONG_GUESSES)
    note = f"a place among {_PLACES}, uniform whatever the sum is and whatever CSP adds"
    return attack.score(SHARES, wrong, blind, 0.0, f"{right} of {_LOOK_UPS} sums", note)


def _looked_up(truth: int, rng: np.random.Generator) -> int:
    """What CSP makes of the place that it sees, less everything it knows."""
    seeds, share = (rng.bytes(32), rng.bytes(32)), int(rng.integers(0, _PLACES))
    kgc = KgcCards(*(Stream(seed, b"audit") for seed in seeds))
    values = [0, *((1 << 40) // total for total in range(1, _PLACES))]
    table.deal(kgc, _PLACES, 64, lambda: values)
    sp_file, csp_file = kgc.files()
    sp = table.deal(SpCards(Stream(seeds[0], b"audit"), sp_file), _PLACES, 64, lambda: values)
    csp = table.deal(CspCards(Stream(seeds[1], b"audit"), csp_file), _PLACES, 64, lambda: values)

    def answering(side: CspSide) -> Half[int]:
        return (yield from table.look_up(side, csp, share + _PLACES // 2))

    asked = next(table.look_up(SpSide(), sp, truth - share))
    CspRun(answering).answer(asked)
    return (int.from_bytes(asked, "little") + share) % _PLACES
