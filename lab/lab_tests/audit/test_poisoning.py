"""What poison does, on a few made-up people; real rounds come to the same verdicts as the rule in the clear."""

from dataclasses import replace
from itertools import islice

import pytest

from crowdfl_lab.audit import poisoning
from crowdfl_lab.audit.campaign import CrowdData, load_sources
from crowdfl_lab.audit.finding import SHARES, Verdict
from crowdfl_lab.audit.shares import references

SETTINGS = poisoning.PoisonSettings.quick()


@pytest.fixture(scope="module")
def crowd():
    ((name, source),) = load_sources(None, 10, 0).items()
    return CrowdData.of(name, source, SETTINGS.inputs)


@pytest.fixture(scope="module")
def campaign(crowd):
    return poisoning.PoisonCampaign(crowd.source, crowd, SETTINGS, 0)


@pytest.mark.parametrize("hidden", [0, 7])
def test_people_who_train_at_once_learn_what_each_would_alone(crowd, hidden):
    """With unequal counts: who has less stops earlier, and the last batch of an epoch is shorter."""
    together = poisoning.PoisonCampaign("", crowd, replace(SETTINGS, hidden=hidden), 0)
    pupils = [
        replace(one, inputs=one.inputs[:count], labels=one.labels[:count])
        for one, count in zip(together.drawn, (40, 7, 33), strict=False)
    ]
    found = together.trained(together.start, 2, pupils)
    for own, change in zip(pupils, found, strict=True):
        together.learner.load(together.learner.shape.arrays(together.start))
        together.learner.train(own.inputs, own.labels, together.training.at(2, own.name))
        alone = together.learner.shape.flat(together.learner.weights()) - together.start
        assert change == pytest.approx(alone, abs=1e-5 if hidden else 1e-12)


def test_a_reference_keeps_what_reversed_updates_take(campaign):
    attack = "sign flip at the bound"
    cells = [(attack, 2, "bound alone"), (attack, 2, poisoning.REFERENCE), (poisoning.NOBODY, 0, poisoning.REFERENCE)]
    alone, kept, nobody = campaign.play_all(cells)
    assert kept.void == nobody.void == 0
    assert kept.late == pytest.approx(nobody.late, abs=0.05)
    assert alone.late <= kept.late


@pytest.mark.second
def test_real_rounds_and_the_rule_in_the_clear_judge_alike(crowd, campaign):
    real = poisoning.PoisonCampaign(crowd.source, crowd, replace(SETTINGS, real=True), 0)
    served, clear = (one.play_all([("sign flip at the bound", 2, poisoning.REFERENCE)])[0] for one in (real, campaign))
    assert served.differs == 0
    assert (served.left_out, served.void) == (clear.left_out, clear.void)
    assert [served.early, served.late] == pytest.approx([clear.early, clear.late], abs=0.01)


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """Campaigns that are in the file are not played again."""
    kept, said = tmp_path / "campaigns.jsonl", [].append
    monkeypatch.setattr(poisoning, "VARIANTS", {"": ({}, ("nobody", "sign flip"))})
    first = list(islice(poisoning.outcomes(SETTINGS, None, said, kept), 3))
    monkeypatch.setattr(poisoning.PoisonCampaign, "play_all", lambda *_: pytest.fail("played again"))
    assert list(islice(poisoning.outcomes(SETTINGS, None, said, kept), 3)) == first


@pytest.mark.second
def test_a_reference_shows_one_bit_and_not_which_condition_it_was():
    found = [*references.attack_direction(), *references.attack_condition()]
    assert not [one for one in found if one.surprising]
    assert [one.verdict for one in found if one.subject == SHARES] == [Verdict.CONCEDED, *[Verdict.GUESS] * 2]
