"""WISDM's raw text and its faults."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl_lab.wisdm_set import ACTIVITIES, read_wisdm

GOOD = "33,Jogging,49105962326000,-0.6946377,12.680544,0.50395286;"


def test_a_good_line_has_no_faults():
    """Seconds, three axes and a label."""
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
    """Nothing stops the reading, and what was kept is finite."""
    people, faults = read_wisdm(line + "\n" for line in lines)
    kept = sum(map(len, people.values())) // 5
    assert np.isfinite([value for rows in people.values() for value in rows]).all()
    assert kept + faults.dropped.total() >= len(lines)
