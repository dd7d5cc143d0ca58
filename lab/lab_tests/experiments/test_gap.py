"""What was tried for figure 3: its ways to train begin from ours, and each changes what it names."""

from dataclasses import replace

import numpy as np
import pytest

from crowdfl.errors import DataMissing
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl_lab.experiments.federated import Attendance, Clear, LearnSettings, federated, load_crowd
from crowdfl_lab.experiments.gap import GAP, READINGS, WAYS, Way, World
from lab_tests.experiments.running import MADE_UP, bench, run, text_of, tiny

LEARN = LearnSettings(hidden=6, people=5, epochs=3, rate=0.001, batch=4, rounds=2)
BOTH = (Way(batch=4), Way("kept", batch=4, kept=True))


def test_ours_is_what_the_other_experiments_train():
    """The same scores of FedAvg after each number of rounds."""
    world = World(LEARN, Way(batch=4), bench())
    crowd = load_crowd(LEARN, bench())
    found = list(federated(crowd, Clear(), Attendance(crowd.names)))
    assert [world.scores(world.federate(rounds)) for rounds in (1, 2)] == found


@pytest.mark.parametrize("way", [each for each in WAYS[1:] if each.inputs == "own scale"], ids=lambda way: way.name)
def test_each_way_trains_another_model(way):
    ours, theirs = (World(LEARN, each, bench()).federate(2).weights() for each in (Way(), way))
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() > 1e-6


def test_inputs_in_m_s2_come_back_from_what_the_file_says(tmp_path):
    """And the ways that need them are refused by name where it does not."""
    with pytest.raises(DataMissing, match="m/s2"):
        World(LEARN, replace(WAYS[3], batch=4), bench())
    user = np.repeat([1, 2, 3], 4)
    arrays = {
        "x_z": np.ones((12, 2, 3), np.float32),
        "user": user,
        "label": np.arange(12) % 2,
        "train": np.arange(12) % 4 < 2,
    }
    arrays |= {
        "est_sigma": np.full((3, 3), 2.0),
        "est_mu": np.array([[1, 2, 3]] * 2 + [[4, 5, 6]]),
        "label_names": ["a", "b"],
    }
    np.savez(tmp_path / "w.npz", **arrays)
    world = World(replace(LEARN, people=3), WAYS[3], bench(WindowFile(tmp_path / "w.npz")))
    assert world.fed[0].inputs[0].tolist() == [3, 4, 5] * 2
    assert world.fed[2].held_inputs[0].tolist() == [6, 7, 8] * 2


def test_it_runs_to_its_tables(tmp_path):
    rows = run(tiny(GAP, learn=LEARN, ways=BOTH), tmp_path, MADE_UP)
    assert len(rows) == 2
    rows += run(tiny(READINGS, learn=LEARN, few=1, long=3, rates=(0.4,)), tmp_path, MADE_UP)
    assert len(rows) == 2 + 6
    assert all(0 <= float(row["accuracy"]) <= 1 for row in rows)
    assert "It is above NN in" in text_of(tmp_path)
