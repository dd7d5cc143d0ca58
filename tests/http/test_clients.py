"""Clients try again what may pass, give up in time, and raise what the service raised."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import ClaimsExtension, EnrolmentEnd
from crowdfl.errors import (
    Conflict,
    NotAuthenticated,
    PlainHttpRefused,
    ServiceUnavailable,
    TooLate,
    UnknownTask,
    WrongProtocol,
)
from crowdfl.retry import Backoff, no_jitter
from crowdfl.roles.csp import CspBooks, extend_claims
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import PaidClaim
from crowdfl.services.client.breaker import Breaker, BreakerState, PeerPatience, seconds_left
from crowdfl.services.client.peers import CspClient, KgcClient, SpClient
from crowdfl.services.client.transport import Bearer, Link, Service
from crowdfl.services.http.problems import problem_for


class Scripted:
    """A service that answers as it is told, one after the other, and a clock that pauses move."""

    def __init__(self, *answers):
        self.answers, self.asked, self.pauses, self.time = list(answers), [], [], 0.0
        self.answer_with = None
        http = httpx.Client(transport=httpx.MockTransport(self.answer), base_url="https://service")
        retries = Backoff(deadline=60.0, sleep=self.sleep, clock=lambda: self.time)
        self.service = Service(http, Bearer("token"), retries)

    def answer(self, request):
        self.asked.append(request)
        if self.answer_with is not None:
            self.answers = [self.answer_with()]  # each time afresh: a stream is read once
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.time += seconds


def problem(error, **headers):
    told = problem_for(error)
    return httpx.Response(told.status, json=told.body(), headers=dict(told.headers) | headers)


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut"),
        httpx.Response(429),
        httpx.Response(500),
        httpx.Response(503),
        problem(ServiceUnavailable("restarting")),
    ],
    ids=lambda failure: type(failure).__name__ + str(getattr(failure, "status_code", "")),
)
def test_what_may_pass_is_tried_again(failure):
    scripted = Scripted(failure, failure, {"key": "00" * 32})
    assert KgcClient(scripted.service).key() == bytes(32)
    assert len(scripted.asked) == 3


def garbage(**headers):
    """A body that is not what its headers say, read as it comes."""

    class Parts(httpx.SyncByteStream):
        def __iter__(self):
            yield b"not compressed at all"

    return httpx.Response(200, headers=headers, stream=Parts())


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(lambda: garbage(**{"Content-Encoding": "gzip"}), id="gzip"),
        pytest.param(lambda: garbage(**{"Content-Encoding": "deflate"}), id="deflate"),
        pytest.param(lambda: httpx.TooManyRedirects("round and round"), id="redirects"),
        pytest.param(lambda: httpx.InvalidURL("nowhere"), id="url"),
        pytest.param(httpx.StreamConsumed, id="stream"),
        pytest.param(lambda: httpx.RemoteProtocolError("illegal header line"), id="headers"),
        *(lambda key=key: httpx.Response(200, json=key) for key in ({"key": "not hex"}, {"key": 7}, {}, [1])),
        pytest.param(lambda: httpx.Response(200, text="hello"), id="text"),
        pytest.param(lambda: httpx.Response(200, content=b"[" * 100_000), id="nested"),
    ],
)
def test_an_answer_that_nobody_expected_has_a_name(reply):
    """Whatever comes back, the caller gets an error of ours: one that nobody foresaw would end its thread."""
    scripted = Scripted({})
    scripted.answer_with = reply
    with pytest.raises(ServiceUnavailable):
        KgcClient(scripted.service).key()


@pytest.mark.parametrize("about", [{}, {"status": 7}, {"definition": 1, "appointment": "a"}])
def test_a_platform_that_says_something_else_about_a_task_is_named(about):
    sp = SpClient(Scripted(about).service)
    for ask in (sp.papers, sp.status):
        with pytest.raises(ServiceUnavailable, match="lacks"):
            ask("0" * 64)


@pytest.mark.parametrize("error", [UnknownTask("no"), TooLate("no"), Conflict("no"), NotAuthenticated("no")])
def test_a_refusal_is_raised_at_once_by_its_name(error):
    scripted = Scripted(problem(error))
    with pytest.raises(type(error), match="no"):
        SpClient(scripted.service).about("0" * 64).json()
    assert len(scripted.asked) == 1


def test_pauses_grow_with_jitter_up_to_a_bound_and_end_at_the_deadline():
    """Phones that lost one server together do not come back together, and none hangs for ever."""
    scripted = Scripted(httpx.ConnectError("refused"))
    with pytest.raises(ServiceUnavailable, match="cannot be reached"):
        KgcClient(scripted.service).key()
    for attempt, pause in enumerate(scripted.pauses):
        assert min(10.0, 0.2 * 2**attempt) / 2 <= pause <= min(10.0, 0.2 * 2**attempt)
    assert scripted.time <= 60.0
    assert len(scripted.pauses) > 6
    assert len({round(pause / (0.2 * 2**n), 6) for n, pause in enumerate(scripted.pauses[:5])}) > 1


def test_a_service_that_asks_for_time_gets_it():
    scripted = Scripted(problem(ServiceUnavailable("busy"), **{"Retry-After": "17"}), {"key": "00" * 32})
    KgcClient(scripted.service).key()
    assert scripted.pauses == [17.0]


def test_a_claim_whose_answer_was_lost_is_not_sent_again():
    """Whether it was paid is for the participant to find out."""
    scripted = Scripted(httpx.ReadTimeout("slow"), {"paid": {"1": 1}, "unused": {}, "disputed": {}})
    with pytest.raises(ServiceUnavailable):
        SpClient(scripted.service).claim("0" * 64, b"claim")
    assert len(scripted.asked) == 1


def test_a_claim_that_was_never_sent_is_sent_again():
    """A refused connection has paid nothing."""
    answer = {"paid": {"1": 3, "2": 4}, "unused": {"3": 5}, "disputed": {"4": 6}}
    paid = SpClient(Scripted(httpx.ConnectError("refused"), answer).service).claim("0" * 64, b"claim")
    assert paid == PaidClaim({1: 3, 2: 4}, {3: 5}, {4: 6})
    assert paid.amount == 12


@pytest.mark.parametrize("name", ["paid", "unused", "disputed"])
@pytest.mark.parametrize("amounts", [None, 7, {"one": 1}, {"1": "1"}, {"1": True}, {"9" * 11: 1}])
def test_a_payment_that_cannot_be_read_is_named(name, amounts):
    answer = {"paid": {"1": 1}, "unused": {}, "disputed": {}} | {name: amounts}
    with pytest.raises(ServiceUnavailable, match=f"lacks {name}"):
        SpClient(Scripted(answer).service).claim("0" * 64, b"claim")


def test_a_service_of_another_version_is_named():
    answer = httpx.Response(200, json={"key": "00" * 32}, headers={"X-CrowdFL-Protocol": "0"})
    with pytest.raises(WrongProtocol):
        KgcClient(Scripted(answer).service).key()


@pytest.mark.parametrize("error", [NotAuthenticated("who?"), WrongProtocol("old")])
def test_a_peer_that_refuses_a_server_is_unavailable_to_its_callers(error):
    """The requester's own token is fine: SP must not tell it otherwise."""
    with pytest.raises(ServiceUnavailable, match="does not accept this server"):
        CspClient(Scripted(problem(error)).service).prepare("0" * 64)


