"""The paper in the clear: Eq. 2 (FedAvg) and Eq. 10 (rewards), which PriFedAvg and PriRwd are compared with.

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
