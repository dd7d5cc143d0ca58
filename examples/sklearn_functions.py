"""scikit-learn: two functions around any estimator whose weights are arrays. `pip install scikit-learn`, then run this file."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

import crowdfl

digits, labels = load_digits(return_X_y=True)
people = crowdfl.partition.dirichlet((digits / 16, labels), 8, alpha=1.0)
model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=0)
model.partial_fit(digits[:1], labels[:1], classes=np.arange(10))  # makes the arrays


def train(weights, data):
    model.coef_, model.intercept_ = weights
    model.partial_fit(*data)
    return [model.coef_, model.intercept_]


def evaluate(weights, data):
    model.coef_, model.intercept_ = weights
    return {"accuracy": model.score(*data)}


if __name__ == "__main__":
    print(crowdfl.simulate(train, evaluate, people, rounds=5, initial=[np.zeros((10, 64)), np.zeros(10)]))
