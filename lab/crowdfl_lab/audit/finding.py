"""What an attack found: how far off the attacker is, how far off a blind guess is, and whether that is what we expect."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

PAPER, HARDENED, SHARES, PRINTED = "paper", "hardened", "shares", "paper, as printed"
HOLDING = (HARDENED, SHARES)  # as built: no attack but those that are conceded
Floats = npt.NDArray[np.float64]
_Guess = TypeVar("_Guess")
_MARGIN = 0.5  # an attack counts as one when it at least halves the error of a guess


class Verdict(StrEnum):
    """Of an attack on one subject."""

    BROKEN = "broken"
    GUESS = "no better than a guess"
    CONCEDED = "broken, as stated"  # docs/security.md says that this is not prevented, and how much it shows


@dataclass(frozen=True)
class Finding:
    """One row of the audit. `subject` is a profile, or a profile with something changed on purpose."""

    attack: str
    section: str
    title: str
    attackers: tuple[str, ...]
    subject: str
    recovered: str
    error: float
    blind: float
    measure: str
    verdict: Verdict
    note: str
    conceded: bool = False

    @property
    def expected(self) -> Verdict:
        """A holding profile as built falls to what is conceded alone; the paper, and one weakened on purpose, fall."""
        if self.subject not in HOLDING:
            return Verdict.BROKEN
        return Verdict.CONCEDED if self.conceded else Verdict.GUESS

    @property
    def surprising(self) -> bool:
        return self.verdict is not self.expected

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"expected": self.expected, "surprising": self.surprising}


@dataclass(frozen=True)
class Measure(Generic[_Guess]):
    """The error of a guess at the truth, and in words what it is and what a blind guess would be."""

    error: Callable[[_Guess, _Guess], float]
    words: str


@dataclass(frozen=True)
class Attack(Generic[_Guess]):
    """What an attack is after, by whom, and how its success is measured."""

    name: str
    section: str
    title: str
    attackers: tuple[str, ...]
    measure: Measure[_Guess]
    conceded: bool = False

    def score(
        self, subject: str, guess: _Guess | None, blind: _Guess, truth: _Guess, recovered: str, note: str
    ) -> Finding:
        """Broken if the attacker's error is well below that of the blind guess, which is also its own if it has none."""
        error = self.measure.error
        off, blindly_off = error(blind if guess is None else guess, truth), error(blind, truth)
        broken = Verdict.CONCEDED if self.conceded and subject in HOLDING else Verdict.BROKEN
        verdict = broken if off < _MARGIN * blindly_off else Verdict.GUESS
        place = self.name, self.section, self.title, self.attackers
        return Finding(*place, subject, recovered, off, blindly_off, self.measure.words, verdict, note, self.conceded)


def difference(guess: float, truth: float) -> float:
    return float(abs(guess - truth))


def relative(guess: float, truth: float) -> float:
    return float(abs(guess - truth) / abs(truth))


def rms(guess: Floats, truth: Floats) -> float:
    return float(np.sqrt(np.mean((guess - truth) ** 2)))


WEIGHT = Measure(rms, "root mean square error of a weight; blind: all zeros")
ENTRY = Measure(rms, "root mean square error of an entry of the update; blind: zeros")
SAMPLES_OFF = Measure(relative, "relative error; blind: half of max_samples")
TOTAL_OFF = Measure(relative, "relative error; blind: half of the largest total")
REWARD_OFF = Measure(relative, "relative error; blind: the budget in equal parts")
DIVISOR_LOG = Measure(difference, "error of log2 of the divisor; blind: the middle of its range")
WRONG_GUESSES = Measure(difference, "share of wrong guesses; blind: always the same guess")


def found_in(guess: Floats | None, truth: Floats, what: str = "entries", within: float = 0.0) -> str:
    """How many numbers were found."""
    found = 0 if guess is None else int(np.count_nonzero(np.abs(guess - truth) <= within))
    return f"{found} of {len(truth)} {what}"
