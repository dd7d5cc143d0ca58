"""Attacks on the rewards, and by them.

Attack 8: CSP reads distances, sample counts and rewards off PriRwd's divisions. The division that makes w_i shows
delta_i * Omega / (pi * d_i) modulo 1 as a short fraction. With pi known (attack 3), few factors are left to try: the right ones
make every delta_i whole and their sum pi. Then all of Eq. 10 is known but the budget, which the fractional parts of the rewards
give.

Attack 10: with two participants, one's own reward gives the other's sample count, and with it the other's model. The average of
two lies between them: w_2 - avg = -(delta_1/delta_2)(w_1 - avg). Then delta_2 is the reward's only unknown.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import count, pairwise, product, takewhile
from math import gcd, prod

import numpy as np

from crowdfl.errors import SettingsError, TooFewParticipants
from crowdfl.settings import TaskSettings
from crowdfl_lab.audit.arithmetic import fraction_behind
from crowdfl_lab.audit.averages import totals
from crowdfl_lab.audit.finding import HARDENED, PAPER, Attack, Finding, Floats, rms
from crowdfl_lab.audit.recorded_round import BUDGET, SAMPLES, Scene, deal, divisions

_FACTORS = 12  # what numerator and denominator have in common is seldom more than this
_CENTS = 1_000_000
_CLOSE = 2e-3
_EPS = 1e-6
_OFF_MEAN = "root mean square error over the mean; blind: equal parts of the true sum"
_OFF_WEIGHT = "root mean square error of a weight; blind: the average"
_Pairs = list[tuple[int, int]]
_OTHERS = "another's model, from one's own reward and the average"


def _off(readings: Floats, truth: Floats) -> float:
    """Of several readings the mean: the best of them is often good by luck, and the attacker cannot tell which it is."""
    return float(np.mean([rms(reading, truth) for reading in np.atleast_2d(readings)])) / float(truth.mean())


_DISTANCES = Attack("distances", "8", "the distances of PriRwd, by CSP", ("CSP",), _off, _OFF_MEAN)
_REWARDS = Attack("rewards", "8", "the rewards, by CSP", ("CSP",), _off, _OFF_MEAN)
_PAIR = Attack("pair", "10", _OTHERS, ("participant",), rms, _OFF_WEIGHT)


def attack_rewards(scene: Scene) -> list[Finding]:
    """Distances and rewards: solved if the fractions are there, else read off by size."""
    _, distances, rewards = recover(scene) or (None, None, None)
    return [_score(_DISTANCES, scene, distances, scene.distances), _score(_REWARDS, scene, rewards, scene.rewards)]


def _score(attack: Attack[Floats], scene: Scene, solved: Floats | None, true: dict[str, float]) -> Finding:
    truth = np.array([true[who] for who in sorted(SAMPLES)])
    even = np.full(len(truth), truth.mean())  # as good a guess as one without looking can be
    if solved is None:
        tried = list(_readings(scene, len(truth), float(truth.sum()))) or [even]
        recovered, note = "no division is close to a short fraction", f"mean over {len(tried)} readings by size"
        return attack.score(scene.profile, np.array(tried), even, truth, recovered, note)
    found, wanted = (" ".join(f"{v:.4g}" for v in values) for values in (solved, truth))
    return attack.score(scene.profile, solved, even, truth, f"{found} where {wanted} are true", "fractions solved")


def _readings(scene: Scene, size: int, whole: float) -> Iterator[Floats]:
    """Numbers that come one for each participant, read as proportional to what is sought, or inversely."""
    lists = [[x / Fraction(y) for x, y in pairs] for pairs in divisions(scene.csp)]
    lists += [[Fraction(y) for _, y in pairs] for pairs in divisions(scene.csp)]
    lists += [[Fraction(int(v)) for v in values] for values in scene.csp.of("rewards")]
    for values in lists:
        if len(values) != size or not all(values):
            continue
        for one in (values, [1 / v for v in values]):
            yield np.array([float(v / sum(one)) for v in one]) * whole


def recover(scene: Scene) -> tuple[list[int], Floats, Floats] | None:
    """Samples, distances and rewards, from CSP's view alone: by any two exchanges in a row, with every likely total."""
    size = len(SAMPLES)
    exchanges = [pairs for pairs in divisions(scene.csp) if len(pairs) == size]
    for weighing, paying in pairwise(exchanges):
        weights = [w for w in (fraction_behind(x, y) for x, y in weighing) if w is not None]
        if len(weights) < size:
            continue
        for total in dict.fromkeys(totals(scene, "gcd")[::-1] + totals(scene, "fractions")[::-1]):
            solved = _solve(weights, total, scene.settings.max_samples)
            if solved is not None:
                return solved[0], *_complete(*solved, paying, scene)
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
    deltas = takewhile(lambda delta: delta <= most, ((w + k) * total * distance / omega for k in count()))
    return next((int(delta) for delta in deltas if delta > 0 and delta.denominator == 1), 0)


