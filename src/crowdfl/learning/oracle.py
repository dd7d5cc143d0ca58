"""The paper in the clear: Eq. 2 (FedAvg) and Eq. 10 (rewards), which PriFedAvg and PriRwd are compared with.

Also the rules of pay that the profile `shares` has beside Eq. 10, a function of weights for each. `distance` looks at updates,
D_i = samples_i * (model_i - base): `updates_of`.

    w_i = delta_i / sum(delta) * sum(d) / (d_i + epsilon),    mu_i = budget * w_i / sum(w),    d_i = |model_i - average|^2

sum(d) / sum(delta) is common to all participants and cancels in mu, which `rewards` makes use of: when all models agree,
sum(d) is zero, w would be zero over zero, and what is left is a split by samples.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crowdfl.errors import NothingToAverage

_Floats = npt.NDArray[np.float64]


def fedavg(models: Sequence[npt.ArrayLike], samples: Sequence[int]) -> _Floats:
    """The mean of the models, each counted as often as it has samples. A model without samples does not count."""
    total = sum(samples)
    if total <= 0:
        raise NothingToAverage("an average needs at least one sample")
    weighted = [delta * np.asarray(model, dtype=np.float64) for model, delta in zip(models, samples, strict=True)]
    return np.asarray(np.sum(weighted, axis=0) / total)


def distances(models: Sequence[npt.ArrayLike], average: npt.ArrayLike) -> _Floats:
    """d_i: the sum of squared differences over all parameters."""
    differences = [np.asarray(model, dtype=np.float64) - np.asarray(average) for model in models]
    return np.array([np.sum(difference**2) for difference in differences])


def weights(d: npt.ArrayLike, samples: Sequence[int], epsilon: float) -> _Floats:
    """w_i as printed: more samples and a smaller distance weigh more."""
    d, delta = np.asarray(d, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    return np.asarray(delta / delta.sum() * d.sum() / (d + epsilon))


def rewards(models: Sequence[npt.ArrayLike], samples: Sequence[int], budget: float, epsilon: float = 1e-6) -> _Floats:
    """mu_i: the budget split by samples and closeness to the average."""
    d = distances(models, fedavg(models, samples))
    shares = np.asarray(samples, dtype=np.float64) / (d + epsilon)
    return np.asarray(budget * shares / shares.sum())


def updates_of(models: Sequence[npt.ArrayLike], samples: Sequence[int], base: npt.ArrayLike) -> _Floats:
    """D_i, a row for each participant: what it changed of the base, as often as it has samples."""
    pairs = zip(models, samples, strict=True)
    return np.stack([delta * (np.asarray(model, dtype=np.float64) - np.asarray(base)) for model, delta in pairs])


def equal_weights(people: int) -> _Floats:
    """Everyone alike."""
    return np.ones(people)


def count_weights(samples: Sequence[int]) -> _Floats:
    """By declared samples alone, whatever the update is."""
    return np.asarray(samples, dtype=np.float64)


def distance_weights(updates: npt.ArrayLike, samples: Sequence[int], epsilon: float = 1e-6) -> _Floats:
    """Eq. 10 on updates: distances do not change when the base is taken from all models."""
    rows = np.asarray(updates, dtype=np.float64)
    delta = count_weights(samples)
    d = distances(list(rows / delta[:, None]), rows.sum(axis=0) / delta.sum())
    return np.asarray(delta / (d + epsilon))


def rewards_from(weights: npt.ArrayLike, budget: float) -> _Floats:
    """The budget split by weights. If all are zero nothing is paid."""
    shares = np.asarray(weights, dtype=np.float64)
    total = shares.sum()
    return np.asarray(budget * shares / total) if total > 0 else np.zeros_like(shares)
