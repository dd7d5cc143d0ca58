"""What a phone meets on a bad day: what may pass, what is final, and what is not from the service at all."""

import json
import re
import socket
import time
from dataclasses import replace
from email.utils import formatdate

import httpx
import pytest

from crowdfl import errors
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import NotAuthenticated, ServiceError, ServiceUnavailable
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.protocols.uploads import upload_digest
from crowdfl.services.client.peers import SpClient
from crowdfl.services.client.transport import Service, Signer
from crowdfl.services.http.problems import problem_for
from crowdfl.services.http.signatures import SKEW_SECONDS
from crowdfl.services.http.wire import PROBLEM_TYPE, error_from, signed_text
from tests.cli.program import start
from tests.http.test_clients import Scripted, problem
from tests.http.world import World

TASK = "0" * 64
KEYS = ParticipantKeys("a" * 20, SigningKey.fresh(), ReaderKey.fresh())
PAGE = httpx.Response(200, text="<html>Accept our terms</html>", headers={"Content-Type": "text/html"})
PASSING = [
    *(getattr(errors, name) for name in ("StorageFull", "StoreUnavailable", "ServiceUnavailable", "TooSlow")),
    *(getattr(errors, name) for name in ("Cancelled", "KeyFileDamaged", "StoreOutdated", "PoolError")),
]


@pytest.mark.parametrize("kind", PASSING, ids=lambda kind: kind.__name__)
def test_what_a_service_tells_with_a_5xx_or_408_may_pass(kind):
    told = problem_for(kind("today"))
    error = error_from(told.status, told.body())
    assert (type(error), error.passes) == (kind, True)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 507, 520])
@pytest.mark.parametrize("body", [None, [], "<html>", {"type": PROBLEM_TYPE + "internal"}, {"type": 7}, {}])
def test_what_a_proxy_or_a_failing_service_says_may_pass(status, body):
    error = error_from(status, body)
    assert (type(error), error.passes) == (ServiceUnavailable, True)


def test_a_refusal_of_a_newer_service_by_an_unknown_name_is_final():
    """Its name is not known here; that it is a refusal is."""
    error = error_from(409, {"type": PROBLEM_TYPE + "never-heard-of", "detail": "no"})
    assert (type(error), error.passes, str(error)) == (ServiceError, False, "no")
    assert error_from(404, "<html>").passes is True  # of a proxy that has lost its service


def test_each_failed_attempt_is_told_at_once():
    """Before the pause, with its reason and how long the pause is."""
    scripted = Scripted(problem(ServiceUnavailable("restarting")), httpx.ConnectError("refused"), {"key": "00" * 32})
    heard = []

    def tell(why, seconds):
        heard.append((str(why), seconds, len(scripted.pauses)))

    SpClient(replace(scripted.service, on_wait=tell)).key()
    assert [pauses for *_, pauses in heard] == [0, 1]
    assert [seconds for _, seconds, _ in heard] == scripted.pauses
    assert heard[0][0] == "restarting"
    assert "refused" in heard[1][0]


@pytest.mark.parametrize(
    "call",
    [
        lambda sp: sp.status(TASK),
        lambda sp: sp.papers(TASK),
        lambda sp: sp.initial_weights(TASK),
        lambda sp: sp.average(TASK, 1, KEYS),
        lambda sp: sp.reward(TASK, 1, KEYS),
        lambda sp: sp.uploaded(TASK, 1, KEYS),
        lambda sp: sp.send(TASK, 1, KEYS, b"upload"),
        lambda sp: sp.enrol(TASK, "certificate"),
        lambda sp: sp.leave(TASK, KEYS),
        lambda sp: sp.claim(TASK, b"claim"),
    ],
    ids=["status", "papers", "initial", "average", "reward", "uploaded", "send", "enrol", "leave", "claim"],
)
@pytest.mark.parametrize(
    "answer", [PAGE, httpx.Response(302, headers={"Location": "https://login"})], ids=["page", "302"]
)
def test_the_page_of_a_public_network_is_not_taken_for_an_answer(call, answer):
    """It may pass: nothing is kept of it, and nothing is believed to be done."""
    with pytest.raises(ServiceUnavailable) as failure:
        call(SpClient(Scripted(answer).service))
    assert failure.value.passes


class Strict:
    """A service with a clock of its own, which refuses signatures of another time, as SP does."""

    def __init__(self, time, device=1_000_000.0):
        self.time, self.asked = time, []
        http = httpx.Client(transport=httpx.MockTransport(self.answer), base_url="https://service")
        self.service = Service(http, Signer(KEYS.who, KEYS.signing), now=lambda: device)

    def answer(self, request):
        """By the time in the signature, which must be valid."""
        (signed, signature) = re.search(r'time="(\d+)", signature="(\w+)"', request.headers["authorization"]).groups()
        digest = request.headers["x-content-sha256"]
        text = signed_text(request.method, request.url.raw_path.decode(), signed, digest)
        verify(KEYS.signing.public, text, bytes.fromhex(signature))
        now = self.time() if callable(self.time) else self.time
        self.asked.append(int(signed))
        date = {"Date": formatdate(now, usegmt=True)}
        if abs(now - int(signed)) > SKEW_SECONDS:
            return problem(NotAuthenticated("the request's time differs too much"), **date)
        return httpx.Response(200, json={"digest": "f" * 64}, headers=date)


