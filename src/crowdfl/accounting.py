"""What noise costs in privacy: zero-concentrated differential privacy, and its (epsilon, delta).

Noise of sigma on integers that one person changes by a length of at most C is C^2 / (2 sigma^2)-concentrated, in any number of
dimensions, and rounds add up. Corollary 13 of Canonne, Kamath and Steinke (2020) gives delta. It holds for every order, so that
the best of a fixed list is a bound that all devices find alike, up to the last digits of exp and log: `TOLERANCE` is for those.
"""

import math

SHARE = 0.9  # of delta, that noise may use: the rest is for honest uploads that a check rejects, and for the tails of the noise
TOLERANCE = 1e-9
_ORDERS: tuple[float, ...] = tuple(math.pow(2.0, step / 16) for step in range(-160, 241))  # less 1


def log_delta(rho: float, epsilon: float) -> float:
    """The logarithm of a delta with which rho-concentrated privacy is (epsilon, delta)-differential."""
    return min(
        order * ((order + 1) * rho - epsilon) - (order + 1) * math.log1p(1 / order) - math.log(order)
        for order in _ORDERS
    )


def epsilon_of(rho: float, delta: float) -> float:
    """The other way round: an epsilon for this delta."""
    if rho <= 0:
        return 0.0
    wanted = math.log(delta * SHARE)
    return max(
        0.0,
        min(
            (order + 1) * rho - ((order + 1) * math.log1p(1 / order) + math.log(order) + wanted) / order
            for order in _ORDERS
        ),
    )


def rho_of(length: int, sigma: int, rounds: int) -> float:
    return rounds * length * length / (2.0 * sigma * sigma)


def is_enough(sigma: int, length: int, rounds: int, epsilon: float, delta: float) -> bool:
    """Whether noise of sigma keeps (epsilon, delta) over so many rounds."""
    return log_delta(rho_of(length, sigma, rounds), epsilon) <= math.log(delta * SHARE)


def least_sigma(length: int, rounds: int, epsilon: float, delta: float, most: int) -> int | None:
    """The smallest such sigma, a little more than is enough; None if it is above `most`."""
    low = 0
    high = most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle, length, rounds, epsilon, delta) else (middle, high)
    found = high + math.ceil(high * TOLERANCE)
    return found if found <= most else None
