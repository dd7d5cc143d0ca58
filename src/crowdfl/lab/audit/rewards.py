"""Attacks on the rewards, and by them.

Attack 8: CSP reads distances, sample counts and rewards off PriRwd's divisions. The division that makes w_i shows
delta_i * Omega / (pi * d_i) modulo 1 as a short fraction. With pi known (attack 3), few factors are left to try: the right ones
make every delta_i whole and their sum pi. Then all of Eq. 10 is known but the budget, which the fractional parts of the rewards
give.

Attack 10: with two participants, one's own reward gives the other's sample count, and with it the other's model. The average of
two lies between them: w_2 - avg = -(delta_1/delta_2)(w_1 - avg). Then delta_2 is the reward's only unknown.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import gcd, prod

import numpy as np

from crowdfl.errors import CrowdFLError, SettingsError, TooFewParticipants
from crowdfl.lab.audit.arithmetic import fraction_behind
from crowdfl.lab.audit.averages import totals
from crowdfl.lab.audit.finding import HARDENED, PAPER, Finding, Floats, conclude, rms
from crowdfl.lab.audit.scene import Scene, deal
from crowdfl.settings import TaskSettings

__all__ = ["Recovered", "attack_pair", "attack_rewards", "attack_scene_pair", "other_of_two", "recover", "refusals"]

_FACTORS = 12  # what numerator and denominator have in common is seldom more than this
_CENTS = 1_000_000
_CLOSE = 2e-3
_EPS = 1e-6


@dataclass(frozen=True)
class Recovered:
    """What CSP knows once it has solved a round."""

    samples: list[int]
    distances: Floats
    rewards: Floats


def attack_rewards(scene: Scene) -> list[Finding]:
    """Distances and rewards: solved if the fractions are there, else read off by size."""
    found = recover(scene)
    ids = sorted(scene.samples)
    distances = np.array([scene.distances[who] for who in ids])
    rewards = np.array([scene.rewards[who] for who in ids])
    places = ("distances", "8", "the distances of PriRwd, by CSP"), ("rewards", "8", "the rewards, by CSP")
    return [
        _score(scene, places[0], found.distances if found else None, distances),
        _score(scene, places[1], found.rewards if found else None, rewards),
    ]


def _score(scene: Scene, place: tuple[str, str, str], solved: Floats | None, truth: Floats) -> Finding:
    even = np.full(len(truth), truth.mean())  # as good a guess as one without looking can be
    # The best of several readings of four numbers is often good by luck: the attacker cannot tell which, so it gets the mean.
    tried = [solved] if solved is not None else list(_readings(scene, len(truth), float(truth.sum()))) or [even]
    numbers = " ".join(f"{v:.4g}" for v in tried[0]) + " where " + " ".join(f"{v:.4g}" for v in truth) + " are true"
    return conclude(
        place,
        ["CSP"],
        scene.profile,
        (float(np.mean([_off(reading, truth) for reading in tried])), _off(even, truth)),
        "root mean square error over the mean; blind: equal parts of the true sum",
        numbers if solved is not None else "no division is close to a short fraction",
        "fractions solved" if solved is not None else f"mean over {len(tried)} readings by size",
    )


def _readings(scene: Scene, size: int, whole: float) -> Iterator[Floats]:
    """Numbers that come one for each participant, read as proportional to what is sought, or inversely."""
    lists = [[x / Fraction(y) for x, y in pairs] for pairs in scene.divisions()]
    lists += [[Fraction(y) for _, y in pairs] for pairs in scene.divisions()]
    lists += [[Fraction(int(v)) for v in values] for values in scene.csp.of("rewards")]
    for values in lists:
        if len(values) != size or not all(values):
            continue
        for one in (values, [1 / v for v in values]):
            yield np.array([float(v / sum(one)) for v in one]) * whole


def recover(scene: Scene) -> Recovered | None:
    """From CSP's view alone: every pair of exchanges that could be the two divisions of PriRwd, every likely total."""
    size = len(scene.samples)
    exchanges = [pairs for pairs in scene.divisions() if len(pairs) == size]
    for weighing, paying in pairwise(exchanges):
        weights = [fraction_behind(x, y) for x, y in weighing]
        if any(w is None for w in weights):
            continue
        for total in dict.fromkeys(totals(scene, "gcd")[::-1] + totals(scene, "fractions")[::-1]):
            solved = _solve([w for w in weights if w is not None], total, scene.settings.max_samples)
            if solved is not None:
                return _complete(*solved, paying, scene)
    return None


