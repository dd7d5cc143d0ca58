"""What an operator reads: one event per transition, under an id that travels, with readable traces and without secrets."""

import contextlib
import json
import logging
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import numpy as np
import pytest
import sqlalchemy as sa
import structlog

from crowdfl.errors import Conflict, ServiceUnavailable, SettingsError
from crowdfl.protocols.common.mask_seed import MaskSeed
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.shares.round.average import MaskedPart
from crowdfl.protocols.shares.round.sp import SharesSpRound
from crowdfl.roles.records import DepositState, StoredDeposit, StoredTask
from crowdfl.roles.requester import own_key
from crowdfl.services import tracing
from crowdfl.services.client.peers import CspClient
from crowdfl.services.http import logs
from crowdfl.services.http.auth import Tokens
from crowdfl.services.http.wire import REQUEST_ID_HEADER, outgoing
from crowdfl.storage import tables
from crowdfl.storage.sql import SqlStore
from tests import subprocesses
from tests.hosts import INITIAL_MODEL
from tests.http.processes import serving, wait_for_round
from tests.http.world import ObservedWorld, found_in, task_definition

_WHY = "the extra `tracing` is not installed"
STEPS = ("round weighed", "average published")


@contextlib.contextmanager
def spans_kept():
    """What ends while tracing is on, kept in memory."""
    pytest.importorskip("opentelemetry.sdk", reason=_WHY)
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    end = tracing.use(provider, provider.shutdown)
    try:
        yield exporter.get_finished_spans
    finally:
        end()


@pytest.fixture(scope="module")
def seen(tmp_path_factory, portal):
    """A campaign from its first deposit to its settlement: all that was logged or traced, and all that is secret in it."""
    folder, records, root = tmp_path_factory.mktemp("observed"), _Records(), logging.getLogger()
    merge = [structlog.contextvars.merge_contextvars]
    with structlog.testing.capture_logs(processors=merge) as entries, spans_kept() as spans:
        root.addHandler(records)
        level = root.level
        root.setLevel(logging.DEBUG)
        world = ObservedWorld(folder, portal)
        bundles = {path: path.read_bytes() for path in folder.glob("*/keys/*")}
        task, people, uploads = world.whole_campaign()
        bundles |= {path: path.read_bytes() for path in folder.glob("*/keys/*") if path.is_file()}
        root.removeHandler(records)
        root.setLevel(level)
        made = spans()
    secrets = [token for _, given in world.tokens.values() for token in given.values()]
    secrets += [world.signing.private, world.receipts.private, own_key(world.disk.blobs("requester")).private]
    for person in people:
        secrets += [person.keys.signing.private, person.keys.reader.private, person.participant.blobs.get("bundle")]
        secrets += [person.participant.blobs.get("claim"), person.participant.blobs.get("rounds/1/reward")]
    drawn = SharesSpRound.from_bytes(world.sp.store.sp_record(task, 1).round, Limits.plain())
    part = MaskedPart.from_bytes(drawn.part, Limits.plain())
    secrets += [
        *bundles.values(),
        *uploads,
        *(MaskSeed.from_bytes(one).seed for one in drawn.seeds),
        part.t,
        part.noise,
    ]
    with world.csp.store._read() as connection:
        bodies = connection.execute(sa.select(tables.records.c.body)).scalars().all()
    assert bodies
    secrets += [bytes(body) for body in bodies if body and len(body) >= 16]
    amounts = [str(payment.amount) for payment in world.sp.store.payments(task)]
    secrets += [amount for amount in amounts if len(amount) >= 7]  # shorter ones are in any text
    yield _Seen(task, list(entries), records.lines, made, [one for one in secrets if one])
    world.close()


class _Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


class _Seen:
    def __init__(self, task, entries, lines, spans, secrets):
        self.task, self.entries, self.lines, self.spans, self.secrets = task, entries, lines, spans, secrets

    def secrets_in(self, text):
        """A bundle names its task, and so do lines."""
        return [form for form in found_in(text, self.secrets) if form.strip('"') not in self.task]

    def of(self, service):
        """A service's events of the task, but for its answers to requests."""
        mine = [entry for entry in self.entries if entry.get("service") == service and entry.get("task") == self.task]
        return [entry["event"] for entry in mine if entry["event"] not in ("served", "refused")]


