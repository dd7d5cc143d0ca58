"""Streams into recordings: nothing across a gap, a label or a step back in time; no sample on both sides; resampling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import Cut, Recording, recordings_of, resampled, runs_of, split_recordings, timed


def stream(steps: list[float], labels: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples after these pauses; the one channel holds its own time."""
    times = np.cumsum(steps)
    return times, times[:, None].copy(), np.array(labels, dtype=np.int64)


def test_a_gap_and_a_new_label_start_a_recording():
    """Ten samples a second; a second's pause is a gap, a tenth is none."""
    made = recordings_of(*stream([0.1] * 5 + [2.0] + [0.1] * 8, [0] * 10 + [1] * 4), hertz=10)
    assert [(len(r.signal), r.label) for r in made] == [(5, 0), (5, 0), (4, 1)]


def test_a_step_back_in_time_starts_a_recording():
    """As where a phone was restarted."""
    made = recordings_of(*stream([0.1] * 4 + [-50.0] + [0.1] * 2, [0] * 7), hertz=10)
    assert [len(r.signal) for r in made] == [4, 3]


def test_a_sample_at_the_same_time_counts_once():
    """The first of them."""
    made = recordings_of(*stream([0.1, 0.1, 0.0, 0.1], [0] * 4), hertz=10)
    assert [len(r.signal) for r in made] == [3]


def test_an_even_recording_gets_times_only_if_another_rate_is_wanted():
    """Otherwise it stays as it is."""
    recording = Recording(np.ones((3, 3)), 2)
    assert timed(recording, 50.0, None) is timed(recording, 50.0, 50.0) is recording
    assert timed(recording, 50.0, 20.0).times == pytest.approx([0, 0.02, 0.04])


def test_nothing_gives_nothing():
    """Not an error: other files may hold more."""
    assert recordings_of(np.zeros(0), np.zeros((0, 3)), np.zeros(0, dtype=np.int64), 20) == []


def test_runs_end_where_any_key_changes():
    """Bytes compare as well as anything."""
    runs = runs_of(np.array([1, 1, 2, 2, 2], dtype=np.uint8), np.array([0, 0, 0, 0, 9]))
    assert runs == [slice(0, 2), slice(2, 4), slice(4, 5)]


@given(
    steps=st.lists(st.sampled_from([0.2, *[1] * 20, 1.3, 2, 40, -30]), min_size=40, max_size=120),
    period=st.integers(20, 120),
    length=st.integers(1, 8),
    step=st.integers(1, 9),
    held_out=st.sampled_from([0.2, 0.3, 0.5]),
    gap=st.integers(0, 4),
    hertz=st.sampled_from([0.3, 1.0, 2.5]),
)
def test_no_window_crosses_anything_and_no_sample_is_on_both_sides(steps, period, length, step, held_out, gap, hertz):
    """Every sample has a channel of its own, so that a window shows which samples it was computed from."""
    labels = np.arange(len(steps)) // period % 2
    times = np.cumsum(steps)
    broken = (np.diff(times) > 10 / hertz) | (np.diff(times) < 0) | (np.diff(labels) != 0)
    stretch = np.append(0, np.cumsum(broken))
    recordings = recordings_of(times, np.eye(len(steps)), labels, hertz)
    split = split_recordings("p", recordings, ("a", "b"), Cut(length, step, held_out, gap, hertz))
    for side in (split.train, split.held_out):
        for window, label in zip(side.windows, side.labels, strict=True):
            used = np.flatnonzero(window.any(axis=0))
            assert set(labels[used].tolist()) == {label}
            assert len(set(stretch[used].tolist())) == 1
    on_both = split.train.windows.any(axis=(0, 1)) & split.held_out.windows.any(axis=(0, 1))
    assert not on_both.any()


def test_uneven_samples_become_even():
    """A straight line stays one, whatever the jitter."""
    times = np.sort(np.random.default_rng(5).uniform(0, 10, 400))
    made = resampled(times, times[:, None] * [1.0, -2.0], 40)
    assert made[:, 0] == pytest.approx(times[0] + np.arange(len(made)) / 40)
    assert made[:, 1] == pytest.approx(-2 * made[:, 0])


def test_even_samples_stay_as_they_are():
    """Every one of them, the last too, whatever the clock started at."""
    times, signal = 49_105.962 + np.arange(100) * 0.05, np.random.default_rng(1).normal(size=(100, 3))
    assert resampled(times, signal, 20.0) == pytest.approx(signal, abs=1e-6)


def test_a_slow_swing_survives_a_lower_rate_and_a_fast_one_does_not_fold_in():
    """50 to 20 Hz: 1 Hz keeps nearly all of its strength, 19 Hz does not come back as 1 Hz."""
    times = np.arange(500) / 50
    slow, fast = (np.sin(2 * np.pi * hertz * times)[:, None] for hertz in (1.0, 19.0))
    assert resampled(times, slow, 20).std() > 0.95 * slow.std()
    assert resampled(times, fast, 20).std() < 0.5 * fast.std()


def test_far_too_few_samples_are_refused():
    """One a second is no basis for a thousand."""
    with pytest.raises(DataMalformed, match="too few"):
        resampled(np.arange(50.0), np.zeros((50, 3)), 1000.0)


def test_a_recording_with_times_needs_a_rate():
    """Said before anything is cut."""
    with pytest.raises(SettingsError, match="hertz"):
        split_recordings("p", [Recording(np.zeros((9, 1)), 0, np.arange(9.0))], ("a",), Cut(3, 3))
