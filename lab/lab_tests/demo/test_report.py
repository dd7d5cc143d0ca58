"""What the demo's report says: counted and measured, never typed."""

from pathlib import Path

import numpy as np
import pytest

from crowdfl_lab.demo.finished import FinishedCampaign, Plain, apart, uploads
from crowdfl_lab.demo.report import accuracy_table, headline, why_apart
from crowdfl_lab.demo.servers import KeySight, Sight, count_numbers, shares_in

HEARD = [
    ("person 0", {"event": "joined", "who": "aa"}),
    ("person 0", {"event": "uploaded", "round": 1, "late": False}),
    ("person 1", {"event": "uploaded", "round": 1, "late": False}),
    ("person 1", {"event": "uploaded", "round": 2, "late": True}),
    ("person 0", {"event": "uploaded", "round": 2, "late": False}),
    ("person 0", {"event": "read", "round": 1, "accuracy": 0.5, "windows": 2.0}),
]


class Shape:
    """Of one array."""

    def flat(self, arrays):
        return arrays[0]

    def arrays(self, flat):
        return [np.asarray(flat)]


class Doubler:
    """Trains by doubling, so that a difference grows as it does in training; its own constant makes people differ."""

    learner = type("Learner", (), {"shape": Shape()})()

    def __init__(self, own):
        self.own = own

    def train(self, arrays, _training, _number):
        return [2 * arrays[0] + self.own], 3

    def evaluate(self, arrays):
        return {"accuracy": float(arrays[0][0]), "windows": 4.0}


@pytest.fixture
def campaign():
    """Two rounds of two people, rounded by the protocol to one decimal."""
    trainers = {0: Doubler(0.03), 1: Doubler(0.03)}
    averages = {0: [np.array([0.0])], 1: [np.array([0.03])], 2: [np.array([0.09])]}
    scores = {n: {p: t.evaluate(model) for p, t in trainers.items()} for n, model in averages.items()}
    plain = Plain(averages, scores, trainers, uploads(HEARD))
    made = FinishedCampaign(Path(), "t", HEARD, {}, plain, KeySight({}, {}), "hardened")
    found = {"initial": averages[0], "averages": {1: [np.array([0.0])], 2: [np.array([0.0])]}}
    sights = [Sight(server, (), (), "", "", count, 1) for server, count in (("kgc", 0), ("sp", 1), ("csp", 0))]
    vars(made).update(found | {"sights": sights})
    return made


def test_the_headline_counts_what_was_found(campaign):
    assert headline(campaign) == "1 of 2 numbers found in the servers' files"


def test_round_zero_is_the_initial_model_measured(campaign):
    first = accuracy_table(campaign).rows[0]
    assert first == ("0", "-", "0.000", "0.000", "-", "0.0e+00", "-")


def test_each_round_says_what_was_made_in_it_and_what_training_enlarged(campaign):
    rows = accuracy_table(campaign).rows
    assert rows[1] == ("1", "2", "0.000", "0.030", "0.500 by 1 people", "3.0e-02", "3.0e-02")
    assert rows[2] == ("2", "2", "0.000", "0.090", "-", "9.0e-02", "3.0e-02")


def test_a_late_upload_is_named_and_what_makes_weights_differ_is_measured(campaign):
    late, why = why_apart(campaign)
    assert late.startswith("Late uploads that still counted: person 1's of round 2. They do not move the average")
    assert why.endswith("at most 3.0e-02 is left.")


def test_nobody_late_is_said_too(campaign):
    campaign.heard = HEARD[:3]
    assert why_apart(campaign)[0] == "Late uploads that still counted: none."


def test_shortened_updates_are_told(campaign):
    campaign.heard = [*HEARD, ("person 0", {"event": "trained", "round": 1, "scaled": 0.5})]
    assert why_apart(campaign)[-1].startswith("1 updates were longer than `max_norm`")


def test_the_largest_difference_of_any_array_counts():
    assert apart([np.zeros(2), np.zeros(1)], [np.array([0.0, -3.0]), np.ones(1)]) == 3.0


def test_the_demos_search_finds_what_is_there(tmp_path):
    """Numbers at odd places in either byte order; shares as bytes, in hex and in decimal."""
    numbers = np.random.default_rng(1).normal(size=8)
    assert count_numbers(tmp_path, numbers) == 0
    assert shares_in(tmp_path, {"a": 2**600 + 7}) == ()
    (tmp_path / "one").write_bytes(b"abc" + numbers[:3].astype("<f8").tobytes())
    (tmp_path / "two").write_bytes(b"a" + numbers[3:5].astype(">f8").tobytes())
    assert count_numbers(tmp_path, numbers) == 5
    (tmp_path / "three").write_text(f"x{2**600 + 7:X}y")
    (tmp_path / "four").write_text(str(2**600 + 9))
    (tmp_path / "five").write_bytes(b"?" + (2**600 + 11).to_bytes(76, "big"))
    shares = {"a": 2**600 + 7, "b": 2**600 + 9, "c": 2**600 + 11, "d": 2**600 + 13}
    assert shares_in(tmp_path, shares) == ("a", "b", "c")