def test_every_transition_of_a_campaign_is_one_event(seen):
    """In order, from SP's log alone, an operator can tell the campaign."""
    assert seen.of("sp") == [
        "task added",
        "deposit announced",
        "deposit confirmed",
        *["participant joined"] * 3,
        "round open",
        *["upload acknowledged"] * 3,
        "round closed",
        "round weighed",
        "round rewarded",
        "average published",
        "task finished",
        *["payment pending"] * 3,
        "task settled",
    ]
    assert Counter(seen.of("kgc")) == {
        "task added": 1,
        "bundle dealt": 2,
        "bundle destroyed": 3,
        "dealing": 2,
        "round dealt": 2,
        "participant certified": 3,
    }
    assert {"task added": 1, "participant joined": 3}.items() <= Counter(seen.of("csp")).items()
    assert Counter(seen.of("csp"))["request answered"] > 5


def test_every_line_has_an_id_and_csps_lines_have_those_of_sps_steps(seen):
    """One id from the step of SP's worker, or from a phone's claim, through CSP's line and CSP's event."""
    assert [entry for entry in seen.entries if not entry.get("request")] == []
    own = {entry["event"]: entry["request"] for entry in seen.entries if entry["event"] in STEPS}
    claims = {entry["request"] for entry in seen.entries if entry.get("route") == "/v1/tasks/{task}/claims"}
    answered = {entry["request"] for entry in seen.entries if entry["event"] == "request answered"}
    assert (len(set(own.values())), len(claims)) == (2, 3)
    assert answered == {own["round weighed"]} | claims  # with the last answer of the rewards SP has the sum too


def test_no_secret_is_in_any_line(seen):
    """Tokens, private keys, seeds, bundles, uploads, masks, rewards: in hex, base64, decimal, or as they are."""
    text = json.dumps(seen.entries, default=repr) + "\n".join(seen.lines)
    assert len(seen.secrets) > 40
    assert len(text) > 10_000
    assert seen.secrets_in(text) == []
    for secret in seen.secrets:  # the search finds what is there
        assert found_in(text + (secret if isinstance(secret, str) else secret.hex()), [secret])


def test_what_is_rolled_back_is_not_told(tmp_path):
    """An event is of something durable: neither of a transaction that failed, nor of a part of one that was undone."""
    told = []
    store = SqlStore(f"sqlite:///{tmp_path}/state.db", lambda event, **fields: told.append((event, fields)))
    store.create_tables()
    deposit = StoredDeposit("t", "first", 5, DepositState.PENDING, 0.0)

    def undone(change):
        with store.transaction():
            change()
            assert told == []
            raise Conflict("no")

    with pytest.raises(Conflict):
        undone(lambda: store.add_task(StoredTask("t", "d", "a", "running")))
    assert told == []
    with store.transaction():
        store.add_task(StoredTask("t", "d", "a", "running"))
        with pytest.raises(Conflict):
            undone(lambda: store.add_deposit(deposit))
    store.add_task(StoredTask("t", "d", "a", "running"))  # again: it is there
    store.change_task("t", state="running")
    store.change_task("t", state="paused")
    assert told == [("task added", {"task": "t"}), ("task paused", {"task": "t", "before": "running"})]
    heard: list[str] = []
    store.listeners.append(lambda event, **_: heard.append(event))
    store.change_task("t", state="running")
    assert (heard, told[2:]) == (["task running"], [("task running", {"task": "t", "before": "paused"})])
    store.close()


def test_a_call_to_a_peer_that_fails_says_which_and_why(tmp_path, portal, logged):
    """Refused or away: peer, error and its message; "not there yet" is an answer."""
    observed = ObservedWorld(tmp_path, portal)
    csp = CspClient(observed.peer("csp", "sp"))
    with pytest.raises(Exception, match="no task"):
        csp.enrol("0" * 64, "{}")
    observed.apps["csp"] = _away
    with pytest.raises(ServiceUnavailable):
        csp.prepare("0" * 64)
    failed = [entry for entry in logged if entry["event"] == "peer call failed"]
    assert [(entry["peer"], entry["error"], entry["service"]) for entry in failed] == [
        ("CSP", "UnknownTask", "sp"),
        ("CSP", "ServiceUnavailable", "sp"),
    ]
    assert "no task" in failed[0]["reason"]
    observed.close()


