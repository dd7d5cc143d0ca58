"""SP as a process, whatever CSP does: it answers everyone else, its rounds go on when CSP is back, and it ends when told to."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from crowdfl.errors import ServiceUnavailable
from crowdfl.retry import Backoff
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import PaymentState
from crowdfl.roles.sp.time import confirm_clock
from crowdfl.services.client.peers import CspClient, SpClient
from crowdfl.services.client.transport import Bearer, Link
from crowdfl.services.http.auth import Tokens
from crowdfl.storage.atomic import write_private
from crowdfl.storage.sql import SqlStore
from tests import subprocesses
from tests.http.processes import PATIENCE, Site, site
from tests.subprocesses import until

pytestmark = pytest.mark.second


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Peers that run all the time, and one folder of SP, whichever process serves it."""
    with site(tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture
def sp_site(shared):
    """SP as it usually is, with a CSP that answers."""
    shared.gate.set("pass")
    if not shared.is_up:
        shared.start()
    return shared


def upload(people):
    for person in people:
        person.step(lambda arrays, _settings, _round=0: (arrays, 5))


def is_ready(sp_site: Site) -> bool:
    return sp_site.service().call("GET", "/readyz").status == 200


def open_round(sp_site: Site):
    """A task with three people whose round takes uploads."""
    task = sp_site.post()
    people = [sp_site.join(task) for _ in range(3)]
    until(lambda: sp_site.state(task) == "open")
    return task, people


def finish_round(sp_site: Site):
    """The same, rewarded: three people can claim."""
    task, people = open_round(sp_site)
    upload(people)
    until(lambda: SpClient(sp_site.service()).status(task)["state"] == "finished")
    upload(people)  # reads the rewards
    return task, people


def test_many_who_join_while_csp_hangs_are_answered_and_so_is_everyone_else(sp_site):
    """Forty-five at once: nobody is in before CSP knows them, so that each is told to come back, and comes in then."""
    task = sp_site.post(max_participants=48, window=3600.0)
    sp_site.gate.set("hang")
    invitations = sp_site.requester().invite(task, 45, 600.0)
    people = [sp_site.person(task) for _ in invitations]

    def refused(pair):
        person, invitation = pair
        with pytest.raises(ServiceUnavailable):
            person.join(invitation)

    started = time.monotonic()
    with ThreadPoolExecutor(45) as threads:
        waiting = [threads.submit(refused, pair) for pair in zip(people, invitations, strict=True)]
        assert SpClient(sp_site.service()).key()
        for one in waiting:
            one.result()
    assert time.monotonic() - started < 5 * PATIENCE  # ten seconds in each of a few turns, on a busy machine more
    sp_site.gate.set("pass")
    csp = SqlStore(f"sqlite:///{sp_site._folder}/csp/state.db")
    joined = [in_time(person, invitation) for person, invitation in zip(people, invitations, strict=True)]
    assert {one.identity.who for one in csp.participants(task)} == set(joined)
    assert len(set(joined)) == 45
    csp.close()


def in_time(person, invitation):
    """Once SP has seen that CSP is back."""
    found = []

    def joins():
        with contextlib.suppress(ServiceUnavailable):
            found.append(person.join(invitation))
        return found

    until(joins)
    return found[0]


def test_what_needs_csp_now_fails_soon_and_not_for_everyone(sp_site):
    """Creating a task and claiming answer 503 with a time to come back; other requests are served meanwhile."""
    task, people = finish_round(sp_site)
    sp_site.gate.set("hang")
    claims = [(person.side.claim(), person.keys) for person in people]

    def claim(place):
        started = time.monotonic()
        with pytest.raises(ServiceUnavailable):
            SpClient(sp_site.service()).claim(task, *claims[place % 3])
        return time.monotonic() - started

    with ThreadPoolExecutor(45) as threads:
        waiting = [threads.submit(claim, place) for place in range(45)]
        assert SpClient(sp_site.service()).status(task)["state"] == "finished"
        longest = max(one.result() for one in waiting)
    assert longest < PATIENCE  # ten seconds and what a busy machine adds
    with pytest.raises(ServiceUnavailable, match="CSP has not answered since"):
        SpClient(sp_site.service()).claim(task, *claims[0])
    shown = sp_site.service("operator").call("GET", "/metrics").body.decode()
    assert 'crowdfl_peer_up{peer="CSP"} 0.0' in shown
    assert 'crowdfl_peer_up{peer="KGC"} 1.0' in shown
    assert is_ready(sp_site)
    sp_site.gate.set("pass")

    def is_paid():
        try:
            return SpClient(sp_site.service()).claim(task, *claims[0]).amount > 0
        except ServiceUnavailable:
            return False

    until(is_paid)


def assert_stops_in_time(sp_site: Site) -> None:
    """With status 0, and soon: ten seconds are promised, the rest is for a busy machine."""
    started, before = time.monotonic(), len(sp_site.log)
    sp_site.process.send_signal(signal.SIGTERM)
    assert sp_site.wait() == 0
    assert time.monotonic() - started < 25.0
    sp_site.read_all()
    assert [entry for entry in sp_site.log[before:] if entry.get("level") not in ("info", "warning")] == []


def test_sigterm_ends_sp_while_its_worker_waits_for_csp(sp_site):
    """And while a phone holds half a request; the round goes on after the next start."""
    task, people = open_round(sp_site)
    sp_site.gate.set("hang")
    came = sp_site.gate.came
    upload(people)
    until(lambda: sp_site.gate.came > came)
    place = urlsplit(sp_site.url)
    with socket.create_connection((place.hostname, place.port)) as phone:
        lines = (f"POST /v1/tasks/{task}/claims HTTP/1.1", "Host: sp", "X-CrowdFL-Protocol: 3", "Content-Length: 9", "")
        phone.sendall("\r\n".join((*lines, "half")).encode())
        assert_stops_in_time(sp_site)
    sp_site.gate.set("pass")
    sp_site.start()
    until(lambda: sp_site.state(task) == "rewarded")


def test_sigterm_ends_sp_while_a_claim_waits_for_csp(sp_site):
    _, people = finish_round(sp_site)
    sp_site.gate.set("hang")
    came = sp_site.gate.came
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(people[0].claim)
        until(lambda: sp_site.gate.came > came)
        assert_stops_in_time(sp_site)
        with pytest.raises(ServiceUnavailable):
            waiting.result()


def test_sigterm_while_a_payout_program_runs_leaves_the_payment_unknown(tmp_path):
    script = "import pathlib, time; pathlib.Path('%s').touch(); time.sleep(25)" % (tmp_path / "ran")
    with site(tmp_path) as sp_site:
        sp_site.start(on_paid=[sys.executable, "-c", script])
        task, people = finish_round(sp_site)
        people[0].claim()
        until((tmp_path / "ran").exists)
        assert_stops_in_time(sp_site)
    store = SqlStore(f"sqlite:///{sp_site._folder}/sp/state.db")
    (payment,) = store.payments(task)
    assert (payment.state, payment.error) == (PaymentState.UNKNOWN, "SP was stopped while it ran; check with your bank")
    store.close()


COMPUTING = """
import sys, time
from pathlib import Path
from crowdfl.roles.csp import Csp
from crowdfl.services.server import serve_csp
from crowdfl.settings import CspSettings
from crowdfl.storage.sql import SqlStore
SqlStore.task = Csp.require_answering = lambda _self, _task: None  # a task is here, and it is under way
def answer(_csp, _task, _request):
    Path(sys.argv[1], "computing").touch()
    time.sleep(60)
Csp.answer = answer
peer = {"url": "https://127.0.0.1:1", "token": Path(sys.argv[1], "token")}
own = {"data": Path(sys.argv[1]), "host": "127.0.0.1", "port": 0, "plain_http": True}
serve_csp(CspSettings(**own, kgc=peer, kgc_key=bytes(32)))
"""


def test_sigterm_ends_a_csp_that_computes(tmp_path):
    write_private(tmp_path / "token", b"crowdfl_x")
    token = Tokens(tmp_path / "tokens.json").add("sp", "sp")
    with subprocesses.running([sys.executable, "-c", COMPUTING, str(tmp_path)], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        said = map(json.loads, process.stderr)  # the first lines warn of a guard on the same disk
        url = next(line["url"] for line in said if "url" in line)
        service = Link(url, plain_http=True).open(Bearer(token), Backoff(deadline=0.0))
        with contextlib.closing(service), ThreadPoolExecutor(1) as thread:
            asked = thread.submit(CspClient(service).answer, "0" * 64, b"request")
            until(lambda: (tmp_path / "computing").exists() or asked.done())
            assert not asked.done(), asked.exception()
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
            assert time.monotonic() - started < 25.0
            assert isinstance(asked.exception(PATIENCE), ServiceUnavailable)


DEATH = """
from crowdfl.roles.sp.platform import Sp
class Death(BaseException): pass
def tick(self): raise Death("secret")
Sp.tick = tick
"""


def test_a_process_whose_worker_dies_ends_with_an_error(shared):
    """So that whoever supervises it starts another."""
    shared.start(before=DEATH)
    assert shared.wait() != 0
    shared.read_all()
    (died,) = shared.events("a worker has died")
    assert (died["worker"], died["error"], died["level"]) == ("sp-ticker", "Death", "error")
    assert not any("secret" in str(entry) for entry in shared.log if "text" not in entry)


AHEAD = """
import time
from pathlib import Path
from crowdfl.services import run
class Clock:
    def now(self): return time.time() + float(Path(%r).read_text())
run.SystemClock = Clock
"""


def test_a_clock_that_jumps_stops_the_rounds_until_it_is_confirmed(tmp_path):
    """The peers' dates say otherwise; the operator's word counts more. Uploads are taken meanwhile."""
    with site(tmp_path) as sp_site:
        check_clock(sp_site, tmp_path / "ahead")


def check_clock(sp_site, ahead):
    ahead.write_text("0")
    sp_site.start(before=AHEAD % str(ahead))
    task, _ = open_round(sp_site)
    ahead.write_text("100000")
    until(lambda: sp_site.events("the clock is in doubt: set it, or confirm it with `crowdfl sp clock confirm`"))
    shown = sp_site.service("operator").call("GET", "/metrics").body.decode()
    assert 'crowdfl_clock_doubtful{clock="system"} 1.0' in shown
    assert sp_site.state(task) == "open"
    store = SqlStore(f"sqlite:///{sp_site._folder}/sp/state.db")
    confirm_clock(store, ManualClock(time.time() + 100000))
    store.close()
    until(lambda: sp_site.events("the clock is sure again"))
    until(lambda: store.round(task, 1).extended or store.round(task, 1).state != "open")
