"""OpenTelemetry spans: each request that is served, each call to a peer, each step of a task, each stage of a round.

Nothing is sent unless the settings or the environment name a collector, and the extra `tracing` is installed. A span holds
names, numbers and the request's id: no body, header, token, key, address or error message. (OpenTelemetry's own packages for
FastAPI and httpx write callers' addresses and whole URLs into spans, with the names of participants in them.)
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from crowdfl.errors import SettingsError
from crowdfl.protocols.exchange import Silent
from crowdfl.services.http.wire import carry, request_id

_MISSING = "`tracing` needs packages that are not installed: pip install 'crowdfl[tracing]'"
_ADDRESSES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SECONDS = 2.0  # that the last spans may take at the end: a collector that is away keeps no service from ending
_HEADERS = TraceContextTextMapPropagator()
_tracers: list[trace.Tracer] = [trace.NoOpTracer()]  # as with logs, a process has one: the last


@contextlib.contextmanager
def span(
    name: str, *, kind: SpanKind = SpanKind.INTERNAL, parent: Mapping[str, str] | None = None, **attributes: str | int
) -> Iterator[Span]:
    """`parent` are the headers of a request that may carry a caller's span."""
    context = None if parent is None else _HEADERS.extract(parent)
    known = request_id.get()
    shown = attributes if known is None else {**attributes, "request": known}
    # An exception's message could hold anything: the span is told its name alone.
    with _tracers[-1].start_as_current_span(
        name, context, kind, named(shown), record_exception=False, set_status_on_exception=False
    ) as started:
        try:
            yield started
        except BaseException as error:
            started.set_status(StatusCode.ERROR, type(error).__name__)
            raise


def named(attributes: Mapping[str, str | int]) -> dict[str, str | int]:
    return {f"crowdfl.{name}": value for name, value in attributes.items()}


def use(provider: TracerProvider, shutdown: Callable[[], None]) -> Callable[[], None]:
    """From now on, in this process; the answer ends it."""
    _tracers.append(provider.get_tracer("crowdfl"))
    stop_carrying = carry(_outgoing)

    def end() -> None:
        _tracers.pop()
        stop_carrying()
        ending = threading.Thread(target=shutdown, name="tracing-ends", daemon=True)
        ending.start()
        ending.join(_SECONDS)

    return end


def _outgoing() -> dict[str, str]:
    carrier: dict[str, str] = {}
    _HEADERS.inject(carrier)
    return carrier


def start(address: str | None, service: str) -> Callable[[], None]:
    """Send spans to an OTLP collector, if the settings or the environment name one; the answer ends that."""
    if address is None and not any(os.environ.get(name) for name in _ADDRESSES):
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk import trace as sdk
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise SettingsError(_MISSING) from None
    endpoint = None if address is None else f"{address.rstrip('/')}/v1/traces"
    resource = Resource.create({"service.name": f"crowdfl-{service}"})
    provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=_SECONDS)))
    return use(provider, provider.shutdown)


class TracedRounds(Silent):
    """A span around each stretch of a role's work in a round, under the name of the round's stage."""

    def __init__(self) -> None:
        self._stage = threading.local()

    def begin(self, stage: str) -> None:
        self._stage.name = stage

    @contextlib.contextmanager
    def working(self, role: str) -> Iterator[None]:
        stage = getattr(self._stage, "name", "answer")
        with span(f"round {stage}", role=role, stage=stage):
            yield
