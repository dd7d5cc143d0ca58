"""The paper's data set, built from a made-up raw text of 36 users with all known faults."""

import hashlib
import io

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.errors import DataAltered, DataMalformed, DataMissing, SettingsError
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl_lab import wisdm_set
from crowdfl_lab.wisdm_set import ACTIVITIES, read_wisdm

# Of the set that is built from the text below. Another rule, or another way to write files, would change it.
SHA256 = "0cb9061a6e0d5fc72c310724a4304da06f3e692dd5ccc0e8790624a3703dc4aa"

_LENGTHS = {"Walking": 1000, "Jogging": 700, "Upstairs": 250, "Downstairs": 250, "Sitting": 200, "Standing": 200}
_FAULTS = "\n;\n3,Walking,0,0,0,0.0;\n3,Walking,77,1.0,,2.0;\n3,Flying,77,1.0,1.0,2.0;\n3,Walking,77,1.0,1.0,nan;\n"


def records_of(user: int) -> list[str]:
    """A user's records at 20 Hz; not everyone has every activity, and user 9 walks only."""
    found, time = [], 10**9 * user
    for place, (activity, length) in enumerate(_LENGTHS.items()):
        if (activity == "Sitting" and user % 4 == 0) or (activity == "Standing" and user % 3 == 0):
            continue
        if user == 9 and activity != "Walking":
            continue
        for i in range(length * (3 if user == 9 else 1)):
            x, y, z = ((user * 7 + place * 31 + i * step) % 97 - 48 for step in (3, 5, 11))
            found.append(f"{user},{activity},{time},{x / 8},{y / 4},{z / 16};")
            time += 50_000_000
        time += 5 * 10**9
    return found


@pytest.fixture(scope="module")
def text() -> str:
    """Users in a strange order; faults of every kind on the way."""
    lines = []
    for user in [33, *(user for user in range(36, 0, -1) if user != 33)]:
        mine = records_of(user)
        mine[5] = mine[5] + mine.pop(6)  # several records on a line
        mine[20] = mine[20].replace(";", ",;")
        mine[30] = mine[30].rstrip(";")
        mine[40] = mine[40] + "\n" + mine[40]
        lines += mine
    return "\n".join(lines) + _FAULTS


@pytest.fixture(scope="module")
def built(text, tmp_path_factory):
    """The command's file and what it printed."""
    folder = tmp_path_factory.mktemp("wisdm")
    (folder / "raw.txt").write_text(text)
    done = CliRunner().invoke(app, ["wisdm", "build", str(folder / "raw.txt"), str(folder), "--unchecked"])
    assert done.exit_code == 0, done.output
    return folder / wisdm_set.SET_FILE, done.stdout


@pytest.fixture(scope="module")
def arrays(built):
    with np.load(built[0]) as file:
        return dict(file)


@pytest.mark.second
class TestBuilt:
    """The whole way, from text to file."""

    def test_the_bytes_are_the_same_everywhere(self, built):
        """Sums are exact, and files have no times in them."""
        assert hashlib.sha256(built[0].read_bytes()).hexdigest() == SHA256
        assert SHA256 in built[1]

    def test_table_2_is_met_and_everyone_has_49_and_21(self, arrays):
        """The paper's totals of training windows."""
        counts = np.bincount(arrays["label"][arrays["train"]], minlength=6)
        assert dict(zip(ACTIVITIES, counts.tolist(), strict=True)) == wisdm_set.TABLE_2
        for user in range(1, 37):
            assert np.bincount(arrays["train"][arrays["user"] == user].astype(int)).tolist() == [21, 49]

    def test_no_sample_is_on_both_sides(self, arrays):
        """Nor within a window's length of the other side, in the same stretch."""
        for user in range(1, 37):
            mine = arrays["user"] == user
            for label in range(6):
                own = mine & (arrays["label"] == label)
                train, test = (arrays["src_index"][own & (arrays["train"] == side)] for side in (True, False))
                if len(train) and len(test):
                    assert test.min() >= train.max() + 2 * 90

    def test_windows_are_standardised_by_training_windows_alone(self, arrays):
        """Mean 0 and deviation 1 of these; what is held out follows its own."""
        for user in (1, 9, 36):
            mine = arrays["x_z"][(arrays["user"] == user)].astype(np.float64)
            train, test = mine[:49], mine[49:]
            assert np.abs(train.mean(axis=0)).max() < 1e-6
            assert np.abs(train.std(axis=0) - 1).max() < 1e-6
            assert np.abs(test.mean(axis=0)).max() > 0.01

    def test_the_file_is_read_like_any_other_and_says_how_it_was_made(self, built):
        """As `npz:` and `reproduce` read it."""
        source = WindowFile(built[0])
        assert len(source.people) == 36
        assert "training windows alone" in source.notes[0]
        assert len(source.load_person(8).train) == 49

    def test_faults_are_counted(self, built):
        for fault in ("several records on a line 36", "trailing comma 36", "repeated record 36", "zero timestamp 1"):
            assert fault in " ".join(built[1].split())

    def test_another_text_is_refused_unless_that_is_wanted(self, text, tmp_path):
        """It has not as many records as WISDM says; and a hash that is not asked for is refused."""
        raw = tmp_path / "raw.txt"
        raw.write_text(text)
        for options, words in (([], "--unchecked"), (["--unchecked", "--sha256", "0" * 64], "nothing was written")):
            done = CliRunner().invoke(app, ["wisdm", "build", str(raw), str(tmp_path), *options])
            assert isinstance(done.exception, DataAltered)
            assert words in str(done.exception)
        assert [path.name for path in tmp_path.iterdir()] == ["raw.txt"]

    def test_too_few_users_or_windows_are_named(self, text):
        """Instead of a set that is not the paper's."""
        people, _ = read_wisdm(io.StringIO(text))
        short = {user: rows if user != 7 else rows[: 5 * 120] for user, rows in people.items()}
        with pytest.raises(DataMalformed, match="user 7 has"):
            wisdm_set.build_arrays(short)
        del people[7]
        with pytest.raises(DataMalformed, match="35 users"):
            wisdm_set.build_arrays(people)


