"""Files of rounds over HTTP: for their own server, until it acknowledges; however long KGC takes to make them."""

import contextlib
import hashlib
import threading
import time

import pytest
from structlog.testing import capture_logs

from crowdfl.crypto.long_bytes import whole
from crowdfl.errors import (
    FormatError,
    KeyNotProven,
    NotAuthenticated,
    NotReady,
    Overtaken,
    ServiceUnavailable,
    UnknownTask,
)
from crowdfl.protocols.records import Look, MemoryRecords
from crowdfl.protocols.shares.profile import SharesProfile
from crowdfl.retry import Backoff
from crowdfl.roles.dealt import dealt_sizes
from crowdfl.services.apps.csp import Preparations
from crowdfl.services.client.breaker import PeerPatience, allow, seconds_left
from crowdfl.services.client.peers import CspClient, KgcClient
from crowdfl.services.client.transport import Service
from tests.http.test_boundary import numbers
from tests.http.world import definition_of
from tests.roles.conftest import dealt as dealt  # noqa: PLC0414 -- a fixture

TASK = {"rounds": 3}
ANY_REFUSAL = (NotAuthenticated, KeyNotProven, ServiceUnavailable)


def undealt(world, **changes):
    """A task at KGC that no server has taken over."""
    signing = world.requester.signing
    return world.requester.kgc.create_task(definition_of(signing, **TASK | changes).sign(signing)).task


def test_a_task_comes_with_its_files_and_runs_to_its_end(world, dealt):
    task, people = world.open_round(**TASK, min_participants=3)
    assert sorted(dealt) == [(role, number) for role in ("csp", "sp") for number in (1, 2, 3)]
    for person in people:
        person.participant.step(lambda arrays, _settings, _number: ([array + 0.5 for array in arrays], 3))
    world.run()
    assert world.sp.tasks.status(task)["rounds"][0]["state"] == "rewarded"
    assert people[0].participant.open_reward(1) == 12_000_000
    assert world.requester.read(task, 1).weights[0] == 0.5


def test_a_server_gets_its_own_file_and_nobody_else_any(world):
    """The token says whose; without one of a server there is nothing."""
    task = undealt(world)
    files = {role: world.kgc_for(role).dealt(task, 2) for role in ("sp", "csp")}
    assert {role: len(file) for role, file in files.items()} == dealt_sizes(
        definition_of(world.requester.signing, **TASK)
    )
    for role in ("requester", "operator"):
        with pytest.raises(ANY_REFUSAL):
            KgcClient(world.peer("kgc", role)).dealt(task, 2)
    with pytest.raises(ANY_REFUSAL):
        KgcClient(world.service("kgc")).dealt(task, 2)


def test_kgc_s_log_says_what_a_new_task_is_dealt(world):
    with capture_logs() as lines:
        undealt(world)
    told = [line for line in lines if line["event"] == "dealing"]
    sizes = dealt_sizes(definition_of(world.requester.signing, **TASK))
    expected = [(role, size, 3 * size) for role, size in sizes.items()]
    assert [(line["role"], line["bytes_a_round"], line["bytes"]) for line in told] == expected


def test_a_file_that_arrives_altered_is_not_taken(world, monkeypatch):
    task, once = undealt(world), Service._once

    def altered(self, request):
        reply = once(self, request)
        assert reply.body[-32:] == hashlib.sha256(reply.body[:-32]).digest()
        return type(reply)(reply.status, reply.body[:-1], reply.headers)

    monkeypatch.setattr(Service, "_once", altered)
    with pytest.raises(ServiceUnavailable, match="did not arrive whole"):
        world.kgc_for("sp").dealt(task, 1)


def test_a_csp_that_fetches_for_long_says_so_and_is_asked_again(world, monkeypatch):
    """Longer than a caller is held: the task is there in the end all the same."""
    world.patience, deal = 0.01, SharesProfile.dealt
    world.start_csp()

    def slowly(self, spec, source, role, number):
        time.sleep(0.05 if role == "csp" else 0.0)
        return deal(self, spec, source, role, number)

    monkeypatch.setattr(SharesProfile, "dealt", slowly)
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
        csp.prepare("0" * 64)


def test_a_failure_of_csp_s_is_told_once_and_may_be_tried_again(world, monkeypatch, dealt):
    failing = [True]

    def fail(self, spec, source, role, number):
        if role == "csp" and number == 2 and failing.pop():
            raise ServiceUnavailable("KGC is away")
        return deal(self, spec, source, role, number)

    deal = SharesProfile.dealt
    monkeypatch.setattr(SharesProfile, "dealt", fail)
    with pytest.raises(ServiceUnavailable):
        world.post(**TASK)
    failing.append(False)
    task = world.post(**TASK)
    assert world.csp.bundles.has(f"{task}.dealt.3")
    assert [number for role, number in dealt if role == "csp"] == [1, 2, 3]


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


QUICK = Backoff(deadline=5.0, first=0.01, longest=0.05)


@pytest.fixture
def slow(world, monkeypatch):
    """A CSP that answers when it is let, and counts."""
    world.patience = 0.05
    world.start_csp()
    slow = SlowAnswers(world.csp)
    monkeypatch.setattr(world.csp, "answer", slow.answer)
    task = world.post()
    yield slow, CspClient(world.service("csp", world.token("csp", "sp"), QUICK), patience=5.0), task
    slow.go.set()


