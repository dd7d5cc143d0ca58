"""A rule of averaging of your own, for research: `python examples/own_rule.py`. It runs in the clear, and is not private.

One of seven people is a poisoner. The median bears it, plain averaging does not.
"""

import numpy as np
from quickstart import evaluate, person, train

import crowdfl
from crowdfl.simulation.clear import fedavg


def median(updates, start, info):
    """The middle of each number. `start` and `info` say where the round started, and which it is."""
    return np.median([one.flat for one in updates.values()], axis=0)


def poisoned(model, data, info):
    """One person's update leads away."""
    return -5 * train(model, data) if info.person == "eve" else train(model, data)


def main():
    """The same people and data, two rules."""
    people = {name: person(seed) for seed, name in enumerate(["ada", "bob", "eve", "kim", "lee", "mia", "tom"])}
    for rule in (fedavg, median):
        result = crowdfl.simulate(poisoned, evaluate, people, rounds=5, initial=np.zeros(20), in_the_clear=rule)
        print(f"{rule.__name__}: error {result.history[-1].metrics['error']:.2f}")
    print(result)


if __name__ == "__main__":
    main()
