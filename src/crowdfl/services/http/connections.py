"""How many connections a service holds, in all and from one address, whatever state they are in.

They are counted where they are accepted and where their sockets are closed, so that one whose TLS handshake never ends counts
too. When there are too many, one that has sent nothing for a while makes room; if there is none, the new one is closed at once.
"""

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import resource
import socket
import time
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import h11
from structlog.types import FilteringBoundLogger
from uvicorn.protocols.http.h11_impl import H11Protocol

from crowdfl.errors import CrowdFLError, FormatError, TooSlow
from crowdfl.services.http.problems import MEDIA_TYPE, problem_for
from crowdfl.services.http.tls import pin_of_der

HANDSHAKE_SECONDS = 20.0  # from a connection's start until its TLS stands
_GRACE = 1.0  # seconds in which a new connection, or one between two requests, is not asked to make room
_LOG_SECONDS = 60.0
_SPARE_DESCRIPTORS = 256  # for the database, peers, the log, files that threads have open
_EACH = 2  # descriptors of a connection: its socket, and a file that its body comes from or goes to
_FEWEST = 16
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_SEND_BUFFER = 256 * 1024  # bytes in the kernel for one that does not read; it would grow to megabytes by itself
_TLS_BUFFER = 32 * 1024  # two records
_NETWORK_BITS = 64  # of an IPv6 address: whoever has one has all of its network


@dataclass(eq=False)
class _Held:
    """A connection that is open."""

    socket: "_CountedSocket" = field(repr=False)
    address: str
    since: float  # when it was accepted, or its last request ended
    is_set_up: bool = False  # its TLS stands
    is_busy: bool = False  # a request is being read or answered


