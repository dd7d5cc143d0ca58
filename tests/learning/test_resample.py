"""Uneven samples made even."""

import numpy as np
import pytest

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import Cut, Recording, split_recordings
from crowdfl.learning.datasets.resample import even


def test_uneven_samples_become_even():
    """A straight line stays one, whatever the jitter."""
    times = np.sort(np.random.default_rng(5).uniform(0, 10, 400))
    made = even(times, times[:, None] * [1.0, -2.0], 40)
    assert made[:, 0] == pytest.approx(times[0] + np.arange(len(made)) / 40)
    assert made[:, 1] == pytest.approx(-2 * made[:, 0])


def test_even_samples_stay_as_they_are():
    """Every one of them, the last too, whatever the clock started at."""
    times, signal = 49_105.962 + np.arange(100) * 0.05, np.random.default_rng(1).normal(size=(100, 3))
    assert even(times, signal, 20.0) == pytest.approx(signal, abs=1e-6)


def test_a_slow_swing_survives_a_lower_rate_and_a_fast_one_does_not_fold_in():
    """50 to 20 Hz: 1 Hz keeps nearly all of its strength, 19 Hz does not come back as 1 Hz."""
    times = np.arange(500) / 50
    slow, fast = (np.sin(2 * np.pi * hertz * times)[:, None] for hertz in (1.0, 19.0))
    assert even(times, slow, 20).std() > 0.95 * slow.std()
    assert even(times, fast, 20).std() < 0.5 * fast.std()


def test_far_too_few_samples_are_refused():
    """One a second is no basis for a thousand."""
    with pytest.raises(DataMalformed, match="too few"):
        even(np.arange(50.0), np.zeros((50, 3)), 1000.0)


def test_a_recording_with_times_needs_a_rate():
    """Said before anything is cut."""
    with pytest.raises(SettingsError, match="hertz"):
        split_recordings("p", [Recording(np.zeros((9, 1)), 0, np.arange(9.0))], ("a",), Cut(3, 3))
