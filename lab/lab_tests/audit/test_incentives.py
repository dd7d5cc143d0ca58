"""`crowdfl audit incentives`: the cheats do what they say, and the figures are those of the rules."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from crowdfl.cli.main import app
from crowdfl.errors import DataMissing
from crowdfl_lab.audit.campaign import FILES, MADE_UP
from crowdfl_lab.audit.incentives import (
    CHEATS,
    NOBODY,
    RULES,
    CheatedCampaign,
    CheaterView,
    IncentiveSettings,
    load_crowds,
    outcomes,
    percent,
)

QUICK = IncentiveSettings.quick()
BY_NAME = {cheat.name: cheat for cheat in CHEATS}
BOUND = 5.0
TRAINED = {
    "own data": [2.0, 0.0],
    "flipped labels": [-1.0, 0.0],
    "one of each class": [4.0, 0.0],
    "random inputs": [0.0, 3.0],
}


@pytest.fixture(scope="module")
def crowd():
    """Made-up people, spectral features."""
    return next(iter(load_crowds(QUICK, None)))


@pytest.fixture(scope="module")
def campaign(crowd):
    """The first draw of them."""
    return CheatedCampaign(crowd, QUICK, 0)


@pytest.fixture(scope="module")
def found(crowd):
    """All outcomes of made-up people."""
    return list(outcomes(crowd, QUICK, lambda _: None))


def view(place: int = 1, rounds: int = 3) -> CheaterView:
    """A cheater after some rounds: averages (0, 0), (1, 0), (1, 2), ..."""
    averages = [np.array(average) for average in ([0.0, 0.0], [1.0, 0.0], [1.0, 2.0])][:rounds]
    own, common = np.random.default_rng([7, place]), np.random.default_rng([7, 0])
    return CheaterView(averages, BOUND, own, common, lambda on: np.array(TRAINED[on]))


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
        ("most samples", [2.0, 0.0]),
        ("one of each", [4.0, 0.0]),
        ("self-distillation", [0.0, 3.0]),
        ("sleeper", [0.0, 2.0]),
    ],
)
def test_a_cheat_uploads_what_it_says(name, change):
    """From averages whose steps were (1, 0) and then (0, 2); in the first round there is nothing to repeat."""
    assert BY_NAME[name].change(view()).tolist() == change
    if "replay" in name or "echo" in name:
        assert BY_NAME[name].change(view(rounds=1)).tolist() == [0.0, 0.0]


def test_noise_has_the_norm_that_it_says():
    """As an honest update; as the replay that it is added to; a group's, as long as allowed; the first step, faded."""
    noise, common = ([BY_NAME[name].change(view(place)) for place in (1, 2)] for name in ("noise", "collusion"))
    replay = BY_NAME["noisy replay"].change(view()) - np.array([0.0, 2.0])
    disguised = BY_NAME["disguised free rider"].change(view())
    norms = [float(np.linalg.norm(each)) for each in (noise[0], replay, common[0], disguised)]
    assert norms == pytest.approx([BOUND / 2, 2.0, BOUND, 1 / 3])
    assert common[0].tolist() == common[1].tolist()
    assert noise[0].tolist() != noise[1].tolist()


def test_no_upload_is_above_the_bound(campaign):
    """Uploads over it would be left out; some are at it. Cheaters declare as much as anyone has, or may."""
    for cheat in CHEATS:
        for uploads in campaign.play(cheat, 2):
            norms = np.linalg.norm(uploads.updates, axis=1) / uploads.samples
            assert norms.max() <= campaign.bound * (1 + 1e-9)
            declared = QUICK.max_samples if cheat.declares_most else max(uploads.samples[:-2])
            assert uploads.samples[-2:] == (declared,) * 2
    (last,) = campaign.play(BY_NAME["boosting"], 1)[-1:]
    assert np.linalg.norm(last.updates[-1]) / last.samples[-1] == pytest.approx(campaign.bound)


def test_a_campaign_without_cheaters_is_plain_averaging(crowd, campaign):
    """Same people, same numbers; another draw has others. Too few people are named."""
    first, again = campaign.play(None), campaign.play(None)
    assert [len(uploads.samples) for uploads in first] == [QUICK.honest] * QUICK.rounds
    assert [one.updates.tobytes() for one in first] == [one.updates.tobytes() for one in again]
    assert CheatedCampaign(crowd, QUICK, 1).play(None)[0].updates.tobytes() != first[0].updates.tobytes()
    with pytest.raises(DataMissing, match="10 people; 11 are needed"):
        CheatedCampaign(crowd, replace(QUICK, honest=7), 0)


def test_every_cheat_meets_every_rule(found):
    """With each size of group that it makes sense for: nobody colludes alone. Cheaters' part is a part."""
    lines = {(one.cheat, one.group) for one in found}
    wanted = {(cheat.name, size) for cheat in CHEATS for size in QUICK.groups if size >= cheat.least}
    assert lines == wanted | {(NOBODY, 0)}
    assert len(found) == len(lines) * len(RULES)
    assert all(0 <= one.share <= 1 + 1e-9 for one in found)


def test_equal_pay_pays_a_cheater_like_anyone_and_samples_pay_what_is_declared(found):
    """Made-up people have equal counts: one of seven, two of eight."""
    equal = {(one.cheat, one.group): one.share for one in found if one.rule == "equal"}
    assert equal == pytest.approx({(cheat, group): {0: 0, 1: 1 / 7, 2: 1 / 4}[group] for cheat, group in equal})
    counted = {(one.cheat, one.group): one.share for one in found if one.rule == "samples"}
    assert counted["echo", 1] == pytest.approx(1 / 7)
    assert counted["most samples", 1] > 0.5


@pytest.mark.parametrize(("part", "text"), [(0.0, "0"), (0.0004, "0.0"), (0.059, "5.9"), (0.0996, "10"), (1.0, "100")])
def test_percent_has_two_digits(part, text):
    """A little is told from nothing."""
    assert percent(part) == text


def test_the_command_tells_the_same_as_the_outcomes(found, crowd, tmp_path):
    """Without the data sets: made-up people, which the names of the files that are missing explain. Files are written."""
    words = ["audit", "incentives", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert [one["share"] for one in result["outcomes"]][: len(found)] == [one.share for one in found]
    assert {one["source"] for one in result["outcomes"]} == {MADE_UP}
    assert result["tables"][1]["title"].startswith(crowd.name)
    assert result["notes"][0].startswith(f"MADE-UP PEOPLE: {FILES['WISDM']}")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"incentives.json", "incentives.md", "incentives-1.csv"} <= written
    with pytest.raises(DataMissing, match=FILES["WISDM"]):
        list(load_crowds(QUICK, tmp_path))


def test_options_before_the_subcommand_are_refused():
    """They would be those of the other audit."""
    assert CliRunner().invoke(app, ["audit", "--quick", "incentives"]).exit_code == 2
