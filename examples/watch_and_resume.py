"""Early stopping, logs, a test set of your own, checkpoints and resuming: `python examples/watch_and_resume.py`."""

import numpy as np
from quickstart import evaluate, person

import crowdfl


def train(weights, data):
    """As in the quick start; it counts by a weight of its own, and says something about itself."""
    inputs, answers = data
    for _ in range(10):
        gradient = inputs.T @ (inputs @ weights - answers) / len(answers)
        weights = weights - 0.05 * gradient
    return weights, np.sqrt(len(answers)), {"gradient": np.linalg.norm(gradient)}


def new_log():
    """TensorBoard's, where it is installed; a curve for each name."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return lambda name, value, number: print(f"round {number}: {name} {value:.3f}")
    return SummaryWriter().add_scalar


def main():
    """Stops when the model hardly improves; then goes on, with the momentum that it had."""
    people = {name: person(seed, 20 + 10 * seed) for seed, name in enumerate(["ada", "bob", "eve", "kim", "lee"])}
    test, log, errors = person(99), new_log(), []

    def on_round(done):
        for name, value in done.numbers.items():
            log(name, value, done.number)
        errors.append(done.central["error"])
        return len(errors) > 1 and errors[-1] > 0.9 * errors[-2]

    settings = {"initial": np.zeros(20), "server_step": "fedavgm", "server_momentum": 0.5}
    settings |= {"evaluate_central": lambda weights: evaluate(weights, test), "folder": "campaign", "progress": False}
    result = crowdfl.simulate(train, evaluate, people, rounds=20, on_round=on_round, **settings)
    print(f"stopped after round {len(result.history)} of 20; whoever runs this again finds it in ./campaign")

    longer = crowdfl.simulate(train, evaluate, people, rounds=len(result.history) + 2, resume=result, progress=False)
    print(longer)
    print("by person:", longer.person_rows()[-1])


if __name__ == "__main__":
    main()
