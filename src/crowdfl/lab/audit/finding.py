"""What an attack found: how far off the attacker is, how far off a blind guess is, and whether that is what we expect."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["HARDENED", "PAPER", "PRINTED", "Finding", "Floats", "Verdict", "conclude", "judge", "rms"]

PAPER, HARDENED, PRINTED = "paper", "hardened", "paper, as printed"
Floats = npt.NDArray[np.float64]
_MARGIN = 0.5  # an attack counts as one when it at least halves the error of a guess


class Verdict(StrEnum):
    """Of an attack on one subject."""

    BROKEN = "broken"
    GUESS = "no better than a guess"


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

    @property
    def expected(self) -> Verdict:
        """`hardened` as built holds; the paper, and `hardened` weakened on purpose, do not."""
        return Verdict.GUESS if self.subject == HARDENED else Verdict.BROKEN

    @property
    def surprising(self) -> bool:
        return self.verdict is not self.expected

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"expected": self.expected, "surprising": self.surprising}


def judge(error: float, blind: float) -> Verdict:
    """Broken if the attacker's error is well below that of a guess made without looking."""
    return Verdict.BROKEN if error < _MARGIN * blind else Verdict.GUESS


def conclude(
    place: tuple[str, str, str],
    attackers: Iterable[str],
    subject: str,
    errors: tuple[float, float],
    measure: str,
    recovered: str,
    note: str,
) -> Finding:
    """A finding judged by its errors: `place` is (attack, section, title), `errors` the attacker's and the guess's."""
    error, blind = (float(e) for e in errors)
    verdict = judge(error, blind)
    return Finding(*place, tuple(attackers), subject, recovered, error, blind, measure, verdict, note)


def rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))
