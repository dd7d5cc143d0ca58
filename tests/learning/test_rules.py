"""The rules of payment in the clear, against cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.learning.oracle import (
    agreement_weights,
    count_weights,
    distance_weights,
    gate_weights,
    rewards,
    rewards_from,
    updates_of,
)

LANES = 4096


def test_an_update_is_what_changed_times_the_samples():
    """From the base (1, 1): (3, 1) with two samples moved by (4, 0)."""
    assert updates_of([[3.0, 1.0], [1.0, 0.5]], [2, 4], [1.0, 1.0]).tolist() == [[4.0, 0.0], [0.0, -2.0]]


def test_pay_by_count_looks_at_nothing_else():
    """Samples are the weights."""
    assert count_weights([3, 1]).tolist() == [3.0, 1.0]


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 8))
def test_distance_is_equation_10_on_models(seed, people, parameters):
    """Whatever the base is, the rewards are those of the models."""
    generator = np.random.default_rng(seed)
    models, base = generator.normal(size=(people, parameters)), generator.normal(size=parameters)
    samples = generator.integers(1, 50, people).tolist()
    found = rewards_from(distance_weights(updates_of(models, samples, base), samples), 36.0)
    assert found == pytest.approx(rewards(list(models), samples, 36.0), rel=1e-6)


def test_agreement_is_the_product_with_the_sum_of_the_others():
    """(2, 0), (1, 1), (-1, 3): with (0, 4), (1, 3) and (3, 1) that is 0, 4 and 0."""
    assert agreement_weights([[2.0, 0.0], [1.0, 1.0], [-1.0, 3.0]]).tolist() == [0.0, 4.0, 0.0]


def test_agreement_never_counts_against_anyone():
    """Against the others is worth zero, not less."""
    assert agreement_weights([[2.0], [1.0], [-1.0]]).tolist() == [0.0, 1.0, 0.0]


def test_the_gate_pays_by_count_those_who_go_with_the_others():
    """The third goes the other way, the fourth nowhere."""
    weights = gate_weights([[2.0, 0.1], [3.0, -0.1], [-1.0, 0.0], [0.0, 0.0]], [5, 7, 9, 11], None, LANES)
    assert weights.tolist() == [5.0, 7.0, 0.0, 0.0]


@pytest.mark.parametrize(("lanes", "paid"), [(40, 0.0), (41, 3.0)])
def test_the_gate_wants_a_direction_beyond_the_noise_of_the_lanes(lanes, paid):
    """(1, 3) and others (1, 0) together: T = 1, A = 10, |others|^2 = 1, so that lanes must exceed 40."""
    assert gate_weights([[1.0, 3.0], [1.0, 0.0]], [3, 1], None, lanes)[0] == paid


@pytest.mark.parametrize(("aside", "paid"), [(0.0, 0.0), (0.5, 0.0), (0.6, 2.0), (1.0, 2.0)])
def test_the_gate_does_not_pay_the_last_sum_again(aside, paid):
    """(1, x) along (1, 0): the squared cosine 1 / (1 + x^2) must be below 3/4, so x^2 above 1/3."""
    updates = [[1.0, aside], [5.0, 5.0], [5.0, 5.0]]
    assert gate_weights(updates, [2, 1, 1], [7.0, 0.0], LANES)[0] == paid


def test_the_gate_refuses_the_last_sum_backwards_as_well():
    """The square has no sign; the others go back, too."""
    assert gate_weights([[-1.0, 0.0], [-1.0, 1.0]], [2, 1], [7.0, 0.0], LANES).tolist() == [0.0, 1.0]


def test_the_gate_has_nothing_to_compare_with_in_the_first_round():
    """The same update passes without a last sum and not with itself as the last."""
    updates = [[1.0, 0.0], [1.0, 1.0]]
    assert gate_weights(updates, [2, 1], None, LANES).tolist() == [2.0, 1.0]
    assert gate_weights(updates, [2, 1], [1.0, 0.0], LANES).tolist() == [0.0, 1.0]


def test_a_last_sum_of_zero_keeps_nobody_from_being_paid():
    assert gate_weights([[1.0], [1.0]], [2, 1], [0.0], LANES).tolist() == [2.0, 1.0]


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_agreement_and_gate_do_not_depend_on_the_unit(seed, unit):
    """Weights in millionths or in whole numbers: the same people are paid the same part."""
    generator = np.random.default_rng(seed)
    updates, last = generator.normal(0.3, 1, (5, 7)), generator.normal(0.3, 1, 7)
    assert rewards_from(agreement_weights(updates * unit), 1.0) == pytest.approx(
        rewards_from(agreement_weights(updates), 1.0)
    )
    again = gate_weights(updates * unit, [1] * 5, last * unit, LANES)
    assert again.tolist() == gate_weights(updates, [1] * 5, last, LANES).tolist()


def test_the_budget_is_split_by_weights():
    """One to three."""
    assert rewards_from([1.0, 3.0, 0.0], 36.0).tolist() == [9.0, 27.0, 0.0]


def test_all_weights_zero_pays_nothing():
    """The money stays with the requester."""
    assert rewards_from([0.0, 0.0], 36.0).tolist() == [0.0, 0.0]
