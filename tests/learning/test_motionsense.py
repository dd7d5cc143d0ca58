"""MotionSense, made small and real."""

import numpy as np
import pytest

from crowdfl.errors import DataMalformed
from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.npz_files import MotionSense
from tests.learning.shared import shared_file


def arrays() -> dict[str, np.ndarray]:
    """Subject 4 has two trials with subject 9 between, all of them walking; the signal counts the rows."""
    subject = np.repeat([4, 9, 4, 4], [200, 100, 200, 100]).astype(np.uint8)
    return {
        "acc": np.arange(600, dtype=np.float32)[:, None] * np.ones(3, dtype=np.float32),
        "subject": subject,
        "activity": np.repeat([4, 4, 4, 0], [200, 100, 200, 100]).astype(np.uint8),
        "trial": np.repeat([1, 1, 1, 2], [200, 100, 200, 100]).astype(np.uint8),
        "activity_names": np.array(["dws", "ups", "sit", "std", "wlk", "jog"]),
    }


def test_windows_stay_within_a_trial_and_a_person(tmp_path):
    """Rows next to each other in the file, of one activity, and none of the other person's."""
    np.savez(tmp_path / "ms.npz", **arrays())
    source = MotionSense(tmp_path / "ms.npz", Cut(length=20, step=20, held_out=0.5))
    assert source.people == ("4", "9")
    assert source.label_names == ("Downstairs", "Upstairs", "Sitting", "Standing", "Walking", "Jogging")
    split = source.load_person(0)
    assert np.bincount(split.train.labels).tolist() == [2, 0, 0, 0, 10]
    for window in (*split.train.windows[..., 0], *split.held_out.windows[..., 0]):
        assert np.diff(window).tolist() == [1] * 19
        assert not ((window >= 200) & (window < 300)).any()


@pytest.mark.parametrize("name", ["acc", "subject", "activity", "trial", "activity_names"])
def test_a_missing_array_is_named(tmp_path, name):
    """By name."""
    np.savez(tmp_path / "ms.npz", **{key: value for key, value in arrays().items() if key != name})
    with pytest.raises(DataMalformed, match=name):
        MotionSense(tmp_path / "ms.npz").load_person(0)


def test_the_real_stream():
    """24 people, each with six activities on both sides; a phone at rest feels one g; 20 Hz is two fifths of 50."""
    path = shared_file("motionsense_24subj_acc50hz.npz")
    source = MotionSense(path)
    assert len(source.people) == 24
    split = source.load_person(23)
    for side in (split.train, split.held_out):
        assert set(side.labels.tolist()) == set(range(6))
    still = split.train.windows[split.train.labels == source.label_names.index("Standing")]
    assert 0.9 < np.linalg.norm(still, axis=-1).mean() < 1.1
    slower = MotionSense(path, Cut(length=40, step=20, held_out=0.3, gap=40, hertz=20.0)).load_person(23)
    assert slower.train.windows.shape[1:] == (40, 3)
    assert len(slower.train) == pytest.approx(len(split.train), rel=0.03)
