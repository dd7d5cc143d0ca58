"""scikit-learn in place of torch: anything that can hand over its weights as arrays fits the `Learner` protocol.

Run it to see ten people who never share a window train one model: `pip install scikit-learn`, then
`python examples/sklearn_learner.py`. An encrypted campaign takes the same class, named by requester and participants:

    crowdfl train --data synthetic:1 --learner sklearn_learner:SklearnLearner    # in this folder
    crowdfl task create task.toml --learner sklearn_learner:SklearnLearner       # with learner = "own" in [training]
    crowdfl participant run invitation.json --data synthetic:1 --learner sklearn_learner:SklearnLearner
"""

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import SGDClassifier

from crowdfl.errors import SettingsError
from crowdfl.learning.datasets.data import Labels
from crowdfl.learning.datasets.supplied import CUT, PACES, Synthetic
from crowdfl.learning.features import Inputs, features_per_window
from crowdfl.learning.models.learner import Learner, ModelScores, Training, check_pairs, score
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.learning.training import plain_rounds

__all__ = ["SklearnLearner", "main"]


class SklearnLearner:
    """Logistic regression by stochastic gradient descent, for three labels or more: with two, scikit-learn keeps one row."""

    def __init__(self, inputs: int, labels: int) -> None:
        if labels < 3:
            raise SettingsError("this example needs three labels or more")
        self._labels = np.arange(labels)
        self._model = self._fresh(np.zeros((labels, inputs)), np.zeros(labels), Training())

    @property
    def shape(self) -> ModelShape:
        return ModelShape.of({"coef": self._model.coef_, "intercept": self._model.intercept_})

    def weights(self) -> Weights:
        return [self._model.coef_.copy(), self._model.intercept_.copy()]

    def load(self, weights: Sequence[npt.ArrayLike]) -> None:
        coef, intercept = self.shape.check(weights)
        self._model = self._fresh(coef, intercept, Training())

    def train(self, inputs: Inputs, labels: Labels, training: Training) -> int:
        """One call of partial_fit per epoch; a person with only some of the labels can train too."""
        check_pairs(inputs, labels, self._model.coef_.shape[1])
        self._model = self._fresh(*self.weights(), training)
        rows, order = inputs.astype(np.float64), np.random.default_rng(training.seed)
        for epoch in range(1, training.epochs + 1):
            chosen = order.permutation(len(labels))
            self._model.partial_fit(rows[chosen], labels[chosen])
            if training.on_epoch is not None:
                training.on_epoch(epoch)
        return len(labels)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        return np.asarray(self._model.predict_proba(inputs), dtype=np.float64)

    def evaluate(self, inputs: Inputs, labels: Labels) -> ModelScores:
        check_pairs(inputs, labels, self._model.coef_.shape[1])
        return score(self.predict(inputs), labels)

    def _fresh(self, coef: npt.ArrayLike, intercept: npt.ArrayLike, training: Training) -> SGDClassifier:
        """A classifier at these weights: one call makes the arrays, which are then filled."""
        model = SGDClassifier(
            loss="log_loss", learning_rate="constant", eta0=training.rate, random_state=training.seed, shuffle=False
        )
        model.partial_fit(np.zeros((1, np.shape(coef)[1]), dtype=np.float64), [0], classes=self._labels)
        model.coef_, model.intercept_ = np.array(coef, dtype=np.float64), np.array(intercept, dtype=np.float64)
        return model


def main() -> None:
    """Federated averaging in the clear; an encrypted campaign takes the same learner."""
    source = Synthetic(count=10)
    people = [source.load_person(index) for index in range(10)]
    learner: Learner = SklearnLearner(features_per_window("motion", CUT.length, 3), len(PACES))
    for result in plain_rounds(learner, people, Training(epochs=2, rate=0.01), rounds=3):
        sys.stdout.write(f"round {result.number}: accuracy {result.accuracy:.3f}\n")


if __name__ == "__main__":
    main()
