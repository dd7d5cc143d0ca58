"""Two of five people come late, one has twice the data, and a budget is shared out: `python examples/dropouts_and_rewards.py`.

Nobody reads a model to find out who has earned what.
"""

import numpy as np
from quickstart import evaluate, person, train

import crowdfl


def main():
    """Once with people who come late, once with pay."""
    people = {name: person(seed) for seed, name in enumerate(["ada", "bob", "eve", "kim", "lee"])}
    late = crowdfl.simulate(train, evaluate, people, rounds=3, initial=np.zeros(20), dropouts=0.4, late="10 min")
    print(late, "\n")
    people["lee"] = person(4, samples=120)  # twice as much data as the others
    paid = crowdfl.simulate(train, evaluate, people, rounds=1, initial=np.zeros(20), budget="36.00", pay="samples")
    for name, reward in paid.rewards.items():
        print(f"{name}: {reward:.2f}")


if __name__ == "__main__":
    main()