def _complete(samples: list[int], distances: list[int], paying: _Pairs, scene: Scene) -> tuple[Floats, Floats]:
    """Distances, and rewards with the budget that explains their fractional parts."""
    shares = np.array([n / d for n, d in zip(samples, distances, strict=True)])
    shares /= shares.sum()
    parts = np.array([float(Fraction(x % y, y)) for x, y in paying])
    budgets = np.arange(1, _CENTS + 1) / 100.0
    miss = np.abs((np.outer(budgets, shares) - parts + 0.5) % 1.0 - 0.5).max(axis=1)
    fits = np.flatnonzero(miss < _CLOSE)
    budget = budgets[fits[0]] if fits.size else budgets[int(np.argmin(miss))]
    scale = 10.0 ** (2 * scene.settings.decimals)
    true_distances = (np.array(distances, dtype=np.float64) - scene.settings.epsilon_units) / scale
    return true_distances, shares * budget


def attack_pair(parameters: int = 20) -> Finding:
    """In plaintext, by the paper's Eq. 10: both profiles refuse to run it."""
    rng = np.random.default_rng(5)
    (w_1, w_2), (delta_1, delta_2) = rng.uniform(-0.5, 0.5, (2, parameters)), (49, 73)
    average = (delta_1 * w_1 + delta_2 * w_2) / (delta_1 + delta_2)
    shares = [n / (np.sum((w - average) ** 2) + _EPS) for w, n in ((w_1, delta_1), (w_2, delta_2))]
    reward = round(36.0 * shares[0] / sum(shares), 6)
    samples, guess = _other_of_two(w_1, delta_1, average, reward / 36.0, most=100)
    recovered = f"delta = {samples}, and the model"
    return _PAIR.score(f"{PAPER}, n = 2", guess, average, w_2, recovered, "Eq. 10 solved for delta")


def attack_scene_pair(scene: Scene) -> Finding:
    """The same code on a participant's view of a real run: it takes all the others for one."""
    own, victim = "p1", "p2"
    share, most = scene.rewards[own] / BUDGET, scene.settings.max_samples
    samples, guess = _other_of_two(scene.weights[own], SAMPLES[own], scene.average, share, most=most)
    recovered = f"delta = {samples} where {SAMPLES[victim]} is true"
    return _PAIR.score(HARDENED, guess, scene.average, scene.weights[victim], recovered, "; ".join(refusals()))


def _other_of_two(own: Floats, samples: int, average: Floats, share: float, *, most: int) -> tuple[int, Floats]:
    """The count in 1..most that explains the share best, and the model that goes with it."""
    distance = float(np.sum((own - average) ** 2))
    weight = samples / (distance + _EPS)
    counts = np.arange(1, most + 1)
    others = counts / ((samples / counts) ** 2 * distance + _EPS)
    best = int(counts[int(np.argmin(np.abs(weight / (weight + others) - share)))])
    return best, average + (samples / best) * (average - own)


def refusals() -> list[str]:
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
    return said
