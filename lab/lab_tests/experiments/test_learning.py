"""Table 3 and figures 3, 4 and 7(a): trained on made-up people, encrypted under test keys."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.learning.shared import shared_file

from crowdfl.errors import DataMissing, SettingsError
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.evaluation import Scores
from crowdfl.learning.oracle import rewards
from crowdfl.protocols.hardened.opening import OpenRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import View
from crowdfl.protocols.profile import InProcessMemory
from crowdfl_lab.experiments.command import CATALOG
from crowdfl_lab.experiments.crowds import LearnSettings, load_crowd
from crowdfl_lab.experiments.dropouts import FIG_3
from crowdfl_lab.experiments.federated import PROFILES, Attendance, Clear, Encrypted, Keys, ProfileRun, federated
from crowdfl_lab.experiments.rewards import FIG_4, PaidRounds, PaidSettings
from crowdfl_lab.experiments.table3 import TABLE_3, mad
from lab_tests.experiments.running import KEY, bench, run, text_of, tiny

LEARN = LearnSettings(hidden=6, people=5, epochs=10, rate=0.03, rounds=2)
RUNS = (ProfileRun("paper", 1), ProfileRun("hardened", 6), ProfileRun("shares", 6))
SHORT = Keys(key_bits=512, insecure_test_key=True)
# The paper's table 3: accuracy, precision, recall, F1, and the MAD it prints.
NN = Scores(0.7778, 0.6891, 0.6961, 0.6825)
PRINTED = [
    (Scores(0.6481, 0.6358, 0.574, 0.6144), 0.0933),
    (Scores(0.7553, 0.6497, 0.642, 0.5733), 0.0563),
    (Scores(0.7619, 0.6311, 0.6605, 0.6077), 0.0461),
    (Scores(0.7725, 0.6335, 0.6653, 0.6186), 0.0389),
    (Scores(0.7751, 0.6446, 0.6757, 0.6390), 0.0278),
]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder for all."""
    return tmp_path_factory.mktemp("learning")


@pytest.fixture(scope="module")
def table3(out):
    """Its rows."""
    learn = replace(LEARN, hidden=8)
    return run(tiny(TABLE_3, learn=learn, runs=RUNS, profiles=PROFILES, seeds=(0, 1), keys=SHORT), out)


@pytest.mark.parametrize(("row", "printed"), PRINTED, ids=[f"FedAvg_{n}" for n in range(1, 6)])
def test_mad_is_the_papers(row, printed):
    """The definition gives every value of the printed table."""
    assert mad(row, NN) == pytest.approx(printed, abs=0.00005001)  # half a unit of the last digit


