"""The plaintext rewards, against Eq. 10 worked out by hand."""

import ast
from pathlib import Path

import numpy as np
import pytest

import crowdfl.learning
from crowdfl.learning.oracle import distances, rewards, weights


def test_distances_sum_squares_over_all_parameters():
    """(3, 4) from the origin is 25."""
    assert distances([[3.0, 4.0], [0.0, 0.0]], [0.0, 0.0]).tolist() == [25.0, 0.0]


def test_weights_are_those_of_equation_10():
    """delta 1 and 3, d 1 and 4, epsilon 1: 1/4 * 5/2 and 3/4 * 5/5."""
    assert weights([1.0, 4.0], [1, 3], 1.0).tolist() == [0.625, 0.75]


def test_rewards_are_the_budget_split_by_those_weights():
    """The printed formula and the one with the common factor cancelled agree."""
    models, samples = [[0.0, 1.0], [2.0, 2.0], [-1.0, 0.5]], [1, 2, 5]
    d = distances(models, np.average(models, axis=0, weights=samples))
    w = weights(d, samples, 1e-6)
    assert rewards(models, samples, 36.0) == pytest.approx(36.0 * w / w.sum())


def test_a_worked_example():
    """Models 0 and 3 with 2 and 1 samples: average 1, d = 1 and 4, shares 2/(1+1) and 1/(4+1)."""
    assert rewards([[0.0], [3.0]], [2, 1], 12.0, 1.0) == pytest.approx([10.0, 2.0])


def test_identical_models_split_by_samples():
    """All distances are zero; epsilon is all that divides."""
    assert rewards([[0.3], [0.3], [0.3]], [1, 2, 3], 6.0) == pytest.approx([1.0, 2.0, 3.0])


def test_a_participant_without_samples_earns_nothing():
    """And takes nothing from the others."""
    with_idler = rewards([[0.0], [1.0], [0.7]], [1, 2, 0], 9.0)
    assert with_idler[2] == 0
    assert with_idler[:2].tolist() == rewards([[0.0], [1.0]], [1, 2], 9.0).tolist()


def test_learning_knows_nothing_of_encryption():
    """The oracle shares no code with what it checks."""
    for path in Path(crowdfl.learning.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.startswith(("crowdfl.crypto", "crowdfl.protocols"))], path
