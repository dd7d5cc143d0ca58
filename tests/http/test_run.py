"""Roles as processes, and SP's work in the background."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import structlog

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import TaskEnd
from crowdfl.errors import (
    BadSignature,
    Forbidden,
    KeyFileDamaged,
    KeyFileMissing,
    KeyFilePermissions,
    NotAuthenticated,
    NotReady,
    PassphraseError,
    PlainHttpRefused,
    ServiceUnavailable,
    SettingsError,
    TaskEnded,
)
from crowdfl.protocols.records import Look, MemoryRecords
from crowdfl.retry import Backoff
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.retention import WhyHeld
from crowdfl.services.apps.held import add_held_metrics
from crowdfl.services.background.workers import Ticker
from crowdfl.services.client.peers import CspClient, KgcClient
from crowdfl.services.client.transport import Link
from crowdfl.services.http import tls
from crowdfl.services.http.wire import PROBLEM_TYPE, PROTOCOL, PROTOCOL_HEADER
from crowdfl.services.run import open_csp, open_kgc
from crowdfl.services.server import make_server, running
from crowdfl.settings import CspSettings, KgcSettings, PeerSettings, SpSettings
from crowdfl.storage import upgrading
from crowdfl.storage.atomic import read_secret, signing_key
from tests import subprocesses
from tests.hosts import INITIAL_MODEL
from tests.http.processes import serving, wait_for
from tests.http.world import task_definition
from tests.storage.later import next_version

LOCAL = {"host": "127.0.0.1", "port": 0}

SERVE = """
import sys
from pathlib import Path
from crowdfl.services.server import serve_kgc
from crowdfl.settings import KgcSettings
serve_kgc(KgcSettings(data=Path(sys.argv[1]), host="127.0.0.1", port=0, plain_http=True))
"""


@pytest.mark.second
@pytest.mark.parametrize(("number", "at_once"), [(signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_process_serves_until_it_is_told_to_stop(tmp_path, number, at_once):
    """With status 0; also before it looks for signals: one that got lost would leave it running for ever."""
    command = [sys.executable, "-c", SERVE, str(tmp_path / "kgc")]
    with subprocesses.running(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        listening = json.loads(process.stderr.readline())
        if not at_once:
            with contextlib.closing(Link(listening["url"], plain_http=True).open()) as service:
                assert KgcClient(service).key() == signing_key(tmp_path / "kgc" / "signing.key").public
        process.send_signal(number)
        events = [json.loads(line)["event"] for line in process.stderr]
        assert process.wait(30) == 0
        assert at_once or events == ["served", "stopped"]


@pytest.mark.second
def test_a_process_whose_database_a_later_version_has_migrated_is_not_ready_and_starts_no_more(tmp_path):
    """Side by side: the service is of the earlier version, and this process takes the part of the later one."""
    folder = tmp_path / "kgc"
    command = [sys.executable, "-c", SERVE, str(folder)]
    with subprocesses.running(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = json.loads(process.stderr.readline())["url"]
        assert httpx.get(f"{url}/readyz", timeout=60.0).json() == {"status": "ready"}
        with next_version(tmp_path):
            upgrading.upgrade(f"sqlite:///{folder}/state.db")
        refused = httpx.get(f"{url}/readyz", timeout=60.0)
        assert (refused.status_code, refused.json()["type"]) == (500, f"{PROBLEM_TYPE}store-too-new")
    again = subprocesses.run(command, capture_output=True, text=True)
    assert again.returncode != 0
    assert "StoreTooNew" in again.stderr


def test_answers_do_not_wait_for_the_receipt_of_their_first_part(tmp_path):
    """Nagle's algorithm and delayed receipts together cost 40 ms an answer; connections inherit it from their listener."""
    settings = KgcSettings(data=tmp_path, **LOCAL, plain_http=True)
    _, listener, url = make_server(open_kgc(settings), settings)
    with listener, socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_plain_http_is_served_on_loopback_only_when_asked(tmp_path):
    for settings in (
        KgcSettings(data=tmp_path, **LOCAL),
        KgcSettings(data=tmp_path, **LOCAL | {"host": "0.0.0.0"}, plain_http=True),  # noqa: S104
    ):
        app = open_kgc(settings)
        with pytest.raises(PlainHttpRefused), running(app, settings):
            pass


