"""People put together, and windows dealt anew."""

import numpy as np
import pytest
from tests.learning.shared import shared_file
from tests.learning.test_data import person

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.data import Person, Split
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl_lab.experiments.crowds import dealt_at_random, merged


def test_merging_needs_the_same_labels():
    """Or a number would mean two things."""
    other = Person("x", np.zeros((1, 5, 2), dtype=np.float32), np.array([0]), ("moving", "still"))
    assert len(merged("all", [person("a", 1), person("b", 2, 3)])) == 7
    for people in ([person("a", 1), other], []):
        with pytest.raises(DataMalformed, match="all: "):
            merged("all", people)


def mixed(number: int) -> Split:
    """Person `number` has that many windows to train and one more held out, no two alike."""
    sides = []
    for count, start in ((number, 0), (number + 1, 500)):
        values = np.arange(start + 10 * number, start + 10 * number + count, dtype=np.float32)
        sides.append(Person(f"p{number}", np.tile(values[:, None, None], (1, 5, 2)), np.arange(count) % 2, ("a", "b")))
    return Split(*sides)


def content(people: list[Split], side: str) -> list[bytes]:
    """Every window with its label, in an order of their own."""
    sides = [getattr(split, side) for split in people]
    return sorted(w.tobytes() + bytes([label]) for s in sides for w, label in zip(s.windows, s.labels, strict=True))


def test_dealing_changes_whose_windows_are_whose_and_nothing_else():
    """Every window stays once, with its label and on its side; everyone has as many as before."""
    people = [mixed(number) for number in range(1, 4)]
    dealt = dealt_at_random(people, seed=3)
    assert [(len(s.train), len(s.held_out)) for s in dealt] == [(len(s.train), len(s.held_out)) for s in people]
    for side in ("train", "held_out"):
        assert content(dealt, side) == content(people, side)


def test_dealing_follows_the_seed():
    """The same seed deals alike, another does not."""
    people = [mixed(number) for number in range(1, 4)]
    deals = [[s.train.windows.tobytes() for s in dealt_at_random(people, seed)] for seed in range(8)]
    assert deals[0] == [s.train.windows.tobytes() for s in dealt_at_random(people, 0)]
    assert len(set(map(tuple, deals))) > 1


def test_dealing_the_set_of_the_papers_size():
    """A user has few of the labels; once dealt, everyone has more of them."""
    source = WindowFile(shared_file("wisdm_v1.1_crowdfl_2520x90x3.npz"))
    people = [source.load_person(index) for index in range(len(source.people))]
    dealt = dealt_at_random(people, seed=1)
    assert content(dealt, "train") == content(people, "train")
    assert max(len(set(s.train.labels.tolist())) for s in people[:2]) < min(len(set(s.train.labels)) for s in dealt)
