"""What the profile `paper` counts and the paper's table 4 leaves out, and what its algorithms count inside.

The laboratory compares tables 4 and 5 themselves, as printed: lab/docs/costs.md. Where the two differ, a test says why.
"""

from collections import Counter
from dataclasses import dataclass
from operator import length_hint

import pytest

from crowdfl.crypto import blocks
from crowdfl.crypto.coins import Coins
from crowdfl.protocols.common import sdiv, smul
from crowdfl.protocols.party import Costs
from crowdfl.protocols.profile import width_budget
from tests.protocols.driving import SMALL, Wire, converse, deal, federation, updates

every_n = pytest.mark.parametrize("n", [5, 12])  # every count is linear in n


def since(costs, before):
    """The counters of a role from a moment on."""
    return Costs(costs.counts - before)


@dataclass
class Run:
    """A whole round of `n` participants with `parameters` numbers each, all of them reading and opening."""

    n: int
    parameters: int = 1

    def __post_init__(self):
        self.sides = deal(self.n, self.parameters, profile="paper", key_bits=448, lanes=None)
        sides, sp, csp = self.sides, self.sides.sp, self.sides.csp
        self.uploads = {who: sides.upload([0.1] * self.parameters, i + 1, who) for i, who in enumerate(sides.people)}
        self.averaging, self.rewarding = Wire(csp), Wire(csp)
        round_ = sides.open(1, ask=self.averaging.ask)
        for who, upload in self.uploads.items():
            round_.collect({who: upload})
        sides.read(round_.average(), 1, sides.people)
        self.sp_average, self.csp_average = sp.party.costs.counts.copy(), csp.party.costs.counts.copy()
        self.phone_average = sides.people["p0"].party.costs.counts.copy()
        sides.open_rewards(sides.current(ask=self.rewarding.ask).reward(36_000_000), 1)


_runs = {}


@pytest.fixture
def run(n):
    if n not in _runs:
        _runs[n] = Run(n)
    return _runs[n]


@every_n
def test_averaging_at_sp(n, run):
    """Table 4: (2n-2) PAdd + SDIV. Ours is the same, and one PDec with lambda_sp (line 11) that the table leaves out."""
    did = Costs(run.sp_average)
    assert did.outside("PAdd") == 2 * n - 2
    assert did.outside("SDIV") == 1
    assert did.outside("PMul") == did.outside("Enc") == did.outside("SMUL") == 0
    assert did.outside("PDec") == 0 + 1


@every_n
def test_rewards_at_sp(n, run):
    """Table 4: (4n-2) PAdd + n PMul + 4n SMUL + 2n SDIV."""
    did = since(run.sides.sp.party.costs, run.sp_average)
    assert did.outside("SMUL") == 4 * n
    assert did.outside("SDIV") == 2 * n
    # The table counts lines 2 and 4 (n + n + 2(n-1)) and forgets the n-1 additions of W in line 10.
    assert did.outside("PAdd") == (4 * n - 2) + (n - 1)
    # The table's n are [[average]]^(N-1) for each participant; ours is one inverse (D4). It forgets W^(10^L), ours is that.
    assert did.outside("PMul") == n - n + 1
    assert did.outside("inverse") == 1
    # Not in the table: [[1]] of line 4 for each participant, [[b]], and PDec of each reward with lambda_sp.
    assert did.outside("Enc") == n + 1
    assert did.outside("PDec") == n


@every_n
def test_rewards_at_a_participant(n, run):
    """Table 4: Enc, which is counted above. The table leaves out PDec and TDec of the reward."""
    did = since(run.sides.people["p0"].party.costs, run.phone_average)
    assert (did.outside("Enc"), did.outside("PDec"), did.outside("TDec")) == (0, 1, 1)


@every_n
def test_inside_sdiv_and_smul(n, run):
    """Algorithms 1 and 2 line by line, but for powers of N-1: Alg. 1 has one, Alg. 2 three; each run takes one inverse."""
    sp, csp = run.sides.sp.party.costs, run.sides.csp.party.costs
    divisions, products = 2 * n + 1, 4 * n
    per_division = {"PMul": 5 - 1, "PAdd": 3, "Enc": 2, "PDec": 2, "inverse": 1}
    per_product = {"PMul": 5 - 3, "PAdd": 5, "Enc": 3, "PDec": 2, "inverse": 1}
    assert {name: sp.counts["SDIV", name] for name in per_division} == scaled(per_division, divisions)
    assert {name: sp.counts["SMUL", name] for name in per_product} == scaled(per_product, products)
    answer = {"PDec": 2, "TDec": 2, "Enc": 1}
    assert {name: csp.counts["SDIV", name] for name in answer} == scaled(answer, divisions)
    assert {name: csp.counts["SMUL", name] for name in answer} == scaled(answer, products)


