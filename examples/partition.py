"""One data set dealt out to ten people, evenly and by shards of labels. Needs scikit-learn: `python examples/partition.py`.

With shards most people have seen two or three digits of ten. The average learns more slowly then.
"""

import numpy as np
from sklearn.datasets import load_digits

import crowdfl


def scores(weights, inputs):
    found = np.exp(inputs @ weights - (inputs @ weights).max(axis=1, keepdims=True))
    return found / found.sum(axis=1, keepdims=True)


def train(weights, data):
    inputs, labels = data[0] / 16, np.eye(10)[data[1]]
    for _ in range(20):
        weights = weights - 0.5 * inputs.T @ (scores(weights, inputs) - labels) / len(inputs)
    return weights


def evaluate(weights, data):
    return {"accuracy": np.mean(scores(weights, data[0] / 16).argmax(axis=1) == data[1])}


def main():
    """The same digits, the same functions, two ways of dealing."""
    digits = load_digits()
    for people in (crowdfl.partition.iid(digits, 10), crowdfl.partition.shards(digits, 10)):
        print(people, "\n")
        print(crowdfl.simulate(train, evaluate, people, rounds=3, initial=np.zeros((64, 10))), "\n")


if __name__ == "__main__":
    main()
