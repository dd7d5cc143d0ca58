"""Table 3 and figures 3, 4 and 7(a): trained on made-up people, encrypted under test keys."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.learning.shared import shared_file

from crowdfl.errors import DataMissing, SettingsError
from crowdfl.learning.datasets.data import Person, Split
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.evaluation import Scores
from crowdfl_lab.experiments.accuracy import FIG_3, RECIPES, TABLE_3, mad
from crowdfl_lab.experiments.command import CATALOG
from crowdfl_lab.experiments.federated import (
    PROFILES,
    Attendance,
    Clear,
    Encrypted,
    Keys,
    LearnSettings,
    ProfileRun,
    dealt_at_random,
    federated,
    load_crowd,
)
from crowdfl_lab.experiments.rewards import FIG_4, PaidRounds, PaidSettings
from lab_tests.experiments.running import KEY, bench, run, text_of, tiny

LEARN = LearnSettings(hidden=6, people=5, epochs=10, rate=0.03, rounds=2)
RUNS = (ProfileRun("paper", 1), ProfileRun("hardened", 6), ProfileRun("shares", 6))
PAID = (ProfileRun("hardened", 2, lanes=1024), ProfileRun("shares", 2, lanes=1024))
SHORT = Keys(key_bits=512, insecure_test_key=True)
SCORES = ("accuracy", "precision", "recall", "f1")


def digits(row, names=SCORES):
    return [f"{float(row[name]):.4f}" for name in names]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("learning")


class TestTable3:
    """NN, FedAvg, PriFedAvg."""

    @pytest.fixture(scope="class")
    @classmethod
    def table3(cls, out):
        learn = replace(LEARN, hidden=8)
        return run(tiny(TABLE_3, learn=learn, runs=RUNS, profiles=PROFILES, seeds=(0, 1), keys=SHORT), out)

    def test_every_row_is_there(self, table3):
        """Two seeds of NN, two splits and seeds of each round, and of each profile the encrypted pair with its NN."""
        found = [(r["scheme"], r["split"], r["seed"]) for r in table3 if not r["of"]]
        assert len(set(found)) == len(found) == 2 + 2 * 2 * 2
        assert [r["scheme"] for r in table3 if r["of"] == "pair"] == ["NN", "FedAvg_2", "PriFedAvg"] * 3

    def test_each_weight_is_compared_with_fedavg_of_the_same_updates(self, table3, out):
        """Of every profile; nothing is compared where nothing is encrypted. The largest stands on the page."""
        off = {r["profile"]: float(r["off by"]) for r in table3 if r["scheme"] == "PriFedAvg" and r["of"] == "pair"}
        assert set(off) == set(PROFILES)
        assert all(0 < each < 1e-5 for each in off.values())
        assert not any(r["off by"] for r in table3 if r["scheme"] != "PriFedAvg")
        assert "no weight of an average differs by more than" in text_of(out)

    def test_an_average_that_is_not_fedavg_shows(self, monkeypatch):
        crowd, plain = load_crowd(LEARN, bench()), Clear.average
        encrypted = Encrypted(crowd, SHORT, bench())
        monkeypatch.setattr(Encrypted, "average", lambda _self, *given, **more: plain(Clear(), *given, **more) + 0.25)
        list(federated(crowd, encrypted, Attendance(crowd.names)))
        assert encrypted.off == pytest.approx([0.25, 0.25])

    def test_prifedavg_equals_fedavg_in_every_printed_digit(self, table3, out):
        """From the model that the requester read; and the report says so, with the paper's numbers and no path."""
        for profile in PROFILES:
            _, plain, encrypted = (r for r in table3 if r["of"] == "pair" and r["profile"] == profile)
            assert digits(encrypted, (*SCORES, "mad")) == digits(plain, (*SCORES, "mad"))
            assert float(encrypted["accuracy"]) > (1 / 3 if profile == "paper" else 0.6)  # one in three is a guess
        text = " ".join(text_of(out).split())
        for shown in (
            *(f"PriFedAvg of {profile} is" for profile in PROFILES),
            "0.7778",
            "0.0278",
            "mean over accuracy",
        ):
            assert shown in text
        assert "NOT equal" not in text
        assert str(Path.cwd()) not in (out / "report.html").read_text()

    def test_mad_is_the_mean_difference_to_nn_of_the_same_seed(self, table3):
        """By hand, for one row; the definition gives the paper's first and last value."""
        base = next(r for r in table3 if r["scheme"] == "NN" and r["seed"] == "1")
        row = next(r for r in table3 if r["scheme"] == "FedAvg_1" and r["seed"] == "1")
        assert float(row["mad"]) == pytest.approx(np.mean([abs(float(row[n]) - float(base[n])) for n in SCORES]))
        nn = Scores(0.7778, 0.6891, 0.6961, 0.6825)
        assert mad(Scores(0.6481, 0.6358, 0.574, 0.6144), nn) == pytest.approx(0.0933, abs=0.00005001)
        assert mad(Scores(0.7751, 0.6446, 0.6757, 0.6390), nn) == pytest.approx(0.0278, abs=0.00005001)

    def test_the_recipes_stand_beside(self, table3):
        """Each with two splits, seeds and rounds; NN with its inputs; and an encrypted run equal to the clear one."""
        rows = [r for r in table3 if r["of"] == "recipe"]
        for name in RECIPES:
            found = {(r["scheme"], r["split"], r["seed"]) for r in rows if r["recipe"] == name and r["scheme"] != "NN"}
            assert len(found) == 2 * 2 * 2
            plain, encrypted = (r for r in table3 if r["of"] == "recipe pair" and r["recipe"] == name)
            assert (plain["scheme"], encrypted["scheme"]) == ("FedAvg_2", "PriFedAvg")
            assert digits(plain) == digits(encrypted)
        assert [r["seed"] for r in rows if r["scheme"] == "NN"] == ["0", "1"]
        # A server step changes the second round.
        one, two = ([digits(r) for r in rows if r["recipe"] == name][-2:] for name in ("spectral", "spectral, FedAdam"))
        assert one != two

    def test_the_sizes_are_the_papers(self):
        """270-1000-6, three seeds, the paper's training; the quick one encrypts 13,856 parameters."""
        full, quick = TABLE_3.full, TABLE_3.quick
        full_runs, quick_runs = ({run.profile: run.hidden for run in each.chosen} for each in (full, quick))
        assert full.learn.hidden == quick.learn.hidden == 1000
        assert (full_runs, quick_runs) == (
            {"paper": 1, "hardened": 1000, "shares": 1000},
            {"paper": 1, "hardened": 50, "shares": 1000},
        )
        learn = full.plain(0)
        assert (learn.epochs, learn.batch, learn.rate, learn.rounds, learn.people) == (30, 50, 0.001, 5, 36)
        assert 277 * quick_runs["hardened"] + 6 == 13_856
        assert len(full.seeds) == 3
        assert (
            " ".join(CATALOG) == "table3 table4 table5 table6 fig3 fig4 fig5 fig6 fig7 gap readings privacy membership"
        )


