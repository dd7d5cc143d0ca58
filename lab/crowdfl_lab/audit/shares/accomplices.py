"""A deviating server with one participant: what the participant's own reward tells about another's upload.

A reward is a share of the sum of all weights. A server forces every comparison of a rule by shifting its own shares, so that
all weights but the accomplice's and the victim's are zero, whichever server it is: the accomplice's reward then shows the
victim's weight. Under `gate` that is the victim's number of samples. Under `agreement` weights are inner products; if CSP
also shifts the opened sum of lanes, the victim's weight is a linear function of its update, of CSP's choice.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from crowdfl_lab.audit.finding import SHARES, Attack, Finding, relative
from crowdfl_lab.audit.shares.deviating_round import (
    BUDGET,
    COMPARE,
    MOST_SAMPLES,
    PAYMENT,
    PEOPLE,
    SUM,
    Bend,
    added_to,
    bend_server,
    integers,
    lanes_opened,
    paying,
    played,
    shape_of,
    sketch_of,
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
