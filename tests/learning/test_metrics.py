"""Scores worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.errors import DataMalformed
from crowdfl.learning.evaluation import Scores, class_scores, confusion, scores


def test_a_worked_example():
    """Class 0: 2 of 3 found, 2 of 2 predictions right. Class 1: 1 of 1, 1 of 2."""
    found = scores(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), 2)
    assert found.accuracy == 0.75
    assert found.precision == pytest.approx((1 + 1 / 2) / 2)
    assert found.recall == pytest.approx((2 / 3 + 1) / 2)
    assert found.f1 == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_the_table_has_the_truth_in_rows():
    assert confusion(np.array([2, 1]), np.array([0, 1]), 3).tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 0]]


def test_a_class_that_is_never_predicted_scores_nothing():
    each = class_scores(np.array([0, 1]), np.array([0, 0]), 2)
    wanted = {"windows": [1, 1], "precision": [0.5, 0], "recall": [1, 0], "f1": [pytest.approx(2 / 3), 0]}
    assert {name: column.tolist() for name, column in each.items()} == wanted


def test_a_class_that_does_not_occur_does_not_count():
    """As when a person never sits."""
    some = np.array([0, 1, 1])
    assert scores(some, some, 9) == Scores(1.0, 1.0, 1.0, 1.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_scores_are_those_of_counting(pairs):
    labels, predicted = (np.array(column) for column in zip(*pairs, strict=True))
    expected = []
    for c in sorted(set(labels) | set(predicted)):
        both = sum(a == b == c for a, b in pairs)
        said, true = sum(b == c for _, b in pairs), sum(a == c for a, _ in pairs)
        expected.append((both / said if said else 0, both / true if true else 0, 2 * both / (said + true)))
    found = scores(labels, predicted, 4)
    assert (found.precision, found.recall, found.f1) == pytest.approx(tuple(np.mean(expected, axis=0)))
    assert found.accuracy == pytest.approx(np.mean([a == b for a, b in pairs]))


@pytest.mark.parametrize(
    ("labels", "predicted"), [([], []), ([0, 1], [0]), ([0, 2], [0, 1]), ([0, 1], [-1, 1])], ids=str
)
def test_what_cannot_be_scored_is_refused(labels, predicted):
    with pytest.raises(DataMalformed):
        scores(np.array(labels, dtype=np.int64), np.array(predicted, dtype=np.int64), 2)