class TestEncryptedRun:
    """The run behind PriFedAvg's row."""

    def test_it_delivers_fedavg_and_altering_one_upload_alters_the_model(self):
        """To the encoding's precision after the first round; with CSP silent there is no model: it comes from nowhere else."""
        crowd = load_crowd(LEARN, bench())
        plain = self._models(crowd, Clear())
        found = self._models(crowd, Encrypted(crowd, SHORT, bench()))
        assert found[0] == pytest.approx(plain[0], abs=1e-6)
        assert found[-1] == pytest.approx(plain[-1], abs=1e-3)
        other, altered = np.random.default_rng(5).uniform(-16, 16, plain[0].size), Encrypted(crowd, SHORT, bench())
        encrypt = altered.parties.encrypt
        altered.parties.encrypt = lambda updates, number: encrypt({**updates, crowd.names[1]: (other, 50)}, number)
        assert np.abs(self._models(crowd, altered)[0] - plain[0]).max() > 1e-3
        altered.parties.csp = None
        with pytest.raises(AttributeError):
            self._models(crowd, altered)

    def _models(self, crowd, aggregator):
        """Every round's average, in a row."""
        averages, average = [], aggregator.average

        def kept(*arguments, final):
            averages.append(average(*arguments, final=final))
            return averages[-1]

        aggregator.average = kept
        list(federated(crowd, aggregator, Attendance(crowd.names)))
        return averages


