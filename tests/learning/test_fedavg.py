"""The plaintext average, against numbers worked out by hand."""

import numpy as np
import pytest

from crowdfl.errors import NothingToAverage
from crowdfl.learning.oracle import PlainStep, fedavg


def test_models_count_as_often_as_they_have_samples():
    """(1*2 + 3*6) / 4 = 5, and so on per coordinate."""
    assert fedavg([[2.0, 0.0], [6.0, -4.0]], [1, 3]).tolist() == [5.0, -3.0]


def test_a_model_without_samples_does_not_count():
    """Whatever it holds."""
    assert fedavg([[1.0], [3.0], [1e9]], [1, 1, 0]).tolist() == [2.0]


def test_equal_models_average_to_themselves():
    """The samples do not matter then."""
    model = np.array([0.25, -8.0, 0.0])
    assert fedavg([model, model, model], [7, 1, 100]).tolist() == model.tolist()


def test_shapes_are_kept():
    """A matrix of weights gives a matrix."""
    assert fedavg([np.zeros((2, 3)), np.ones((2, 3))], [1, 1]).tolist() == [[0.5] * 3] * 2


def test_no_samples_make_no_average():
    """Zero over zero is refused by name."""
    with pytest.raises(NothingToAverage):
        fedavg([[1.0], [2.0]], [0, 0])


def test_models_and_samples_go_together():
    """A count too many or too few is an error, not a guess."""
    with pytest.raises(ValueError, match="zip"):
        fedavg([[1.0], [2.0]], [1])


def test_momentum_goes_on_in_the_direction_of_the_last_rounds():
    """m = 1, then 0.5 * 1 + 2 = 2.5, then 0.5 * 2.5 + 0: half of each is taken."""
    step = PlainStep("fedavgm", rate=0.5, momentum=0.5)
    assert step.next_model([0.0], [1.0]).tolist() == [0.5]
    assert step.next_model([0.5], [2.5]).tolist() == [1.75]
    assert step.next_model([1.75], [1.75]).tolist() == [2.375]


def test_adam_divides_by_what_a_weight_usually_moves():
    """m = g / 2, v = g^2 / 4: the first step is rate * (g / 2) / (|g| / 2 + floor), whatever the size of g."""
    step = PlainStep("fedadam", rate=0.1, momentum=0.5, squares=0.75, floor=0.5)
    assert step.next_model([0.0, 1.0], [1.0, -7.0]) == pytest.approx([0.05, 1 - 0.4 / 4.5])


def test_without_a_step_the_average_is_the_next_model():
    assert PlainStep().next_model([5.0], [1.25]).tolist() == [1.25]