class TestTable3:
    """NN, FedAvg, PriFedAvg."""

    def test_every_row_is_there(self, table3):
        """Two seeds of NN, two splits and seeds of each round, and of each profile the encrypted pair with its NN."""
        found = [(r["scheme"], r["split"], r["seed"]) for r in table3 if not r["of"]]
        assert len(set(found)) == len(found) == 2 + 2 * 2 * 2
        assert [r["scheme"] for r in table3 if r["of"] == "pair"] == ["NN", "FedAvg_2", "PriFedAvg"] * 3

    @pytest.mark.parametrize("profile", PROFILES)
    def test_prifedavg_equals_fedavg_in_every_printed_digit(self, table3, out, profile):
        """From the model that the requester read; and the report says so."""
        _, plain, encrypted = (r for r in table3 if r["of"] == "pair" and r["profile"] == profile)
        for name in ("accuracy", "precision", "recall", "f1", "mad"):
            assert f"{float(encrypted[name]):.4f}" == f"{float(plain[name]):.4f}"
        assert float(encrypted["accuracy"]) > (1 / 3 if profile == "paper" else 0.6)  # one in three is a guess
        assert f"PriFedAvg of {profile} is" in " ".join(text_of(out).split())
        assert "NOT equal" not in text_of(out)

    def test_mad_is_the_mean_difference_to_nn_of_the_same_seed(self, table3):
        """By hand, for one row."""
        base = next(r for r in table3 if r["scheme"] == "NN" and r["seed"] == "1")
        row = next(r for r in table3 if r["scheme"] == "FedAvg_1" and r["seed"] == "1")
        names = ("accuracy", "precision", "recall", "f1")
        wanted = np.mean([abs(float(row[name]) - float(base[name])) for name in names])
        assert float(row["mad"]) == pytest.approx(wanted)

    def test_the_recipes_stand_beside(self, table3):
        """Each with two splits, seeds and rounds; NN with its inputs; and an encrypted run equal to the clear one."""
        rows = [r for r in table3 if r["of"] == "recipe"]
        for name in ("spectral", "spectral, FedAvgM", "spectral, FedAdam"):
            found = {(r["scheme"], r["split"], r["seed"]) for r in rows if r["recipe"] == name and r["scheme"] != "NN"}
            assert len(found) == 2 * 2 * 2
            plain, encrypted = (r for r in table3 if r["of"] == "recipe pair" and r["recipe"] == name)
            assert (plain["scheme"], encrypted["scheme"]) == ("FedAvg_2", "PriFedAvg")
            for score in ("accuracy", "precision", "recall", "f1"):
                assert f"{float(encrypted[score]):.4f}" == f"{float(plain[score]):.4f}"
        assert [r["seed"] for r in rows if r["scheme"] == "NN"] == ["0", "1"]

    def test_a_server_step_changes_the_second_round(self, table3):
        """FedAvgM starts as FedAvg does, and goes on another way; with the recipe's own rate and momentum."""
        one, two = (
            [
                r["accuracy"]
                for r in table3
                if (r["of"], r["recipe"], r["split"], r["seed"]) == ("recipe", name, "user", "0")
            ]
            for name in ("spectral", "spectral, FedAdam")
        )
        assert one[-2:] != two[-2:]

    def test_the_report_prints_the_papers_numbers(self, out, table3):
        """And defines MAD, and shows mean and spread."""
        text = text_of(out)
        for shown in ("0.7778", "0.6481", "0.7751", "0.0278", "mean over accuracy, precision, recall and F1", "±"):
            assert shown in text

    def test_the_sizes_are_the_papers(self):
        """270-1000-6, three seeds, the paper's training; the quick one encrypts 13,856 parameters."""
        full, quick = TABLE_3.full, TABLE_3.quick
        full_runs, quick_runs = ({run.profile: run.hidden for run in each.chosen} for each in (full, quick))
        assert full.learn.hidden == quick.learn.hidden == 1000
        assert (full_runs, quick_runs) == ({"hardened": 1000, "shares": 1000}, {"hardened": 50, "shares": 1000})
        learn = full.plain(0)
        assert (learn.epochs, learn.batch, learn.rate, learn.rounds, learn.people) == (30, 50, 0.001, 5, 36)
        assert 277 * quick_runs["hardened"] + 6 == 13_856
        assert len(full.seeds) == 3


class TestEncryptedRun:
    """The run behind PriFedAvg's row."""

    @pytest.fixture(scope="class")
    @classmethod
    def world(cls):
        """A crowd and what plain FedAvg makes of it."""
        crowd = load_crowd(LEARN, bench())
        return crowd, _models(crowd, Clear())

    def test_it_delivers_fedavg_to_the_encodings_precision(self, world):
        """After the first round: the later ones train on."""
        crowd, plain = world
        found = _models(crowd, Encrypted(crowd, SHORT, bench()))
        assert found[0] == pytest.approx(plain[0], abs=1e-6)
        assert found[-1] == pytest.approx(plain[-1], abs=1e-3)

    def test_altering_one_upload_alters_the_model(self, world):
        """Another model in place of one participant's: what comes out is another, and so are its scores."""
        crowd, plain = world
        other = np.random.default_rng(5).uniform(-16, 16, plain[0].size)

        def altered_run():
            run = Encrypted(crowd, SHORT, bench())
            encrypt = run.parties.encrypt
            run.parties.encrypt = lambda updates, number: encrypt({**updates, crowd.names[1]: (other, 50)}, number)
            return run

        assert np.abs(_models(crowd, altered_run())[0] - plain[0]).max() > 1e-3
        run = altered_run()
        honest, altered = (list(federated(crowd, a, Attendance(crowd.names)))[-1] for a in (Clear(), run))
        assert f"{altered.accuracy:.4f} {altered.f1:.4f}" != f"{honest.accuracy:.4f} {honest.f1:.4f}"

    def test_the_average_needs_the_servers(self, world):
        """With CSP silent there is no model: it does not come from anywhere else."""
        crowd, _ = world
        run = Encrypted(crowd, SHORT, bench())
        run.parties.csp = None
        with pytest.raises(AttributeError):
            _models(crowd, run)


def _models(crowd, aggregator):
    """Every round's average, in a row."""

    class Kept:
        lost_train, steps = aggregator.lost_train, aggregator.steps

        def __init__(self):
            self.averages = []

        def average(self, *arguments, final):
            self.averages.append(aggregator.average(*arguments, final=final))
            return self.averages[-1]

    kept = Kept()
    list(federated(crowd, kept, Attendance(crowd.names)))
    return kept.averages


