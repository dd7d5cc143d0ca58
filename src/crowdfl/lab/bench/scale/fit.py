"""How a cost grows: the exponent of the power law that fits it best."""

from collections.abc import Sequence

import numpy as np

__all__ = ["exponent"]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """b of y = a x^b, by least squares of the logarithms: 1 is proportional, 0 does not grow."""
    slope, _ = np.polyfit(np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64)), 1)
    return float(slope)
