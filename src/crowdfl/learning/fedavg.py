"""FedAvg in the clear: Eq. 2 of the paper. The oracle that PriFedAvg is compared with."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crowdfl.errors import NothingToAverage

__all__ = ["fedavg"]


def fedavg(models: Sequence[npt.ArrayLike], samples: Sequence[int]) -> npt.NDArray[np.float64]:
    """The mean of the models, each counted as often as it has samples. A model without samples does not count."""
    total = sum(samples)
    if total <= 0:
        raise NothingToAverage("an average needs at least one sample")
    weighted = [delta * np.asarray(model, dtype=np.float64) for model, delta in zip(models, samples, strict=True)]
    return np.asarray(np.sum(weighted, axis=0) / total)
