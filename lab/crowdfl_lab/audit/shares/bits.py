"""What is conceded, measured: one bit of a comparison for each participant and round, and what a claim says by itself."""

from dataclasses import dataclass, field
from math import log2

import numpy as np

from crowdfl.protocols.claims import Claim
from crowdfl_lab.audit.finding import SHARES, Attack, Finding, Floats, difference, rms
from crowdfl_lab.audit.shares.deviating_round import (
    CHECK,
    MOST_SAMPLES,
    PAYMENT,
    PEOPLE,
    SIZE,
    Bend,
    added_to,
    bend_server,
    lanes_opened,
    paying,
    phone,
    played,
    server_sp,
    shape_of,
    stage,
    updates,
)
from crowdfl_lab.parties import LocalParties

VICTIM = "p4"
_NAMES = sorted(PEOPLE)
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
        played(parties, number, _Trained(parties, {VICTIM: _LONG if long else _SHORT}).models)
        rejected.append(VICTIM in server_sp(parties).rejected())
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
    widths, place = shape_of(parties).widths, _NAMES.index(VICTIM)

    def bend(step: int, message: bytes) -> bytes:
        if step != CHECK or not message:
            return message
        kept = lanes_opened(parties, list(range(len(PEOPLE)))).kept
        squared = kept * round(PEOPLE[VICTIM] * _BETWEEN * widths.unit) ** 2
        shift = squared - kept * widths.K * PEOPLE[VICTIM] ** 2
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