def test_a_stranger_with_another_ca_does_not_get_through(tmp_path):
    """A client that trusts another CA refuses the server, and names it."""
    ca = tls.make_ca(tmp_path)
    (tmp_path / "other").mkdir()
    other = tls.make_ca(tmp_path / "other")
    files = tls.make_server_certificate(tmp_path, ca, "kgc")
    settings = KgcSettings(data=tmp_path / "kgc", certificate=files.certificate, key=files.key, **LOCAL)
    with running(open_kgc(settings), settings) as url:
        trusting = Link(url, ca.certificate).open()
        assert len(KgcClient(trusting).key()) == 32
        trusting.close()
        waits: list[float] = []
        doubting = Link(url, other.certificate).open(retries=Backoff(deadline=120.0, sleep=waits.append))
        with pytest.raises(ServiceUnavailable, match=r"(?i)certificate"):
            KgcClient(doubting).key()
        assert waits == []  # at once: it would be refused again
        doubting.close()


def test_what_a_role_lacks_is_named(tmp_path):
    token = tmp_path / "token"
    given = {"data": tmp_path, **LOCAL, "kgc": PeerSettings(url="https://localhost:1", token=token)}
    with pytest.raises(SettingsError, match=r"`kgc` is missing; expected a table, \[kgc\]"):
        CspSettings(data=tmp_path, kgc_key=bytes(32), **LOCAL)
    with pytest.raises(SettingsError, match="`kgc_key` is missing; expected a public key"):
        CspSettings(**given)
    with pytest.raises(SettingsError, match=r"`kgc_key` is .*; expected a public key"):
        CspSettings(**given, kgc_key=bytes(31))
    with pytest.raises(SettingsError, match=r"`csp` is missing; expected a table, \[csp\]"):
        SpSettings(**given, kgc_key=bytes(32))
    settings = CspSettings(**given, kgc_key=bytes(32))
    with pytest.raises(KeyFileMissing):
        open_csp(settings)
    token.write_text("crowdfl_x")
    token.chmod(0o644)
    with pytest.raises(KeyFilePermissions):
        open_csp(settings)


def test_csp_sweeps_requests_that_never_came_whole(tmp_path):
    """At each of its sweeps, not only as it opens its folder; what is still sent stays."""
    (token := tmp_path / "token").write_text("crowdfl_x")
    token.chmod(0o600)
    kgc = PeerSettings(url="http://127.0.0.1:1", token=token)
    settings = CspSettings(data=tmp_path / "csp", **LOCAL, plain_http=True, kgc=kgc, kgc_key=bytes(32))
    app = open_csp(settings)
    left, sent = (tmp_path / "csp/incoming" / f"{name}.1.part" for name in ("left", "sent"))
    for path in (left, sent):
        path.write_bytes(b"some")
    os.utime(left, (0.0, 0.0))
    with running(app, settings):
        wait_for(lambda: require_gone(left))
    assert sent.exists()


def require_gone(path: Path) -> None:
    if path.exists():
        raise NotReady("not yet")


def test_a_signing_key_is_made_once_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "signing.key"
    assert signing_key(path) == signing_key(path)
    assert signing_key(path) != SigningKey.fresh()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    with pytest.raises(KeyFileDamaged):
        signing_key(path)


class Steps:
    """Work that fails first, then has two steps, then none."""

    def __init__(self, failure):
        self.failure, self.calls, self.rested = failure, 0, threading.Event()

    def tick(self):
        self.calls += 1
        if self.calls == 1:
            raise self.failure
        if self.calls >= 4:
            self.rested.set()
        return self.calls < 4


@pytest.mark.parametrize(
    ("failure", "level"),
    [
        (ServiceUnavailable("CSP is away"), "warning"),
        (OSError(28, "away"), "warning"),
        (ZeroDivisionError("away"), "error"),
        (httpx.DecodingError("away"), "error"),
    ],
)
def test_a_step_that_fails_is_logged_by_name_and_tried_again(failure, level, logged):
    steps = Steps(failure)
    ticker = Ticker(structlog.get_logger(), steps.tick, interval=0.01)
    ticker.start()
    assert steps.rested.wait(10)
    ticker.check()
    ticker.stop()
    assert (logged[0]["error"], logged[0]["log_level"], len(logged)) == (type(failure).__name__, level, 1)
    assert logged[0]["where"][-1].endswith(" tick")
    assert ("away" in str(logged)) is isinstance(failure, ServiceUnavailable)  # an error of our own is made to be shown
    assert "full" not in str(logged)
    with pytest.raises(ServiceUnavailable):
        ticker.check()


