"""Streams into recordings, recordings into windows, and one person's data on a task's terms: no sample on both sides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.datasets.data import (
    Cut,
    Person,
    Recording,
    Split,
    recordings_of,
    relabelled,
    resampled,
    runs_of,
    split_recordings,
    standardised,
    timed,
    windows_of,
)

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
    recordings = [Recording(np.zeros((100, 3)), label) for label in (0, 1)]
    split = split_recordings("p", recordings, NAMES, Cut(10, 10, held_out=0.3, gap=10))
    assert split.train.labels.tolist() == [0] * 7 + [1] * 7
    assert split.held_out.labels.tolist() == [0, 0, 1, 1]


def test_windows_overlap_by_length_minus_step():
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
    made = recordings_of(*stream([0.1, 0.1, 0.0, 0.1], [0] * 4), hertz=10)
    assert [len(r.signal) for r in made] == [3]


def test_an_even_recording_gets_times_only_if_another_rate_is_wanted():
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
    steps=st.lists(st.sampled_from([0.2, *[1] * 20, 1.3, 2, 40, -30]), min_size=40, max_size=70),
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
    with pytest.raises(DataMalformed, match="too few"):
        resampled(np.arange(50.0), np.zeros((50, 3)), 1000.0)


def test_a_recording_with_times_needs_a_rate():
    with pytest.raises(SettingsError, match="hertz"):
        split_recordings("p", [Recording(np.zeros((9, 1)), 0, np.arange(9.0))], ("a",), Cut(3, 3))


def person(name: str, value: float, count: int = 4) -> Person:
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
    with pytest.raises(DataMalformed, match=r"still, moving is among the task's: PEN, ABD"):
        relabelled(split_of(1), ["PEN", "ABD"])
