"""The plaintext average, rewards and rules of pay, against numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.errors import NothingToAverage
from crowdfl.learning.oracle import (
    count_weights,
    distance_weights,
    distances,
    equal_weights,
    fedavg,
    rewards,
    rewards_from,
    updates_of,
    weights,
)
from crowdfl.learning.server_steps import PlainStep


@pytest.mark.parametrize(
    ("models", "samples", "average"),
    [
        ([[2.0, 0.0], [6.0, -4.0]], [1, 3], [5.0, -3.0]),  # (1*2 + 3*6) / 4, and so on per coordinate
        ([[1.0], [3.0], [1e9]], [1, 1, 0], [2.0]),  # a model without samples does not count
        ([[0.25, -8.0, 0.0]] * 3, [7, 1, 100], [0.25, -8.0, 0.0]),  # equal models average to themselves
        ([np.zeros((2, 3)), np.ones((2, 3))], [1, 1], [[0.5] * 3] * 2),  # shapes are kept
    ],
)
def test_models_count_as_often_as_they_have_samples(models, samples, average):
    assert fedavg(models, samples).tolist() == average


def test_what_makes_no_average_is_refused():
    """No samples; a count too many or too few is an error, not a guess."""
    with pytest.raises(NothingToAverage):
        fedavg([[1.0], [2.0]], [0, 0])
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


@pytest.mark.parametrize(("kind", "v"), [("fedadagrad", (16, 20, 20.25)), ("fedyogi", (4, 4, 3.9375))])
def test_adagrad_adds_squares_up_and_yogi_follows_them(kind, v):
    """g = 4, 2, 1/2 and, of yogi, squares 3/4: from 0 up by 16 / 4, at 4 = g^2 by nothing, from there down by 1 / 16."""
    step, model = PlainStep(kind, rate=1.0, momentum=0.0, squares=0.75, floor=0.5), np.zeros(1)
    for change, square in zip((4.0, 2.0, 0.5), v, strict=True):
        after = step.next_model(model, model + change)
        assert after - model == pytest.approx([change / (square**0.5 + 0.5)])
        model = after


def test_without_a_step_the_average_is_the_next_model():
    assert PlainStep().next_model([5.0], [1.25]).tolist() == [1.25]


def test_distances_sum_squares_over_all_parameters():
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
    assert rewards([[0.3], [0.3], [0.3]], [1, 2, 3], 6.0) == pytest.approx([1.0, 2.0, 3.0])


def test_a_participant_without_samples_earns_nothing():
    with_idler = rewards([[0.0], [1.0], [0.7]], [1, 2, 0], 9.0)
    assert with_idler[2] == 0
    assert with_idler[:2].tolist() == rewards([[0.0], [1.0]], [1, 2], 9.0).tolist()


def test_an_update_is_what_changed_times_the_samples():
    """From the base (1, 1): (3, 1) with two samples moved by (4, 0)."""
    assert updates_of([[3.0, 1.0], [1.0, 0.5]], [2, 4], [1.0, 1.0]).tolist() == [[4.0, 0.0], [0.0, -2.0]]


def test_pay_by_count_and_equal_pay_look_at_no_update():
    assert rewards_from(count_weights([3, 1]), 36.0).tolist() == [27.0, 9.0]
    assert rewards_from(equal_weights(3), 36.0).tolist() == [12.0, 12.0, 12.0]


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 8))
def test_distance_is_equation_10_on_models(seed, people, parameters):
    generator = np.random.default_rng(seed)
    models, base = generator.normal(size=(people, parameters)), generator.normal(size=parameters)
    samples = generator.integers(1, 50, people).tolist()
    found = rewards_from(distance_weights(updates_of(models, samples, base), samples), 36.0)
    assert found == pytest.approx(rewards(list(models), samples, 36.0), rel=1e-6)


def test_the_budget_is_split_by_weights():
    assert rewards_from([1.0, 3.0, 0.0], 36.0).tolist() == [9.0, 27.0, 0.0]
    assert rewards_from([0.0, 0.0], 36.0).tolist() == [0.0, 0.0]