class TestFig3:
    """Dropouts."""

    @pytest.fixture(scope="class")
    @classmethod
    def rows(cls, out):
        """Two rates."""
        sizes = {"runs": RUNS, "rates": (0.0, 0.4), "checked_rate": 0.4, "seeds": (0, 1)}
        return run(tiny(FIG_3, learn=LEARN, keys=SHORT, **sizes), out)

    def test_every_rate_seed_and_strategy_is_run(self, rows):
        """And NN as a line."""
        counted = [(r["scheme"], r["rate"]) for r in rows if r["how"] == "clear"]
        assert len(counted) == 2 + 2 * 2 * 2
        assert counted.count(("CrowdFL-R", "0.4")) == 2

    def test_encrypted_runs_with_real_dropouts_agree(self, rows, out):
        """In every printed digit, for both strategies."""
        checks = [r for r in rows if r["how"].startswith("check")]
        assert [r["scheme"] for r in checks] == (["CrowdFL-D"] * 2 + ["CrowdFL-R"] * 2) * 2
        assert [r["profile"] for r in checks] == ["hardened"] * 4 + ["shares"] * 4
        for plain, encrypted in zip(checks[0::2], checks[1::2], strict=True):
            assert f"{float(plain['accuracy']):.4f}" == f"{float(encrypted['accuracy']):.4f}"
        assert "They equal the runs in the clear in every printed digit" in text_of(out)

    def test_the_papers_words_stand_beside(self, rows, out):
        """The figure is drawn there, not tabulated."""
        assert "Paper: CrowdFL-R is generally more accurate than CrowdFL-D." in text_of(out)


class TestAttendance:
    """Who drops out."""

    def test_the_share_drops_and_half_come_back(self):
        """The same people under both strategies, others in another round."""
        names = [f"p{i}" for i in range(36)]
        discard, retransmit = (Attendance(names, 0.5, s, seed=3) for s in ("discard", "retransmit"))
        assert discard.dropped(1) == retransmit.dropped(1) != discard.dropped(2)
        assert len(set(discard.dropped(1))) == 18
        assert discard.late(1) == []
        assert len(discard.lost(1)) == 18
        assert len(retransmit.late(1)) == len(retransmit.lost(1)) == 9
        assert set(retransmit.late(1)) | set(retransmit.lost(1)) == set(discard.dropped(1))

    @pytest.mark.parametrize("strategy", ["discard", "retransmit"])
    def test_the_encrypted_run_averages_exactly_those_who_arrive(self, strategy):
        """Lost uploads leave no trace in the average, late ones do."""
        crowd = load_crowd(LEARN, bench())
        attendance = Attendance(crowd.names, 0.4, strategy, seed=1)
        run = Encrypted(crowd, SHORT, bench())
        updates = {who: _trained(i) for i, who in enumerate(crowd.names)}
        _, arrived = run.collect(1, updates, attendance)
        assert set(arrived) == set(crowd.names) - set(attendance.lost(1))
        late = attendance.late(1)
        assert arrived[len(arrived) - len(late) :] == late
        assert len(attendance.lost(1)) == (2 if strategy == "discard" else 1)


def _trained(seed):
    learner = load_crowd(LEARN, bench()).learner()
    return np.random.default_rng(seed).normal(size=learner.shape.parameters), 3


PAID = (ProfileRun("hardened", 2, lanes=1024), ProfileRun("shares", 2, lanes=1024))


class TestRewards:
    """Figures 4 and 7(a): paid runs."""

    @pytest.fixture(scope="class")
    @classmethod
    def rows(cls, out):
        """Four rounds of four people; `hardened` with exact distances, `shares` with a sketch."""
        learn = replace(LEARN, rounds=4, people=4)
        return run(replace(FIG_4, quick=PaidSettings(learn, PAID, keys=Keys(**KEY))), out)

    def test_rounds_two_and_four_are_shown(self, rows):
        """Everyone in both, with every profile."""
        assert [r["round"] for r in rows] == (["2"] * 4 + ["4"] * 4) * 2
        assert [r["profile"] for r in rows[::8]] == ["hardened", "shares"]

    def test_opened_values_agree_with_the_clear(self, rows):
        """Distances and weights, opened by playing both servers, and the rewards that participants opened. `shares` always
        sketches: its distances scatter."""
        for row in rows:
            off = 0.25 if row["profile"] == "shares" else 1e-3
            for name in ("distance", "weight", "reward"):
                assert float(row[name]) == pytest.approx(float(row[f"{name} in the clear"]), rel=off)

    def test_a_round_pays_its_budget_and_not_more(self, rows):
        """Up to the millionths that divisions drop."""
        for profile in ("hardened", "shares"):
            for number in ("2", "4"):
                paid = sum(float(r["reward"]) for r in rows if (r["profile"], r["round"]) == (profile, number))
                assert 36 - 1e-4 < paid <= 36

    def test_rewards_follow_weights_and_weights_distances(self, rows, out):
        """Everyone has as many samples here, so that the order is the distances'."""
        for profile in ("hardened", "shares"):
            mine = [r for r in rows if (r["profile"], r["round"]) == (profile, "4")]
            for name in ("weight", "reward"):
                values = [float(r[name]) for r in sorted(mine, key=lambda r: float(r["distance"]))]
                assert values == sorted(values, reverse=True)
        assert "Paper: The reward mu_i grows with w_i." in text_of(out)

    def test_paper_opens_the_same(self):
        """One round of three people: it takes a division for each parameter and person."""
        world = PaidRounds(
            replace(LEARN, hidden=1, rounds=1, people=3), Keys(lanes=1, profile="paper", **KEY), "36", bench()
        )
        list(federated(world.crowd, world, Attendance(world.crowd.names)))
        for row in world.rows:
            for name in ("distance", "weight", "reward"):
                assert row[name] == pytest.approx(row[f"{name} in the clear"], rel=1e-3)


