"""The plaintext average, rewards and rules of pay, against numbers worked out by hand."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crowdfl.learning
from crowdfl.errors import NothingToAverage
from crowdfl.learning.oracle import (
    PlainStep,
    agreement_weights,
    count_weights,
    distance_weights,
    distances,
    fedavg,
    gate_weights,
    rewards,
    rewards_from,
    updates_of,
    weights,
)


def test_models_count_as_often_as_they_have_samples():
    """(1*2 + 3*6) / 4 = 5, and so on per coordinate."""
    assert fedavg([[2.0, 0.0], [6.0, -4.0]], [1, 3]).tolist() == [5.0, -3.0]


def test_a_model_without_samples_does_not_count():
    assert fedavg([[1.0], [3.0], [1e9]], [1, 1, 0]).tolist() == [2.0]


def test_equal_models_average_to_themselves():
    """The samples do not matter then."""
    model = np.array([0.25, -8.0, 0.0])
    assert fedavg([model, model, model], [7, 1, 100]).tolist() == model.tolist()


def test_shapes_are_kept():
    assert fedavg([np.zeros((2, 3)), np.ones((2, 3))], [1, 1]).tolist() == [[0.5] * 3] * 2


def test_no_samples_make_no_average():
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
    assert rewards_from([1.0, 3.0, 0.0], 36.0).tolist() == [9.0, 27.0, 0.0]


def test_all_weights_zero_pays_nothing():
    """The money stays with the requester."""
    assert rewards_from([0.0, 0.0], 36.0).tolist() == [0.0, 0.0]