def whole_text() -> str:
    """As many records of each activity as WISDM says of its own file, by 36 users in turn, in stretches of a minute."""
    lines = []
    for place, (activity, known) in enumerate(wisdm_set.KNOWN_RECORDS.items()):
        for i in range(known):
            user, step = i // 1200 % 36 + 1, place * 10**6 + i
            x, y, z = (((user * 7 + place * 31 + i * pace) % 97 - 48) / 8 for pace in (3, 5, 11))
            lines.append(f"{user},{activity},{(step + 1) * 50_000_000},{x},{y},{z};")
    return "\n".join(lines)


@pytest.mark.second
def test_a_text_of_wisdms_own_size_becomes_the_published_cut(tmp_path):
    """1,098,207 records, checked against WISDM's counts; with a third of one activity missing it is refused."""
    raw = tmp_path / wisdm_set.WISDM_FILE
    text = whole_text()
    raw.write_text(text)
    done = CliRunner().invoke(app, ["wisdm", "build", str(raw), str(tmp_path)])
    assert done.exit_code == 0, done.output
    with np.load(tmp_path / wisdm_set.SET_FILE) as file:
        label, train, user = file["label"], file["train"], file["user"]
    assert len(label) == 36 * 70
    counts = dict(zip(ACTIVITIES, np.bincount(label[train], minlength=6).tolist(), strict=True))
    assert counts == wisdm_set.TABLE_2
    assert set(np.bincount(user[train])[1:].tolist()) == {49}
    raw.write_text(text.replace("Sitting", "Walking", 20_000))
    done = CliRunner().invoke(app, ["wisdm", "build", str(raw), str(tmp_path / "again.npz")])
    assert isinstance(done.exception, DataAltered)


def test_a_missing_text_says_in_one_line_what_to_download_and_run(tmp_path):
    """From where, and both commands."""
    done = CliRunner().invoke(app, ["wisdm", "build", str(tmp_path / "raw.txt")])
    assert isinstance(done.exception, DataMissing)
    message = str(done.exception)
    assert "\n" not in message
    for part in ("https://www.cis.fordham.edu/", "crowdfl wisdm fetch data", "crowdfl wisdm build data/WISDM_ar"):
        assert part in message


def test_a_set_is_not_overwritten(tmp_path):
    """Nor its text read."""
    (tmp_path / wisdm_set.SET_FILE).write_bytes(b"")
    done = CliRunner().invoke(app, ["wisdm", "build", "raw.txt", str(tmp_path)])
    assert isinstance(done.exception, SettingsError)


class TestAllotment:
    """Who gives how many windows of which activity."""

    def test_shares_are_proportional(self):
        """By hand: 10 among 60, 30 and 10 of 100; none above its most."""
        assert wisdm_set.divided(10, [60, 30, 10], [60, 30, 10]) == [6, 3, 1]
        assert wisdm_set.divided(5, [9, 1], [2, 9]) == [2, 3]
        assert wisdm_set.divided(3, [5, 0], [2, 4]) == [2, 1]

    def test_totals_are_met_through_a_third_activity(self):
        """Nobody has both of the two that are wrong; a chain over the third one mends it."""
        available = [[4, 4, 0], [0, 4, 4]]
        found = wisdm_set.allot(available, 4, [1, 3, 4])
        assert [sum(column) for column in zip(*found, strict=True)] == [1, 3, 4]
        assert [sum(row) for row in found] == [4, 4]

    def test_totals_that_cannot_be_met_are_refused(self):
        """With the activity that is short."""
        with pytest.raises(DataMalformed, match="Sitting"):
            wisdm_set.allot([[4, 4, 0], [4, 4, 1]], 4, [3, 3, 2])
