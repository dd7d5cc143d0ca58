"""What poison does, on a few made-up people; real rounds come to the same verdicts as the rule in the clear."""

from dataclasses import replace

import pytest

from crowdfl_lab.audit import poisoning
from crowdfl_lab.audit.finding import SHARES, Verdict
from crowdfl_lab.audit.shares import references


@pytest.fixture(scope="module")
def campaign():
    settings = poisoning.PoisonSettings.quick()
    ((name, source),) = poisoning.sources(settings, None).items()
    return poisoning.PoisonCampaign(name, source, settings, 0)


def test_a_reference_keeps_what_reversed_updates_take(campaign):
    attack = "sign flip at the bound"
    alone, kept = (campaign.play(attack, 2, rule) for rule in ("bound alone", poisoning.REFERENCE))
    nobody = campaign.play(poisoning.NOBODY, 0, poisoning.REFERENCE)
    assert kept.void == nobody.void == 0
    assert kept.late == pytest.approx(nobody.late, abs=0.05)
    assert alone.late <= kept.late


@pytest.mark.second
def test_real_rounds_and_the_rule_in_the_clear_judge_alike(campaign):
    real = poisoning.PoisonCampaign(campaign.name, campaign_source(campaign), replace(campaign.settings, real=True), 0)
    served, clear = (one.play("sign flip at the bound", 2, poisoning.REFERENCE) for one in (real, campaign))
    assert served.real
    assert (served.left_out, served.void) == (clear.left_out, clear.void)
    assert served.late == pytest.approx(clear.late, abs=0.01)


def campaign_source(campaign):
    ((_, source),) = poisoning.sources(campaign.settings, None).items()
    return source


@pytest.mark.second
def test_a_reference_shows_one_bit_and_not_which_condition_it_was():
    found = [*references.attack_direction(), *references.attack_condition()]
    assert not [one for one in found if one.surprising]
    assert [one.verdict for one in found if one.subject == SHARES] == [Verdict.CONCEDED, Verdict.GUESS]