def _solve(weights: list[Fraction], total: int, most: int) -> tuple[list[int], list[int]] | None:
    """Sample counts and d_i (at scale 10^2L, eps included) that explain the fractional parts of all w_i."""
    base = [w.denominator * (total // gcd(total, w.denominator)) // total for w in weights]
    small_first = sorted(product(range(1, _FACTORS + 1), repeat=len(weights)), key=prod)
    for factors in small_first:
        distances = [b * t for b, t in zip(base, factors, strict=True)]
        omega = sum(distances)
        samples = [_samples(w, d, omega, total, most) for w, d in zip(weights, distances, strict=True)]
        if all(samples) and sum(samples) == total:
            return samples, distances
    return None


def _samples(w: Fraction, distance: int, omega: int, total: int, most: int) -> int:
    """The whole delta <= most with delta * omega / (total * distance) = w modulo 1; 0 if there is none."""
    weight = w
    while True:
        delta = weight * total * distance / omega
        if delta > most:
            return 0
        if delta.denominator == 1 and delta > 0:
            return int(delta)
        weight += 1


def _complete(samples: list[int], distances: list[int], paying: list[tuple[int, int]], scene: Scene) -> Recovered:
    shares = np.array([n / d for n, d in zip(samples, distances, strict=True)])
    shares /= shares.sum()
    parts = np.array([float(Fraction(x % y, y)) for x, y in paying])
    budgets = np.arange(1, _CENTS + 1) / 100.0
    miss = np.abs((np.outer(budgets, shares) - parts + 0.5) % 1.0 - 0.5).max(axis=1)
    fits = np.flatnonzero(miss < _CLOSE)
    budget = budgets[fits[0]] if fits.size else budgets[int(np.argmin(miss))]
    scale = 10.0 ** (2 * scene.settings.decimals)
    true_distances = (np.array(distances, dtype=np.float64) - scene.settings.epsilon_units) / scale
    return Recovered(samples, true_distances, shares * budget)


def _off(guess: Floats, truth: Floats) -> float:
    return rms(guess - truth) / float(truth.mean())


def attack_pair(parameters: int = 20) -> Finding:
    """In plaintext, by the paper's Eq. 10: both profiles refuse to run it."""
    rng = np.random.default_rng(5)
    (w_1, w_2), (delta_1, delta_2) = rng.uniform(-0.5, 0.5, (2, parameters)), (49, 73)
    average = (delta_1 * w_1 + delta_2 * w_2) / (delta_1 + delta_2)
    shares = [n / (np.sum((w - average) ** 2) + _EPS) for w, n in ((w_1, delta_1), (w_2, delta_2))]
    reward = round(36.0 * shares[0] / sum(shares), 6)
    samples, guess = other_of_two(w_1, delta_1, average, reward / 36.0, most=100)
    errors = rms(guess - w_2), rms(average - w_2)
    return _pair(f"{PAPER}, n = 2", errors, f"delta = {samples}, and the model", "Eq. 10 solved for delta")


def attack_scene_pair(scene: Scene) -> Finding:
    """The same code on a participant's view of a real run: it takes all the others for one."""
    own, victim = "p1", "p2"
    share = scene.rewards[own] / scene.budget
    args = scene.weights[own], scene.samples[own], scene.average, share
    samples, guess = other_of_two(*args, most=scene.settings.max_samples)
    errors = rms(guess - scene.weights[victim]), rms(scene.average - scene.weights[victim])
    return _pair(HARDENED, errors, f"delta = {samples} where {scene.samples[victim]} is true", "; ".join(refusals()))


def other_of_two(own: Floats, samples: int, average: Floats, share: float, *, most: int) -> tuple[int, Floats]:
    """The count in 1..most that explains the share best, and the model that goes with it."""
    distance = float(np.sum((own - average) ** 2))
    weight = samples / (distance + _EPS)
    counts = np.arange(1, most + 1)
    others = counts / ((samples / counts) ** 2 * distance + _EPS)
    best = int(counts[int(np.argmin(np.abs(weight / (weight + others) - share)))])
    return best, average + (samples / best) * (average - own)


def refusals() -> list[str]:
    """What a task of two meets: at its settings, and at publication."""
    said = []
    try:
        TaskSettings.of(min_participants=2)
    except SettingsError:
        said.append("min_participants = 2 is refused")
    parties = deal(1, key_bits=256, max_participants=3, lanes=0)
    try:
        parties.play(1, parties.encrypt({who: (np.zeros(1), 1) for who in ("p1", "p2")}))
    except TooFewParticipants:
        said.append("a round of two is refused")
    except CrowdFLError as other:
        said.append(f"a round of two fails otherwise: {type(other).__name__}")
    return said


def _pair(subject: str, errors: tuple[float, float], text: str, note: str) -> Finding:
    place = ("pair", "10", "another's model, from one's own reward and the average")
    measure = "root mean square error of a weight; blind: the average"
    return conclude(place, ["participant"], subject, errors, measure, text, note)
