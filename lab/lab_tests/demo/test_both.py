"""One round under two profiles: the same updates, really averaged and paid by each."""

import numpy as np
import pytest

from crowdfl.learning.oracle import fedavg
from crowdfl.settings import TaskSettings
from crowdfl_lab.demo.both import both_tables, both_words, pay_picture, play_both
from crowdfl_lab.demo.plain import Plain
from crowdfl_lab.report.plots import draw_png
from lab_tests.demo.test_report import Shape

START, SAMPLES = np.array([0.5, -0.25, 0.125, 0.0]), (2, 3, 4)
STEPS = np.random.default_rng(3).normal(scale=0.2, size=(3, 4))
SMALL = {
    "max_participants": 3,
    "max_samples": 10,
    "clip": 2.0,
    "decimals": 3,
    "budget": "3.00",
    "rounds": 2,
    "key_bits": 1536,
}


class Person:
    """Whose training takes one step of its own."""

    learner = type("Learner", (), {"shape": Shape()})()

    def __init__(self, number):
        self.number = number

    def train(self, arrays, _training, number):
        assert number == 1
        return [arrays[0] + STEPS[self.number]], SAMPLES[self.number]


@pytest.fixture(scope="module")
def both():
    people = {number: Person(number) for number in range(3)}
    plain = Plain({0: [START]}, people, {1: [0, 1, 2]})
    settings = TaskSettings.of(**SMALL, max_norm=0.5, lanes=128, weighting="samples")
    change = [step * min(1.0, 0.5 / np.linalg.norm(step)) for step in STEPS]
    clear = fedavg([START + one for one in change], SAMPLES)
    return play_both(plain, settings, np.round(clear, 3), insecure_test_key=True), clear


def test_where_everyone_counts_once_everyone_is_paid_by_distance_too():
    """As in the task file that `make demo` plays."""
    people = {number: Person(number) for number in range(3)}
    settings = TaskSettings.of(**SMALL, max_norm=0.5, lanes=1024, weighting="equal")
    plain = Plain({0: [START]}, people, {1: [0, 1, 2]}, alike=True)
    found = play_both(plain, settings, START, insecure_test_key=True)
    assert all(0 < amount < 3_000_000 for amount in found.by_distance.rewards.values())
    assert np.abs(found.by_distance.average - found.shares.average).max() <= 2e-3


def test_both_average_the_same_updates_to_the_last_decimal(both):
    """An update that is too long is shortened for both."""
    found, clear = both
    assert any(np.linalg.norm(STEPS, axis=1) > 0.5)
    assert np.abs(found.shares.average - clear).max() <= 1e-3
    assert np.abs(found.hardened.average - clear).max() <= 1e-3
    assert found.apart.max() <= 1e-3


def test_each_pays_by_its_own_rule(both):
    found, _ = both
    assert list(found.shares.rewards.values()) == [1_000_000] * 3
    for round_ in (found.hardened, found.by_distance):
        paid = list(round_.rewards.values())
        assert len(set(paid)) == 3
        assert 3_000_000 - 36 <= sum(paid) <= 3_000_000  # each is off by four millionths of the budget at most


def test_equal_pay_stands_beside_eq_10_of_both_profiles(both):
    """In the table and in the picture; of `shares`, whose sketch is long here, nearly as in the clear."""
    found, _ = both
    _, pay, _ = both_tables(found)
    assert pay.columns[1:5] == ("shares: equal parts", "shares: Eq. 10", "hardened: Eq. 10", "Eq. 10 in the clear")
    for row in pay.rows:
        assert float(row[2]) == pytest.approx(float(row[4]), rel=0.3)
        assert float(row[2]) != float(row[1])
    drawn = draw_png(pay_picture(found))
    assert drawn.startswith(b"\x89PNG")


def test_the_tables_show_both_and_what_they_cost(both):
    weights, pay, costs = both_tables(both[0])
    assert [row[0] for row in weights.rows[:3]] == ["1", "2", "3"]
    assert [row[1] for row in pay.rows] == ["1.000000"] * 3
    assert [row[0] for row in costs.rows][-1] == "dealt by KGC for the round"
    assert costs.rows[-1][2].value == 0 < costs.rows[-1][1].value
    assert all(row[1].value < row[2].value for row in costs.rows[:4])
    assert "at most" in both_words(both[0])
