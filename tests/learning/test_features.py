"""Inputs computed from windows, alike for everyone."""

import numpy as np
import pytest

from crowdfl.errors import DataMalformed, SettingsError
from crowdfl.learning.features import FEATURES, features, features_per_window, scaled
from crowdfl.learning.recipe import Recipe
from crowdfl.learning.training import LocalTrainer


def test_spectral_inputs_are_the_sums_written_out():
    """Hann's window, the transform frequency by frequency, then mean and deviation: frequency slow, channel fast."""
    windows = np.random.default_rng(5).normal(size=(2, 9, 2)).astype(np.float32)
    found = features("spectral", windows)
    assert found.shape == (2, 2 * (4 + 2))
    for window, row in zip(windows.astype(np.float64), found, strict=True):
        mean, times = window.mean(axis=0), np.arange(9)
        fading = 0.5 - 0.5 * np.cos(2 * np.pi * times / 8)
        expected = []
        for frequency in range(1, 5):
            for channel in range(2):
                turning = np.exp(-2j * np.pi * frequency * times / 9)
                strength = abs((fading * (window[:, channel] - mean[channel]) * turning).sum())
                expected.append(np.log(2 / 9 * strength + 0.02))
        assert row == pytest.approx([*expected, *mean, *window.std(axis=0)], abs=1e-6)


@pytest.mark.parametrize(
    ("length", "channels", "width"), [(90, 3, 96), (100, 6, 192), (20, 1, 12), (1, 2, 4), (2, 1, 3)]
)
def test_spectral_inputs_are_at_most_thirty_frequencies_of_each_channel(length, channels, width):
    assert features_per_window("spectral", length, channels) == width
    assert np.isfinite(features("spectral", np.zeros((1, length, channels), dtype=np.float32))).all()


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_no_windows_are_no_rows(name):
    found = features(name, np.zeros((0, 10, 2), dtype=np.float32))
    assert len(found) == 0
    assert found.shape[1:] == features(name, np.zeros((1, 10, 2), np.float32)).shape[1:]


def test_a_person_without_held_out_windows_trains_all_the_same(tmp_path):
    arrays = {"windows": np.zeros((4, 10, 2)), "label": np.arange(4) % 2, "label_names": np.array(["a", "b"])}
    np.savez(tmp_path / "short.npz", **arrays, user=np.ones(4, dtype=int), train=np.ones(4, dtype=bool))
    section = {"labels": ["a", "b"], "learner": "softmax", "window_samples": 10, "channels": 2, "epochs": 1}
    trainer = LocalTrainer(f"npz:{tmp_path}/short.npz#1", section)
    weights, samples = trainer.train(trainer.learner.weights(), {}, 1)
    assert samples == 4
    assert trainer.evaluate(weights) == {}


def test_inputs_are_scaled_by_the_persons_own_training_windows():
    """Mean 0 and deviation 1 there; the held-out ones by the same numbers; what never changes stays finite."""
    own = np.array([[1.0, 5.0, 0.0], [3.0, 5.0, 4.0]], dtype=np.float32)
    assert scaled(own, own).tolist() == [[-1, 0, -1], [1, 0, 1]]
    assert scaled(np.array([[5.0, 5.0, 2.0]], dtype=np.float32), own).tolist() == [[3, 0, 0]]
    assert scaled(own, own).dtype == np.float32


def test_a_recipe_scales_each_person_for_itself():
    """Two people with other strengths come out alike; without the person's data nothing can be scaled."""
    recipe = Recipe.of(
        {"labels": ["a"], "window_samples": 100, "channels": 1, "scale_inputs": True, "features": "flat"}
    )
    windows = np.random.default_rng(1).normal(size=(6, 100, 1)).astype(np.float32)
    weak, strong = (recipe.inputs_of(factor * windows, factor * windows) for factor in (1, 8))
    assert weak == pytest.approx(strong, abs=1e-4)
    with pytest.raises(DataMalformed, match="name all of that person's data"):
        recipe.inputs_of(windows)


def swing(hertz: float, strength: float = 1.0) -> np.ndarray:
    """Two seconds at 50 Hz, one channel, one window."""
    return (strength * np.sin(2 * np.pi * hertz * np.arange(100) / 50)).astype(np.float32)[None, :, None]


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_each_window_gives_one_row_that_depends_on_it_alone(name):
    windows = np.random.default_rng(3).normal(size=(5, 100, 6)).astype(np.float32)
    together = features(name, windows)
    alone = np.concatenate([features(name, window[None]) for window in windows])
    assert together.shape[0] == 5
    assert together.size == 5 * features_per_window(name, 100, 6)
    assert together.dtype == np.float32
    assert np.allclose(together, alone, atol=1e-5)


def test_flat_keeps_every_sample():
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


def test_what_features_cannot_be_computed_of():
    """A watch on the table is no reason for infinities; one sample does not move; a typing error is found at once."""
    assert np.isfinite(features("motion", np.zeros((1, 100, 6), dtype=np.float32))).all()
    with pytest.raises(SettingsError, match='say features = "flat"'):
        features_per_window("motion", 1, 4)
    assert features_per_window("flat", 1, 4) == 4
    with pytest.raises(SettingsError, match=r"'motoin'.*flat, motion"):
        features("motoin", np.zeros((1, 100, 6), dtype=np.float32))
