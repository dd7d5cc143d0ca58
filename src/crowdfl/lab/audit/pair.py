"""Attack 10: with two participants, one's own reward gives the other's sample count, and with it the other's model.

The average of two lies between them: w_2 - avg = -(delta_1/delta_2)(w_1 - avg). Then delta_2 is the reward's only unknown.
"""

import numpy as np

from crowdfl.errors import CrowdFLError, SettingsError, TooFewParticipants
from crowdfl.lab.audit.finding import HARDENED, PAPER, Finding, conclude
from crowdfl.lab.audit.scene import Floats, Scene
from crowdfl.local import LocalFederation, Update

__all__ = ["attack_pair", "attack_scene_pair", "other_of_two", "refusals"]

_EPS = 1e-6
_PLACE = ("pair", "10", "another's model, from one's own reward and the average")
_MEASURE = "root mean square error of a weight; blind: the average"


def attack_pair(parameters: int = 20) -> Finding:
    """In plaintext, by the paper's Eq. 10: both profiles refuse to run it."""
    rng = np.random.default_rng(5)
    (w_1, w_2), (delta_1, delta_2) = rng.uniform(-0.5, 0.5, (2, parameters)), (49, 73)
    average = (delta_1 * w_1 + delta_2 * w_2) / (delta_1 + delta_2)
    shares = [n / (np.sum((w - average) ** 2) + _EPS) for w, n in ((w_1, delta_1), (w_2, delta_2))]
    reward = round(36.0 * shares[0] / sum(shares), 6)
    samples, guess = other_of_two(w_1, delta_1, average, reward / 36.0, most=100)
    return _finding(
        f"{PAPER}, n = 2", guess, w_2, average, f"delta = {samples}, and the model", "Eq. 10 solved for delta"
    )


def attack_scene_pair(scene: Scene) -> Finding:
    """The same code on a participant's view of a real run: it takes all the others for one."""
    own, victim = "p1", "p2"
    share = scene.rewards[own] / scene.budget
    args = scene.weights[own], scene.samples[own], scene.average, share
    samples, guess = other_of_two(*args, most=scene.settings.max_samples)
    text = f"delta = {samples} where {scene.samples[victim]} is true"
    return _finding(HARDENED, guess, scene.weights[victim], scene.average, text, "; ".join(refusals()))


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
        LocalFederation(min_participants=2)
    except SettingsError:
        said.append("min_participants = 2 is refused")
    fed = LocalFederation(key_bits=256, insecure_test_key=True, max_participants=3, lanes=0)
    try:
        fed.round({who: Update([np.zeros(1)], 1) for who in ("p1", "p2")})
    except TooFewParticipants:
        said.append("a round of two is refused")
    except CrowdFLError as other:
        said.append(f"a round of two fails otherwise: {type(other).__name__}")
    return said


def _finding(subject: str, guess: Floats, truth: Floats, average: Floats, text: str, note: str) -> Finding:
    errors = (_rms(guess - truth), _rms(average - truth))
    return conclude(_PLACE, ["participant"], subject, errors, _MEASURE, text, note)


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))