@pytest.mark.parametrize(
    ("url", "asked"),
    [("http://127.0.0.1:1", False), ("http://example.org", True), ("http://192.168.0.1", True), ("", True)],
)
def test_plain_http_is_refused_off_loopback_or_unasked(url, asked):
    with pytest.raises(PlainHttpRefused):
        Link(url, plain_http=asked).open()


def test_a_token_is_not_shown():
    assert "token-123" not in repr(Scripted({}).service) + repr(Bearer("token-123"))


def test_sp_alone_hears_from_csp_that_people_can_claim_longer(world):
    task = world.post()
    assert world.csp_for("sp").claims_extended(task) == ""
    extend_claims(CspBooks(world.csp.store, world.csp.bundles, world.clock, world.tools), task, 100)
    found = ClaimsExtension.read(Envelope.parse(world.csp_for("sp").claims_extended(task), ClaimsExtension.kind))
    assert found == ClaimsExtension(task, world.sp.core.definition(task).claims_until + 100)
    with pytest.raises(ServiceUnavailable, match="does not accept this server"):
        CspClient(world.service("csp", world.owner("csp"))).claims_extended(task)


def test_a_refusal_is_read_though_it_is_longer_than_any_answer(world):
    with pytest.raises(UnknownTask):
        world.csp_for("sp").answer("0" * 64, b"a request", 8)


