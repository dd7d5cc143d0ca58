"""`crowdfl audit incentives`: the cheats do what they say, and the figures are those of the rules."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.learning.shared import shared_file
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.errors import DataMissing
from crowdfl_lab.audit.incentives.campaign import (
    CHEATS,
    FILES,
    MADE_UP,
    RAW,
    SPECTRAL,
    CheatedCampaign,
    CheaterView,
    IncentiveSettings,
    load_crowds,
)
from crowdfl_lab.audit.incentives.report import NOBODY, REFERENCE, RULES, Outcome, conclusions, outcomes, percent

QUICK = IncentiveSettings.quick()
BY_NAME = {cheat.name: cheat for cheat in CHEATS}
BOUND = 5.0


@pytest.fixture(scope="module")
def crowd():
    """Made-up people, spectral features."""
    return next(iter(load_crowds(QUICK, None)))


@pytest.fixture(scope="module")
def campaign(crowd):
    """The first draw of them."""
    return CheatedCampaign(crowd, QUICK, 0)


def view(place: int = 1, rounds: int = 3) -> CheaterView:
    """A cheater after some rounds: averages (0, 0), (1, 0), (1, 2), ..."""
    averages = [np.array(average) for average in ([0.0, 0.0], [1.0, 0.0], [1.0, 2.0])][:rounds]
    own, common = np.random.default_rng([7, place]), np.random.default_rng([7, 0])
    return CheaterView(
        averages, BOUND, own, common, lambda flip: np.array([-1.0, 0.0]) if flip else np.array([2.0, 0.0])
    )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("echo", [0.0, 0.0]),
        ("faint echo", [0.0, 0.02]),
        ("replay", [0.0, 2.0]),
        ("older replay", [1.0, 0.0]),
        ("replay at the bound", [0.0, 5.0]),
        ("flipped labels", [-1.0, 0.0]),
        ("boosting", [5.0, 0.0]),
    ],
)
def test_a_cheat_uploads_what_it_says(name, change):
    """From averages whose steps were (1, 0) and then (0, 2)."""
    assert BY_NAME[name].change(view()).tolist() == change


@pytest.mark.parametrize("name", ["replay", "older replay", "noisy replay", "replay at the bound", "faint echo"])
def test_there_is_nothing_to_repeat_in_the_first_round(name):
    """An echo is what is left."""
    assert BY_NAME[name].change(view(rounds=1)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("name", "norm"), [("noise", BOUND / 2), ("collusion", BOUND)])
def test_noise_has_the_norm_that_it_says(name, norm):
    """Noise as an honest update; a group as long as allowed."""
    assert np.linalg.norm(BY_NAME[name].change(view())) == pytest.approx(norm)


def test_those_who_collude_agree_and_others_do_not():
    """On one upload; noise makers have random numbers of their own."""
    agreed, alone = (
        [BY_NAME[name].change(view(place)).tolist() for place in (1, 2)] for name in ("collusion", "noise")
    )
    assert agreed[0] == agreed[1]
    assert alone[0] != alone[1]


def test_noise_of_a_replay_is_as_long_as_the_replay():
    """So that the gate cannot tell it by its direction: about half of it is new."""
    noise = BY_NAME["noisy replay"].change(view()) - np.array([0.0, 2.0])
    assert np.linalg.norm(noise) == pytest.approx(2.0)


def test_no_upload_is_above_the_bound(campaign):
    """Whatever a cheat does: uploads over it would be left out. Some are at it."""
    for cheat in CHEATS:
        for uploads in campaign.play(cheat, 2):
            norms = np.linalg.norm(uploads.updates, axis=1) / uploads.samples
            assert norms.max() <= campaign.bound * (1 + 1e-9)
    (last,) = campaign.play(BY_NAME["boosting"], 1)[-1:]
    assert np.linalg.norm(last.updates[-1]) / last.samples[-1] == pytest.approx(campaign.bound)


def test_cheaters_declare_as_many_samples_as_anyone_has(campaign):
    """And honest people what they have."""
    samples = campaign.play(BY_NAME["echo"], 2)[0].samples
    assert samples[-2:] == (max(samples[:-2]),) * 2


def test_the_sum_before_is_that_of_the_round_before(campaign):
    """Cheaters' uploads included; none in the first round. A replay repeats its direction."""
    rounds = campaign.play(BY_NAME["replay"], 1)
    assert rounds[0].previous_sum is None
    for before, now in pairwise(rounds):
        assert now.previous_sum.tolist() == before.updates.sum(axis=0).tolist()
        mine = now.updates[-1]
        cosine = mine @ now.previous_sum / np.linalg.norm(mine) / np.linalg.norm(now.previous_sum)
        assert cosine == pytest.approx(1.0)


