"""People who fit a straight line, and what plain federated averaging makes of them."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from crowdfl.learning.oracle import fedavg

__all__ = ["START", "evaluate", "fit", "people", "plain", "train"]

START = [np.array([0.25, -0.5, 0.125]), np.array(0.0)]


def people(count: int = 4, seed: int = 0) -> dict[str, tuple[Any, Any]]:
    """Inputs and values; everyone has another number of samples."""
    chance = np.random.default_rng(seed)
    inputs = {f"p{i}": chance.normal(size=(10 + 3 * i, 3)) for i in range(count)}
    return {who: (x, x @ np.array([1.0, -2.0, 0.5]) + 0.3) for who, x in inputs.items()}


def fit(weights: Any, offset: Any, data: tuple[Any, Any]) -> tuple[Any, Any]:
    inputs, values = data
    for _ in range(3):
        wrong = inputs @ weights + offset - values
        weights, offset = weights - 0.1 * inputs.T @ wrong / len(values), offset - 0.1 * wrong.mean()
    return weights, offset


def train(model: Any, data: tuple[Any, Any]) -> Any:
    return list(fit(*model, data))


def evaluate(model: Any, data: tuple[Any, Any]) -> dict[str, float]:
    weights, offset = model
    return {"loss": float(np.mean((data[0] @ weights + offset - data[1]) ** 2))}


def plain(data: Mapping[str, Any], rounds: int, away: Mapping[int, Collection[str]] | None = None) -> list[Any]:
    """Federated averaging in the clear, from START: the weights and the offset after each round."""
    flat, models = np.concatenate([START[0], [START[1]]]), []
    for number in range(1, rounds + 1):
        present = {who: own for who, own in data.items() if who not in (away or {}).get(number, ())}
        fitted = [np.append(*fit(flat[:3], flat[3], own)) for own in present.values()]
        flat = fedavg(fitted, [len(own[1]) for own in present.values()])
        models.append(flat)
    return models