class TestFig3:
    """Dropouts."""

    def test_every_rate_is_run_and_encrypted_runs_with_real_dropouts_agree(self, out):
        """In every printed digit, for both strategies; the paper's words stand beside."""
        sizes = {"runs": RUNS, "rates": (0.0, 0.4), "checked_rate": 0.4, "seeds": (0, 1)}
        rows = run(tiny(FIG_3, learn=LEARN, keys=SHORT, **sizes), out)
        counted = [(r["scheme"], r["rate"]) for r in rows if r["how"] == "clear"]
        assert len(counted) == 2 + 2 * 2 * 2
        assert counted.count(("CrowdFL-R", "0.4")) == 2
        checks = [r for r in rows if r["how"].startswith("check")]
        assert [r["scheme"] for r in checks] == (["CrowdFL-D"] * 2 + ["CrowdFL-R"] * 2) * 3
        assert [r["profile"] for r in checks] == ["paper"] * 4 + ["hardened"] * 4 + ["shares"] * 4
        for plain, encrypted in zip(checks[0::2], checks[1::2], strict=True):
            assert digits(plain) == digits(encrypted)
        assert "They equal the runs in the clear in every printed digit" in text_of(out)
        assert "Paper: CrowdFL-R is generally more accurate than CrowdFL-D." in text_of(out)

    def test_the_share_drops_and_half_come_back(self):
        """The same people under both strategies, others in another round."""
        names = [f"p{i}" for i in range(36)]
        discard, retransmit = (Attendance(names, 0.5, s, seed=3) for s in ("discard", "retransmit"))
        assert discard.dropped(1) == retransmit.dropped(1) != discard.dropped(2)
        assert len(set(discard.dropped(1))) == len(discard.lost(1)) == 18
        assert discard.late(1) == []
        assert len(retransmit.late(1)) == len(retransmit.lost(1)) == 9
        assert set(retransmit.late(1)) | set(retransmit.lost(1)) == set(discard.dropped(1))

    @pytest.mark.parametrize(("strategy", "lost"), [("discard", 2), ("retransmit", 1)])
    def test_the_encrypted_run_averages_exactly_those_who_arrive(self, strategy, lost):
        """Lost uploads leave no trace in the average, late ones do."""
        crowd = load_crowd(LEARN, bench())
        attendance, encrypted = Attendance(crowd.names, 0.4, strategy, seed=1), Encrypted(crowd, SHORT, bench())
        size = crowd.learner().shape.parameters
        updates = {who: (np.random.default_rng(i).normal(size=size), 3) for i, who in enumerate(crowd.names)}
        _, arrived = encrypted.collect(1, updates, attendance)
        assert set(arrived) == set(crowd.names) - set(attendance.lost(1))
        assert arrived[len(arrived) - len(attendance.late(1)) :] == attendance.late(1)
        assert len(attendance.lost(1)) == lost


