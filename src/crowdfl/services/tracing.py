"""OpenTelemetry spans: each request that is served, each call to a peer, each step of a task, each stage of a round.

Without the extra `tracing`, or without an address to send them to, this does nothing. A span holds names, numbers and the
request's id: no body, header, token, key or error message.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from crowdfl.errors import SettingsError
from crowdfl.protocols.exchange import Silent
from crowdfl.services.http.wire import carry, request_id

_MISSING = "`tracing` needs packages that are not installed: pip install 'crowdfl[tracing]'"
_ADDRESSES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SECONDS = 2.0  # that the last spans may take at the end: a collector that is away keeps no service from ending
Attributes = Mapping[str, str | int | float | bool]


class TraceSpan:
    """What is known once the work is done; this one forgets it."""

    def add(self, **attributes: str | int) -> None: ...


class Tracing:
    """This one traces nothing."""

    @contextlib.contextmanager
    def span(
        self, name: str, attributes: Attributes, *, kind: str = "internal", parent: Mapping[str, str] | None = None
    ) -> Iterator[TraceSpan]:
        del name, attributes, kind, parent
        yield TraceSpan()

    def stop(self) -> None: ...


class _OtelSpan(TraceSpan):
    def __init__(self, span: Any) -> None:  # noqa: ANN401 -- the package is an extra
        self._span = span

    def add(self, **attributes: str | int) -> None:
        for name, value in attributes.items():
            self._span.set_attribute(f"crowdfl.{name}", value)


class OtelTracing(Tracing):
    """Over a tracer provider of OpenTelemetry's SDK."""

    def __init__(self, provider: Any) -> None:  # noqa: ANN401
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider, self._trace = provider, trace
        self._tracer, self._headers = provider.get_tracer("crowdfl"), TraceContextTextMapPropagator()
        self._stop_carrying = carry(self._outgoing)

    @contextlib.contextmanager
    def span(
        self, name: str, attributes: Attributes, *, kind: str = "internal", parent: Mapping[str, str] | None = None
    ) -> Iterator[TraceSpan]:
        """`parent` are the headers of a request that may carry a caller's span."""
        context = None if parent is None else self._headers.extract(parent)
        known = request_id.get()
        shown = {f"crowdfl.{key}": value for key, value in attributes.items()}
        shown |= {} if known is None else {"crowdfl.request": known}
        kinds = self._trace.SpanKind
        # An exception's message could hold anything: the span is told its name alone.
        with self._tracer.start_as_current_span(
            name,
            context,
            kind=kinds[kind.upper()],
            attributes=shown,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield _OtelSpan(span)
            except BaseException as error:
                span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
                raise

    def stop(self) -> None:
        self._stop_carrying()
        ending = threading.Thread(target=self._provider.shutdown, name="tracing-ends", daemon=True)
        ending.start()
        ending.join(_SECONDS)

    def _outgoing(self) -> dict[str, str]:
        carrier: dict[str, str] = {}
        self._headers.inject(carrier)
        return carrier


_current: Tracing = Tracing()


def current() -> Tracing:
    return _current


def use(tracing: Tracing) -> Callable[[], None]:
    """From now on, in this process; the answer ends it."""
    global _current  # noqa: PLW0603 -- as with logs, a process has one
    _current = tracing

    def end() -> None:
        global _current  # noqa: PLW0603
        _current = Tracing()
        tracing.stop()

    return end


def start(address: str | None, service: str) -> Callable[[], None]:
    """Send spans to an OTLP collector, if the settings or the environment name one; the answer ends that."""
    if address is None and not any(os.environ.get(name) for name in _ADDRESSES):
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise SettingsError(_MISSING) from None
    endpoint = None if address is None else f"{address.rstrip('/')}/v1/traces"
    provider = TracerProvider(resource=Resource.create({"service.name": f"crowdfl-{service}"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=_SECONDS)))
    return use(OtelTracing(provider))


class TracedRounds(Silent):
    """A span around each stretch of a role's work in a round, under the name of the round's stage."""

    def __init__(self) -> None:
        self._stage = threading.local()

    def begin(self, stage: str) -> None:
        self._stage.name = stage

    def working(self, role: str) -> contextlib.AbstractContextManager[None]:
        return self._span(role)

    @contextlib.contextmanager
    def _span(self, role: str) -> Iterator[None]:
        stage = getattr(self._stage, "name", "answer")
        with current().span(f"round {stage}", {"role": role, "stage": stage}):
            yield
