"""The watch data: found, checked, cut, one person at a time."""

import sys
from importlib import metadata

import numpy as np
import pytest

from crowdfl.errors import DataAltered, DataMissing
from crowdfl.learning.datasets import object_file
from crowdfl.learning.datasets import watch_data as watch
from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.watch_data import CUT, EXERCISES, Watch, find_watch_file, load_person


@pytest.fixture
def installed():
    """Skips, and says so, where the data is not installed."""
    try:
        return find_watch_file()
    except DataMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.usefixtures("installed")
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


@pytest.mark.usefixtures("installed")
def test_the_signal_is_in_units_of_the_sensor():
    """A wrist at rest feels one g, so that the mean length of the acceleration is near one."""
    windows = load_person(0).train.windows
    assert 0.8 < np.linalg.norm(windows[..., :3], axis=-1).mean() < 1.2
    assert 0.1 < windows[..., 3:].std() < 2


@pytest.mark.usefixtures("installed")
def test_no_held_out_sample_was_trained_on():
    """Six axes of noise never repeat exactly: a shared row would be a shared sample."""
    split = load_person(2)
    train, held_out = ({row.tobytes() for row in side.windows.reshape(-1, 6)} for side in (split.train, split.held_out))
    assert train
    assert held_out
    assert train.isdisjoint(held_out)


@pytest.mark.usefixtures("installed")
def test_only_the_persons_own_recordings_are_decoded(monkeypatch):
    """Fourteen signals, and the two lists that say whose they are."""
    decoded = []
    read = object_file.StoredArray.read
    monkeypatch.setattr(object_file.StoredArray, "read", lambda self: decoded.append(self.shape) or read(self))
    load_person(4)
    assert sorted(len(shape) for shape in decoded) == [1, 1] + [2] * 14


@pytest.mark.usefixtures("installed")
def test_the_cut_is_configurable():
    """Half the length, windows side by side."""
    split = load_person(9, Cut(length=50, step=50, held_out=0.5))
    assert split.train.windows.shape[1:] == (50, 6)
    assert abs(len(split.train) - len(split.held_out)) <= 14


@pytest.mark.usefixtures("installed")
def test_the_package_is_not_imported():
    """Its file is all that is wanted."""
    load_person(0)
    assert "seglearn" not in sys.modules


def test_an_altered_file_is_refused(installed, tmp_path):
    """One bit in the middle of a signal is enough."""
    data = bytearray(installed.read_bytes())
    data[len(data) // 2] ^= 1
    altered = tmp_path / "watch_dataset.npy"
    altered.write_bytes(data)
    with pytest.raises(DataAltered, match="SHA-256"):
        Watch(path=altered).load_person(0)


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    """The message can be pasted into a shell."""

    def nowhere(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(watch.metadata, "distribution", nowhere)
    with pytest.raises(DataMissing, match="pip install --no-deps seglearn"):
        load_person(0)


def test_a_missing_file_is_named_with_its_remedy(tmp_path):
    """As after a clean-up that went too far."""
    with pytest.raises(DataMissing, match="pip install"):
        Watch(path=tmp_path / "gone.npy").load_person(0)


@pytest.mark.parametrize("index", [-1, 10])
def test_nobody_else_is_there(index):
    """An index does not wrap round to another person."""
    with pytest.raises(DataMissing, match="0 to 9"):
        load_person(index)


def test_the_default_leaves_a_window_between_the_sides():
    """Neighbouring samples are nearly equal; a window's distance makes them apart."""
    assert CUT.gap >= CUT.length
