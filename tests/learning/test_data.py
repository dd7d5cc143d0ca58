"""Cutting recordings into windows without a sample on both sides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import Cut, Person, Recording, split_recordings, windows_of

NAMES = ("still", "moving")


def numbered(samples: int) -> Recording:
    """A recording in which each sample holds its own place in time."""
    return Recording(np.arange(samples, dtype=np.float64)[:, None] * [1.0, -1.0], 1)


@given(
    samples=st.integers(1, 400),
    length=st.integers(1, 60),
    step=st.integers(1, 70),
    held_out=st.floats(0.05, 0.95),
    gap=st.integers(0, 50),
)
def test_no_sample_is_on_both_sides(samples, length, step, held_out, gap):
    """Whatever the overlap, held-out samples come later than all training samples, by more than the gap."""
    split = split_recordings("p", [numbered(samples)], NAMES, Cut(length, step, held_out, gap))
    early, late = split.train.windows[..., 0], split.held_out.windows[..., 0]
    if early.size and late.size:
        assert late.min() - early.max() > gap


def test_each_recording_is_cut_by_itself():
    """Both exercises are on both sides."""
    recordings = [Recording(np.zeros((100, 3)), label) for label in (0, 1)]
    split = split_recordings("p", recordings, NAMES, Cut(10, 10, held_out=0.3, gap=10))
    assert split.train.labels.tolist() == [0] * 7 + [1] * 7
    assert split.held_out.labels.tolist() == [0, 0, 1, 1]


def test_windows_overlap_by_length_minus_step():
    """And a rest shorter than a window is left out."""
    windows = windows_of(numbered(11).signal, length=4, step=3)
    assert windows[..., 0].tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert windows.shape == (3, 4, 2)
    assert windows.dtype == np.float32


def test_a_recording_shorter_than_a_window_gives_none():
    """Not an error: others may be longer."""
    assert windows_of(numbered(3).signal, length=4, step=1).shape == (0, 4, 2)


@pytest.mark.parametrize(
    ("windows", "labels"),
    [
        (np.zeros((2, 5)), [0, 1]),
        (np.zeros((2, 5, 3)), [0]),
        (np.zeros((2, 5, 3)), [0, 2]),
        (np.zeros((2, 5, 3)), [-1, 0]),
        (np.full((2, 5, 3), np.nan), [0, 1]),
    ],
    ids=["no channels", "a label short", "a label too high", "a label too low", "not finite"],
)
def test_windows_and_labels_must_fit_together(windows, labels):
    """A person whose data is no training data is refused when made."""
    with pytest.raises(DataMalformed, match=r"^anna: "):
        Person("anna", windows.astype(np.float32), np.array(labels), NAMES)


@pytest.mark.parametrize("wrong", [{"length": 0}, {"step": 0}, {"held_out": 0.0}, {"held_out": 1.0}, {"gap": -1}])
def test_a_cut_that_makes_no_sense_is_refused(wrong):
    """By name, before any data is read."""
    with pytest.raises(SettingsError):
        Cut(**({"length": 10, "step": 5} | wrong))
