"""Connections whose exchanges end in time. httpx bounds each read and each write, and not all of an exchange together.

Whoever answers byte by byte, in its headers or its body, or reads a request like that, keeps nobody longer than `seconds` and
what its bytes take at the least rate.
"""

import contextlib
import ssl
import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx

from crowdfl.services.client.breaker import seconds_left

LEAST_RATE = 16 * 1024  # bytes a second
_PIECE = 64 * 1024  # bytes that are sent at once
_CONNECTIONS, _KEPT, _KEPT_SECONDS = 100, 20, 5.0  # as httpx has it


@dataclass
class _Pace:
    seconds: float
    moved: int = 0  # bytes, either way
    started: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        return self.started + self.seconds + self.moved / LEAST_RATE - time.monotonic()


_PACE: ContextVar[_Pace | None] = ContextVar("pace", default=None)


@contextlib.contextmanager
def paced(seconds: float | None) -> Iterator[None]:
    """Around one exchange; None: it may take as long as it moves."""
    token = _PACE.set(None if seconds is None else _Pace(seconds))
    try:
        yield
    finally:
        _PACE.reset(token)


class PacedTransport(httpx.BaseTransport):
    """As httpx's own, which offers no way to choose how bytes are read: a pool of httpcore's, and httpx's names for errors."""

    def __init__(self, verify: ssl.SSLContext | None) -> None:
        self._connections = httpcore.ConnectionPool(
            ssl_context=verify,
            max_connections=_CONNECTIONS,
            max_keepalive_connections=_KEPT,
            keepalive_expiry=_KEPT_SECONDS,
            network_backend=_PacedBackend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        place = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        asked = httpcore.Request(
            request.method,
            place,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _named_as_httpx():
            answer = self._connections.handle_request(asked)
        stream = _Body(answer)
        return httpx.Response(answer.status, headers=answer.headers, stream=stream, extensions=answer.extensions)

    def close(self) -> None:
        self._connections.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with _named_as_httpx():
            yield from self._answer.iter_stream()

    def close(self) -> None:
        self._answer.close()


@contextlib.contextmanager
def _named_as_httpx() -> Iterator[None]:
    """Both libraries have the same names for what goes wrong."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as wrong:
        raise getattr(httpx, type(wrong).__name__)(str(wrong)) from wrong


class _PacedBackend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _PacedStream(super().connect_tcp(host, port, timeout, local_address, socket_options))


class _PacedStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, _bounded(timeout, httpcore.ReadTimeout))
        _count(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._inner.write(piece, _bounded(timeout, httpcore.WriteTimeout))
            _count(piece)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _PacedStream(self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 -- as httpcore has it
        return self._inner.get_extra_info(info)


def _bounded(timeout: float | None, kind: type[httpcore.TimeoutException]) -> float | None:
    pace = _PACE.get()
    request = seconds_left()
    if pace is None:
        return timeout
    left = min(pace.left(), pace.seconds if request is None else request)
    if left <= 0:
        raise kind(f"slower than {LEAST_RATE} bytes a second after {pace.seconds:g} s")
    return left if timeout is None else min(timeout, left)


def _count(data: bytes) -> None:
    pace = _PACE.get()
    if pace is not None:
        pace.moved += len(data)
