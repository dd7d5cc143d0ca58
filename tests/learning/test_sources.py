"""Data by a short text; made-up people; and the watch data: checked, cut, one person at a time."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from crowdfl.errors import DataAltered, DataMissing, SettingsError
from crowdfl.learning.datasets import supplied as watch
from crowdfl.learning.datasets.data import Cut, Split
from crowdfl.learning.datasets.sources import FORMS, Spec, each_person, load_split, open_source, parse_spec
from crowdfl.learning.datasets.supplied import CUT, EXERCISES, Synthetic, Watch
from tests.learning.shared import shared_file


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("watch:3", Spec("watch", Path(), "3")),
        ("synthetic:0", Spec("synthetic", Path(), "0")),
        ("csv:walks/anna", Spec("csv", Path("walks/anna"), None)),
        ("csv:walks#anna", Spec("csv", Path("walks"), "anna")),
        ("csv-by-folder:walks", Spec("csv-by-folder", Path("walks"), None)),
        ("walks/monday.CSV", Spec("csv", Path("walks/monday.CSV"), None)),
        ("npz:a/b.npz#7", Spec("npz", Path("a/b.npz"), "7")),
        ("npz:C:/x#y.npz#7", Spec("npz", Path("C:/x#y.npz"), "7")),
    ],
)
def test_a_text_is_taken_apart(text, spec):
    assert parse_spec(text) == spec


def test_a_text_may_mean_several_people():
    assert each_person("npz:a#b.npz#2,#5,#anna k") == ["npz:a#b.npz#2", "npz:a#b.npz#5", "npz:a#b.npz#anna k"]
    assert each_person("synthetic:3") == ["synthetic:3"]
    assert each_person("watch:")[::9] == ["watch:0", "watch:9"]
    assert each_person("walks/monday.csv") == ["walks/monday.csv"]


def test_a_folder_with_a_number_sign_in_its_name_is_no_person(tmp_path):
    (tmp_path / "odd#name").mkdir()
    assert parse_spec(f"csv:{tmp_path}/odd#name").path == tmp_path / "odd#name"


@pytest.mark.parametrize(("name", "kind"), [("windows.npz", "npz"), ("walks", "csv")])
def test_a_path_without_its_kind_is_answered_with_it(tmp_path, name, kind):
    (tmp_path / name).touch() if kind == "npz" else (tmp_path / name).mkdir()
    with pytest.raises(SettingsError, match=f"perhaps {kind}:{tmp_path}/{name}#3"):
        parse_spec(f"{tmp_path}/{name}#3")


@pytest.mark.parametrize("text", ["", "watch", "watch:", "phone:3", "3"])
def test_a_text_that_names_nothing_is_answered_with_what_can_be_written(text):
    with pytest.raises(SettingsError) as refusal:
        parse_spec(text)
    assert all(form in str(refusal.value) for form in FORMS.values())


@pytest.mark.parametrize("text", ["watch:three", "watch:-1", "synthetic:1.5"])
def test_a_number_is_wanted_where_people_are_counted(text):
    with pytest.raises(SettingsError, match="after the colon comes a number"):
        parse_spec(text)


@pytest.mark.parametrize(("person", "said"), [("#99", "no person '99'"), ("", "more than one person")])
def test_a_person_who_is_not_there_is_answered_with_those_who_are(tmp_path, person, said):
    marks = {"train": np.array([True, False]), "label_names": np.array(["a"])}
    np.savez(tmp_path / "w.npz", windows=np.zeros((2, 3, 1)), label=np.zeros(2), user=np.array([4, 5]), **marks)
    with pytest.raises(DataMissing, match=f"{said}.*there are 4, 5"):
        load_split(f"npz:{tmp_path / 'w.npz'}{person}")
    assert load_split(f"npz:{tmp_path / 'w.npz'}#5").held_out.name == "5"


def test_the_cut_reaches_the_source():
    split = load_split("synthetic:12", Cut(length=30, step=30, held_out=0.5, hertz=20.0))
    assert split.train.name == "synthetic-13"
    assert split.train.windows.shape == (39, 30, 3)  # 400 samples of each pace to train


def test_made_up_people_differ_and_repeat():
    source = Synthetic(count=2, seed=1)
    first, again, other = source.load_person(0), Synthetic(count=2, seed=1).load_person(0), source.load_person(1)
    assert first.train.windows.tobytes() == again.train.windows.tobytes() != other.train.windows.tobytes()
    assert first.train.windows.tobytes() != Synthetic(count=2, seed=2).load_person(0).train.windows.tobytes()
    assert source.notes == ("The data is made up.",)


def test_real_sets_by_text():
    wisdm = shared_file("wisdm_v1.1_crowdfl_2520x90x3.npz")
    assert load_split(f"npz:{wisdm}#7").train.windows.shape == (49, 90, 3)
    spec = parse_spec(f"motionsense:{shared_file('motionsense_24subj_acc50hz.npz')}#1")
    assert open_source(spec).people[0] == spec.person == "1"


WINDOWS_SHA256 = "5a9447770dbd9a488a358ca826e42c74610b5c9ce721aed50a5fad5b00340b91"


@pytest.fixture(scope="module")
def watched() -> list[Split]:
    return [Watch().load_person(index) for index in range(10)]


def test_everyone_has_every_exercise_on_both_sides_and_in_the_sensors_units(watched):
    """Ten people, seven exercises, two recordings of each; a wrist at rest feels one g."""
    for name, split in zip(Watch.people, watched, strict=True):
        assert split.train.name == split.held_out.name == name
        assert split.train.label_names == Watch.label_names == EXERCISES
        for side in (split.train, split.held_out):
            assert side.windows.shape[1:] == (100, 6)
            assert set(side.labels.tolist()) == set(range(7))
        assert len(split.train) > 2.5 * len(split.held_out)
    assert 0.8 < np.linalg.norm(watched[0].train.windows[..., :3], axis=-1).mean() < 1.2
    assert 0.1 < watched[0].train.windows[..., 3:].std() < 2


def test_windows_and_labels_are_those_of_the_original_file(watched):
    """The digest was computed from seglearn's own file, before it was converted."""
    digest = hashlib.sha256()
    for side in (side for split in watched for side in (split.train, split.held_out)):
        digest.update(side.name.encode() + str(side.windows.shape).encode())
        digest.update(side.windows.astype("<f4").tobytes() + side.labels.astype("<i8").tobytes())
    assert digest.hexdigest() == WINDOWS_SHA256


