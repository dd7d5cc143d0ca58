"""CSV files as phones export them, in the variety there is; and folders of them: what labels a file, and whose it is."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets.csv_files import CsvFolder, label_of_name, names_in, read_table
from crowdfl.learning.datasets.data import GRAVITY, Cut, relabelled, runs_of
from crowdfl.learning.datasets.motion_sense import MotionSense
from crowdfl.learning.datasets.npz_files import read_arrays
from crowdfl.learning.datasets.sources import load_split, open_person, open_source, parse_spec
from crowdfl.learning.recipe import Recipe
from tests.cli.program import call
from tests.learning.shared import shared_file

START = datetime(2024, 5, 1, 10, 22, tzinfo=UTC)


def write(path: Path, header: str, rows: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n")
    return path


def times_in(unit: float, offset: float = 0.0) -> list[str]:
    return [f"{(offset + 0.02 * i) / unit:.0f}" if unit < 1 else f"{offset + 0.02 * i:.3f}" for i in range(100)]


@pytest.mark.parametrize(
    ("header", "times"),
    [
        ("timestamp,x,y,z", times_in(1.0)),
        ("Timestamp, X, Y, Z", times_in(1e-3)),
        ("time,ax,ay,az", times_in(1e-3, 1.7e9)),
        ("time,seconds_elapsed,z,y,x", [f"{t},0" for t in times_in(1e-9, 1.7e9)]),
        ("timestamp_ms,acc_x,acc_y,acc_z", times_in(1e-3)),
        ("Time (s),Acceleration x (m/s^2),Acceleration y (m/s^2),Acceleration z (m/s^2)", times_in(1.0)),
        ("Zeit (s),Beschleunigung x (m/s^2),Beschleunigung y (m/s^2),Beschleunigung z (m/s^2)", times_in(1.0)),
        ("timestamp [us],accelerometer_x,accelerometer_y,accelerometer_z", times_in(1e-6)),
        ("time,gFx,gFy,gFz", times_in(1.0)),
        ("datetime,accX,accY,accZ".replace("datetime", "time"), [
            (START + timedelta(milliseconds=20 * i)).isoformat() for i in range(100)
        ]),
        ("", times_in(1e-3)),
    ],
    ids=["s", "ms", "epoch ms", "epoch ns", "ms by name", "unit by header", "German", "us", "gF", "ISO 8601", "no header"],
)  # fmt: skip
def test_headers_and_units_are_understood(tmp_path, header, times):
    """The same two seconds, 20 ms a step, one g along y."""
    factor = 9.80665 if "m/s" in header else 1.0
    table = read_table(write(tmp_path / "a.csv", header, [f"{t},0.0,{factor},0.0" for t in times]), "walking")
    assert np.diff(table.times) == pytest.approx(np.full(99, 0.02), abs=1e-4)
    assert table.signal == pytest.approx(np.tile([0.0, 1.0, 0.0], (100, 1)))
    assert set(table.labels) == {"walking"}
    assert not table.dropped


def test_acceleration_without_a_unit_is_told_by_gravity(tmp_path):
    """A phone at rest shows 1 or 9.8."""
    rows = [f"{0.02 * i},0,0,9.80665" for i in range(50)]
    assert read_table(write(tmp_path / "a.csv", "t,x,y,z", rows), "sit").signal[:, 2] == pytest.approx(np.ones(50))


def test_semicolons_and_decimal_commas(tmp_path):
    """As spreadsheets of half of Europe write it; and a byte order mark."""
    path = write(
        tmp_path / "a.csv", "\ufefftime;x;y;z;Activity", ["0,00;0,5;0,5;0,5;Sitting", "0,02;0,5;0,5;0,5;Sitting"]
    )
    table = read_table(path, "")
    assert table.times.tolist() == [0.0, 0.02]
    assert table.signal.tolist() == [[0.5] * 3] * 2
    assert list(table.labels) == ["sitting"] * 2


def test_rotation_comes_along(tmp_path):
    """Degrees are turned into radians."""
    header = "time,x,y,z,gyro_x (deg/s),gyro_y (deg/s),gyro_z (deg/s)"
    table = read_table(write(tmp_path / "a.csv", header, ["0,0,0,1,180,0,0", "0.02,0,0,1,180,0,0"]), "turn")
    assert table.signal[0] == pytest.approx([0, 0, 1, np.pi, 0, 0])


def test_faulty_rows_are_left_out_and_counted(tmp_path):
    rows = ["0.00,0,0,1", "0.02,0,0", "0.04,0,,1", "0.06,0,nan,1", "soon,0,0,1", "", "0.10,0,0,1"]
    table = read_table(write(tmp_path / "a.csv", "time,x,y,z", rows), "sit")
    assert table.times.tolist() == [0.0, 0.1]
    assert table.dropped == {"missing_field": 1, "not_a_number": 3}


def samples(seconds: float, start: float = 0.0) -> list[str]:
    return [f"{start + 0.02 * i:.2f},0,1,0" for i in range(round(50 * seconds))]


def test_a_folder_is_one_person(tmp_path):
    """Labels come from file names and inner folders; a gap within a file parts it."""
    anna = tmp_path / "anna"
    write(anna / "Walking_2024-05-01_10-22.csv", "time,x,y,z", samples(10) + samples(10, start=60))
    write(anna / "walking (2).CSV", "time,x,y,z", samples(4))
    write(anna / "sitting-1" / "Accelerometer.csv", "time,x,y,z", samples(10))
    write(anna / "notes.txt", "", ["not data"])
    source = CsvFolder(anna, Cut(length=50, step=50, held_out=0.5))
    assert source.people == ("anna",)
    assert source.label_names == ("sitting", "walking")
    split = source.load_person(0)
    assert np.bincount(split.train.labels).tolist() == [5, 5 + 5 + 2]
    assert split.train.windows[..., 1] == pytest.approx(np.ones((17, 50)))


def test_a_label_column_parts_a_file(tmp_path):
    rows = [f"{row},{'run' if i < 250 else 'rest'}" for i, row in enumerate(samples(10))]
    write(tmp_path / "day.csv", "time,x,y,z,label", rows)
    split = CsvFolder(tmp_path, Cut(length=50, step=50, held_out=0.4)).load_person(0)
    assert split.train.label_names == ("rest", "run")
    assert np.bincount(split.train.labels).tolist() == [3, 3]


def test_the_notes_say_what_was_left_out(tmp_path):
    for name in ("sit1.csv", "sit2.csv"):
        write(tmp_path / name, "time,x,y,z", [*samples(1), "1,2,3"])
    assert CsvFolder(tmp_path).notes == ("Left out: a missing field in 2 rows.",)


@pytest.mark.parametrize(
    ("name", "header", "row", "said"),
    [
        ("run.csv", "time,a,b,c", "0,1,2,3", "it needs a time, x, y and z"),
        ("run.csv", "x,y,z", "1,2,3", "it needs a time, x, y and z"),
        ("house.csv", "rooms,price", "1,2", "it needs a time, x, y and z, as a sensor's recording has"),
        ("run.csv", "", "0,1,2", "3 columns"),
        ("2024.csv", "time,x,y,z", "0,1,2,3", "there is no label"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_to_do(tmp_path, name, header, row, said):
    write(tmp_path / name, header, [row])
    with pytest.raises(DataMalformed, match=rf"{name}.*{said}"):
        CsvFolder(tmp_path).load_person(0)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "run.csv").write_bytes(b"\xff\xfe\x00\x01time")
    with pytest.raises(DataMalformed, match=r"run\.csv is not CSV text"):
        CsvFolder(tmp_path).load_person(0)


def test_files_of_different_width_are_refused(tmp_path):
    write(tmp_path / "a.csv", "time,x,y,z", ["0,0,0,1"])
    write(tmp_path / "b.csv", "time,x,y,z,gx,gy,gz", ["0,0,0,1,0,0,0"])
    with pytest.raises(DataMalformed, match=r"a\.csv has 3 channels and b\.csv has 6"):
        CsvFolder(tmp_path).load_person(0)


HEADERS = st.sampled_from(["", "time,x,y,z\n", "Time (ms);X;Y;Z;label\n", "t\tax\tay\taz\n"])
TEXTS = st.text('0123456789,;.-\t\n" eT:Zxyz\0', max_size=200).map(str.encode)


@given(header=HEADERS, body=st.binary(max_size=100) | TEXTS)
def test_whatever_a_file_holds_it_is_read_or_refused_by_name(tmp_path_factory, header, body):
    """Bytes at random, and text that looks like a table; what was read is finite."""
    path = tmp_path_factory.mktemp("csv") / "run.csv"
    path.write_bytes(header.encode() + body)
    try:
        table = read_table(path, "run")
    except DataMalformed:
        return
    assert len(table.times) == len(table.signal) == len(table.labels)
    assert np.isfinite(table.signal).all()
    assert np.isfinite(table.times).all()


def test_a_faulty_first_row_does_not_change_the_unit(tmp_path):
    """Milliseconds stay milliseconds; a row too short is no reason to stop."""
    rows = ["soon,0,0,1", "0", *(f"{20 * i},0,0,1" for i in range(5))]
    table = read_table(write(tmp_path / "a.csv", "time,x,y,z", rows), "sit")
    assert table.times == pytest.approx(0.02 * np.arange(5))


def test_numbers_and_dates_in_one_file_are_refused(tmp_path):
    """There is no telling when was when."""
    rows = ["0.5,0,0,1", "2024-05-01T00:00:00Z,0,0,1"]
    with pytest.raises(DataMalformed, match=r"a\.csv: some times are numbers and some are dates"):
        read_table(write(tmp_path / "a.csv", "time,x,y,z", rows), "sit")


@pytest.mark.parametrize("make", [lambda p: p / "gone", lambda p: p], ids=["no folder", "an empty one"])
def test_a_folder_without_data_is_refused(tmp_path, make):
    with pytest.raises(DataMissing, match="CSV"):
        CsvFolder(make(tmp_path)).load_person(0)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Walking_2024-05-01_10-22", "walking"),
        ("going_upstairs_3", "going_upstairs"),
        ("sit", "sit"),
        ("run (2)", "run"),
    ],
)
def test_a_file_is_labelled_by_what_comes_before_the_number(name, label):
    assert label_of_name(name) == label


def test_a_real_stream_exported_as_csv_gives_the_same_windows(tmp_path):
    """A MotionSense subject written as a phone would, in m/s^2 and nanoseconds since 1970, and read both ways."""
    path = shared_file("motionsense_24subj_acc50hz.npz")
    arrays = read_arrays(path)
    mine = arrays["subject"] == 5
    signal, activity, trial = (arrays[key][mine] for key in ("acc", "activity", "trial"))
    cut = Cut(length=100, step=50, held_out=0.3, gap=100, hertz=50.0)
    source = MotionSense(path, cut)
    for run in runs_of(activity, trial):
        name = f"{source.label_names[activity[run.start]]}_{trial[run.start]}.csv"
        lines = enumerate((GRAVITY * signal[run].astype(np.float64)).tolist())
        rows = [f"{1_700_000_000 * 10**9 + 20_000_000 * i},{x:.7f},{y:.7f},{z:.7f}" for i, (x, y, z) in lines]
        write(tmp_path / "subject5" / name, "time,x,y,z", rows)
    by_csv = relabelled(CsvFolder(tmp_path / "subject5", cut).load_person(0), source.label_names)
    direct = source.load_person(source.people.index("5"))
    for one, other in ((by_csv.train, direct.train), (by_csv.held_out, direct.held_out)):
        assert len(one) == len(other) > 100
        for label in range(6):
            left, right = (np.sort(p.windows[p.labels == label].sum(axis=(1, 2))) for p in (one, other))
            assert left == pytest.approx(right, abs=1e-2)


CUT = Cut(length=50, step=50, held_out=0.5)


@pytest.fixture
def crowd(tmp_path):
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
    shown = call("train", "--look", "--data", f"csv:{crowd}", "--json")
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
    rows = [f"{row},{'run' if i < 500 else 'rest'}" for i, row in enumerate(samples(20))]
    path = write(tmp_path / "monday.csv", "time,x,y,z,label", rows)
    split = load_split(form.format(path), CUT)
    assert (split.train.name, split.train.label_names) == ("monday", ("rest", "run"))
    assert len(split.train) == 10


def test_what_is_recorded_beside_motion_is_in_columns_and_a_file_without_them_is_refused_by_name(tmp_path):
    """Speed in 10 m/s, a column for each choice; both are fed to the model as they are, whatever is scaled."""
    asked = {"id": "company", "text": "Were you alone?", "choices": ["alone", "with others"]}
    beside = {"sensors": ["speed"], "questions": [asked], "standardise": True, "scale_inputs": True}
    recipe = Recipe.of({"labels": ["run", "rest"], "channels": 3, "window_samples": 10, "hertz": 50.0, **beside})
    rows = [f"{row},run,{36 + i % 2},{'Alone' if i < 200 else ''}" for i, row in enumerate(samples(8))]
    path = write(tmp_path / "run.csv", "time,x,y,z,label,speed (km/h),company", rows)
    split = recipe.load(str(path))
    assert split.train.windows.shape[1:] == (10, recipe.width) == (10, 6)
    inputs = recipe.both_inputs(split)[0]
    assert inputs.shape[1] == recipe.inputs == 9 * 3 - 3 + 2 + 2
    assert inputs[0, -4:] == pytest.approx([1.0139, 0.0139, 1.0, 0.0], abs=2e-3)
    assert inputs[-1, -2:].tolist() == [0.0, 0.0]
    for missing in ("speed", "company"):
        bare = write(
            tmp_path / "bare" / "run.csv", ",".join(("time,x,y,z", *({"speed", "company"} - {missing}))), ["0,0,0,1,1"]
        )
        with pytest.raises(
            DataMalformed, match=f"no column is called '{missing}', which the task records beside motion"
        ):
            recipe.load(str(bare))
