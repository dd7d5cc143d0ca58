"""WISDM's raw text and its faults."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning.datasets.data import Cut
from crowdfl.learning.datasets.wisdm_raw import ACTIVITIES, WisdmRaw, read_wisdm

GOOD = "33,Jogging,49105962326000,-0.6946377,12.680544,0.50395286;"


def lines_of(user: int, activity: str, start: int, count: int) -> list[str]:
    return [f"{user},{activity},{(start + 50 * i) * 10**6},0.0,9.80665,{i / 1000};\n" for i in range(count)]


def test_a_good_line_has_no_faults():
    people, faults = read_wisdm([GOOD])
    assert people[33].tolist() == [49105.962326, -0.6946377, 12.680544, 0.50395286, ACTIVITIES.index("Jogging")]
    assert not faults.repaired + faults.dropped
    assert faults.notes == ()


@pytest.mark.parametrize(
    ("line", "kind", "kept"),
    [
        ("1,Walking,7000,1.0,2.0,3.0,;", "trailing comma", 1),
        ("1,Walking,7000,1.0,2.0,3.0", "no semicolon at the end", 1),
        ("1,Walking,7000,1.0,2.0,3.0;1,Walking,8000,1.0,2.0,3.0;", "several records on a line", 2),
    ],
)
def test_a_fault_that_can_be_repaired_is_and_is_counted(line, kind, kept):
    people, faults = read_wisdm([line + "\n"])
    assert len(people[1]) == 5 * kept
    assert +faults.repaired == {kind: 1}
    assert not +faults.dropped
    assert faults.notes == (f"Repaired: {kind} 1.",)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("", "empty line"),
        ("1,Walking,8000,1.0,2.0;", "missing field"),
        ("1,Walking,8000,1.0,2.0,;", "missing field"),
        ("1,Walking,,1.0,2.0,3.0;", "missing field"),
        (";", "empty record"),
        ("1,Walking,8000,1.0,2.0,3.0,4.0;", "too many fields"),
        ("1,Walking,8000,1.0,2.0,3.0.1;", "not a number"),
        ("1,Walking,8000,1.0,nan,3.0;", "not a number"),
        ("1,Walking,inf,1.0,2.0,3.0;", "not a number"),
        ("one,Walking,8000,1.0,2.0,3.0;", "not a number"),
        ("1,Flying,8000,1.0,2.0,3.0;", "unknown activity"),
        ("1,Flying,8000,1.0,2.0,3.0,;", "unknown activity"),
        ("1,Walking,0,0,0,0.0;", "zero timestamp"),
        ("1,Walking,7000,1.0,2.0,3.0;", "repeated record"),
    ],
)
def test_a_fault_that_cannot_be_repaired_is_left_out_and_counted(line, kind):
    people, faults = read_wisdm(["1,Walking,7000,1.0,2.0,3.0;\n", line + "\n", "1,Walking,9000,1.0,2.0,3.0;\n"])
    assert len(people[1]) == 2 * 5
    assert +faults.dropped == {kind: 1}
    assert not +faults.repaired
    assert faults.notes == (f"Left out: {kind} 1.",)


def test_a_double_semicolon_is_an_empty_record():
    people, faults = read_wisdm(["1,Walking,7000,1.0,2.0,3.0;;\n"])
    assert len(people[1]) == 5
    assert +faults.dropped == {"empty record": 1}


@given(
    st.lists(
        st.text("0123456789,;.-eJogingWalk \t", max_size=60) | st.sampled_from([GOOD, GOOD * 2, GOOD[:-9]]), max_size=8
    )
)
def test_whatever_a_line_holds_it_is_read_or_counted(lines):
    people, faults = read_wisdm(line + "\n" for line in lines)
    kept = sum(map(len, people.values())) // 5
    assert np.isfinite([value for rows in people.values() for value in rows]).all()
    assert kept + faults.dropped.total() >= len(lines)


@pytest.fixture
def path(tmp_path):
    """User 7 jogs and sits, user 3 between and after; two faults."""
    parts = [
        lines_of(7, "Jogging", 1_000, 400),
        ["\n", "3,Walking,99,1.0;\n"],
        lines_of(3, "Walking", 5_000, 300),
        lines_of(7, "Sitting", 90_000, 200),
        lines_of(3, "Walking", 400_000, 100),
    ]
    (tmp_path / "raw.txt").write_text("".join(line for part in parts for line in part))
    return tmp_path / "raw.txt"


def test_users_out_of_order_are_put_together(path):
    """Windows of one user, in g, from recordings that end where time jumps or the activity changes."""
    source = WisdmRaw(path, Cut(length=20, step=10, held_out=0.3))
    assert source.people == ("3", "7")
    split = source.load_person(1)
    assert split.train.name == "7"
    # 280 and 140 samples to train, 120 and 60 held out.
    assert np.bincount(split.train.labels, minlength=6).tolist() == [0, 27, 13, 0, 0, 0]
    assert np.bincount(split.held_out.labels, minlength=6).tolist() == [0, 11, 5, 0, 0, 0]
    assert np.allclose(split.train.windows[..., 1], 1.0)
    walking = source.load_person(0)
    assert len(walking.train) == 20 + 6  # of 210 and 70 samples, none across the jump
    assert source.notes == ("Left out: empty line 1, missing field 1.",)


def test_another_rate_resamples(path):
    split = WisdmRaw(path, Cut(length=20, step=20, held_out=0.3, hertz=10.0)).load_person(1)
    assert np.bincount(split.train.labels, minlength=6).tolist() == [0, 7, 3, 0, 0, 0]


def test_another_file_is_refused(tmp_path):
    (tmp_path / "other.txt").write_text("Dear diary,\n")
    with pytest.raises(DataMalformed, match="user,activity,timestamp"):
        WisdmRaw(tmp_path / "other.txt").load_person(0)


def test_a_missing_file_is_named_with_its_remedy(tmp_path):
    with pytest.raises(DataMissing, match=r"WISDM_ar_v1.1_raw.txt out of https"):
        WisdmRaw(tmp_path / "gone.txt").load_person(0)