def test_no_held_out_sample_was_trained_on(watched):
    """Six axes of noise never repeat exactly: a shared row would be a shared sample. A window's distance lies between them."""
    sides = watched[2].train, watched[2].held_out
    train, held_out = ({row.tobytes() for row in side.windows.reshape(-1, 6)} for side in sides)
    assert min(len(train), len(held_out)) > 0
    assert train.isdisjoint(held_out)
    assert CUT.gap >= CUT.length


def test_only_the_persons_own_recordings_are_decompressed(monkeypatch):
    read = []
    getitem = np.lib.npyio.NpzFile.__getitem__
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda self, key: read.append(key) or getitem(self, key))
    Watch().load_person(4)
    assert sorted(read) == ["exercises_5", "lengths_5", "steps_5"]


def test_the_cut_is_configurable():
    split = Watch(Cut(length=50, step=50, held_out=0.5)).load_person(9)
    assert split.train.windows.shape[1:] == (50, 6)
    assert abs(len(split.train) - len(split.held_out)) <= 14


def test_an_altered_or_missing_file_is_refused(tmp_path):
    """One bit in the middle of a signal is enough; as after a clean-up that went too far."""
    data = bytearray(watch.FILE.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "watch.npz").write_bytes(data)
    with pytest.raises(DataAltered, match="SHA-256"):
        Watch(path=tmp_path / "watch.npz").load_person(0)
    with pytest.raises(DataMissing, match="install crowdfl again"):
        Watch(path=tmp_path / "gone.npz").load_person(0)


def test_the_notice_names_the_file_that_is_there():
    notice = watch.FILE.with_suffix(".NOTICE").read_text(encoding="utf-8")
    assert watch.SHA256 in notice
    assert "Redistribution and use in source and binary forms" in notice


@pytest.mark.parametrize("index", [-1, 10])
def test_nobody_else_is_there(index):
    """An index does not wrap round to another person."""
    with pytest.raises(DataMissing, match="0 to 9"):
        Watch().load_person(index)
