"""Inputs computed from windows, alike for everyone."""

import numpy as np
import pytest

from crowdfl.errors import SettingsError
from crowdfl.learning.features import FEATURES, features, features_per_window


def swing(hertz: float, strength: float = 1.0) -> np.ndarray:
    """Two seconds at 50 Hz, one channel, one window."""
    return (strength * np.sin(2 * np.pi * hertz * np.arange(100) / 50)).astype(np.float32)[None, :, None]


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_each_window_gives_one_row_that_depends_on_it_alone(name):
    """Nothing is learnt from the other windows."""
    windows = np.random.default_rng(3).normal(size=(5, 100, 6)).astype(np.float32)
    together = features(name, windows)
    alone = np.concatenate([features(name, window[None]) for window in windows])
    assert together.shape[0] == 5
    assert together.size == 5 * features_per_window(name, 100, 6)
    assert together.dtype == np.float32
    assert np.allclose(together, alone, atol=1e-5)


def test_flat_keeps_every_sample():
    """In the order of time, then channel."""
    assert features("flat", np.arange(6, dtype=np.float32).reshape(1, 3, 2)).tolist() == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("place", range(6))
def test_motion_shows_the_frequency_of_a_swing(place):
    """0.5 Hz is the first of the six, 3 Hz the last."""
    spectrum = features("motion", swing(0.5 * (place + 1)))[0, 1:7]
    assert spectrum.argmax() == place


def test_motion_turns_vigour_into_a_shift():
    """Twice as strong adds log 2 to the swing's own frequency."""
    weak, strong = (features("motion", swing(1.0, strength))[0, 2] for strength in (5.0, 10.0))
    assert strong - weak == pytest.approx(np.log(2), abs=0.01)


def test_stillness_is_finite():
    """A watch on the table is no reason for infinities."""
    assert np.isfinite(features("motion", np.zeros((1, 100, 6), dtype=np.float32))).all()


def test_unknown_features_are_named_with_the_known():
    """A typing error in a task file is found at once."""
    with pytest.raises(SettingsError, match=r"'motoin'.*flat, motion"):
        features("motoin", np.zeros((1, 100, 6), dtype=np.float32))