def test_a_campaign_without_cheaters_is_plain_averaging(campaign):
    """Same people, same numbers, whatever a group of cheaters would have done."""
    first, again = campaign.play(None), campaign.play(None)
    assert len(first) == QUICK.rounds
    assert all(len(uploads.samples) == QUICK.honest for uploads in first)
    assert [one.updates.tobytes() for one in first] == [one.updates.tobytes() for one in again]


def test_another_draw_has_other_people(crowd, campaign):
    """Their updates differ."""
    other = CheatedCampaign(crowd, QUICK, 1).play(None)
    assert other[0].updates.tobytes() != campaign.play(None)[0].updates.tobytes()


@pytest.fixture(scope="module")
def found(crowd):
    """All outcomes of made-up people."""
    return list(outcomes(crowd, QUICK, lambda _: None))


def test_every_cheat_meets_every_rule(found):
    """With each size of group that it makes sense for; nobody colludes alone."""
    lines = {(one.cheat, one.group) for one in found}
    wanted = {(cheat.name, size) for cheat in CHEATS for size in QUICK.groups if size >= cheat.least}
    assert lines == wanted | {(NOBODY, 0)}
    assert len(found) == len(lines) * len(RULES)
    assert ("collusion", 1) not in lines


def test_pay_by_count_pays_a_cheater_like_anyone(found):
    """Made-up people have equal counts: one of seven, two of eight; nobody goes unpaid."""
    paid = {one.group: one for one in found if one.rule == REFERENCE}
    assert [paid[size].share for size in (0, 1, 2)] == pytest.approx([0, 1 / 7, 1 / 4])
    assert {one.unpaid for one in found if one.rule == REFERENCE} == {0.0}


@pytest.mark.parametrize("rule", ["agreement", "gate"])
def test_an_echo_earns_nothing_by_direction(found, rule):
    """It has none."""
    assert [one.share for one in found if (one.cheat, one.rule) == ("echo", rule)] == [0.0, 0.0]


@pytest.mark.parametrize("cheat", ["replay", "replay at the bound", "faint echo"])
def test_the_gate_pays_no_replay(found, cheat):
    """However long or short it is."""
    assert [one.share for one in found if (one.cheat, one.rule) == (cheat, "gate")] == [0.0, 0.0]


def test_no_more_than_the_budget_is_paid(found):
    """And cheaters' part is a part of it; the mean of draws lies between the least and the most."""
    for one in found:
        assert 0 <= one.share <= one.paid <= 1 + 1e-9
        assert one.least <= one.share <= one.most


def outcome(inputs: str, rule: str, share: float, cheat: str = "echo", unpaid: float = 0.0) -> Outcome:
    """One line of WISDM."""
    return Outcome("WISDM", inputs, cheat, 1 if share else 0, rule, share, share, share, unpaid, 1.0)


def test_the_conclusion_follows_from_the_worst_cases():
    """The least of the rules that look at uploads; a warning where pay by count is better than all of them."""
    spectral = {"count": 0.2, "distance": 0.6, "agreement": 0.7, "gate": 0.21}
    raw = {"count": 0.2, "distance": 0.9, "agreement": 0.4, "gate": 0.5}
    worst = [
        outcome(kind, rule, share) for kind, of in ((SPECTRAL, spectral), (RAW, raw)) for rule, share in of.items()
    ]
    calm = [outcome(kind, rule, 0.0, NOBODY, 0.034) for kind in (SPECTRAL, RAW) for rule in RULES]
    said = list(conclusions([*worst, *calm]))
    assert said[0] == f"{SPECTRAL}: the most that cheaters take is count 20%, distance 60%, agreement 70%, gate 21%"
    assert said[1].startswith(f"{SPECTRAL}: gate has the least worst case")
    assert "3.4 to 3.4% of honest people go unpaid" in said[1]
    assert said[3].startswith(f"{RAW}: agreement has the least worst case")
    assert said[4].startswith(f"{RAW}: pay by declared count has a better worst case")
    assert len(said) == 5