async def _away(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 503, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_phones_id_travels_and_nobody_elses_is_sent():
    """Outside any work there is no id to send; a phone sends none."""
    assert outgoing() == {}
    with logs.working_under("abc"):
        assert outgoing() == {REQUEST_ID_HEADER: "abc"}
        with logs.working_under() as inner:
            assert outgoing() == {REQUEST_ID_HEADER: inner}
    assert outgoing() == {}


def test_a_refusal_and_an_outage_say_why(campaign, logged):
    """By the error's name and the message that the caller was told."""
    http = campaign.world.http("sp")
    http.get(f"/v1/tasks/{'0' * 64}")
    http.put(f"/v1/tasks/{campaign.task}/rounds/1/uploads/{'0' * 20}", content=b"x")
    events = [(entry["event"], entry["error"], entry["log_level"]) for entry in logged]
    assert events == [("refused", "UnknownTask", "info"), ("upload refused", "NotAuthenticated", "info")]
    assert "there is no task" in logged[0]["reason"]
    assert logged[1]["who"] == "0" * 20


def _inner(secret):
    raise KeyError(secret)


def _outer(secret):
    try:
        _inner(secret)
    except KeyError as cause:
        raise ValueError(f"lambda = {secret}") from cause


def test_a_trace_is_readable_and_shows_causes_without_messages():
    """One line per place, from the package on, the innermost last, then what it came from."""
    with pytest.raises(ValueError, match="s3cret") as raised:
        _outer("s3cret")
    lines = logs.where(raised.value)
    assert lines[0] == "ValueError"
    assert [line.split()[-1] for line in lines if line.startswith("  ")] == [
        "test_a_trace_is_readable_and_shows_causes_without_messages",
        "_outer",
        "_outer",
        "_inner",
    ]
    assert lines[3] == "after KeyError"
    assert all("http/test_events.py:" in line for line in lines if line.startswith("  "))
    assert "s3cret" not in "".join(lines)


def test_an_endless_chain_ends():
    """Two errors that name each other as their cause, and a recursion that went deep."""
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert logs.where(first) == ["ValueError", "after ValueError"]

    def deep(left):
        return 1 / 0 if left == 0 else deep(left - 1)

    with pytest.raises(ZeroDivisionError) as raised:
        deep(200)
    assert 20 < len(logs.where(raised.value)) < 60


_DYING = """
import logging, threading
from crowdfl.services.http import logs
logs.configure()
logs.get("sp").info("listening")

def fail():
    raise ValueError("s3cret")

thread = threading.Thread(target=fail, name="worker")
thread.start()
thread.join()
try:
    fail()
except ValueError:
    logging.getLogger("uvicorn.error").error("from below", exc_info=True)
fail()
"""


def test_what_nobody_caught_is_a_line_like_the_others():
    """A thread that dies, a library's own traceback, and the end of the process: JSON, with places, without messages."""
    done = subprocesses.run([sys.executable, "-c", _DYING], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert (lines[0]["event"], lines[0]["level"], done.stdout) == ("listening", "info", "")
    lines = lines[1:]
    assert [(line["event"], line["error"]) for line in lines] == [
        ("died", "ValueError"),
        ("from below", "ValueError"),
        ("died", "ValueError"),
    ]
    assert [line.get("thread") for line in lines] == ["worker", None, "main"]
    assert all(line["where"][-1].endswith(" fail") for line in lines)
    assert "s3cret" not in done.stderr
    assert done.returncode == 1


@pytest.mark.second
def test_services_as_they_are_run_tell_the_same(tmp_path, logged):
    """Opened from settings, over TLS: events, ids from SP's worker to CSP, and a peer that refuses SP's token."""
    with serving(tmp_path) as platform:
        requester, task, people = platform.open_round(task_definition())
        for person in people:
            person.encrypt(1, [np.ones((2, 3)), np.ones(2)], 5)
            person.send(1)
        wait_for_round(people[0].sp, task, "rewarded")
        Tokens(tmp_path / "kgc" / "tokens.json").revoke("sp")
        with pytest.raises(ServiceUnavailable, match="KGC does not accept"):
            platform.impatient(requester).create(task_definition(window=200), INITIAL_MODEL)
    steps = {entry["event"]: entry["request"] for entry in logged if entry["event"] in STEPS}
    assert len(set(steps.values())) == 2
    answered = {entry["request"] for entry in logged if entry["event"] == "request answered"}
    assert answered == {steps["round weighed"]}  # with the last answer of the rewards SP has the sum too
    (failed,) = [entry for entry in logged if entry["event"] == "peer call failed"]
    assert (failed["service"], failed["peer"], failed["error"]) == ("sp", "KGC", "NotAuthenticated")
    assert {"task added", "round rewarded", "participant certified"} <= {entry["event"] for entry in logged}


def test_one_trace_goes_from_a_step_of_sp_through_csps_answer(seen):
    """Step, round stage, call to CSP, CSP's request, CSP's own work: each the child of the one before."""
    spans, by_id = seen.spans, {span.context.span_id: span for span in seen.spans}

    def line(span):
        above = by_id.get(span.parent.span_id) if span.parent else None
        return [*(line(above) if above else []), span.name]

    lines = {tuple(line(span)) for span in spans}
    assert ("step", "POST CSP", "POST", "round answer") in lines
    assert {"round reward", "round average"} <= {one[-1] for one in lines if one[0] == "step"}
    assert ("POST", "POST CSP", "POST", "round answer") in lines  # a claim
    routes = {span.attributes.get("crowdfl.route") for span in spans if span.name in ("GET", "PUT", "POST")}
    assert "/v1/tasks/{task}/rounds/{number}/uploads/{who}" in routes


def test_no_secret_is_in_any_span(seen):
    text = "".join(span.to_json() for span in seen.spans)
    assert len(seen.spans) > 50
    assert [form for form in seen.secrets_in(text) if len(form) > 16] == []  # an amount may be in the digits of a time
    assert "exception" not in text


def test_an_error_is_a_spans_status_by_its_name_alone():
    with spans_kept() as spans, pytest.raises(KeyError), tracing.span("work"):
        raise KeyError("s3cret")
    (span,) = spans()
    assert span.status.description == "KeyError"
    assert "s3cret" not in span.to_json()


def test_nothing_travels_unless_it_is_asked_for(monkeypatch):
    for name in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    end = tracing.start(None, "sp")
    with tracing.span("work") as span:
        assert not span.is_recording()
        assert outgoing() == {}
    end()


def test_tracing_without_its_packages_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match=r"crowdfl\[tracing\]"):
        tracing.start("http://127.0.0.1:4318", "sp")


class _Collector(BaseHTTPRequestHandler):
    received: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self):
        self.received.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_args):
        """Quietly."""


def test_spans_reach_a_collector_and_a_missing_one_holds_nothing_up(tmp_path):
    """By OTLP over HTTP, under the service's name, at the end at the latest."""
    pytest.importorskip("opentelemetry.sdk", reason=_WHY)
    server = HTTPServer(("127.0.0.1", 0), _Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    end = tracing.start(f"http://127.0.0.1:{server.server_port}/", "sp")
    with tracing.span("step", task="t"):
        assert "traceparent" in outgoing()
    end()
    server.shutdown()
    thread.join()
    server.server_close()
    assert [path for path, _ in _Collector.received] == ["/v1/traces"]
    assert b"crowdfl-sp" in _Collector.received[0][1]
    end = tracing.start(f"http://127.0.0.1:{server.server_port}", "sp")  # nobody is there any more
    with tracing.span("step"):
        pass
    began = time.monotonic()
    end()
    assert time.monotonic() - began < 8.0
    assert outgoing() == {}