def test_enrolment_closes_by_order(world):
    task = world.post()
    order = EnrolmentEnd(task).sign(world.requester.signing)
    kgc = KgcClient(world.service("kgc", world.owner("kgc")))
    kgc.close_enrolment(task, order)
    with pytest.raises(Exception, match="enrolment is closed"):
        world.add_person(task)
    kgc.acknowledge(task)
    assert not world.kgc.bundles.has(f"{task}.requester")


def make_breaker(clock=None, told=None):
    """Opens after two failures, for ten seconds, then for twenty."""
    rests = Backoff(first=10.0, longest=20.0, jitter=no_jitter, clock=(clock or ManualClock()).now)
    on_change = (lambda peer, up: told.append((peer, up))) if told is not None else (lambda _peer, _up: None)
    return Breaker("CSP", failures=2, rests=rests, now=lambda: 0.0, on_change=on_change)


def fail(breaker):
    breaker.admit()
    breaker.record(answered=False)


def test_it_opens_after_failures_in_a_row_and_says_who_is_away_since_when():
    """A single failure is not the end, nor are two with an answer between."""
    breaker = make_breaker()
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
    clock, told = ManualClock(), []
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
    clock = ManualClock()
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


def behind(breaker, answer):
    """CSP behind a breaker, whose every answer is this; what it was asked."""
    scripted = Scripted(answer)
    return CspClient(replace(scripted.service, retries=Backoff(deadline=0.0), breaker=breaker)), scripted.asked


@pytest.mark.parametrize(
    "answer",
    [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.DecodingError("garbage"), httpx.Response(502)],
    ids=lambda answer: type(answer).__name__,
)
def test_a_peer_without_an_answer_is_asked_no_more(answer):
    csp, asked = behind(make_breaker(), answer)
    for _ in range(5):
        with pytest.raises(ServiceUnavailable):
            csp.prepare("0" * 64)
    assert len(asked) == 2


@pytest.mark.parametrize(
    "answer", [problem(ServiceUnavailable("busy")), problem(UnknownTask("no")), httpx.Response(500)]
)
def test_a_peer_that_refuses_or_stumbles_is_there(answer):
    """One task's trouble at CSP does not take CSP from the others."""
    breaker = make_breaker()
    csp, asked = behind(breaker, answer)
    for _ in range(5):
        with pytest.raises((ServiceUnavailable, UnknownTask)):
            csp.prepare("0" * 64)
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
    breaker = make_breaker()
    csp, asked = behind(breaker, httpx.Response(204))
    with PeerPatience(seconds=0.0)(), pytest.raises(ServiceUnavailable, match="not asked in time"):
        csp.prepare("0" * 64)
    assert (asked, breaker.is_up) == ([], True)


def test_what_is_left_to_a_request_bounds_every_wait_in_it():
    asked = []

    def reply(request):
        asked.append(request.extensions["timeout"])
        return httpx.Response(503)

    http = httpx.Client(transport=httpx.MockTransport(reply), base_url="https://csp", timeout=600.0)
    slept = []
    csp = CspClient(Service(http, None, Backoff(first=1.0, deadline=600.0, sleep=slept.append)))
    with PeerPatience(seconds=0.9)(), pytest.raises(ServiceUnavailable):
        csp.prepare("0" * 64)
    assert max(asked[0].values()) <= 0.9
    assert sum(slept) <= 0.9
