"""The example with scikit-learn: it promises what every learner does."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from crowdfl.errors import ModelMismatch
from crowdfl.learning.models.learner import Training

EXAMPLE = Path(__file__).parents[2] / "examples" / "sklearn_learner.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("sklearn_learner", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(example, seed: int, only: int | None = None):
    """On three clouds in five dimensions, or on one of them alone."""
    generator = np.random.default_rng(8)
    labels = generator.integers(0, 3, 150)
    rows = (3 * np.eye(3, 5)[labels] + 0.5 * generator.normal(size=(150, 5))).astype(np.float32)
    chosen = slice(None) if only is None else labels == only
    learner = example.SklearnLearner(5, 3)
    used = learner.train(rows[chosen], labels[chosen], Training(epochs=3, rate=0.05, seed=seed))
    return learner, used, learner.evaluate(rows, labels)


def test_it_learns_and_repeats(example):
    results = [trained(example, seed) for seed in (1, 1, 2)]
    weights = [learner.shape.flat(learner.weights()).tobytes() for learner, _, _ in results]
    assert weights[0] == weights[1] != weights[2]
    assert results[0][1] == 150
    assert results[0][2].accuracy > 0.95


def test_someone_with_one_label_can_take_part(example):
    learner, used, _ = trained(example, 1, only=2)
    assert 0 < used < 150
    assert learner.shape.shapes == ((3, 5), (3,))


def test_weights_move_over_and_others_are_refused(example):
    learner, _, metrics = trained(example, 1)
    other = example.SklearnLearner(5, 3)
    other.load(learner.weights())
    assert [a.tobytes() for a in other.weights()] == [a.tobytes() for a in learner.weights()]
    assert metrics.loss < 0.5
    with pytest.raises(ModelMismatch, match="'coef'"):
        other.load([np.zeros((3, 6)), np.zeros(3)])


def test_the_example_runs(example, capsys):
    example.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["round 1", "round 2", "round 3"]
    assert float(lines[-1].split()[-1]) > 0.9
