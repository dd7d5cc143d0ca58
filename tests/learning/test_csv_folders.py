"""Folders of CSV files: what labels a file, and whose it is."""

import json

import pytest

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets.csv_files import CsvFolder, names_in
from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.sources import load_split, open_person, open_source, parse_spec
from tests.cli.program import call
from tests.learning.test_csv_files import samples, write

CUT = Cut(length=50, step=50, held_out=0.5)


@pytest.fixture
def crowd(tmp_path):
    """Two people, each with two activities."""
    for person in ("alice", "bob"):
        for label in ("walking", "sitting_2"):
            write(tmp_path / "crowd" / person / f"{label}.csv", "time,x,y,z", samples(10))
    return tmp_path / "crowd"


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        (("walking_2024-05-01",), ["walking"]),
        (("sitting-1", "Accelerometer"), ["sitting"]),
        (("sitting-1", "Raw Data"), ["sitting"]),
        (("sitting-1", "WatchAccelerometerUncalibrated"), ["sitting"]),
        (("sitting", "2024-05-01", "TotalAcceleration"), ["sitting"]),
        (("2024-05-01", "walking"), ["walking"]),
        (("walking", "walking_3"), ["walking"]),
        (("session 1", "walking"), ["walking"]),
        (("alice", "walking"), ["alice", "walking"]),
        (("alice", "walking-1", "Accelerometer"), ["alice", "walking"]),
        (("subject-3", "walking"), ["subject", "walking"]),
        (("user-3", "walking"), ["user", "walking"]),
        (("03", "walking"), ["03", "walking"]),
        (("Accelerometer",), []),
        (("2024",), []),
    ],
)
def test_names_on_the_way_to_a_file_that_may_be_labels(parts, names):
    """Not a sensor's or an app's, a date's or a number's; but a number above a label may be a person."""
    assert names_in(parts) == names


def test_a_folder_of_people_is_refused_with_both_ways_to_write_it(crowd):
    """Where the people's names were taken for labels before."""
    with pytest.raises(DataMissing) as refusal:
        load_split(f"csv:{crowd}")
    assert f"csv:{crowd}#alice" in str(refusal.value)
    assert "alice, bob" in str(refusal.value)
    assert f"csv-by-folder:{crowd}" in str(refusal.value)


def test_a_person_of_a_folder_of_people_is_named_after_a_number_sign(crowd):
    source, index = open_person(f"csv:{crowd}#bob", CUT)
    assert (source.people, source.label_names) == (("bob",), ("sitting", "walking"))
    assert len(source.load_person(index).train) == 10
    with pytest.raises(DataMissing, match=r"no folder 'eve'.*there are alice, bob"):
        load_split(f"csv:{crowd}#eve")


def test_inner_folders_are_labels_if_one_says_so(crowd):
    assert CsvFolder(crowd, CUT, by_folder=True).label_names == ("alice", "bob")
    assert load_split(f"csv-by-folder:{crowd}", CUT).train.label_names == ("alice", "bob")


def test_everyone_in_a_folder_of_people_is_shown(crowd):
    """With what to write if the folders are not people."""
    shown = call("data", "show", f"csv:{crowd}", "--json")
    found = json.loads(shown.out)
    assert found["people"] == ["alice", "bob"]
    assert found["labels"] == ["sitting", "walking"]
    assert "csv-by-folder" in found["notes"][0]
    assert open_source(parse_spec(f"csv:{crowd}"), CUT).load_person(1).train.name == "bob"


def test_people_with_labels_of_their_own_are_one_person_and_that_is_said(tmp_path):
    """A column of labels leaves nothing unclear but whose the files are."""
    for person in ("alice", "bob"):
        write(tmp_path / person / "day.csv", "time,x,y,z,label", [f"{row},run" for row in samples(10)])
    assert "alice, bob are read as one person's" in CsvFolder(tmp_path).notes[0]
    write(tmp_path / "carol" / "run-1" / "Accelerometer.csv", "time,x,y,z,label", [f"{row},run" for row in samples(1)])
    assert CsvFolder(tmp_path / "carol").notes == ()


def test_a_file_named_after_a_sensor_has_no_label(tmp_path):
    """`accelerometer` is not something that a person does."""
    write(tmp_path / "Accelerometer.csv", "time,x,y,z", samples(10))
    with pytest.raises(DataMalformed, match=r"Accelerometer\.csv: there is no label: add a column"):
        load_split(f"csv:{tmp_path}")


@pytest.mark.parametrize("form", ["csv:{}", "{}"])
def test_one_file_is_a_persons_data_too(tmp_path, form):
    """With or without its kind."""
    rows = [f"{row},{'run' if i < 500 else 'rest'}" for i, row in enumerate(samples(20))]
    path = write(tmp_path / "monday.csv", "time,x,y,z,label", rows)
    split = load_split(form.format(path), CUT)
    assert (split.train.name, split.train.label_names) == ("monday", ("rest", "run"))
    assert len(split.train) == 10
