"""Calls to a peer that is away fail at once, and one call at a time finds out whether it is back."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from crowdfl.errors import ServiceUnavailable, UnknownTask
from crowdfl.retry import Backoff, no_jitter
from crowdfl.services.client.breaker import Breaker, BreakerState, PeerPatience, seconds_left
from crowdfl.services.client.peers import CspClient
from crowdfl.services.client.transport import Bearer, Service
from crowdfl.services.http.problems import problem_for


class Clock:
    """Seconds as the test says."""

    def __init__(self):
        self.time = 1000.0

    def __call__(self):
        return self.time


def make_breaker(clock, told=None):
    """Opens after two failures, for ten seconds, then for twenty."""
    rests = Backoff(first=10.0, longest=20.0, jitter=no_jitter, clock=clock)
    on_change = (lambda peer, up: told.append((peer, up))) if told is not None else (lambda _peer, _up: None)
    return Breaker("CSP", failures=2, rests=rests, now=lambda: 0.0, on_change=on_change)


def fail(breaker):
    """One call that got no answer."""
    breaker.admit()
    breaker.record(answered=False)


def test_it_opens_after_failures_in_a_row_and_says_who_is_away_since_when():
    """A single failure is not the end, nor are two with an answer between."""
    breaker = make_breaker(Clock())
    fail(breaker)
    breaker.admit()
    breaker.record(answered=True)
    fail(breaker)
    assert breaker.state is BreakerState.CLOSED
    fail(breaker)
    assert (breaker.state, breaker.is_up) == (BreakerState.OPEN, False)
    with pytest.raises(ServiceUnavailable, match="CSP has not answered since 1970-01-01 00:00:00 UTC"):
        breaker.admit()


def test_after_its_rest_one_call_decides_for_all():
    """The others still fail at once; a failure lengthens the rest, an answer ends it."""
    clock, told = Clock(), []
    breaker = make_breaker(clock, told)
    fail(breaker), fail(breaker)
    clock.time += 10.0
    assert breaker.state is BreakerState.HALF_OPEN
    breaker.admit()
    with pytest.raises(ServiceUnavailable):
        breaker.admit()
    breaker.record(answered=False)
    clock.time += 19.0
    with pytest.raises(ServiceUnavailable):
        breaker.admit()
    clock.time += 1.0
    breaker.admit()
    breaker.record(answered=True)
    assert breaker.state is BreakerState.CLOSED
    assert told == [("CSP", False), ("CSP", True)]


def test_of_many_threads_one_tries():
    """However they meet."""
    clock = Clock()
    breaker = make_breaker(clock)
    fail(breaker), fail(breaker)
    clock.time += 10.0
    together = threading.Barrier(8)

    def try_it(_):
        together.wait(10)
        try:
            breaker.admit()
        except ServiceUnavailable:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(try_it, range(8))) == 1


def scripted(answer, breaker, asked):
    """CSP behind a breaker, whose every answer is this."""

    def reply(request):
        asked.append(request)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status, json=answer.body()) if hasattr(answer, "body") else answer

    http = httpx.Client(transport=httpx.MockTransport(reply), base_url="https://csp")
    return CspClient(Service(http, Bearer("token"), Backoff(deadline=0.0), breaker=breaker))


@pytest.mark.parametrize(
    "answer",
    [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.DecodingError("garbage"), httpx.Response(502)],
    ids=lambda answer: type(answer).__name__,
)
def test_a_peer_without_an_answer_is_asked_no_more(answer):
    """Not one byte is sent while it rests."""
    asked = []
    csp = scripted(answer, make_breaker(Clock()), asked)
    for _ in range(5):
        with pytest.raises(ServiceUnavailable):
            csp.prepare("0" * 32)
    assert len(asked) == 2


@pytest.mark.parametrize(
    "answer", [problem_for(ServiceUnavailable("busy")), problem_for(UnknownTask("no")), httpx.Response(500)]
)
def test_a_peer_that_refuses_or_stumbles_is_there(answer):
    """One task's trouble at CSP does not take CSP from the others."""
    asked = []
    breaker = make_breaker(Clock())
    csp = scripted(answer, breaker, asked)
    for _ in range(5):
        with pytest.raises((ServiceUnavailable, UnknownTask)):
            csp.prepare("0" * 32)
    assert (len(asked), breaker.is_up) == (5, True)


def test_a_request_waits_for_peers_in_a_few_threads_and_for_a_few_seconds():
    """Who comes when all places are taken is told at once; outside nothing is bounded."""
    patience = PeerPatience(seconds=50.0, most=2)
    assert seconds_left() is None
    with patience(), patience():
        assert 0.0 < seconds_left() <= 50.0
        with pytest.raises(ServiceUnavailable, match="2 requests wait"), patience():
            pass
    with patience():
        assert seconds_left() is not None
    assert seconds_left() is None


def test_a_request_without_time_left_asks_nobody():
    """Its caller is told to come back."""
    asked, breaker = [], make_breaker(Clock())
    csp = scripted(httpx.Response(204), breaker, asked)
    with PeerPatience(seconds=0.0)(), pytest.raises(ServiceUnavailable, match="not asked in time"):
        csp.prepare("0" * 32)
    assert (asked, breaker.is_up) == ([], True)


def test_what_is_left_to_a_request_bounds_every_wait_in_it():
    """The connection's, the answer's, and the pauses between attempts."""
    asked = []

    def reply(request):
        asked.append(request.extensions["timeout"])
        return httpx.Response(503)

    http = httpx.Client(transport=httpx.MockTransport(reply), base_url="https://csp", timeout=600.0)
    slept = []
    csp = CspClient(Service(http, None, Backoff(first=1.0, deadline=600.0, sleep=slept.append)))
    with PeerPatience(seconds=0.9)(), pytest.raises(ServiceUnavailable):
        csp.prepare("0" * 32)
    assert max(asked[0].values()) <= 0.9
    assert sum(slept) <= 0.9
