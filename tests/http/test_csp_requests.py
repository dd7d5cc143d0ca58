"""CSP's slow answers: one computation per request, a place to poll, nothing lost by a restart."""

import hashlib
import threading
import time

import pytest

from crowdfl.errors import FormatError, NotReady, ServiceUnavailable, UnknownTask
from crowdfl.retry import Backoff
from crowdfl.services.client.peers import CspClient
from tests.http.test_boundary import numbers

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
        """Once let."""
        self.started.append(request)
        assert self.go.wait(10)
        if self.fail:
            raise FormatError("no such message")
        name = digest_of(request)
        self.csp.blobs.put(f"{task}/answers/{name}", b"reply to " + request)
        self.csp.store.put_answer(task, name, f"{task}/answers/{name}")


def post(client, task, request=b"request"):
    """A request, as SP posts it."""
    return client.service.call("POST", f"/v1/tasks/{task}/requests", request)


def poll_until_done(client, place):
    """Until it is no longer being computed."""
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
    """However many ask."""
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
    """With a name, so that SP tries again later."""
    _answers, client, task = slow
    with pytest.raises(ServiceUnavailable, match="not answered"):
        CspClient(client.service, patience=0.2).answer(task, b"request")


def test_a_task_that_is_not_there_is_unknown(slow):
    """A post that finds no task is no reason to post again."""
    _answers, client, _task = slow
    with pytest.raises(UnknownTask):
        client.answer("0" * 32, b"request")


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
    """The name of a request."""
    return hashlib.sha256(request).hexdigest()
