"""Windows of your own in one .npz file, by the names that `crowdfl` knows: `python examples/own_data.py [FILE]`.

Without a file it makes one up. `crowdfl train --data npz:FILE#ada` reads the same file; with `--look` it shows what is in it.
"""

import sys

import numpy as np

import crowdfl


def make(path):
    """Sixty windows each of three people who walk or run, at 20 samples a second."""
    rng = np.random.default_rng(1)
    count, samples, channels = 180, 90, 3
    label = rng.integers(0, 2, count)
    pace = np.where(label, 3.5, 2.0)[:, None, None]  # steps a second
    time = np.arange(samples)[None, :, None] / 20
    np.savez(
        path,
        windows=np.sin(2 * np.pi * pace * time) * pace / 4 + rng.normal(0, 0.2, (count, samples, channels)),
        label=label,  # places in label_names
        label_names=["walking", "running"],
        user=np.repeat(["ada", "bob", "eve"], count // 3),
        train=np.arange(count) % 4 > 0,  # the rest is held out
    )


def inputs_of(windows):
    """How much each channel moves, and how fast."""
    return np.concatenate([windows.std(axis=1), np.abs(np.diff(windows, axis=1)).mean(axis=1)], axis=1)


def train(model, data):
    """Logistic regression, two hundred steps."""
    inputs, labels = data["train"]
    weights, bias = model["weights"], model["bias"]
    for _ in range(200):
        error = 1 / (1 + np.exp(-(inputs @ weights + bias))) - labels
        weights, bias = weights - inputs.T @ error / len(labels), bias - error.mean()
    return {"weights": weights, "bias": bias}, len(labels)


def evaluate(model, data):
    """On the windows that are held out."""
    inputs, labels = data["held out"]
    return {"accuracy": np.mean((inputs @ model["weights"] + model["bias"] > 0) == labels), "samples": len(labels)}


def main(path="windows.npz"):
    """A dictionary of people, each with what the two functions want."""
    file = np.load(path)
    inputs, label, user, train_on = inputs_of(file["windows"]), file["label"], file["user"], file["train"].astype(bool)
    people = {
        str(name): {
            "train": (inputs[(user == name) & train_on], label[(user == name) & train_on]),
            "held out": (inputs[(user == name) & ~train_on], label[(user == name) & ~train_on]),
        }
        for name in np.unique(user)
    }
    initial = {"weights": np.zeros(inputs.shape[1]), "bias": np.zeros(1)}
    print(crowdfl.simulate(train, evaluate, people, rounds=3, initial=initial))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        make("windows.npz")
    main(*sys.argv[1:])