def test_watching_adds_nothing_to_any_message():
    """Request by request, the watched rewards send CSP what SP's own send: as many messages, of the same kinds and sizes."""
    learn = replace(LEARN, hidden=2, rounds=1, people=3)
    world = PaidRounds(learn, Keys(lanes=1024, **KEY), "36", bench())
    parties = world.parties
    answer, heard = parties.csp.answer, []

    def hearing(request):
        heard.append((Message.kind_of(request), len(request)))
        return answer(request)

    parties.csp.answer = hearing
    list(federated(world.crowd, world, Attendance(world.crowd.names)))
    watched = [each for each in heard if each[0] != OpenRequest.kind]
    heard.clear()
    parties.sp.party.view = View(keep=False)
    parties.csp.remember(InProcessMemory())  # or it would refuse another try
    parties.current().reward(36_000_000)
    assert len(watched) == len(heard) > 4
    for (kind, size), (own_kind, own_size) in zip(watched, heard, strict=True):
        assert kind == own_kind
        assert abs(size - own_size) <= 8  # masks differ, and with them the length of a number or two


def test_eq_10_in_the_clear_is_the_oracles():
    """The plain column is the learning layer's, which its own tests check by hand."""
    assert rewards([[0.0], [1.0]], [1, 3], 36.0).sum() == pytest.approx(36)


class TestData:
    """Where the windows come from."""

    def test_without_data_nothing_is_trained(self):
        """And the option is named."""
        with pytest.raises(DataMissing, match="--data"):
            load_crowd(LearnSettings(), replace(bench(), data=None))

    def test_too_many_people_are_refused(self):
        """The made-up set has five."""
        with pytest.raises(SettingsError, match="has 5"):
            load_crowd(LearnSettings(people=6), bench())

    def test_the_papers_data_and_network(self):
        """36 people with 49 windows each, table 2's class totals, 277,006 parameters; dealt anew, the totals stay."""
        data = WindowFile(shared_file("wisdm_v1.1_crowdfl_2520x90x3.npz"))
        for split in ("user", "random"):
            crowd = load_crowd(LearnSettings(split=split), bench(data))
            assert [len(each.train) for each in crowd.splits] == [49] * 36
            assert sorted(np.bincount(crowd.everyone()[1])) == [85, 92, 176, 200, 518, 693]
        assert crowd.learner().shape.parameters == 277_006

    def test_real_windows_are_learnt(self):
        """One round of six real people with a small network beats guessing the commonest activity."""
        data = WindowFile(shared_file("wisdm_v1.1_crowdfl_2520x90x3.npz"))
        crowd = load_crowd(LearnSettings(hidden=20, people=6, rounds=1), bench(data))
        (found,) = federated(crowd, Clear(), Attendance(crowd.names))
        labels = np.concatenate([split.held_out.labels for split in crowd.splits])
        assert found.accuracy > np.bincount(labels).max() / len(labels)

    def test_inputs_are_scaled_by_each_ones_own_training_windows(self):
        """Every training input has mean 0 and deviation 1; what is held out has not."""
        crowd = load_crowd(replace(LEARN, scale_inputs=True), bench())
        for one in crowd.fed:
            assert one.inputs.mean(axis=0) == pytest.approx(np.zeros(one.inputs.shape[1]), abs=1e-5)
            assert one.inputs.std(axis=0) == pytest.approx(np.ones(one.inputs.shape[1]), abs=1e-3)
            assert np.abs(one.held_inputs.mean(axis=0)).max() > 1e-3


def test_all_of_section_8_is_in_the_catalog():
    """Every table and figure of the paper's section 8 but table 2, which describes the data."""
    assert list(CATALOG) == ["table3", "table4", "table5", "table6", "fig3", "fig4", "fig5", "fig6", "fig7"]


def test_no_machine_path_is_in_the_reports(out, table3):
    """Reports are committed and passed on."""
    assert str(Path.cwd()) not in (out / "report.html").read_text()
