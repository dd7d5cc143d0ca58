"""What the demo's report says: counted and measured, never typed."""

from pathlib import Path

import numpy as np
import pytest

from crowdfl_lab.demo.finished import FinishedCampaign, KeySight, Sight, count_numbers, shares_in
from crowdfl_lab.demo.heard import uploads
from crowdfl_lab.demo.plain import Plain
from crowdfl_lab.demo.report import accuracy_notes, accuracy_table, searched

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
    plain = Plain(averages, trainers, uploads(HEARD))
    made = FinishedCampaign(Path(), "t", HEARD, {}, plain, KeySight({}, {}), "hardened")
    sights = [Sight(server, (), (), "", "", count, 1) for server, count in (("kgc", 0), ("sp", 1), ("csp", 0))]
    vars(made).update({"models": {number: [np.array([0.0])] for number in range(3)}, "sights": sights})
    return made


def test_the_headline_counts_what_was_found(campaign):
    assert searched(campaign)[0] == "1 of 2 numbers found in the servers' files"


def test_each_round_is_measured_and_compared_with_fedavg_from_the_same_model(campaign):
    """The initial model too; what training enlarges from round to round is in the accuracy alone."""
    rows = accuracy_table(campaign).rows
    assert rows[0] == ("0", "-", "0.000", "0.000", "-", "-")
    assert rows[1] == ("1", "2", "0.000", "0.030", "0.500 by 1 people", "3.0e-02")
    assert rows[2] == ("2", "2", "0.000", "0.090", "-", "3.0e-02")
    assert rows[3] == ("3", "0", "-", "-", "the requester's alone", "-")


def test_late_and_shortened_updates_are_told(campaign):
    late = accuracy_notes(campaign)[2]
    assert late.startswith("Late uploads that still counted: person 1's of round 2. They do not move the average")
    campaign.heard = [*HEARD[:3], ("person 0", {"event": "trained", "round": 1, "scaled": 0.5})]
    _, _, late, shortened = accuracy_notes(campaign)
    assert late == "Late uploads that still counted: none."
    assert shortened.startswith("1 updates were longer than `max_norm`")


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