def scaled(counts, times):
    return {name: count * times for name, count in counts.items()}


@pytest.mark.parametrize(("n", "parameters"), [(3, 4), (5, 2)])
def test_more_parameters(n, parameters):
    """The tables are for one parameter. With P: the sum over parameters adds n(P-1) PAdd, and SMUL squares P times."""
    run, p = Run(n, parameters), parameters
    average = Costs(run.sp_average)
    assert (average.outside("PAdd"), average.outside("SDIV")) == ((n - 1) * (p + 1), p)
    assert average.outside("PDec") == p
    did = since(run.sides.sp.party.costs, run.sp_average)
    assert did.outside("PAdd") == n * p + n * (p - 1) + n + 3 * (n - 1)
    assert did.outside("SMUL") == n * p + 3 * n
    assert did.outside("SDIV") == 2 * n
    assert did.outside("inverse") == p


def test_hardened_rewards_open_each_number_once():
    """Besides the lanes: both ends of n counts, 3n + 2 operands; guard, squares and division of 2n and of n + 1; n rewards."""
    n, sides = 4, deal(4, 2, **(SMALL | {"max_participants": 4}))
    for i, who in enumerate(sides.people):
        sides.sp.add_all({who: sides.upload([0.1 * i, 0.5], 3, who)})
    converse(sides.sp.reward(36_000_000), sides.csp.answer)
    lanes = n * sides.sp._shape.budget.buckets
    expected = lanes + 2 * n + (3 * n + 2) + 3 * 2 * n + 3 * (n + 1) + n
    assert sides.csp.party.costs.total("PDec") == sides.sp.party.costs.total("PDec") == expected


def test_hardened_averaging_takes_two_partial_decryptions_a_ciphertext():
    """One at SP and one at CSP, with the total shown; twice that with the total hidden, and a division in three steps."""
    for total, per_row, more in (("shown", 1, 1), ("hidden", 2, 3 * 2)):
        fed = federation(total=total, key_bits=640)
        costs = fed.round(updates([[0.5] * 100] * 3, [1] * 3)).costs
        rows = width_budget(fed.settings, 100, 40).ciphertexts
        assert costs["SP"].total("PDec") == costs["CSP"].total("PDec") == per_row * rows + more


def test_costs_are_reported_per_role():
    """Names a report can print, with messages and bytes."""
    fed = federation(**SMALL)
    costs = fed.round(updates([[0.1], [0.2], [0.3]], [1, 2, 3]), budget="1").costs
    assert set(costs) == {"SP", "CSP", "participants", "requester"}
    report = costs["SP"].as_dict()
    assert report["PDec"] == costs["SP"].total("PDec") > 0
    assert report["messages"] > 0 < report["bytes"]
    assert costs["participants"].total("Enc") == 3 * (width_budget(fed.settings, 1, 20).ciphertexts + 1)
    assert costs["participants"].messages == 3


def test_scopes_do_not_leak():
    """What happens inside SMUL or SDIV is counted there, also when it fails."""
    costs = Costs()

    def failing():
        with costs.inside("SDIV", 2):
            costs.count("PDec")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    with costs.continuing("SDIV"):
        costs.count("Enc")
    costs.count("PDec", 5)
    assert (costs.outside("PDec"), costs.total("PDec"), costs.outside("SDIV"), costs.outside("Enc")) == (5, 6, 2, 0)


def test_rewards_make_no_integer_for_each_parameter(monkeypatch):
    """Outside the kernels, which a GPU runs: as many for one parameter as for nine."""
    made = Counter()

    def counted(module, name, size):
        real = getattr(module, name)

        def call(*given):
            made[parameters] += size(*given)
            return real(*given)

        monkeypatch.setattr(module, name, call)

    for module in (blocks, sdiv, smul):
        counted(module, "to_ints", len)
    counted(blocks, "from_ints", lambda numbers, _width: length_hint(numbers) or 1)
    counted(Coins, "bits", lambda *_: 1)
    for parameters in (1, 9):
        sides = deal(3, parameters, profile="paper", key_bits=448, lanes=None)
        for party in (sides.sp.party, sides.csp.party):
            party.view.keep = False
        round_ = sides.open(1)
        round_.collect({who: sides.upload([0.1] * parameters, 2, who) for who in sides.people})
        round_.average()
        made[parameters] = 0
        round_.reward(36_000_000)
    assert made[1] == made[9] > 0