@pytest.mark.parametrize("apart", [-86_000.0, -3600.0, 3600.0, 86_000.0])
def test_a_phone_whose_clock_is_wrong_signs_with_the_server_s_time(apart):
    """From the first refusal on; later requests are right at once, also by copies of the client."""
    strict = Strict(1_000_000.0 + apart)
    sp = SpClient(strict.service)
    assert [sp.uploaded(TASK, number) for number in (1, 2)] == ["f" * 64] * 2
    assert sp.uploaded(TASK, 3, KEYS) == "f" * 64
    assert [abs(time - 1_000_000.0 - apart) < 2 for time in strict.asked] == [False, True, True, True]


def test_a_phone_whose_clock_is_right_does_not_follow_another():
    """A proxy with a wrong clock changes nothing: the service has not refused."""
    strict = Strict(1_000_000.0 + SKEW_SECONDS - 1)
    sp = SpClient(strict.service)
    assert [sp.uploaded(TASK, number) for number in (1, 2)] == ["f" * 64] * 2
    assert strict.asked == [1_000_000, 1_000_000]


@pytest.mark.parametrize("apart", [-86_500.0, 86_500.0, 10.0**9])
def test_a_time_more_than_a_day_away_is_not_believed(apart):
    """A lying server gets no signature for next year; the person is asked to set the clock."""
    strict = Strict(1_000_000.0 + apart)
    with pytest.raises(NotAuthenticated):
        SpClient(strict.service).uploaded(TASK, 1)
    assert strict.asked == [1_000_000]


def test_a_server_that_changes_its_mind_about_the_time_is_asked_twice():
    times = iter(range(1_003_000, 1_086_000, 1_000))
    strict = Strict(lambda: float(next(times)))
    with pytest.raises(NotAuthenticated):
        SpClient(strict.service).uploaded(TASK, 1)
    assert len(strict.asked) == 2


def test_only_participants_follow_the_server_s_clock():
    """A token has no time; a requester's machine is a server's, and its clock should be set."""
    answer = problem(NotAuthenticated("no"), Date=formatdate(0, usegmt=True))
    scripted = Scripted(answer)
    with pytest.raises(NotAuthenticated):
        SpClient(scripted.service).key()
    assert len(scripted.asked) == 1


def test_a_participant_learns_what_sp_holds_of_it(campaign, person):
    """Its own upload's digest and nobody else's; nothing before there is one."""
    assert person.sp.uploaded(campaign.task, 1) is None
    upload = person.update()
    person.sp.upload(campaign.task, 1, upload)
    assert person.sp.uploaded(campaign.task, 1) == upload_digest(upload)
    other = campaign.people[0]
    place = f"/v1/tasks/{campaign.task}/rounds/1/uploads/{person.who}"
    with pytest.raises(errors.Forbidden):
        other.sp.service.call("GET", place)


@pytest.mark.second
def test_a_phone_says_at_once_what_it_waits_for(tmp_path):
    """By the command line, with nobody at the platform's address: in words and as JSON, long before it gives up."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    address = f"https://127.0.0.1:{port}"
    invitation = {"task": TASK, "invitation": "x", "kgc": address, "sp": address, "kgc_key": "00" * 32}
    invitation |= {"sp_key": "00" * 32, "ca": None, "insecure_test_key": True}
    (tmp_path / "invitation.json").write_text(json.dumps(invitation))
    place = (tmp_path / "invitation.json", "--home", tmp_path / "me")
    for command, log in ((("look", *place), "look"), (("run", *place, "--data", "watch:0", "--json"), "run")):
        process = start("participant", *command, log=tmp_path / log)
        try:
            until = time.monotonic() + 60
            while "next try" not in (said := (tmp_path / log).read_text()) and '"waiting"' not in said:
                assert process.poll() is None, said
                assert time.monotonic() < until
                time.sleep(0.05)
            assert process.poll() is None
            assert "cannot be reached" in said
        finally:
            process.kill()
            process.wait()


def test_a_participant_learns_whether_it_was_drawn(campaign, tmp_path, portal):
    """For itself; an upload of another is refused by name over HTTP too."""
    world = World(tmp_path, portal)
    task, people = world.open_round(people=6, max_participants=9, per_round=4)
    drawn = {one.who for one in people if one.sp.is_drawn(task, 1)}
    assert len(drawn) == 4
    assert drawn == world.sp.store.drawn(task, 1)
    other = next(one for one in people if one.who not in drawn)
    with pytest.raises(errors.NotDrawn):
        other.sp.upload(task, 1, other.update())
    world.clock.time += world.sp.core.definition(task).settings.window / 2  # nobody has sent: the other two are drawn
    world.run()
    assert other.sp.is_drawn(task, 1)
    assert other.sp.status(task)["rounds"][0]["drawn"] == 6
    other.sp.upload(task, 1, other.update())
    assert campaign.people[0].sp.is_drawn(campaign.task, 1)  # where nobody is drawn, everyone is in
    world.close()
