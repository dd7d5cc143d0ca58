"""A server that alters its shares, alone or with one participant, and what is conceded of that, measured.

**Alone.** One bit of a comparison for each participant and round; and what a claim says by itself.

**With a participant.** Under `distance`, CSP that shifts the opened sum of lanes measures distances from a point of its choice:
once rewards are claimed, the accomplice's, which knows its own update, gives the scale of all others. `samples` looks at no
update, and `equal` at nothing at all.

**A divisor.** SP multiplies a divisor y by a mask m that it draws; CSP sees m*y. If CSP could add 2^j of its choice to y, it
would see m*2^j + m*y, and read both. Against that stands the length of what CSP sends of its share.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import log2

import numpy as np

from crowdfl.crypto.commitment import commit
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.shares.expansion import expand
from crowdfl.errors import ClaimRefused, RoundEnded
from crowdfl.protocols import claims
from crowdfl.protocols.claims import Claim
from crowdfl.protocols.exchange import Reply, ask_directly
from crowdfl.protocols.profile import SpRecord
from crowdfl.protocols.records import Look
from crowdfl.protocols.shares import rule_widths
from crowdfl.protocols.shares.circuits.reciprocal import ReciprocalWidths
from crowdfl.protocols.shares.circuits.scalars import whole_bytes
from crowdfl.protocols.shares.round import csp as csp_module
from crowdfl.protocols.shares.round import csp_records, rewards
from crowdfl.protocols.shares.round.csp_records import MOST_UNSHOWN
from crowdfl.protocols.shares.round.manifest import StepRequest
from crowdfl.protocols.shares.round.steps import shown_in
from crowdfl.protocols.shares.shape import REWARD_MODULUS, SharesShape
from crowdfl.reasons import Reason
from crowdfl_lab.audit.finding import (
    DIVISOR_LOG,
    REWARD_OFF,
    SAMPLES_OFF,
    SHARES,
    WRONG_GUESSES,
    Attack,
    Finding,
    Floats,
    Measure,
    difference,
    found_in,
    relative,
    rms,
)
from crowdfl_lab.audit.shares.deviating_round import (
    CHECK,
    MOST_SAMPLES,
    NAMES,
    PAYMENT,
    PEOPLE,
    SIZE,
    SUM,
    TOTAL,
    DeviatingRound,
    Tamper,
    Updates,
    added_to,
    switched,
    updates,
)

_VICTIM, _ACCOMPLICE = "p2", "p0"
_FAR = 200_000  # units that a lane of the average is moved by: far beside an update, and not too far for a division
MEASURED = "p4"  # whose length is guessed
_PATTERN = (1, 0, 0, 1, 0, 1, 1, 0)  # in which rounds its update is long
_SHORT, _LONG, _BETWEEN = 0.5, 2.0, 1.25

_UNSIGNED = Measure(difference, "share of the bits that leave a signed word; blind: all of them")
_ENTRY_OFF = Measure(relative, "relative error of one entry of an update; blind: zero")
_COUNTS_OFF = Measure(rms, "root mean square error of a sample count; blind: half of max_samples")


def attack_shifted_sum() -> Iterator[Finding]:
    """An entry that stands alone in a lane: CSP moves that lane of the sum. Under `distance`, for which it is conceded; under
    `samples` nothing of the sum is opened."""
    for pay in ("distance", "samples"):
        round_, trained = DeviatingRound.paying(pay=pay), updates()
        shifting = _Shifting(round_, sum(PEOPLE.values()) * _FAR)
        conceded = pay == "distance"
        if conceded:
            round_.tamper("CSP", shifting)
        paid = round_.play_all(1, trained).rewards
        guess = _measured(round_, shifting, paid) if conceded else 0.0
        truth = float(round_.integers(trained[_VICTIM])[shifting.entry])
        title = f"an entry of an upload, by CSP that shifts the sum of lanes, with one participant ({pay})"
        attack = Attack("shifted sum", "new", title, ("CSP", "participant"), _ENTRY_OFF, conceded)
        note = "once rewards are claimed; numbers of samples are known" if conceded else "no sum of lanes is opened"
        yield attack.score(SHARES, guess, 0.0, truth, f"{guess:.1f} where {truth:.0f} is true", note)


def _measured(round_: DeviatingRound, shifting: "_Shifting", rewards: Mapping[str, int]) -> float:
    """Rewards are as samples over distances from the shifted average; the accomplice's distance is known.

    With p what a model's lanes differ from the average's by, and f the shift: |p|^2 - 2 f p_lane + f^2. Of the victim's |p|^2
    the accomplice's stands for it.
    """
    f, average = float(_FAR), _average(round_)
    own = _lanes(round_, round_.integers(updates()[_ACCOMPLICE]) / PEOPLE[_ACCOMPLICE] - average)
    square = float(own @ own)
    mine = square - 2 * f * own[shifting.lane] + f**2
    theirs = mine * PEOPLE[_VICTIM] / PEOPLE[_ACCOMPLICE] * rewards[_ACCOMPLICE] / rewards[_VICTIM]
    apart = (square + f**2 - theirs) / (2 * f)
    return float(PEOPLE[_VICTIM] * (average[shifting.entry] + shifting.sign * apart))


def _average(round_: DeviatingRound) -> Floats:
    """In units, as every reader has it in the end."""
    whole = np.sum([round_.integers(update) for update in updates().values()], axis=0)
    return np.asarray(whole / sum(PEOPLE.values()), dtype=np.float64)


def _lanes(round_: DeviatingRound, update: Floats) -> Floats:
    """The kept lanes of a sketch in the clear."""
    widths, sketch = round_.shape.widths, round_.sketch
    found = np.zeros(widths.lanes)
    for row in range(widths.rows):
        buckets, signs = sketch.of(row)
        np.add.at(found, row * widths.buckets + buckets, update * signs)
    return found[round_.open_lanes.places]


class _Shifting:
    """CSP adds a number to one lane of the sum."""

    def __init__(self, round_: DeviatingRound, shift: int) -> None:
        self._round, self._shift = round_, shift
        self.entry = self.sign = self.lane = -1

    def __call__(self, step: int, message: bytes) -> bytes:
        if step != SUM:
            return message
        if self.lane < 0:
            self.lane, self.entry, self.sign = max(
                self._alone(), key=lambda found: abs(_average(self._round)[found[1]])
            )
        bits = self._round.shape.widths.R
        return added_to(message, self.lane * bits // 8, bits, self._shift)

    def _alone(self) -> Iterator[tuple[int, int, int]]:
        """Places, among the lanes that are kept, where an entry stands alone, with that entry and its sign; that no row has one
        would be a chance of less than 2^-80."""
        widths = self._round.shape.widths
        sketch = self._round.sketch
        kept = self._round.open_lanes.places.tolist()
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
        round_.tamper(server, threshold(round_))
        rejected = []
        for number, long in enumerate(_PATTERN, start=1):
            round_.play_all(number, _trained(round_, long))
            rejected.append(MEASURED in round_.sp.rejected())
        wrong = sum(guess != bool(long) for guess, long in zip(rejected, _PATTERN, strict=True)) / len(_PATTERN)
        told = 1 + sum(p * log2(p) for p in (wrong, 1 - wrong) if p > 0)  # bits that a guess of a fair coin tells
        title = f"whether an update is longer than {_BETWEEN}, by {server} shifting its share before the check"
        attack = Attack("one bit", "new", title, (server,), WRONG_GUESSES, conceded=True)
        recovered = f"{round((1 - wrong) * len(_PATTERN))} of {len(_PATTERN)} bits in as many rounds"
        note = f"{told:.1f} bits a round; {sum(rejected)} rejections of the victim in CSP's signed records"
        yield attack.score(SHARES, wrong, 0.5, 0.0, recovered, note)


def _trained(round_: DeviatingRound, long: int) -> Updates:
    """Changes of one entry each."""
    lengths = {MEASURED: _LONG if long else _SHORT}
    return {
        who: (round_.phone(who).weights() + np.eye(SIZE)[entry] * lengths.get(who, _SHORT), samples)
        for entry, (who, samples) in enumerate(PEOPLE.items())
    }


def attack_later_bits() -> Iterator[Finding]:
    """SP looks at the bits and gives the round up, which it hides from phones: after three such rounds CSP opens no seal."""
    title = "whether an update is long, by SP that gives up each round after it has looked: from the fourth round on"
    attack = Attack("later bits", "new", title, ("SP",), WRONG_GUESSES)
    for subject, most in (("shares, a CSP that does not count", 10**6), (SHARES, MOST_UNSHOWN)):
        with switched(csp_records, "MOST_UNSHOWN", most):
            round_ = DeviatingRound()
            round_.tamper("SP", threshold(round_))
            told = [_looked(round_, number, long) for number, long in enumerate(_PATTERN, start=1)]
        later = list(zip(told, _PATTERN, strict=True))[MOST_UNSHOWN:]
        wrong = sum(0.5 if guess is None else guess != bool(long) for guess, long in later) / len(later)
        seen = sum(guess is not None for guess, _ in later)
        note = f"{sum(guess is not None for guess in told)} rounds in which the servers looked at the upload"
        yield attack.score(subject, wrong, 0.5, 0.0, f"{seen} of {len(later)} bits", note)


def _looked(round_: DeviatingRound, number: int, long: int) -> bool | None:
    """Whether the victim was rejected; None where its seal was not opened. Nothing comes of the round."""

    def ask(request: Long) -> Reply:
        if StepRequest.from_bytes(request, round_.shape.limits(round_.shape.longest_payload)).step > shown_in(
            round_.shape
        ):
            raise ConnectionError("given up")
        return ask_directly(round_.csp.answer, round_.recorder)(request)

    looked = round_.open(number, ask=ask)
    looked.sp.record = SpRecord()  # it does not mind that it has sent a sum of this base
    looked.collect(round_.encrypt(_trained(round_, long), number))
    with suppress(ConnectionError, RoundEnded):
        looked.average()
    why = looked.rejected.get(MEASURED)
    return None if why is Reason.BROKEN_SEAL else why is not None


def attack_silent() -> Iterator[Finding]:
    """CSP looks at the bits, and its disk is full: as it says itself, without a signature, or with one."""
    title = "bits without a signed word, by CSP whose machine fails once it has seen them"
    attack = Attack("silent CSP", "new", title, ("CSP",), _UNSIGNED)
    for subject, signs in (("shares, a CSP that may fail at any step", 10**6), (SHARES, 0)):
        round_ = DeviatingRound()
        shown = shown_in(round_.shape)
        with switched(csp_module, "shown_in", lambda _, least=signs or shown: least):
            heard: list[int] = []

            def fails(step: int, message: bytes, heard: list[int] = heard, shown: int = shown) -> bytes:
                heard += [step] * (step == shown)
                if step == shown and len(heard) % 2 == 0:
                    raise OSError(28, "no space left on device")
                return message

            round_.tamper("CSP", fails)
            unsigned = sum(_fails_unsigned(round_, number) for number in range(1, MOST_UNSHOWN + 1))
        share = unsigned / MOST_UNSHOWN
        note = "SP has checked the signature of a word that ends the round" if not unsigned else "an error, and no word"
        yield attack.score(subject, share, 0.0, 1.0, f"{unsigned} of {MOST_UNSHOWN} bits", note)


def _fails_unsigned(round_: DeviatingRound, number: int) -> bool:
    try:
        round_.play_all(number, _trained(round_, 0))
    except OSError:
        return True
    except RoundEnded:
        return False
    raise AssertionError("CSP has answered")


def threshold(round_: DeviatingRound) -> Tamper:
    """The bound of the victim's length, moved: its number of samples is taken as known."""
    widths = round_.shape.widths
    place = NAMES.index(MEASURED)
    samples = PEOPLE[MEASURED]

    def tamper(step: int, message: bytes) -> bytes:
        if step != CHECK or not message:
            return message
        kept = round_.open_lanes.kept
        shift = kept * round(samples * _BETWEEN * widths.unit) ** 2 - kept * widths.K * samples**2
        return added_to(message, place * widths.R // 8, widths.R, shift)

    return tamper


def attack_claims() -> Finding:
    """Rewards of `samples` are to each other as samples are: the smallest whole numbers that fit."""
    round_ = DeviatingRound.paying(pay="samples")
    round_.play_all(1, updates())
    limits = round_.shape.limits()
    signed = [Claim.from_bytes(round_.phone(who).claim(), limits) for who in NAMES]
    amounts = np.array([claim.amounts[0] for claim in signed], dtype=np.float64)
    truth = np.array([float(PEOPLE[who]) for who in NAMES])
    blind = np.full(len(NAMES), MOST_SAMPLES / 2)
    scaled = (amounts * total / PAYMENT for total in range(1, len(NAMES) * MOST_SAMPLES + 1))
    guess: Floats = next((np.rint(fit) for fit in scaled if np.all(np.abs(fit - np.rint(fit)) < 1e-4)), blind)
    title = "sample counts, by SP from what was claimed (samples)"
    note = "up to a common factor, which a reader's total gives; amounts are claimed round by round"
    attack = Attack("claimed counts", "new", title, ("SP",), _COUNTS_OFF, conceded=True)
    return attack.score(SHARES, guess, blind, truth, found_in(guess, truth, "counts"), note)


def attack_searched_count() -> Iterator[Finding]:
    """CSP tries every count and total for what SP's commitment hides, before anything is claimed."""
    title = "a participant's sample count, by CSP before the claim: a guess that fits (samples)"
    attack = Attack("searched count", "7", title, ("CSP",), SAMPLES_OFF)
    known = [b"", bytes(32)]
    for subject, salts in (("shares, commitments with a known salt", _known_salts), (SHARES, expand)):
        with switched(rewards, "expand", salts):
            round_ = DeviatingRound.paying(pay="samples", rounds=2)
            round_.play_all(1, updates())
        kept = _kept(round_)
        form = round_.shape.reward_form
        totals = range(1, len(NAMES) * MOST_SAMPLES + 1)
        tried = [(count, count + REWARD_MODULUS * total) for count in range(1, MOST_SAMPLES + 1) for total in totals]
        fitting = (
            count
            for count, guess in tried
            for salt in known
            if commit((kept.masked - guess) % form.n, salt) == kept.commitment
        )
        guess, truth = next(fitting, None), PEOPLE[_VICTIM]
        recovered = "no guess fits" if guess is None else f"{guess} where {truth} is true"
        yield attack.score(subject, guess, MOST_SAMPLES / 2, truth, recovered, f"{len(tried)} guesses")


def _known_salts(_seed: bytes, _context: bytes, length: int) -> bytes:
    return bytes(length)


def _kept(round_: DeviatingRound) -> claims.Earned:
    kept: claims.Earned | None = round_.csp.reward(Look(round_.csp.records), 1, _VICTIM)
    if kept is None:
        raise AssertionError("nothing is kept of a reward")
    return kept


def attack_another_count() -> Iterator[Finding]:
    """A participant signs that it has as many samples as all together, by another share of SP's than it was given."""
    attack = Attack(
        "another count", "new", "the whole budget, by a participant (samples)", ("participant",), REWARD_OFF
    )
    for subject, believes in (("shares, a CSP that believes a mask", True), (SHARES, False)):
        round_ = DeviatingRound.paying(pay="samples", rounds=2)
        earned, phone = round_.play_all(1, updates()).rewards[_VICTIM], round_.phone(_VICTIM)
        claim = Claim.from_bytes(phone.claim(), round_.shape.limits())
        mask = claim.masks[0] - sum(PEOPLE.values()) + PEOPLE[_VICTIM]
        claim = replace(claim, amounts=(PAYMENT,), masks=(mask % round_.shape.reward_form.n,), signature=b"")
        claim = replace(claim, signature=phone.signing.sign(claim.statement))
        kept, paid, note = _kept(round_), earned, "attested"
        with switched(claims, "commit", (lambda *_, kept=kept: kept.commitment) if believes else commit):
            try:
                round_.csp.answer(claim.to_bytes())
                paid = PAYMENT
            except ClaimRefused as refusal:
                note = f"CSP refuses: {type(refusal).__name__}"
        yield attack.score(subject, paid, earned, PAYMENT, f"{paid} millionths where {earned} are earned", note)


class _Unguarded(ReciprocalWidths):
    """CSP's share as long as CSP likes; the masks are those of the guarded division."""

    @property
    def f_bits(self) -> int:
        return whole_bytes(self.hi + self.high + 64)

    @property
    def lo(self) -> int:
        return self.g + super().f_bits + 45


def attack_inflated() -> list[Finding]:
    """`distance` with a division that nothing limits, and as built."""
    with ExitStack() as switches:
        switches.enter_context(switched(rule_widths, "ReciprocalWidths", _Unguarded))
        switches.enter_context(switched(SharesShape, "longest_payload", property(lambda _: 1 << 22)))
        weakened = _inflate("shares, a division without its limit")
    return [weakened, _inflate(SHARES)]


def _inflate(subject: str) -> Finding:
    """CSP adds to its own share of the divisor, which is shorter than what it hears."""
    round_ = DeviatingRound.paying(rounds=2)
    reciprocal = round_.shape.rule_widths.payout
    added = (1 << (reciprocal.f_bits - 1)) - (1 << reciprocal.b_bits)

    def tamper(at: int, message: bytes) -> bytes:
        if at == TOTAL and len(message) == reciprocal.f_bits // 8:
            return added_to(message, 0, reciprocal.f_bits, added)
        return message

    round_.tamper("CSP", tamper)
    round_.play_all(1, updates())
    (seen,) = round_.csp.party.view.of("sum")[-1]
    mask, rest = divmod(seen, added)
    guess, truth = max(1, -(-rest // mask)) if mask else 1, _weights_of(round_)
    title = "the sum that rewards are divided by, by CSP adding to its share"
    attack = Attack("inflated divisor", "new", title, ("CSP",), DIVISOR_LOG)
    note = f"2^{added.bit_length()} added, masks of 2^{reciprocal.lo} to 2^{reciprocal.hi}"
    middle = (reciprocal.low + reciprocal.high) / 2
    return attack.score(
        subject, log2(guess), middle, log2(truth), f"2^{log2(guess):.1f} where 2^{log2(truth):.1f} is true", note
    )


def _weights_of(round_: DeviatingRound) -> int:
    """The sum of all weights, from both servers' shares."""
    shares = [sum(side.party.view.hidden["weights"]) for side in (round_.sp, round_.csp)]
    return int(sum(shares) % (1 << round_.shape.rule_widths.weight_bits))
