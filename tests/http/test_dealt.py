"""Files of rounds over HTTP: for their own server, until it acknowledges; however long KGC takes to make them."""

import hashlib
import time

import pytest
from structlog.testing import capture_logs

from crowdfl.errors import KeyNotProven, NotAuthenticated, NotReady, RoundsExhausted, ServiceUnavailable, TaskEnded
from crowdfl.protocols.registry import PROFILES
from crowdfl.retry import Backoff
from crowdfl.roles.ends import TaskEnds
from crowdfl.roles.holdings import KgcHoldings
from crowdfl.roles.records import Tombstone
from crowdfl.services.apps.csp import Preparations
from crowdfl.services.client.breaker import PeerPatience, allow, seconds_left
from crowdfl.services.client.peers import CspClient, KgcClient
from crowdfl.services.client.transport import Service
from tests.chained import DEALT, ChainedProfile
from tests.http.world import definition_of

TASK = {"profile": "chained", "rounds": 3}
ANY_REFUSAL = (NotAuthenticated, KeyNotProven, ServiceUnavailable)


@pytest.fixture(autouse=True)
def profile(monkeypatch) -> ChainedProfile:
    """Known by its name, as a real one."""
    made = ChainedProfile()
    monkeypatch.setitem(PROFILES, made.name, made)
    return made


def undealt(world, **changes):
    """A task at KGC that no server has taken over."""
    signing = world.requester.signing
    return world.requester.kgc.create_task(definition_of(signing, **TASK | changes).sign(signing)).task


def test_a_task_comes_with_its_files_and_runs_to_its_end(world, profile):
    """Through every app, each file made once."""
    task, people = world.open_round(**TASK, min_participants=3)
    assert sorted(profile.made) == [(role, number) for role in ("csp", "sp") for number in (1, 2, 3)]
    for person in people:
        person.participant.step(lambda arrays, _settings, _number: ([array + 0.5 for array in arrays], 3))
    world.run()
    assert world.sp.status(task)["rounds"][0]["state"] == "rewarded"
    assert people[0].participant.open_reward(1) == 12_000_000
    assert world.requester.read(task, 1).weights[0] == 1.5


def test_a_server_gets_its_own_file_and_nobody_else_any(world):
    """The token says whose; without one of a server there is nothing."""
    task = undealt(world)
    files = {role: world.kgc_for(role).dealt(task, 2) for role in ("sp", "csp")}
    assert {role: len(file) for role, file in files.items()} == DEALT
    for role in ("requester", "operator"):
        with pytest.raises(ANY_REFUSAL):
            KgcClient(world.peer("kgc", role)).dealt(task, 2)
    with pytest.raises(ANY_REFUSAL):
        KgcClient(world.service("kgc")).dealt(task, 2)


def test_kgc_s_log_says_what_a_new_task_is_dealt(world):
    """In bytes, for each server."""
    with capture_logs() as lines:
        undealt(world)
    told = [line for line in lines if line["event"] == "dealing"]
    assert [(line["role"], line["bytes_a_round"], line["bytes"]) for line in told] == [
        ("sp", 100, 300),
        ("csp", 250, 750),
    ]


def test_there_is_no_file_of_another_round_nor_after_the_acknowledgement(world):
    """Each by its name."""
    task = undealt(world)
    sp = world.kgc_for("sp")
    with pytest.raises(RoundsExhausted):
        sp.dealt(task, 4)
    sp.acknowledge(task)
    with pytest.raises(NotReady, match="handed over and destroyed"):
        sp.dealt(task, 1)
    assert world.kgc_for("csp").dealt(task, 1)


def test_there_is_no_file_of_a_task_that_has_ended(world):
    """And its source is erased."""
    task = undealt(world)
    TaskEnds(KgcHoldings(world.kgc.store, world.kgc.bundles), world.clock).close(task, Tombstone("cancelled", "SP"))
    with pytest.raises(TaskEnded):
        world.kgc_for("csp").dealt(task, 1)
    assert not world.kgc.bundles.has(f"{task}.source")


def test_a_file_that_arrives_altered_is_not_taken(world, monkeypatch):
    """Its hash comes with it."""
    task, once = undealt(world), Service._once

    def altered(self, method, target, body, media_type):
        reply = once(self, method, target, body, media_type)
        assert reply.headers["x-content-sha256"] == hashlib.sha256(reply.body).hexdigest()
        return type(reply)(reply.status, reply.body[:-1], reply.headers)

    monkeypatch.setattr(Service, "_once", altered)
    with pytest.raises(ServiceUnavailable, match="did not arrive whole"):
        world.kgc_for("sp").dealt(task, 1)


def test_a_csp_that_fetches_for_long_says_so_and_is_asked_again(world, monkeypatch):
    """Longer than a caller is held: the task is there in the end all the same."""
    world.patience, dealt = 0.01, ChainedProfile.dealt
    world.start_csp()

    def slowly(self, spec, source, role, number):
        time.sleep(0.05 if role == "csp" else 0.0)
        return dealt(self, spec, source, role, number)

    monkeypatch.setattr(ChainedProfile, "dealt", slowly)
    statuses, call = [], Service.call

    def noted(self, method, target, *args, **more):
        reply = call(self, method, target, *args, **more)
        if target.endswith("/prepare"):
            statuses.append(reply.status)
        return reply

    monkeypatch.setattr(Service, "call", noted)
    task = world.post(**TASK)
    assert set(statuses[:-1]) == {202}
    assert statuses[-1] == 204
    assert all(world.csp.bundles.has(f"{task}.dealt.{number}") for number in (1, 2, 3))


def test_a_caller_that_csp_keeps_sending_away_gives_up_in_time(world, monkeypatch):
    """What CSP has fetched so far is kept; whoever asks later goes on from there."""
    monkeypatch.setattr(Preparations, "prepare", lambda *_: False)
    csp = CspClient(world.service("csp", world.token("csp", "sp"), Backoff(first=0.01, longest=0.01)), patience=0.1)
    with pytest.raises(ServiceUnavailable, match="still fetching"):
        csp.prepare("0" * 32)


def test_a_failure_of_csp_s_is_told_once_and_may_be_tried_again(world, monkeypatch, profile):
    """KGC was away for one file."""
    failing = [True]

    def fail(self, spec, source, role, number):
        if role == "csp" and number == 2 and failing.pop():
            raise ServiceUnavailable("KGC is away")
        return dealt(self, spec, source, role, number)

    dealt = ChainedProfile.dealt
    monkeypatch.setattr(ChainedProfile, "dealt", fail)
    with pytest.raises(ServiceUnavailable):
        world.post(**TASK)
    failing.append(False)
    task = world.post(**TASK)
    assert world.csp.bundles.has(f"{task}.dealt.3")
    assert [number for role, number in profile.made if role == "csp"] == [1, 2, 3]


def test_a_request_that_is_known_to_take_long_has_more_time():
    """Never less than it had; and where nobody waits, nothing is bounded."""
    allow(5.0)
    assert seconds_left() is None
    with PeerPatience(seconds=1.0)():
        allow(100.0)
        assert 90.0 < (seconds_left() or 0.0) <= 100.0
        allow(10.0)
        assert (seconds_left() or 0.0) > 90.0
    assert seconds_left() is None
