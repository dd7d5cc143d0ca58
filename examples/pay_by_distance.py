"""Pay by Eq. 10 of the paper: whose update lies nearer to the average earns more. `python examples/pay_by_distance.py`.

One of five people has measured badly. The servers see neither updates nor distances; its owner's claim opens an amount.
"""

import numpy as np
from quickstart import evaluate, person, train

import crowdfl


def main():
    """The same people, by equal parts and by distance."""
    people = {name: person(seed) for seed, name in enumerate(["ada", "bob", "eve", "kim", "lee"])}
    inputs, answers = people["lee"]
    people["lee"] = inputs, answers + np.random.default_rng(7).normal(scale=5.0, size=len(answers))
    for pay in ("equal", "distance"):
        paid = crowdfl.simulate(train, evaluate, people, rounds=3, initial=np.zeros(20), budget="36.00", pay=pay)
        print(f"{pay}:", ", ".join(f"{name} {reward:.2f}" for name, reward in paid.rewards.items()))


if __name__ == "__main__":
    main()
