"""Sixty people, of whom twelve are drawn for each round, on two processes: `python examples/many_people.py`.

Client sampling, parallel training, and an offset that stays with each person (FedPer).
"""

import numpy as np

import crowdfl

SLOPE = np.array([1.0, -2.0, 0.5])


def person(seed):
    """Everyone has the same slope, and a habit of its own."""
    chance = np.random.default_rng(seed)
    inputs = chance.normal(size=(40, 3))
    return inputs, inputs @ SLOPE + chance.normal(scale=3.0)


def train(model, data, info):
    """A few steps on this person's data; `info.device` says where to compute, `info.seed` what to draw from."""
    inputs, values = data
    slope, habit = model["slope"], model["habit"]
    for _ in range(10):
        wrong = inputs @ slope + habit - values
        slope, habit = slope - 0.1 * inputs.T @ wrong / len(values), habit - 0.2 * wrong.mean()
    return {"slope": slope, "habit": habit}


def evaluate(model, data):
    """With the person's own habit."""
    inputs, values = data
    return {"error": float(np.abs(inputs @ model["slope"] + model["habit"] - values).mean())}


def main():
    """The same result for any number of workers."""
    people = {f"person-{seed}": person(seed) for seed in range(60)}
    start = {"slope": np.zeros(3), "habit": np.zeros(1)}
    result = crowdfl.simulate(
        train, evaluate, people, rounds=4, initial=start, per_round=12, workers=2, personalize=["habit"]
    )
    print(result)
    print(f"largest error of the common slope: {np.abs(result.model['slope'] - SLOPE).max():.2f}")
    print(f"{len(result.personal)} people have a habit of their own")


if __name__ == "__main__":
    main()
