"""Scores worked out by hand, and the paper's own table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.errors import DataMalformed
from crowdfl.learning.metrics import Scores, class_scores, confusion, mad, scores

# The paper's table 3: accuracy, precision, recall, F1, and the MAD it prints.
NN = Scores(0.7778, 0.6891, 0.6961, 0.6825)
PRINTED = [
    (Scores(0.6481, 0.6358, 0.574, 0.6144), 0.0933),
    (Scores(0.7553, 0.6497, 0.642, 0.5733), 0.0563),
    (Scores(0.7619, 0.6311, 0.6605, 0.6077), 0.0461),
    (Scores(0.7725, 0.6335, 0.6653, 0.6186), 0.0389),
    (Scores(0.7751, 0.6446, 0.6757, 0.6390), 0.0278),
]


@pytest.mark.parametrize(("row", "printed"), PRINTED, ids=[f"FedAvg_{n}" for n in range(1, 6)])
def test_mad_is_the_papers(row, printed):
    """The definition gives every value of the printed table."""
    assert mad(row, NN) == pytest.approx(printed, abs=0.00005001)  # half a unit of the last digit


def test_a_worked_example():
    """Class 0: 2 of 3 found, 2 of 2 predictions right. Class 1: 1 of 1, 1 of 2."""
    found = scores(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), 2)
    assert found.accuracy == 0.75
    assert found.precision == pytest.approx((1 + 1 / 2) / 2)
    assert found.recall == pytest.approx((2 / 3 + 1) / 2)
    assert found.f1 == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_the_table_has_the_truth_in_rows():
    """One window of class 2 taken for class 0."""
    assert confusion(np.array([2, 1]), np.array([0, 1]), 3).tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 0]]


def test_a_class_that_is_never_predicted_scores_nothing():
    """Without a warning or a NaN."""
    each = class_scores(confusion(np.array([0, 1]), np.array([0, 0]), 2))
    assert each.precision.tolist() == [0.5, 0]
    assert each.recall.tolist() == [1, 0]
    assert each.f1.tolist() == [pytest.approx(2 / 3), 0]
    assert each.support.tolist() == [1, 1]


def test_a_class_that_does_not_occur_does_not_count():
    """As when a person never sits."""
    some = np.array([0, 1, 1])
    assert scores(some, some, 9) == Scores(1.0, 1.0, 1.0, 1.0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_scores_are_those_of_counting(pairs):
    """Each mean repeated with loops and no table."""
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
    """By name."""
    with pytest.raises(DataMalformed):
        scores(np.array(labels, dtype=np.int64), np.array(predicted, dtype=np.int64), 2)
