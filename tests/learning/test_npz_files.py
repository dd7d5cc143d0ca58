"""Windows cut by others: whose they are, and which are held out. And MotionSense, made small and real."""

import re

import numpy as np
import pytest

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.motion_sense import MotionSense
from crowdfl.learning.datasets.npz_files import ARRAYS, STANDARDISED, SWAPPED, WindowFile
from tests.learning.shared import shared_file

GOOD = {
    "windows": np.arange(6 * 4 * 3, dtype=np.float32).reshape(6, 4, 3),
    "label": np.array([0, 1, 0, 1, 0, 1], dtype=np.uint8),
    "user": np.array([7, 7, 7, 2, 2, 2]),
    "train": np.array([True, True, False, True, False, False]),
    "label_names": np.array(["still", "moving"]),
}


@pytest.fixture
def path(tmp_path):
    np.savez(tmp_path / "windows.npz", **GOOD)
    return tmp_path / "windows.npz"


def test_everyone_has_their_own_windows(path):
    source = WindowFile(path)
    assert source.people == ("2", "7")
    assert source.label_names == ("still", "moving")
    assert source.notes == ()
    split = source.load_person(1)
    assert split.train.name == split.held_out.name == "7"
    assert split.train.windows.tolist() == GOOD["windows"][:2].tolist()
    assert split.held_out.windows.tolist() == GOOD["windows"][2:3].tolist()
    assert split.train.labels.tolist() == [0, 1]


@pytest.mark.parametrize("index", [-1, 2])
def test_nobody_else_is_there(path, index):
    with pytest.raises(DataMissing, match="people 0 to 1"):
        WindowFile(path).load_person(index)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_missing_array_is_named(tmp_path, name):
    """With those that are there. Without marks nothing is held out by guessing."""
    np.savez(tmp_path / "short.npz", **{key: value for key, value in GOOD.items() if key != name})
    with pytest.raises(DataMalformed, match=f"lacks the array '{name}'; it has ") as refusal:
        WindowFile(tmp_path / "short.npz").load_person(0)
    assert all(f"`{each}`, {words}" in str(refusal.value) for each, words in ARRAYS.items())


def test_all_that_is_missing_is_named_at_once_beside_what_was_found(tmp_path):
    np.savez(tmp_path / "mine.npz", X=np.zeros((6, 90, 3)), y=np.zeros(6))
    with pytest.raises(DataMalformed, match=r"'windows' and 'label' and .*; it has X \(6, 90, 3\), y \(6,\)\."):
        WindowFile(tmp_path / "mine.npz").load_person(0)


def test_people_may_have_names(tmp_path):
    np.savez(tmp_path / "named.npz", **(GOOD | {"user": np.array(["bob"] * 3 + ["alice"] * 3)}))
    source = WindowFile(tmp_path / "named.npz")
    assert source.people == ("alice", "bob")
    assert source.load_person(1).train.windows.tolist() == GOOD["windows"][:2].tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"windows": np.zeros((6, 4))},
            rf"'windows' is float64 of shape \(6, 4\); expected {re.escape(ARRAYS['windows'])}",
        ),
        ({"label": np.array(["still"] * 6)}, f"'label' is <U5 of shape .*; expected {ARRAYS['label']}"),
        ({"label_names": np.array([0, 1])}, f"'label_names' is int64 of shape .*; expected {ARRAYS['label_names']}"),
        ({"train": np.array(["yes"] * 6)}, f"'train' is <U3 of shape .*; expected {ARRAYS['train']}"),
        ({"windows": GOOD["windows"][:5]}, r"'label' is .* of shape \(6,\); expected .* for 5 windows"),
        *(({name: GOOD[name][:5]}, rf"'{name}' is .* of shape \(5,") for name in ("label", "user", "train")),
        ({"user": np.array([1, "a", None, 2, 3, 4], dtype=object)}, "plain arrays"),  # they could hold code
    ],
)
def test_an_array_of_another_kind_or_length_is_answered_with_what_it_should_be(tmp_path, change, said):
    np.savez(tmp_path / "odd.npz", **(GOOD | change))
    with pytest.raises(DataMalformed, match=said):
        WindowFile(tmp_path / "odd.npz").load_person(0)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 and then nothing"], ids=["empty", "text", "cut"])
def test_another_kind_of_file_is_refused(tmp_path, content):
    (tmp_path / "other.npz").write_bytes(content)
    with pytest.raises(DataMalformed, match=r"other\.npz is not an \.npz file"):
        WindowFile(tmp_path / "other.npz").load_person(0)
    with pytest.raises(DataMissing, match=r"gone\.npz"):
        WindowFile(tmp_path / "gone.npz").load_person(0)


def test_the_set_of_the_papers_size():
    """36 users, 49 windows to train and 21 held out, the totals of table 2, and what must be said of it."""
    source = WindowFile(shared_file("wisdm_v1.1_crowdfl_2520x90x3.npz"))
    people = [source.load_person(index) for index in range(len(source.people))]
    assert source.people == tuple(map(str, range(1, 37)))
    assert {(len(s.train), len(s.held_out), s.train.windows.shape[1:]) for s in people} == {(49, 21, (90, 3))}
    totals = np.bincount(np.concatenate([s.train.labels for s in people]))
    assert dict(zip(source.label_names, totals.tolist(), strict=True)) == {
        "Jogging": 518,
        "Walking": 693,
        "Upstairs": 200,
        "Downstairs": 176,
        "Sitting": 92,
        "Standing": 85,
    }
    assert source.notes == (STANDARDISED, SWAPPED)


def test_the_larger_set():
    source = WindowFile(shared_file("wisdm_v1.1_36users_win128.npz"))
    people = [source.load_person(index) for index in range(len(source.people))]
    assert sum(len(s.train) + len(s.held_out) for s in people) == 7_292
    assert {s.train.windows.shape[1:] for s in people} == {(128, 3)}
    assert 0.3 < sum(len(s.held_out) for s in people) / 7_292 < 0.4
    assert source.notes == (STANDARDISED,)


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
def test_a_missing_array_of_motionsense_is_named(tmp_path, name):
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