class SlowAnswers:
    """Stands in for the role's computation; keeps its answers where the role keeps them."""

    def __init__(self, csp):
        self.csp = csp
        self.go, self.started, self.fail = threading.Event(), [], False

    def answer(self, task, request):
        request = whole(request)
        self.started.append(request)
        assert self.go.wait(10)
        if self.fail:
            raise FormatError("no such message")
        name = digest_of(request)
        self.csp.blobs.put(f"{task}/answers/{name}", b"reply to " + request)
        with contextlib.suppress(Overtaken):  # by the process before a restart, whose thread goes on here
            self.csp.store.set_records(task, Look(MemoryRecords()), name, f"{task}/answers/{name}")


def post(client, task, request=b"request"):
    return client.service.call("POST", f"/v1/tasks/{task}/requests", request)


def poll_until_done(client, place):
    for _ in range(500):
        reply = client.service.call("GET", place)
        if reply.status == 200:
            return reply.body
        time.sleep(0.01)
    raise AssertionError("never done")


def test_a_slow_answer_comes_with_a_place_to_poll(slow):
    """202 and a location; 202 there while it is computed; then the reply."""
    answers, client, task = slow
    taken = post(client, task)
    place = taken.headers["location"]
    assert (taken.status, client.service.call("GET", place).status) == (202, 202)
    answers.go.set()
    assert client.answer(task, b"request") == b"reply to request"


def test_a_long_request_waits_on_disk_for_its_turn(slow):
    """It is read when it is computed, though the request that brought it has long been answered."""
    answers, client, task = slow
    requests = [bytes([number]) * (3 * 2**20) for number in range(3)]
    assert {post(client, task, request).status for request in requests} == {202}
    answers.go.set()
    for request in requests:
        assert client.answer(task, request) == b"reply to " + request
    assert answers.started == requests


def test_the_same_request_is_computed_once(slow):
    answers, client, task = slow
    assert {post(client, task).status for _ in range(3)} == {202}
    assert len(answers.started) == 1


def test_one_request_of_a_task_is_computed_at_a_time(slow):
    """CSP's side of a task keeps what it writes apart for one request only."""
    answers, client, task = slow
    post(client, task, b"first")
    post(client, task, b"second")
    assert answers.started == [b"first"]
    answers.go.set()
    assert client.answer(task, b"second") == b"reply to second"


def test_a_client_posts_again_after_a_restart(slow, world):
    """404 at the place to poll means that CSP has forgotten, not that the task is gone."""
    answers, client, task = slow
    post(client, task)
    asked = []

    def restart(request):
        asked.append(request.method)
        if len(asked) == 2:  # the first poll finds the restarted CSP
            world.start_csp()
            threading.Timer(0.2, answers.go.set).start()

    client.service.http.event_hooks = {"request": [restart]}
    assert client.answer(task, b"request") == b"reply to request"
    assert asked[:3] == ["POST", "GET", "POST"]
    with pytest.raises(NotReady):
        client.service.call("GET", f"/v1/tasks/{task}/requests/{'0' * 64}")


def test_a_failure_is_told_and_may_be_tried_again(slow):
    """The error of the computation, by its name; then a new computation."""
    answers, client, task = slow
    answers.fail = True
    place = post(client, task).headers["location"]
    answers.go.set()
    with pytest.raises(FormatError):
        poll_until_done(client, place)
    answers.fail = False
    assert client.answer(task, b"request") == b"reply to request"
    assert len(answers.started) == 2


def test_a_client_gives_up_after_its_patience(slow):
    _answers, client, task = slow
    with pytest.raises(ServiceUnavailable, match="not answered"):
        CspClient(client.service, patience=0.2).answer(task, b"request")


def test_a_task_that_is_not_there_is_unknown(slow):
    """A post that finds no task is no reason to post again."""
    _answers, client, _task = slow
    with pytest.raises(UnknownTask):
        client.answer("0" * 64, b"request")


def test_an_answer_is_served_from_the_store_later(world):
    """A real request: computed once, then cached; by GET too, and after a restart."""
    task, people = world.open_round()
    seen, real = [], world.csp.answer
    world.csp.answer = lambda name, request: seen.append(request) or real(name, request)
    for person in people:
        person.sp.upload(task, 1, person.update())
    while not seen:
        assert world.sp.tick()
    client = CspClient(world.service("csp", world.token("csp", "sp")))
    reply = client.answer(task, seen[0])
    assert reply == client.service.call("GET", f"/v1/tasks/{task}/requests/{digest_of(seen[0])}").body
    assert 'crowdfl_csp_requests_total{how="cached"} 1.0' in numbers(world, "csp")
    assert 'crowdfl_csp_requests_total{how="answered"}' in numbers(world, "csp")
    world.start_csp()
    restarted = CspClient(world.service("csp", world.token("csp", "sp")))
    assert restarted.service.call("GET", f"/v1/tasks/{task}/requests/{digest_of(seen[0])}").body == reply


def digest_of(request):
    return hashlib.sha256(request).hexdigest()
