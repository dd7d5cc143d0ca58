"""`crowdfl audit privacy`: does the noise of both servers keep what the accountant says?

An attacker that knows everything but one person's updates and one server's noise (a server that follows the protocol, all
readers, all others) tries to tell a task with that person from the same task with zeros in their place. By Neyman and Pearson
nothing tells them apart better than the length of what it sees along those updates. From how often it is right, over many
tries, follows a lower bound of mu, the distance of the two in standard deviations. rho-concentrated noise allows sqrt(2 rho).
"""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from crowdfl import accounting
from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.protocols.profile import TaskSpec
from crowdfl.protocols.shares.round.average import MaskedPart, ShareSum, mask_of, sum_name
from crowdfl.protocols.shares.round.manifest import AcceptedSet
from crowdfl.protocols.shares.round.steps import MASK_BYTES
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.settings import DELTA, TaskSettings
from crowdfl_lab.audit.finding import Floats
from crowdfl_lab.report.results import Result, ResultTable
from crowdfl_lab.timing import machine

_TASK, _BASE = "5a" * 32, bytes(32)
_MEMBERS = AcceptedSet(tuple(f"{place:020x}" for place in range(5)), {})
_CONFIDENCE = 1e-4  # that a bound is wrong
_VICTIMS, _OWN = 64, 16  # each with weights of its own that nobody else changes: so many tries in one task


@dataclass(frozen=True)
class PrivacyTask:
    """A small task, its victim's updates, and in which way it is broken, if in one."""

    name: str
    rounds: int = 3  # that are opened
    accounted: int = 3  # that noise was made for
    length: float = 1.0  # of an update, over the longest that a phone sends
    draws: int = 1  # of noise, for one sum
    silent: bool = False  # the other server adds none

    @property
    def settings(self) -> TaskSettings:
        chosen = {"weighting": "equal", "max_norm": 1.0, "check": "none", "max_participants": 5, "noise": "any"}
        return TaskSettings.of(**chosen, epsilon=4.0, rounds=self.accounted)

    @property
    def allowed(self) -> float:
        """mu that the task's epsilon allows, by the rounds of its definition."""
        settings = self.settings
        return math.sqrt(2 * accounting.rho_of(settings.length_units, settings.sigma or 1, settings.rounds))


BUILT = PrivacyTask("as built")
BROKEN = (
    PrivacyTask("the other server adds no noise", silent=True),
    PrivacyTask("noise drawn again when a round is run again", draws=2),
    PrivacyTask("a phone that does not shrink its update", length=2.0),
    PrivacyTask("an accountant one round short", accounted=2),
)


class _Game:
    """Tasks with and without somebody, as the attacker sees them: the one server's part of each sum, its mask taken off."""

    def __init__(self, task: PrivacyTask) -> None:
        self.task = task
        self.shape = SharesShape(TaskSpec(_TASK, task.settings, _VICTIMS * _OWN))
        even = np.full(_VICTIMS * _OWN, task.length * task.settings.length_units / math.sqrt(_OWN))
        self.update = np.floor(even).astype(np.int64)

    def tries(self, count: int, *, takes_part: bool) -> Floats:
        """How much of each victim's updates the attacker finds, over all rounds, until there are `count` of them."""
        tasks = [self._seen(takes_part=takes_part) for _ in range(-(-count // _VICTIMS))]
        return np.concatenate(tasks)[:count]

    def _seen(self, *, takes_part: bool) -> Floats:
        draws = [
            self._opened(number, takes_part=takes_part)
            for number in range(1, self.task.rounds + 1)
            for _ in range(self.task.draws)
        ]
        found: Floats = np.mean(draws, axis=0).reshape(_VICTIMS, _OWN).sum(axis=1)
        return found

    def _opened(self, number: int, *, takes_part: bool) -> npt.NDArray[np.int64]:
        """By the code that a server runs."""
        place, ring = self.shape.place(number, _BASE), self.shape.ring
        own = ring.encode(ring.of_signed(self.update if takes_part else np.zeros_like(self.update)))
        if self.task.silent:
            return ring.signed(ring.decode(own))
        t, noise = secrets.token_bytes(MASK_BYTES), secrets.token_bytes(SEED_BYTES)
        part = MaskedPart(t, noise, sum_name(place, _MEMBERS), ())
        sums, _ = part.masked(self.shape, place, _MEMBERS, ShareSum(own, 0))
        return ring.signed(ring.reduced(ring.eights(sums) - ring.eights(mask_of(t, place, self.shape)[0][:])))


@dataclass(frozen=True)
class PrivacyFinding:
    """What an attacker reaches, beside what is allowed."""

    name: str
    allowed: float
    reached: float  # a lower bound of mu
    epsilon: float  # that follows from it, at the task's delta
    is_kept: bool


def attack(task: PrivacyTask, count: int) -> PrivacyFinding:
    """Guess so many times with and without somebody, by the middle between the two, which the attacker can work out."""
    game = _Game(task)
    present, absent = (game.tries(count, takes_part=here) for here in (True, False))
    threshold = float(game.update[:_OWN].sum()) / 2
    right, wrong = (int(np.count_nonzero(scores > threshold)) for scores in (present, absent))
    low = stats.beta.ppf(_CONFIDENCE, right, count - right + 1) if right else 0.0
    high = stats.beta.ppf(1 - _CONFIDENCE, wrong + 1, count - wrong) if wrong < count else 1.0
    reached = max(0.0, float(stats.norm.ppf(low) - stats.norm.ppf(high)))
    epsilon = accounting.epsilon_of(reached**2 / 2, DELTA)
    return PrivacyFinding(task.name, task.allowed, reached, epsilon, reached <= task.allowed)


def audit_privacy(tries: int, say: Callable[[str], None], command: str) -> Result:
    findings = []
    for task in (BUILT, *BROKEN):
        say(f"{tries} tries with and without one person: {task.name}")
        findings.append(attack(task, tries))
    settings, surprises = BUILT.settings, unexpected(findings)
    rows = [
        (one.name, f"{one.allowed:.3f}", f"{one.reached:.3f}", "kept" if one.is_kept else "broken") for one in findings
    ]
    about = (
        f"mu: how many standard deviations the two cases are apart; epsilon {settings.epsilon}, delta {DELTA:g}, "
        f"{settings.rounds} rounds. reached: a lower bound, wrong with a chance of {2 * _CONFIDENCE:g}."
    )
    title = "Differential privacy: one person's updates, told from zeros"
    table = ResultTable(title, ("", "mu allowed", "mu reached", ""), tuple(rows), about)
    data = {"findings": [vars(one) for one in findings], "surprises": len(surprises)}
    notes = (f"unexpected: {', '.join(surprises) or 'nothing'}",)
    return Result(
        "privacy", title, machine(), {"tries": tries}, tables=(table,), notes=notes, data=data, command=command
    )


def unexpected(findings: Sequence[PrivacyFinding]) -> list[str]:
    """What is kept though it was broken, or the other way round."""
    return [one.name for one in findings if one.is_kept != (one.name == BUILT.name)]
