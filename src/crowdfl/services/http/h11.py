"""uvicorn's HTTP/1.1, with limits on what it waits for and refusals in the form of all others.

uvicorn itself waits for headers without a limit, reads on for as long as a refused body keeps coming, refuses bytes that are
not HTTP in plain text, and waits without a limit for a reader that does not read.
"""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from crowdfl.errors import CrowdFLError, FormatError, TooSlow
from crowdfl.services.http.connections import ConnectionGate
from crowdfl.services.http.problems import MEDIA_TYPE, problem_for
from crowdfl.services.http.tls import pin_of_der

PEER_KEY = "peer_key"  # in a request's state: SHA-256 of the key that the connection proves
ON_STOP = "crowdfl.on_stop"  # in a request's scope: what to call when the server ends, if the answer would go on
_HIGH_WATER = 64 * 1024  # bytes that wait to be sent before a response pauses; asyncio takes eight times that over TLS


class LimitedH11Protocol(H11Protocol):
    """One connection, and the gate that let it in."""

    header_seconds = 20.0  # from a connection's start, or a request's first byte, until its headers are in
    linger_seconds = 5.0  # how long a body that was refused may keep coming, so that its sender reads the refusal
    stall_seconds = 60.0  # how long a reader may take for what is waiting to be sent: at least _HIGH_WATER * 3/4
    _timer: asyncio.TimerHandle | None = None
    _look: asyncio.TimerHandle | None = None
    _stalled_since: float | None = None

    def __init__(self, gate: ConnectionGate, *args: Any, **named: Any) -> None:  # noqa: ANN401 -- as uvicorn gives them
        super().__init__(*args, **named)
        self._gate = gate
        self._peer: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.app_state = self.app_state | _proven(transport)
        transport.set_write_buffer_limits(_HIGH_WATER)
        self._peer = transport.get_extra_info("peername")
        self._gate.set_up(self._peer)
        self._watch()
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Stop reading soon: nobody needs the rest of a request that has its answer."""
        self._gate.idle(self._peer)
        super().on_response_complete()
        if self.conn.our_state is h11.SEND_RESPONSE:  # the next request was waiting already
            self._gate.busy(self._peer)
        if self.conn.their_state is h11.SEND_BODY:
            self.loop.call_later(self.linger_seconds, self._stop_reading)

    def shutdown(self) -> None:
        """The server ends: an answer that has no end of its own hears of it, if its request says how."""
        super().shutdown()
        scope: Any = self.scope or {}
        if ON_STOP in scope:
            scope[ON_STOP]()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_since = None

    def _look_again(self) -> None:
        """Whether what waits to be sent is taken: by a response that pauses, or by a connection that is to be closed."""
        now = self.loop.time()
        if self._stalled_since is None and self.transport.is_closing():
            self._stalled_since = now
        if self._stalled_since is not None and now - self._stalled_since > self.stall_seconds:
            self._gate.count("slow reader")
            self.transport.abort()
        else:
            self._look = self.loop.call_later(self.stall_seconds / 4, self._look_again)

    def send_400_response(self, msg: str) -> None:
        self._refuse(FormatError(msg))

    def _watch(self) -> None:
        """Time the headers only: bodies have limits of their own, and between requests uvicorn's timer runs."""
        if self.conn.their_state is not h11.IDLE:
            self._stop()
            self._gate.busy(self._peer)
        elif self._timer is None and self.timeout_keep_alive_task is None:
            self._timer = self.loop.call_later(self.header_seconds, self._refuse, TooSlow("no request came"))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_reading(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            self.transport.close()

    def _refuse(self, error: CrowdFLError) -> None:
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            problem = problem_for(error)
            headers = [("Content-Type", MEDIA_TYPE), ("Connection", "close")]
            parts = (
                h11.Response(status_code=problem.status, headers=headers),
                h11.Data(data=json.dumps(problem.body()).encode()),
                h11.EndOfMessage(),
            )
            for part in parts:
                self.transport.write(self.conn.send(part) or b"")
        self.transport.close()


def _proven(transport: asyncio.Transport) -> dict[str, Any]:
    """For a request's state: the key of the certificate that the handshake has verified, if the caller showed one."""
    connection = transport.get_extra_info("ssl_object")
    der = connection.getpeercert(binary_form=True) if connection is not None else None
    return {PEER_KEY: pin_of_der(der)} if der else {}
