"""Parties that deviate: each attack fails against `hardened`, and succeeds where its mechanism is switched off on purpose."""

import pytest

from crowdfl_lab.audit.deviating_csp import attack_altered_lane, attack_false_scaling, attack_inflated
from crowdfl_lab.audit.deviating_sp import (
    attack_chosen_reward,
    attack_claims,
    attack_phone,
    attack_power_lengths,
    attack_signs,
)
from crowdfl_lab.audit.finding import HARDENED, Attack, Verdict, relative
from crowdfl_lab.audit.isolation import attack_isolation

pytestmark = pytest.mark.second  # tests/attacks tries the same on the roles in the first tier

ATTACKS = {
    "signs": attack_signs,
    "power lengths": attack_power_lengths,
    "claims": attack_claims,
    "forged reward": attack_phone,
    "altered lane": attack_altered_lane,
    "inflated divisor": lambda: attack_inflated("divisor"),
    "inflated dividend": lambda: attack_inflated("dividend"),
    "isolation": attack_isolation,
}


@pytest.fixture(scope="module", params=ATTACKS)
def rows(request):
    """Weakened on purpose, and as built."""
    return ATTACKS[request.param]()


def test_the_mechanism_is_what_holds(rows):
    """Without it the attacker reads the truth; with it, it does no better than a guess."""
    weakened, built = rows
    assert weakened.subject != HARDENED == built.subject
    assert (weakened.verdict, built.verdict) == (Verdict.BROKEN, Verdict.GUESS)
    assert weakened.error < 1e-9
    assert not weakened.surprising
    assert not built.surprising


def test_signs_cost_a_round_each_and_read_an_entry_at_most():
    """Without its memory CSP gives the whole upload away."""
    forgetful, built = attack_signs()
    assert forgetful.recovered.startswith("7 of 7 entries")
    entries, signs = (int(part.split()[0]) for part in built.recovered.replace(" of 7 entries by", ",").split(","))
    assert entries <= 1
    assert signs <= 6  # three a round, of two rounds


def test_a_forged_claim_is_refused_by_its_signature_and_a_second_reward_by_its_turn():
    """The errors say which check it was, and nothing about what CSP keeps."""
    _, built = attack_claims()
    assert built.note.endswith("BadSignature, OutOfTurn")


@pytest.mark.parametrize("attack", [attack_chosen_reward, attack_false_scaling])
def test_what_is_conceded_succeeds_and_is_shown_as_such(attack):
    """If it ever fails, docs/security.md concedes too much."""
    finding = attack()
    assert finding.subject == HARDENED
    assert finding.verdict is Verdict.CONCEDED
    assert finding.error == 0
    assert not finding.surprising


def test_a_conceded_attack_that_fails_is_a_surprise():
    attack = Attack("a", "new", "a", ("SP",), relative, "", conceded=True)
    assert attack.score(HARDENED, None, 5, 10, "", "").surprising
    assert not attack.score(HARDENED, 10, 5, 10, "", "").surprising
    assert attack.score("weakened", 10, 5, 10, "", "").verdict is Verdict.BROKEN