class TestRewards:
    """Figures 4 and 7(a): paid runs."""

    def test_opened_values_agree_with_the_clear(self, out):
        """Four rounds of four people; `hardened` with exact distances, `shares` with a sketch: its distances scatter."""
        learn = replace(LEARN, rounds=4, people=4)
        rows = run(replace(FIG_4, quick=PaidSettings(learn, PAID, keys=Keys(**KEY))), out)
        assert [r["round"] for r in rows] == (["2"] * 4 + ["4"] * 4) * 2
        assert [r["profile"] for r in rows[::8]] == ["hardened", "shares"]
        for row in rows:
            off = 0.25 if row["profile"] == "shares" else 1e-3
            for name in ("distance", "weight", "reward"):
                assert float(row[name]) == pytest.approx(float(row[f"{name} in the clear"]), rel=off)
        for start in range(
            0, 16, 4
        ):  # a round of a profile: it pays its budget, up to the millionths that divisions drop
            mine = sorted(rows[start : start + 4], key=lambda r: float(r["distance"]))
            assert 36 - 1e-4 < sum(float(r["reward"]) for r in mine) <= 36
            for name in ("weight", "reward") if mine[0]["round"] == "4" else ():  # with as many samples for everyone
                values = [float(r[name]) for r in mine]
                assert values == sorted(values, reverse=True)
        assert "Paper: The reward mu_i grows with w_i." in text_of(out)

    def test_paper_opens_the_same(self):
        """One round of three people: it takes a division for each parameter and person."""
        learn = replace(LEARN, hidden=1, rounds=1, people=3)
        world = PaidRounds(learn, Keys(lanes=1, profile="paper", **KEY), "36", bench())
        list(federated(world.crowd, world, Attendance(world.crowd.names)))
        for row in world.rows:
            for name in ("distance", "weight", "reward"):
                assert row[name] == pytest.approx(row[f"{name} in the clear"], rel=1e-3)


class TestData:
    """Where the windows come from."""

    def test_without_data_or_with_too_few_people_nothing_is_trained(self):
        """And the option is named; the made-up set has five people."""
        with pytest.raises(DataMissing, match="--data"):
            load_crowd(LearnSettings(), replace(bench(), data=None))
        with pytest.raises(SettingsError, match="has 5"):
            load_crowd(LearnSettings(people=6), bench())

    def test_the_papers_data_and_network(self):
        """36 people with 49 windows each, table 2's class totals, 277,006 parameters; dealt anew, the totals stay. A round of
        six people with a small network beats guessing the commonest activity."""
        data = WindowFile(shared_file("wisdm_v1.1_crowdfl_2520x90x3.npz"))
        for split in ("user", "random"):
            crowd = load_crowd(LearnSettings(split=split), bench(data))
            assert [len(each.train) for each in crowd.splits] == [49] * 36
            assert sorted(np.bincount(crowd.everyone()[1])) == [85, 92, 176, 200, 518, 693]
        assert crowd.learner().shape.parameters == 277_006
        crowd = load_crowd(LearnSettings(hidden=20, people=6, rounds=1), bench(data))
        (found,) = federated(crowd, Clear(), Attendance(crowd.names))
        labels = np.concatenate([split.held_out.labels for split in crowd.splits])
        assert found.accuracy > np.bincount(labels).max() / len(labels)

    def test_dealing_changes_whose_windows_are_whose_and_nothing_else(self):
        """Every window stays once, with its label and on its side; everyone has as many as before. It follows the seed."""
        people = [mixed(number) for number in range(1, 4)]
        dealt = dealt_at_random(people, seed=3)
        assert [(len(s.train), len(s.held_out)) for s in dealt] == [(len(s.train), len(s.held_out)) for s in people]
        for side in ("train", "held_out"):
            assert content(dealt, side) == content(people, side)
        deals = [tuple(s.train.windows.tobytes() for s in dealt_at_random(people, seed)) for seed in (*range(8), 0)]
        assert deals[0] == deals[-1]
        assert len(set(deals)) > 1


def mixed(number: int) -> Split:
    """Person `number` has that many windows to train and one more held out, no two alike."""
    sides = []
    for count, start in ((number, 0), (number + 1, 500)):
        values = np.arange(start + 10 * number, start + 10 * number + count, dtype=np.float32)
        sides.append(Person(f"p{number}", np.tile(values[:, None, None], (1, 5, 2)), np.arange(count) % 2, ("a", "b")))
    return Split(*sides)


def content(people: list[Split], side: str) -> list[bytes]:
    """Every window with its label, in an order of their own."""
    sides = [getattr(split, side) for split in people]
    return sorted(w.tobytes() + bytes([label]) for s in sides for w, label in zip(s.windows, s.labels, strict=True))
