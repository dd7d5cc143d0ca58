"""The watch data: checked, cut, one person at a time."""

import hashlib

import numpy as np
import pytest

from crowdfl.errors import DataAltered, DataMissing
from crowdfl.learning.datasets import supplied as watch
from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.supplied import CUT, EXERCISES, Watch

WINDOWS_SHA256 = "5a9447770dbd9a488a358ca826e42c74610b5c9ce721aed50a5fad5b00340b91"


def test_everyone_has_every_exercise_on_both_sides():
    """Ten people, seven exercises, two recordings of each."""
    source = Watch()
    for index, name in enumerate(source.people):
        split = source.load_person(index)
        assert split.train.name == split.held_out.name == name
        assert split.train.label_names == source.label_names == EXERCISES
        for side in (split.train, split.held_out):
            assert side.windows.shape[1:] == (100, 6)
            assert set(side.labels.tolist()) == set(range(7))
        assert len(split.train) > 2.5 * len(split.held_out)


def test_windows_and_labels_are_those_of_the_original_file():
    """The digest was computed from seglearn's own file, before it was converted."""
    digest = hashlib.sha256()
    for index in range(10):
        split = Watch().load_person(index)
        for side in (split.train, split.held_out):
            digest.update(side.name.encode() + str(side.windows.shape).encode())
            digest.update(side.windows.astype("<f4").tobytes() + side.labels.astype("<i8").tobytes())
    assert digest.hexdigest() == WINDOWS_SHA256


def test_the_signal_is_in_units_of_the_sensor():
    """A wrist at rest feels one g, so that the mean length of the acceleration is near one."""
    windows = Watch().load_person(0).train.windows
    assert 0.8 < np.linalg.norm(windows[..., :3], axis=-1).mean() < 1.2
    assert 0.1 < windows[..., 3:].std() < 2


def test_no_held_out_sample_was_trained_on():
    """Six axes of noise never repeat exactly: a shared row would be a shared sample."""
    split = Watch().load_person(2)
    train, held_out = ({row.tobytes() for row in side.windows.reshape(-1, 6)} for side in (split.train, split.held_out))
    assert train
    assert held_out
    assert train.isdisjoint(held_out)


def test_only_the_persons_own_recordings_are_decompressed(monkeypatch):
    """Three arrays, all of person 5."""
    read = []
    getitem = np.lib.npyio.NpzFile.__getitem__
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda self, key: read.append(key) or getitem(self, key))
    Watch().load_person(4)
    assert sorted(read) == ["exercises_5", "lengths_5", "steps_5"]


def test_the_cut_is_configurable():
    """Half the length, windows side by side."""
    split = Watch(Cut(length=50, step=50, held_out=0.5)).load_person(9)
    assert split.train.windows.shape[1:] == (50, 6)
    assert abs(len(split.train) - len(split.held_out)) <= 14


def test_an_altered_file_is_refused(tmp_path):
    """One bit in the middle of a signal is enough."""
    data = bytearray(watch.FILE.read_bytes())
    data[len(data) // 2] ^= 1
    altered = tmp_path / "watch.npz"
    altered.write_bytes(data)
    with pytest.raises(DataAltered, match="SHA-256"):
        Watch(path=altered).load_person(0)


def test_a_missing_file_is_named_with_its_remedy(tmp_path):
    """As after a clean-up that went too far."""
    with pytest.raises(DataMissing, match="install crowdfl again"):
        Watch(path=tmp_path / "gone.npz").load_person(0)


def test_the_notice_names_the_file_that_is_there():
    """Its hash, and the licence that must travel with it."""
    notice = watch.FILE.with_suffix(".NOTICE").read_text(encoding="utf-8")
    assert watch.SHA256 in notice
    assert "Redistribution and use in source and binary forms" in notice


@pytest.mark.parametrize("index", [-1, 10])
def test_nobody_else_is_there(index):
    """An index does not wrap round to another person."""
    with pytest.raises(DataMissing, match="0 to 9"):
        Watch().load_person(index)


def test_the_default_leaves_a_window_between_the_sides():
    """Neighbouring samples are nearly equal; a window's distance makes them apart."""
    assert CUT.gap >= CUT.length