class ConnectionGate:
    """Admits connections and forgets those that end; belongs to one event loop, as its listener does."""

    def __init__(
        self,
        most: int,
        per_address: int,
        log: FilteringBoundLogger,
        turned_away: Callable[[str], object],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`turned_away` is told the reason of each that is closed by this."""
        self.most, self.per_address = most, per_address
        self._log, self.turned_away, self._now = log, turned_away, now
        self._held: dict[Any, _Held] = {}  # by the other end's address and port, the longest idle first
        self._of_address: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()  # since the last line in the log
        self._logged: float | None = None

    def __len__(self) -> int:
        return len(self._held)

    def admit(self, connection: "_CountedSocket", peer: Any) -> bool:  # noqa: ANN401 -- as the system names the other end
        """Whether this one may stay."""
        address = address_of(peer)
        why = self._too_many(address)
        if why is not None and not self._make_room(None if why == "all" else address):
            self._refuse(why)
            return False
        self._held[peer] = _Held(connection, address, self._now())
        self._of_address[address] += 1
        return True

    def forget(self, peer: Any, connection: "_CountedSocket") -> None:  # noqa: ANN401
        """It has ended; safe to repeat."""
        held = self._held.get(peer)
        if held is not None and held.socket is connection:
            self._drop(peer, held)

    def set_up(self, peer: Any) -> None:  # noqa: ANN401
        """Its handshake is done."""
        if peer in self._held:
            self._held[peer].is_set_up = True

    def busy(self, peer: Any) -> None:  # noqa: ANN401
        """A request has come."""
        if peer in self._held:
            self._held[peer].is_busy = True

    def idle(self, peer: Any) -> None:  # noqa: ANN401
        """The request has its answer."""
        held = self._held.pop(peer, None)
        if held is not None:
            held.is_busy = False
            held.since = self._now()
            self._held[peer] = held  # now the last in order

    def find_descriptor(self) -> bool:
        """The system has none left: whether the longest idle gives back its own, in a moment."""
        if self._make_room(None):
            return True
        self._refuse("descriptors")
        return False

    def sweep(self) -> None:
        """Close those whose handshake has not ended in time: asyncio would wait a minute."""
        late = self._now() - HANDSHAKE_SECONDS
        for peer, held in list(self._held.items()):
            if not held.is_set_up and held.since < late:
                self._close(peer, held, "handshake")

    def _too_many(self, address: str) -> str | None:
        if self.per_address and self._of_address[address] >= self.per_address:
            return "address"
        return "all" if len(self._held) >= self.most else None

    def _make_room(self, address: str | None) -> bool:
        """Close the one that has been idle longest, of this address or of all."""
        settled = self._now() - _GRACE
        for peer, held in self._held.items():
            if held.is_busy or address not in (None, held.address):
                continue
            if held.since >= settled:  # and so are all that follow
                return False
            self._close(peer, held, "idle")
            return True
        return False

    def _close(self, peer: Any, held: _Held, why: str) -> None:  # noqa: ANN401
        """Its transport sees the end and closes the socket; until then it counts no more."""
        self._drop(peer, held)
        self.turned_away(why)
        held.socket.hang_up()

    def _drop(self, peer: Any, held: _Held) -> None:  # noqa: ANN401
        del self._held[peer]
        self._of_address[held.address] -= 1
        if not self._of_address[held.address]:
            del self._of_address[held.address]

    def _refuse(self, why: str) -> None:
        self.turned_away(why)
        self._refusals[why] += 1
        now = self._now()
        if self._logged is None or now - self._logged >= _LOG_SECONDS:
            self._log.warning("connections refused", open=len(self._held), **self._refusals)
            self._refusals.clear()
            self._logged = now


class _CountedSocket(socket.socket):
    """An accepted connection that tells its gate when it is closed."""

    gate: ConnectionGate | None = None
    peer: Any = None

    def close(self) -> None:
        if self.gate is not None:
            self.gate.forget(self.peer, self)
        super().close()

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):  # the other side was faster
            self.shutdown(socket.SHUT_RDWR)


class LimitedListener(socket.socket):
    """A listening socket that hands out only what its gate admits.

    Without a free descriptor a connection cannot even be refused, and stays in the queue: one descriptor is kept for that.
    """

    gate: ConnectionGate
    _spare: int | None = None
    _resting = False

    @classmethod
    def over(cls, listener: socket.socket, gate: ConnectionGate) -> "LimitedListener":
        """In place of a plain listener."""
        family, kind, proto = listener.family, listener.type, listener.proto
        limited = cls(family, kind, proto, fileno=listener.detach())
        limited.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)  # those that are accepted inherit it
        limited.gate = gate
        limited._keep_spare()
        return limited

    def accept(self) -> tuple[socket.socket, Any]:
        """The next that is admitted; BlockingIOError when none waits."""
        while True:
            plain, peer = self._next()
            connection = _CountedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
            if self.gate.admit(connection, peer):
                connection.gate = self.gate
                connection.peer = peer
                return connection, peer
            connection.close()

    def close(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        super().close()

    def _next(self) -> tuple[socket.socket, Any]:
        try:
            accepted = super().accept()
        except OSError as wrong:
            if wrong.errno not in _OUT_OF_DESCRIPTORS:
                raise
            if not self.gate.find_descriptor():
                self._turn_one_away(wrong)
            raise BlockingIOError from None  # what was hung up on is closed before the next is looked at
        self._resting = False
        return accepted

    def _turn_one_away(self, wrong: OSError) -> None:
        if self._spare is None:
            # asyncio rests for a second when it is told, but asks on before it does: it is told once.
            self._resting = not self._resting
            if self._resting:
                raise wrong
            return
        os.close(self._spare)
        self._spare = None
        with contextlib.suppress(OSError):  # a thread took the descriptor
            super().accept()[0].close()
        self._keep_spare()

    def _keep_spare(self) -> None:
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            self._spare = None


def address_of(peer: Any) -> str:  # noqa: ANN401
    """Who counts as one: an IPv4 address, or a network of IPv6."""
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), _NETWORK_BITS), strict=False))


def shrink_tls_buffers() -> None:
    """asyncio takes 256 KiB for each connection before its handshake has begun: a stranger's cost nothing, ours a gigabyte."""
    SSLProtocol.max_size = _TLS_BUFFER


def room_for(wanted: int) -> int:
    """As many connections as are wanted, or as the system lets this process have; it is asked for more descriptors first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted * _EACH + _SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, max(_FEWEST, (soft - _SPARE_DESCRIPTORS) // _EACH))


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
            self._gate.turned_away("slow reader")
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