def test_nothing_follows_from_made_up_people(found):
    """Said in so many words."""
    assert list(conclusions(found)) == ["made-up people show that the audit runs; no rule follows from them"]


@pytest.mark.parametrize(("part", "text"), [(0.0, "0"), (0.0004, "0.0"), (0.059, "5.9"), (0.0996, "10"), (1.0, "100")])
def test_percent_has_two_digits(part, text):
    """A little is told from nothing."""
    assert percent(part) == text


def test_the_command_tells_the_same_as_the_outcomes(found):
    """Quick: made-up people, a table for each kind of inputs between the summary and the one about training."""
    done = CliRunner().invoke(app, ["audit", "incentives", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["outcomes"][: len(found)] == [one.to_dict() for one in found]
    assert {one["source"] for one in result["outcomes"]} == {MADE_UP}
    assert [table["title"].partition(":")[0] for table in result["tables"][1:3]] == [
        f"{MADE_UP}, {kind}" for kind in (SPECTRAL, RAW)
    ]
    assert {one["pace"] for one in result["paces"]} == {"little", "as elsewhere", "much"}


@pytest.mark.second
def test_files_and_pictures_are_written_and_missing_data_is_told(tmp_path):
    """Without the data sets, a few made-up people show that it runs, and the names of the files are told."""
    words = ["audit", "incentives", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert f"MADE-UP PEOPLE: {FILES['WISDM']}" in done.stdout
    wanted = {"incentives.json", "incentives.md", "incentives-1.csv"}
    assert wanted <= {path.name for path in (tmp_path / "out").iterdir()}


def test_options_before_the_subcommand_are_refused():
    """They would be those of the other audit."""
    done = CliRunner().invoke(app, ["audit", "--quick", "incentives"])
    assert done.exit_code == 2


def test_real_data_that_is_not_there_is_an_error_of_the_loader(tmp_path):
    """The command falls back to made-up people and says so; whoever asks for files gets the name."""
    with pytest.raises(DataMissing, match=FILES["WISDM"]):
        list(load_crowds(QUICK, tmp_path))


def test_too_few_people_are_named(crowd):
    """The data set has so many."""
    with pytest.raises(DataMissing, match="8 people; 9 are needed"):
        CheatedCampaign(crowd, replace(QUICK, honest=7), 0)


@pytest.mark.second
def test_the_default_rule_follows_from_real_data():
    """One draw and one cheater alone or four of WISDM: the gate's worst case is that of pay by count, Eq. 10's is far above."""
    folder = shared_file(FILES["WISDM"]).parent
    shared_file(FILES["MotionSense"])
    settings = replace(IncentiveSettings(), draws=1, groups=(1, 4))
    spectral = next(iter(load_crowds(settings, folder)))
    found = list(outcomes(spectral, settings, lambda _: None))
    worst = {rule: max(one.share for one in found if one.rule == rule) for rule in RULES}
    assert worst["gate"] < 1.2 * worst[REFERENCE]
    assert min(worst["distance"], worst["agreement"]) > 2.5 * worst[REFERENCE]


@pytest.mark.parametrize(("step", "rate"), [("fedavgm", 0.5), ("fedadam", 0.05)])
def test_with_a_server_step_everyone_goes_on_from_the_stepped_model(crowd, step, rate):
    """An echo of the model is no update; the last average, sent again, is one, by which the step led on from it."""
    stepped = replace(QUICK, server_step=step, server_rate=rate)
    played, plain = CheatedCampaign(crowd, stepped, 0), CheatedCampaign(crowd, QUICK, 0)
    assert [cheat.name for cheat in stepped.cheats] == [*BY_NAME, "average again"]
    again = stepped.cheats[-1]
    echoes, averages = ([one.updates[-1] for one in played.play(cheat, 1)] for cheat in (BY_NAME["echo"], again))
    assert not np.any(echoes)
    assert np.any(averages[1])
    assert not np.any([one.updates[-1] for one in plain.play(again, 1)])


@pytest.mark.second
def test_the_command_takes_a_server_step_and_refuses_another():
    shown = CliRunner().invoke(app, ["audit", "incentives", "--quick", "--json", "--server-step", "fedavgm"])
    found = json.loads(shown.stdout)
    assert "average again" in {one["cheat"] for one in found["outcomes"]}
    wrong = CliRunner().invoke(app, ["audit", "incentives", "--quick", "--server-step", "fedyogi"])
    assert "server_step" in str(wrong.exception)
