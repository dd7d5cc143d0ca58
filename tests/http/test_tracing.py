"""Spans: one trace from SP's step through CSP's answer, nothing secret in it, and nothing at all unless it is asked for."""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from crowdfl.errors import SettingsError
from crowdfl.roles.requester import own_key
from crowdfl.services import tracing
from crowdfl.services.http.wire import outgoing
from tests.http.observed import ObservedWorld, found_in

_WHY = "the extra `tracing` is not installed"


@pytest.fixture(scope="module")
def traced(tmp_path_factory, portal):
    """A campaign's spans, and what is secret in it."""
    pytest.importorskip("opentelemetry.sdk", reason=_WHY)
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    end = tracing.use(provider, provider.shutdown)
    try:
        world = ObservedWorld(tmp_path_factory.mktemp("traced"), portal)
        _task, people, uploads = world.whole_campaign()
        spans = exporter.get_finished_spans()
    finally:
        end()
    secrets = [token for _, given in world.tokens.values() for token in given.values()]
    secrets += [world.signing.private, own_key(world.disk.blobs("requester")).private, *uploads]
    secrets += [person.keys.signing.private for person in people]
    world.close()
    return spans, secrets


def test_one_trace_goes_from_a_step_of_sp_through_csps_answer(traced):
    """Step, round stage, call to CSP, CSP's request, CSP's own work: each the child of the one before."""
    spans, _ = traced
    by_id = {span.context.span_id: span for span in spans}

    def line(span):
        above = by_id.get(span.parent.span_id) if span.parent else None
        return [*(line(above) if above else []), span.name]

    lines = {tuple(line(span)) for span in spans}
    assert ("step", "POST CSP", "POST", "round answer") in lines
    assert {"round reward", "round average"} <= {one[-1] for one in lines if one[0] == "step"}
    assert ("POST", "POST CSP", "POST", "round answer") in lines  # a claim
    routes = {span.attributes.get("crowdfl.route") for span in spans if span.name in ("GET", "PUT", "POST")}
    assert "/v1/tasks/{task}/rounds/{number}/uploads/{who}" in routes


def test_no_secret_is_in_any_span(traced):
    """Neither in names, nor attributes, nor events."""
    spans, secrets = traced
    text = "".join(span.to_json() for span in spans)
    assert len(spans) > 50
    assert found_in(text, secrets) == []
    assert "exception" not in text


def test_an_error_is_a_spans_status_by_its_name_alone():
    """Its message stays where it is."""
    pytest.importorskip("opentelemetry.sdk", reason=_WHY)
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    end = tracing.use(provider, provider.shutdown)
    with pytest.raises(KeyError), tracing.span("work"):
        raise KeyError("s3cret")
    end()
    (span,) = exporter.get_finished_spans()
    assert span.status.description == "KeyError"
    assert "s3cret" not in span.to_json()


def test_nothing_travels_unless_it_is_asked_for(monkeypatch):
    """Neither setting nor environment: no header, no span."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    end = tracing.start(None, "sp")
    with tracing.span("work") as span:
        assert not span.is_recording()
        assert outgoing() == {}
    end()


def test_tracing_without_its_packages_is_refused_by_name(monkeypatch):
    """Before anything is served, saying what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match=r"crowdfl\[tracing\]"):
        tracing.start("http://127.0.0.1:4318", "sp")


class _Collector(BaseHTTPRequestHandler):
    received: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self):
        """Take spans."""
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
