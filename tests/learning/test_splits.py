"""One person's data on a task's terms."""

import numpy as np
import pytest

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.data import Person, Split, relabelled, standardised

NAMES = ("still", "moving")


def person(name: str, value: float, count: int = 4) -> Person:
    """Windows that all hold one number."""
    return Person(name, np.full((count, 5, 2), value, dtype=np.float32), np.arange(count) % 2, NAMES)


def split_of(number: int) -> Split:
    """Person `number` holds this number to train and its negative held out."""
    return Split(person(f"p{number}", number), person(f"p{number}", -number, 2))


def test_standardising_looks_at_the_training_windows_alone():
    """They come out with mean 0 and deviation 1; whatever is held out changes nothing of that."""
    windows = np.random.default_rng(2).normal([3.0, -8.0], [2.0, 0.1], (50, 5, 2)).astype(np.float32)
    train = Person("p", windows, np.zeros(50, dtype=np.int64), NAMES)
    results = [standardised(Split(train, person("p", value))) for value in (0.0, 1e6)]
    assert results[0].train.windows.mean(axis=(0, 1)) == pytest.approx([0, 0], abs=1e-3)
    assert results[0].train.windows.std(axis=(0, 1)) == pytest.approx([1, 1], abs=1e-3)
    assert results[0].train.windows.tobytes() == results[1].train.windows.tobytes()
    mean, deviation = windows.mean(axis=(0, 1)), windows.std(axis=(0, 1))
    assert results[1].held_out.windows[0, 0] == pytest.approx((1e6 - mean) / deviation, rel=1e-4)


def test_a_channel_that_never_moves_stays_finite():
    """Nor is nothing divided by nothing."""
    assert not standardised(split_of(3)).train.windows.any()
    with pytest.raises(DataMalformed, match="no training windows"):
        standardised(Split(person("p", 1, 0), person("p", 1)))


def test_labels_are_found_by_name():
    """Capitals or not; what the task does not ask about is left out."""
    split = relabelled(split_of(1), ["Running", "Moving"])
    assert split.train.label_names == ("Running", "Moving")
    assert split.train.labels.tolist() == [1, 1]
    assert split.held_out.labels.tolist() == [1]
    assert relabelled(split_of(1), NAMES).train.labels.tolist() == [0, 1, 0, 1]


def test_no_label_in_common_is_refused():
    """With both lists."""
    with pytest.raises(DataMalformed, match=r"still, moving is among the task's: PEN, ABD"):
        relabelled(split_of(1), ["PEN", "ABD"])
