"""Five people train one model, and nobody shows a measurement: `python examples/quickstart.py`."""

import numpy as np

import crowdfl

TRUTH = np.linspace(-1.0, 1.0, 20)


def person(seed, samples=60):
    """Somebody's measurements: twenty numbers each, and an answer that depends on them."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(samples, 20))
    return inputs, inputs @ TRUTH + rng.normal(scale=0.1, size=samples)


def train(weights, data):
    """A better model, from one person's data."""
    inputs, answers = data
    for _ in range(10):
        gradient = inputs.T @ (inputs @ weights - answers) / len(answers)
        weights = weights - 0.05 * gradient
    return weights


def evaluate(weights, data):
    """How good it is."""
    inputs, answers = data
    return {"error": np.mean((inputs @ weights - answers) ** 2)}


def main():
    """Ten lines of your own are those above."""
    people = {name: person(seed) for seed, name in enumerate(["ada", "bob", "eve", "kim", "lee"])}
    result = crowdfl.simulate(train, evaluate, people, rounds=5, initial=np.zeros(20))
    print(result)
    print("largest error of a weight:", round(abs(result.model - TRUTH).max(), 2))


if __name__ == "__main__":
    main()
