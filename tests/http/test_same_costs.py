"""A round costs the same in one process and as three services: every operation, message and byte of SP and of CSP."""

from itertools import accumulate

import numpy as np
import pytest
from gmpy2 import mpz

from crowdfl import LocalFederation, Update
from crowdfl.crypto.blocks import from_ints, to_ints
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, RunningProduct, Unchecked
from crowdfl.protocols.party import Costs, CountingBackend
from crowdfl.simulation.local_host import Recorder
from tests.hosts import INITIAL_MODEL, ONE
from tests.http.loopback import serving, wait_for_round
from tests.http.world import DEPOSIT, TASK, task_definition

PEOPLE = 3
ROLES = ("SP", "CSP")
SETTINGS = [{}, {"total": "hidden"}, {"profile": "paper"}]


def updates():
    """What each person trained; the same in every run."""
    chance = np.random.default_rng(11)
    return [Update([chance.normal(size=(2, 3)), chance.normal(size=2)], 10 + number) for number in range(PEOPLE)]


class StageRecorder(Recorder):
    """Also what was counted when each stage of a round began."""

    def __init__(self):
        super().__init__()
        self.begun = []

    def begin(self, stage):
        """Note the counters of the moment."""
        self.begun.append((stage, {role: self.costs(role).counts.copy() for role in ROLES}))

    @property
    def stages(self):
        """Their names, in order."""
        return [stage for stage, _ in self.begun]

    def before(self, stage):
        """What had been counted when this stage began for the first time."""
        return next(counts for name, counts in self.begun if name == stage)


def as_services(folder, **settings):
    """One rewarded round through three services; the recorder of both servers, and the ciphertexts of an upload."""
    recorder = StageRecorder()
    with serving(folder, recorder) as platform:
        requester = platform.requester()
        task = requester.create(task_definition(**settings), INITIAL_MODEL)
        platform.confirm(task, requester.fund(task, DEPOSIT), DEPOSIT)
        people = [platform.join(requester, task) for _ in range(PEOPLE)]
        wait_for_round(requester.sp, task, "open")
        for person, update in zip(people, updates(), strict=True):
            person.encrypt(1, update.weights, update.samples)
            person.send(1)
        wait_for_round(requester.sp, task, "rewarded")
        upload = people[0].blobs.get("rounds/1/upload")
        ciphertexts = len(Unchecked.parse(upload, people[0].side.party.public, max_count=1000))
    return recorder, ciphertexts


def in_one_process(**settings):
    """The same round of a `LocalFederation`, the last one of its task as that of the service is."""
    fed = LocalFederation(insecure_test_key=True, backend=ONE, **(TASK | settings))
    fed.round({str(number): update for number, update in enumerate(updates())}, final=True)
    return fed.recorder


@pytest.mark.second
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_round_costs_the_same_locally_and_as_a_service(settings, tmp_path):
    """Every counter of both servers; an upload is validated once, and a rewarded round publishes once."""
    service, ciphertexts = as_services(tmp_path, **settings)
    rewarded, plain = in_one_process(**settings), in_one_process(**settings, budget=None)
    for role in ROLES:
        here, there = rewarded.costs(role), service.costs(role)
        assert here.total("PDec") > 0
        assert here.counts == there.counts
        assert here.messages == there.messages
        # A random number may have a leading zero byte, which is not sent.
        assert abs(here.bytes_sent - there.bytes_sent) <= 8
        # Before and after the rewards the same is done as in a round without rewards, and it is done once.
        beside = service.before("reward")[role] + (there.counts - service.before("average")[role])
        if settings.get("profile") != "paper":  # whose rewards begin with the average
            assert beside == +plain.costs(role).counts
    assert service.stages == ["check", "reward", "check", "average"]
    assert service.before("check")["SP"]["", "check"] == PEOPLE * ciphertexts


@pytest.mark.parametrize("groups", [(1, 1, 1, 1), (4,), (2, 2), (1, 3), (3, 1)])
def test_a_sum_costs_the_same_however_its_uploads_came(groups):
    """A service adds up what has come so far, a local host all at once."""
    public, costs = PublicKey(mpz(2**257 + 1) * (2**254 + 1), mpz(4), insecure_test_key=True), Costs()
    vectors = CipherVector(public, from_ints(range(2, 6), public.ciphertext_bytes))
    whole = RunningProduct(public, 1, 4, backend=CountingBackend(ONE, costs))
    for start, count in zip(accumulate((0, *groups)), groups, strict=False):
        whole.add_all([vectors.part(place, place + 1) for place in range(start, start + count)])
    assert costs.counts == {("", "PAdd"): 3}
    assert to_ints(whole.result().block) == [2 * 3 * 4 * 5]
