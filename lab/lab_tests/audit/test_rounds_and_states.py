"""Rounds that nobody has signed for, servers that were set back, references and claims: each row is what is stated."""

import pytest

from crowdfl_lab.audit.finding import HARDENED, SHARES, Verdict
from crowdfl_lab.audit.set_back import attack_set_back
from crowdfl_lab.audit.shares.counts import _claims
from crowdfl_lab.audit.shares.references import attack_cohorts
from crowdfl_lab.audit.unsigned_rounds import attack_unsigned_rounds


@pytest.mark.parametrize("attack", [attack_unsigned_rounds, attack_set_back, attack_cohorts, lambda: [_claims()]])
def test_no_row_is_a_surprise(attack):
    found = list(attack())
    assert found
    assert not [one for one in found if one.surprising]
    as_built = [one.verdict for one in found if one.subject in (HARDENED, SHARES)]
    assert set(as_built) <= {Verdict.GUESS, Verdict.CONCEDED}
