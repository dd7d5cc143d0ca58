"""Data named by a short text."""

from pathlib import Path

import numpy as np
import pytest

from crowdfl.errors import DataMissing, SettingsError
from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.sources import FORMS, Spec, load_split, open_source, parse_spec
from crowdfl.learning.datasets.supplied import Synthetic
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
        ("wisdm-raw:raw.txt", Spec("wisdm-raw", Path("raw.txt"), None)),
    ],
)
def test_a_text_is_taken_apart(text, spec):
    """Kind, path, person."""
    assert parse_spec(text) == spec


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
    """Every form."""
    with pytest.raises(SettingsError) as refusal:
        parse_spec(text)
    assert all(form in str(refusal.value) for form in FORMS.values())


@pytest.mark.parametrize("text", ["watch:three", "watch:-1", "synthetic:1.5"])
def test_a_number_is_wanted_where_people_are_counted(text):
    """With an example."""
    with pytest.raises(SettingsError, match="after the colon comes a number"):
        parse_spec(text)


@pytest.mark.parametrize(("person", "said"), [("#99", "no person '99'"), ("", "more than one person")])
def test_a_person_who_is_not_there_is_answered_with_those_who_are(tmp_path, person, said):
    """And with what to write."""
    marks = {"train": np.array([True, False]), "label_names": np.array(["a"])}
    np.savez(tmp_path / "w.npz", windows=np.zeros((2, 3, 1)), label=np.zeros(2), user=np.array([4, 5]), **marks)
    with pytest.raises(DataMissing, match=f"{said}.*there are 4, 5"):
        load_split(f"npz:{tmp_path / 'w.npz'}{person}")
    assert load_split(f"npz:{tmp_path / 'w.npz'}#5").held_out.name == "5"


def test_the_cut_reaches_the_source():
    """Other windows of the same made-up person."""
    split = load_split("synthetic:12", Cut(length=30, step=30, held_out=0.5, hertz=20.0))
    assert split.train.name == "synthetic-13"
    assert split.train.windows.shape == (39, 30, 3)  # 400 samples of each pace to train


def test_made_up_people_differ_and_repeat():
    """By seed and by number."""
    source = Synthetic(count=2, seed=1)
    first, again, other = source.load_person(0), Synthetic(count=2, seed=1).load_person(0), source.load_person(1)
    assert first.train.windows.tobytes() == again.train.windows.tobytes() != other.train.windows.tobytes()
    assert first.train.windows.tobytes() != Synthetic(count=2, seed=2).load_person(0).train.windows.tobytes()
    assert source.notes == ("The data is made up.",)


def test_real_sets_by_text():
    """User 7 of WISDM, subject 1 of MotionSense."""
    wisdm = shared_file("wisdm_v1.1_crowdfl_2520x90x3.npz")
    assert load_split(f"npz:{wisdm}#7").train.windows.shape == (49, 90, 3)
    spec = parse_spec(f"motionsense:{shared_file('motionsense_24subj_acc50hz.npz')}#1")
    assert open_source(spec).people[0] == spec.person == "1"
