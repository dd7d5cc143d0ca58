"""What an operator sees of a service's work: ids and spans around it, an event for each call to a peer that failed, gauges."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from opentelemetry.trace import SpanKind

from crowdfl.errors import CrowdFLError, NotReady
from crowdfl.roles.ports import Events
from crowdfl.services import tracing
from crowdfl.services.client.transport import Watch
from crowdfl.services.http import logs
from crowdfl.services.http.middleware import ServiceMetrics
from crowdfl.settings import CspSettings, KgcSettings, ServiceSettings, SpSettings

_ROLES: dict[type[ServiceSettings], str] = {KgcSettings: "kgc", SpSettings: "sp", CspSettings: "csp"}


def role_of(settings: ServiceSettings) -> str:
    return _ROLES[type(settings)]


@contextlib.contextmanager
def around_step(task: str) -> Iterator[None]:
    """One step of a task: its lines and its calls to peers carry an id of its own."""
    with logs.working_under(), tracing.span("step", task=task):
        yield


def calls_to(peer: str, events: Events) -> Watch:
    """Around each call to a peer: a span, and an event if it failed."""

    @contextlib.contextmanager
    def watch(method: str, target: str) -> Iterator[None]:
        path = target.partition("?")[0]
        with tracing.span(f"{method} {peer}", kind=SpanKind.CLIENT, peer=peer, method=method, path=path):
            try:
                yield
            except NotReady:  # an answer like another: it is not there yet
                raise
            except CrowdFLError as failure:
                events("peer call failed", peer=peer, method=method, **logs.described(failure))
                raise

    return watch


def add_disk_gauge(metrics: ServiceMetrics, folder: Path) -> None:
    def read() -> dict[str, int]:
        try:
            found = shutil.disk_usage(folder)
        except OSError:
            return {}
        return {"free": found.free, "total": found.total}

    metrics.gauge("crowdfl_disk_bytes", "The disk that holds this role's folder", "kind", read)


def add_certificate_gauge(metrics: ServiceMetrics, certificate: Path) -> None:
    meaning = "When the service's certificate on disk ends, in seconds since 1970"
    with contextlib.suppress(ValueError):  # an app may be served twice: it is there already
        metrics.gauge("crowdfl_certificate_expires_seconds", meaning, "file", _Expiry(certificate))


class _Expiry:
    """Read again when the file has changed: it is renewed while the service runs."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen, self._ends = path, 0, 0

    def __call__(self) -> dict[str, int]:
        try:
            changed = os.stat(self._path).st_mtime_ns
            if changed != self._seen:
                found = x509.load_pem_x509_certificate(self._path.read_bytes())
                self._ends, self._seen = int(found.not_valid_after_utc.timestamp()), changed
        except (OSError, ValueError):
            return {}
        return {self._path.name: self._ends}
