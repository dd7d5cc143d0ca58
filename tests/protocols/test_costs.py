"""The paper's tables 4 and 5 against what the profile `paper` counts: lab/docs/costs.md is this file in prose.

Where the two differ, the test asserts the exact difference and says why.
"""

from dataclasses import dataclass

import pytest

from crowdfl.protocols.party import Costs
from crowdfl.protocols.profile import width_budget
from tests.protocols.driving import SMALL, Wire, converse, deal, federation, updates

every_n = pytest.mark.parametrize("n", [5, 12])  # every count is linear in n
HEADER, LENGTH, VECTOR = 6, 4, 52  # bytes before a message's fields, before each field, before a vector's numbers


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
        self.length = self.sides.dealer.task.public.ciphertext_bytes
        sides, sp, csp = self.sides, self.sides.sp, self.sides.csp
        self.uploads = {who: sides.upload([0.1] * self.parameters, i + 1, who) for i, who in enumerate(sides.people)}
        for who, upload in self.uploads.items():
            sp.add(who, upload)
        self.averaging = Wire(csp)
        converse(sp.publish(final=False), self.averaging)
        self.publications = [sp.publication() for _ in sides.people]
        for person, publication in zip(sides.people.values(), self.publications, strict=True):
            person.read(publication, 1)
        self.sp_average, self.csp_average = sp.party.costs.counts.copy(), csp.party.costs.counts.copy()
        self.phone_average = sides.people["p0"].party.costs.counts.copy()
        self.rewarding = Wire(csp)
        converse(sp.reward(36_000_000), self.rewarding)
        self.envelopes = sp.envelopes()
        for who, envelope in self.envelopes.items():
            sides.people[who].open_reward(envelope, 1)

    def ciphertexts(self, message, vectors, numbers=0):
        """How many numbers modulo N^2 a message carries, headers and plain fields taken off."""
        overhead = HEADER + (vectors + numbers) * LENGTH + vectors * VECTOR
        body, rest = divmod(len(message) - overhead, self.length)
        assert rest == 0
        return body

    def exchanged(self, wire):
        """Numbers that went to CSP and came back, over a whole exchange."""
        there = [self.ciphertexts(m, 4) for m in wire.requests]
        return sum(there), sum(self.ciphertexts(m, 1) for m in wire.replies)


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
def test_averaging_at_csp(n, run):
    """Table 4: SDIV."""
    did = Costs(run.csp_average)
    assert did.outside("SDIV") == 1
    assert {name for scope, name in did.counts if not scope} <= {"SDIV", "check"}


@every_n
def test_averaging_at_a_participant(n, run):
    """Table 4: 2 Enc + PMul + PDec + TDec for the average, and one Enc more for the rewards: three in all, as ours."""
    did = Costs(run.phone_average)
    assert did.outside("Enc") == 2 + 1
    assert did.outside("PMul") == 1
    assert did.outside("PDec") == did.outside("TDec") == 1


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
def test_rewards_at_csp(n, run):
    """Table 4: 4n SMUL + 2n SDIV."""
    did = since(run.sides.csp.party.costs, run.csp_average)
    assert (did.outside("SMUL"), did.outside("SDIV")) == (4 * n, 2 * n)


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


@every_n
def test_averaging_on_the_wire(n, run):
    """Table 5, numbers sent and received: SP (4n+5)L, CSP 5L, participant 4L. Ours are the same."""
    there, back = run.exchanged(run.averaging)
    up = sum((len(upload) - VECTOR) // run.length for upload in run.uploads.values())
    down = sum(run.ciphertexts(publication, 2) for publication in run.publications)
    for_rewards = n  # the second [[w_i]], which the table counts with PriRwd
    assert (up - for_rewards) + down + there + back == 4 * n + 5
    assert there + back == 5
    assert (up - for_rewards + down) // n == 4


@every_n
def test_rewards_on_the_wire(n, run):
    """Table 5: SP 31n L, CSP 30n L, participant L. Ours are the same, and 2n L to deliver rewards that it leaves out."""
    there, back = run.exchanged(run.rewarding)
    second_models = n
    assert there + back == 30 * n
    assert there + back + second_models == 31 * n
    assert sum(run.ciphertexts(envelope, 2) for envelope in run.envelopes.values()) == 0 + 2 * n


@every_n
def test_messages(n, run):
    """Table 5, rounds: averaging SP 2n+2, CSP 2, participant 2: the same. Rewards 13n and 12n: ours go in batches, 12."""
    assert len(run.uploads) + len(run.publications) + 2 * len(run.averaging.requests) == 2 * n + 2
    assert 2 * len(run.averaging.requests) == 2
    # Four SMUL and two SDIV exchanges, each for all participants at once; [[w_i]] travels with the upload.
    assert 2 * len(run.rewarding.requests) == 12
    assert run.sides.sp.party.costs.messages == 1 + n + 6 + n


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
        sides.sp.add(who, sides.upload([0.1 * i, 0.5], 3, who))
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