class Death(BaseException):
    """What no worker survives."""


def test_work_that_has_died_shows_in_readiness_and_is_told(logged):
    """A platform that looks well and stands still helps nobody."""
    steps, told = Steps(Death("secret")), threading.Event()
    ticker = Ticker(structlog.get_logger(), steps.tick, interval=0.0, on_death=told.set)
    ticker.start()
    assert told.wait(10)
    ticker._thread.join(10)
    with pytest.raises(ServiceUnavailable, match="the rounds do not move"):
        ticker.check()
    assert [(entry["worker"], entry["error"], entry["log_level"]) for entry in logged] == [
        ("sp-ticker", "Death", "error")
    ]
    assert "secret" not in str(logged)


def test_nothing_of_a_role_is_open_to_others(tmp_path):
    """Folders 0700, files 0600, whatever the umask."""
    before = os.umask(0)
    try:
        open_kgc(KgcSettings(data=tmp_path / "kgc", **LOCAL))
    finally:
        os.umask(before)
    found: list[Path] = [tmp_path / "kgc", *(tmp_path / "kgc").rglob("*")]
    assert [path.name for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_key_folders_open_with_their_passphrase(tmp_path):
    """From a file of the owner's; a wrong one, none, or one that others can read ends the service before it serves."""
    file = tmp_path / "passphrase"
    file.write_text("correct horse\n")
    file.chmod(0o600)
    settings = KgcSettings(data=tmp_path / "kgc", **LOCAL, plain_http=True, passphrase_file=file)
    open_kgc(settings)
    open_kgc(settings)
    with pytest.raises(PassphraseError, match="is sealed"):
        open_kgc(settings.changed(passphrase_file=None))
    with pytest.raises(KeyFileMissing):
        open_kgc(settings.changed(passphrase_file=tmp_path / "nowhere"))
    file.write_text("wrong")
    with pytest.raises(PassphraseError, match="does not open"):
        open_kgc(settings)
    file.write_bytes(b"\xff")
    with pytest.raises(KeyFileDamaged, match="one line of text"):
        open_kgc(settings)
    file.chmod(0o644)
    with pytest.raises(KeyFilePermissions):
        open_kgc(settings)


@pytest.mark.parametrize("nothing", ["", "\n", " \nsecond line\n"])
def test_an_empty_secret_is_refused_by_name(tmp_path, nothing):
    """A token that was cut off would only look like a peer that is away."""
    path = tmp_path / "csp.token"
    path.touch(0o600)
    path.write_text(nothing)
    with pytest.raises(KeyFileDamaged, match="empty"):
        read_secret(path, "token for CSP")


def test_sp_needs_its_token_and_its_key_to_end_a_task(world):
    task, _ = world.open_round()
    end = TaskEnd(task, "settled", 1.0)
    good, forged = end.sign(world.receipts), end.sign(SigningKey.fresh())
    for name, client in (("kgc", KgcClient), ("csp", CspClient)):
        sp = client(world.service(name, world.token(name, "sp")))
        with pytest.raises(BadSignature):
            sp.end(task, forged)
        for stranger in (None, world.token(name, "requester"), world.token(name, "operator")):
            service = world.service(name, stranger)
            with pytest.raises((NotAuthenticated, Forbidden)):
                service.send_json("POST", f"/v1/tasks/{task}/end", {"document": good})
        assert world.kgc.store.task(task).state == "open"
        assert world.csp.bundles.has(f"{task}.csp")
    assert world.kgc.bundles.has(f"{task}.participant")


def test_after_the_end_everyone_is_told_so_by_name(world):
    task, _ = world.open_round()
    world.csp.blobs.put(f"{task}/answers/a/b", b"a reply")
    request = hashlib.sha256(b"a request").hexdigest()
    world.csp.store.set_records(task, Look(MemoryRecords()), request, f"{task}/answers/a/b")
    good = TaskEnd(task, "settled", 1.0).sign(world.receipts)
    kgc, csp = KgcClient(world.service("kgc", world.token("kgc", "sp"))), world.csp_for("sp")
    assert csp.answer(task, b"a request") == b"a reply"
    for peer in (kgc, csp):
        for _ in range(2):  # a repeat, after a lost answer
            peer.end(task, good)
    definition = world.kgc.store.task(task).definition
    invitation, *_ = world.requester.invite(task, 1, 60.0)
    for act in (
        lambda: kgc.bundle(task),
        lambda: KgcClient(world.service("kgc", world.owner("kgc"))).create_task(definition),
        lambda: world.new_participant(task, "late").join(invitation),
        lambda: csp.prepare(task),
        lambda: csp.answer(task, b"a request"),
    ):
        with pytest.raises(TaskEnded, match="settled by SP"):
            act()
    assert not list((world.folder / "csp/blobs").rglob("*"))
    assert not world.csp.bundles.has(f"{task}.csp")
    world.requester.close_enrolment(task)  # too late, and no harm: it stays ended
    assert world.kgc.store.task(task).state == "ended"
    reply = world.http("csp").get(f"/v1/tasks/{task}/requests/{'0' * 64}", headers=_headers(world))
    assert (reply.status_code, reply.json()["type"]) == (410, "urn:crowdfl:problem:task-ended")


def _headers(world) -> dict[str, str]:
    return {PROTOCOL_HEADER: PROTOCOL, "Authorization": f"Bearer {world.token('csp', 'sp').token}"}


def test_held_things_are_counted_once_a_minute():
    """Counting files takes time, and anyone who may scrape could ask for it again and again."""
    clock, looks, gauges = ManualClock(), [], {}

    class Holding:
        def held(self):
            looks.append(1)
            return {"a": Counter({"seeds": 2, "uploads": 1}), "b": Counter({"seeds": 1})}

        def why_held(self, task, _counts):
            return {"a": WhyHeld.RUNNING, "b": WhyHeld.CLAIMS}[task]

    class Metrics:
        def gauge(self, name, _about, _label, read):
            gauges[name] = read

    add_held_metrics(Metrics(), Holding(), clock.now)
    for _ in range(3):
        assert gauges["crowdfl_held"]() == {"seeds": 3, "uploads": 1}
        assert gauges["crowdfl_tasks_held"]() == {"running": 1, "claims_open": 1}
    assert len(looks) == 1
    clock.time += 61
    assert gauges["crowdfl_held"]() == {"seeds": 3, "uploads": 1}
    assert len(looks) == 2


@pytest.mark.second
def test_live_services_end_a_task_by_themselves(tmp_path):
    """A task is cancelled, its claims have no time: KGC, CSP and SP hold nothing of it, and their metrics say so."""
    with serving(tmp_path) as platform:
        requester = platform.requester()
        task = requester.create(replace(task_definition(), claims_until=0), INITIAL_MODEL)
        platform.join(requester, task)
        keys = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob(f"*/keys/{task}.*")}
        assert {f"sp/keys/{task}.sp", f"csp/keys/{task}.csp", f"kgc/keys/{task}.participant"} <= keys
        assert 'crowdfl_held{kind="key shares"} 1.0' in platform.metrics("csp")
        assert 'crowdfl_tasks_held{why="running"} 1.0' in platform.metrics("csp")
        requester.order(task, "cancel")

        def erased() -> None:
            left = {path.name for path in tmp_path.glob(f"*/keys/{task}.*")}
            if left != {f"{task}.dealt", f"{task}.appointment"}:
                raise NotReady("not yet")

        wait_for(erased)
        assert requester.sp.status(task)["ended"] == {"why": "cancelled", "by": "requester", "reason": ""}
        assert "crowdfl_held{" not in platform.metrics("kgc")
        assert 'crowdfl_held{kind="results"} 1.0' in platform.metrics("sp")  # the initial weights
        with pytest.raises(TaskEnded):
            requester.create(replace(task_definition(), claims_until=0), INITIAL_MODEL)
