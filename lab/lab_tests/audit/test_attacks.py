"""Each attack of section 7 succeeds against the paper and fails against `hardened`, by the same code."""

from dataclasses import replace

import numpy as np
import pytest

from crowdfl_lab.audit.command import attack_scene
from crowdfl_lab.audit.finding import HARDENED, PAPER, Verdict
from crowdfl_lab.audit.keys import (
    attack_overheard_reward,
    attack_overheard_upload,
    attack_small_key,
    attack_upload,
)
from crowdfl_lab.audit.masks import attack_printed_masks, attack_repeated_operand, attack_scene_masks, demonstrate
from crowdfl_lab.audit.readings import (
    attack_average,
    attack_hidden_total,
    attack_late_samples,
    attack_pair,
    attack_reused_seed,
    attack_rewards,
    attack_scene_pair,
    attack_total,
    recover,
    refusals,
)
from crowdfl_lab.audit.recorded_round import SAMPLES, Scene, play

ATTACKS = [
    attack_average,
    attack_late_samples,
    attack_overheard_reward,
    attack_overheard_upload,
    attack_rewards,
    attack_total,
    attack_upload,
]


def findings(attack, scene: Scene) -> list:
    """One or several, as a list."""
    found = attack(scene)
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_the_paper_falls(attack, paper):
    """The attacker's error is a small part of the guess's."""
    for finding in findings(attack, paper):
        assert finding.verdict is Verdict.BROKEN
        assert finding.error < 1e-3 * finding.blind
        assert not finding.surprising


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_hardened_stands(attack, hardened):
    """The same code on the attacker's whole view does no better than a guess."""
    for finding in findings(attack, hardened):
        assert finding.verdict is Verdict.GUESS
        assert not finding.surprising


def test_the_paper_shows_csp_every_weight_and_sample_count(paper):
    """They come with the distances; and every weight to six decimals."""
    assert attack_average(paper).recovered.startswith("30 of 30")
    found = recover(paper)
    assert found is not None
    assert found[0] == [SAMPLES[who] for who in sorted(SAMPLES)]


def test_hardened_refuses_a_second_opening(hardened):
    """With the name of what would happen, before CSP sees anything."""
    assert "another set of uploads" in hardened.refusal


def test_a_late_upload_is_averaged_like_any_other(hardened):
    """The scene that is attacked is an honest one: its average is right."""
    truth = sum(n * hardened.weights[who] for who, n in SAMPLES.items()) / hardened.total
    assert np.allclose(hardened.average, truth, atol=1.1e-6)


def test_the_attacks_do_not_fail_for_want_of_trying(hardened):
    """Given both servers' shares, which is the one coalition that may, the same code reads the upload of `hardened`."""
    together = replace(hardened, sp_shares=(*hardened.sp_shares, hardened.csp_share))
    finding = attack_upload(together)
    assert finding.verdict is Verdict.BROKEN
    assert finding.recovered.startswith("30 of 30")


@pytest.mark.parametrize("finding", attack_small_key(128), ids=lambda f: f.subject)
def test_a_small_share_gives_the_key_away(finding):
    """Small ones do, ours do not."""
    assert not finding.surprising


def test_a_reused_seed_would_give_a_late_update_away():
    """And is refused as built."""
    finding = attack_reused_seed(512, parameters=5)
    assert finding.verdict is Verdict.BROKEN
    assert finding.error < 1e-6
    assert "SeedReused" in finding.note
    assert "OutOfTurn" in finding.note


def test_repro_csp_and_a_reader_do_not_find_the_hidden_total():
    """Readers are given a seed; it must not undo what hides SP's ciphertexts from CSP."""
    assert attack_hidden_total(1024).verdict is Verdict.GUESS


def test_printed_masks_leave_omega_bare():
    """0.2% off on average: what 1,800 intervals leave is exponential, and reaches 5% in one run of 10^13."""
    finding = attack_printed_masks()
    assert finding.verdict is Verdict.BROKEN
    assert finding.error < 0.05


def test_the_masks_of_hardened_leave_nothing_bare(hardened):
    """One interval, far wider than the operand."""
    assert not attack_scene_masks(hardened).surprising


def test_an_operand_masked_often_falls_to_short_masks_alone():
    """Uniform ones confine nothing, however many there are."""
    short, built = attack_repeated_operand()
    assert short.verdict is Verdict.BROKEN
    assert short.error < 0.05
    assert built.verdict is Verdict.GUESS
    assert not built.surprising


def test_two_participants_give_each_other_away():
    """In plaintext, by Eq. 10."""
    finding = attack_pair()
    assert finding.verdict is Verdict.BROKEN
    assert finding.recovered.startswith("delta = 73")


def test_four_participants_do_not(hardened):
    """The same code has one equation for many unknowns."""
    assert not attack_scene_pair(hardened).surprising


def test_a_task_of_two_is_refused_twice():
    """At its settings and at publication."""
    assert len(refusals()) == 2


@pytest.mark.parametrize("finding", demonstrate(), ids=lambda f: f.attack)
def test_the_misprints_are_wrong_and_their_corrections_right(finding):
    """Each runs, and is off by far more as printed."""
    assert finding.verdict is Verdict.BROKEN


@pytest.mark.slow
@pytest.mark.realkey
@pytest.mark.parametrize("profile", [PAPER, HARDENED])
def test_real_keys_make_no_difference(profile):
    """The whole scene at |N| = 2048."""
    scene = play(profile, key_bits=2048, parameters=30)
    assert [f.attack for f in attack_scene(scene) if f.surprising] == []
