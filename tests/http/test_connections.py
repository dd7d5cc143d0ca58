"""How many connections are held, and which one goes when there are too many: counted, with a clock that the test moves."""

import errno
import logging
import os
import resource
import socket
from collections import Counter
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from structlog.testing import CapturingLogger

from crowdfl.roles.ports import ManualClock
from crowdfl.services.http import connections, tls
from crowdfl.services.http.connections import ConnectionGate, LimitedListener, address_of, room_for
from crowdfl.services.http.logs import Seldom
from crowdfl.services.run import open_kgc
from crowdfl.services.server import running
from crowdfl.settings import KgcSettings


class Listening:
    """A listener on loopback with its gate, and those who come to it."""

    def __init__(self, stack, most=100, per_address=100):
        self.clock, self.log, self.reasons, self.stack = ManualClock(1000.0), CapturingLogger(), Counter(), stack
        count = self.reasons.update
        self.gate = ConnectionGate(most, per_address, self.log, lambda why: count([why]), self.clock.now)
        self.listener = stack.enter_context(LimitedListener.over(socket.create_server(("127.0.0.1", 0)), self.gate))
        self.listener.setblocking(False)

    def come(self, source="127.0.0.1"):
        """Somebody connects from this address: its end, and the server's or None."""
        theirs = socket.create_connection(self.listener.getsockname(), timeout=10, source_address=(source, 0))
        self.stack.callback(theirs.close)
        try:
            ours, _ = self.listener.accept()
        except BlockingIOError:
            return theirs, None
        self.stack.callback(ours.close)
        return theirs, ours

    def fill(self, count, source="127.0.0.1"):
        return [self.come(source) for _ in range(count)]


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def is_closed(theirs):
    try:
        return theirs.recv(1) == b""
    except ConnectionResetError:
        return True


def test_one_address_gets_so_many_and_others_get_theirs(stack):
    """The next of that address is closed at once; it takes nothing from anybody else."""
    listening = Listening(stack, per_address=3)
    assert all(ours for _, ours in listening.fill(3))
    theirs, ours = listening.come()
    assert (ours, is_closed(theirs)) == (None, True)
    assert all(ours for _, ours in listening.fill(3, "127.0.0.2"))
    assert listening.reasons == {"address": 1}


def test_all_addresses_together_get_so_many(stack):
    listening = Listening(stack, most=4)
    admitted = [ours for number in range(2, 8) for _, ours in listening.fill(1, f"127.0.0.{number}")]
    assert [ours is not None for ours in admitted] == [True] * 4 + [False] * 2
    assert (listening.reasons, len(listening.gate)) == ({"all": 2}, 4)


def test_zero_is_no_limit_for_one_address(stack):
    listening = Listening(stack, per_address=0)
    assert all(ours for _, ours in listening.fill(20))


def test_who_goes_makes_room(stack):
    listening = Listening(stack, per_address=2)
    (_, first), _ = listening.fill(2)
    first.close()
    first.close()
    assert len(listening.gate) == 1
    assert listening.come()[1] is not None
    assert listening.come()[1] is None


def test_the_longest_silent_one_makes_room(stack):
    """After a second of grace; of the same address if that one has too many."""
    listening = Listening(stack, most=10, per_address=2)
    other, _ = listening.come("127.0.0.2")
    (first, _), (second, _) = listening.fill(2)
    listening.clock.time += 0.5
    assert listening.come()[1] is None  # they may be about to speak
    listening.clock.time += 1.0
    assert listening.come()[1] is not None
    assert is_closed(first)
    for still in (other, second):
        still.settimeout(0.05)
        with pytest.raises(TimeoutError):
            still.recv(1)
    assert listening.reasons == {"address": 1, "idle": 1}
    assert len(listening.gate) == 3


def test_who_is_being_served_stays(stack):
    """However long it takes; between two requests it is silent like any other."""
    listening = Listening(stack, per_address=1)
    theirs, _ = listening.come()
    peer = theirs.getsockname()
    listening.gate.busy(peer)
    listening.clock.time += 1000
    assert listening.come()[1] is None
    listening.gate.idle(peer)
    assert listening.come()[1] is None
    listening.clock.time += 2
    assert listening.come()[1] is not None
    assert is_closed(theirs)


def test_a_handshake_that_does_not_end_is_not_waited_for(stack):
    listening = Listening(stack)
    (done, _), (late, _) = listening.fill(2)
    listening.gate.set_up(done.getsockname())
    listening.clock.time += connections.HANDSHAKE_SECONDS - 1
    listening.gate.sweep()
    assert len(listening.gate) == 2
    listening.clock.time += 2
    listening.gate.sweep()
    assert (is_closed(late), len(listening.gate), listening.reasons) == (True, 1, {"handshake": 1})


def test_refusals_are_logged_once_a_minute(stack):
    listening = Listening(stack, per_address=1)
    theirs, _ = listening.come()
    listening.gate.busy(theirs.getsockname())
    listening.fill(50)
    assert [call.kwargs for call in listening.log.calls] == [{"open": 1, "address": 1}]
    listening.clock.time += 61
    listening.come()
    assert [call.kwargs["address"] for call in listening.log.calls] == [1, 50]


def test_a_network_of_ipv6_is_one_address():
    """Whoever has one address has them all; an IPv4 address stays what it is, however it is written."""
    assert address_of(("2001:db8::1", 1, 0, 0)) == address_of(("2001:db8::ffff:2", 9, 0, 0))
    assert address_of(("2001:db8:0:1::1", 1, 0, 0)) != address_of(("2001:db8::1", 1, 0, 0))
    assert address_of(("::ffff:192.0.2.7", 1, 0, 0)) == address_of(("192.0.2.7", 5)) == "192.0.2.7"
    assert address_of(("fe80::1%eth0", 1, 0, 2)) == "fe80::/64"


@contextmanager
def no_descriptor_left():
    """Every one that this process may have is taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 50, hard))
    try:
        while (another := _one_more(taken[0])) is not None:
            taken.append(another)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def _one_more(descriptor):
    try:
        return os.dup(descriptor)
    except OSError:
        return None


def test_without_a_descriptor_a_connection_is_turned_away(stack):
    """It does not wait in the queue, where it would wake the event loop for ever; nor is anything raised."""
    listening = Listening(stack)
    waiting = socket.create_connection(listening.listener.getsockname(), timeout=10)
    stack.callback(waiting.close)
    with no_descriptor_left(), pytest.raises(BlockingIOError):
        listening.listener.accept()
    assert is_closed(waiting)
    assert listening.reasons == {"descriptors": 1}
    assert listening.come()[1] is not None


def test_without_a_descriptor_a_silent_connection_gives_its_own(stack):
    """The one that waits is let in as soon as the other is closed."""
    listening = Listening(stack)
    silent, ours = listening.come()
    listening.clock.time += 10
    waiting = socket.create_connection(listening.listener.getsockname(), timeout=10)
    stack.callback(waiting.close)
    with no_descriptor_left():
        with pytest.raises(BlockingIOError):
            listening.listener.accept()
        assert is_closed(silent)
        ours.close()  # as its transport does when it sees the end
        accepted, peer = listening.listener.accept()
    with accepted:
        assert peer == waiting.getsockname()
    assert listening.reasons == {"idle": 1}


def test_with_no_spare_descriptor_either_the_event_loop_rests_after_one_error(stack):
    """asyncio rests for a second when accept fails so, but would ask two thousand times before: the next call ends that."""
    listening, plain = Listening(stack), socket.create_server(("127.0.0.1", 0))
    stack.callback(socket.create_connection(plain.getsockname(), timeout=10).close)
    with no_descriptor_left():
        listener = stack.enter_context(LimitedListener.over(plain, listening.gate))
        listener.setblocking(False)
        for _ in range(3):
            with pytest.raises(OSError, match=r"(?i)too many open files") as first:
                listener.accept()
            assert first.value.errno == errno.EMFILE
            with pytest.raises(BlockingIOError):
                listener.accept()
    accepted, _ = listener.accept()
    with accepted:
        assert len(listening.gate) == 1


@pytest.mark.parametrize(
    ("soft", "hard", "room"),
    [
        (1024, 1024, 384),
        (1024, 100_000, 2000),
        (1024, 2256, 1000),
        (resource.RLIM_INFINITY,) * 2 + (2000,),
        (64, 64, 16),
    ],
)
def test_connections_leave_descriptors_for_everything_else(monkeypatch, soft, hard, room):
    """Two for each, and some for the database; as many as are allowed are asked for."""
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: asked.append(limits))
    assert room_for(2000) == room
    assert all(limits[0] <= hard and limits[1] == hard for limits in asked)


def test_a_library_repeats_itself_once_a_minute():
    """Lines that begin alike are of one kind; what differs is not lost."""
    clock = ManualClock(0.0)
    seldom = Seldom(clock.now)

    def passes(text):
        return seldom.filter(logging.LogRecord("asyncio", logging.ERROR, "", 0, text, (), None))

    assert [passes(f"socket.accept() out of system resource\nsocket: {n}") for n in range(100)].count(True) == 1
    assert passes("Task exception was never retrieved")
    clock.time = 61.0
    assert passes("socket.accept() out of system resource\nsocket: 1")
    assert all(passes(f"kind {number}") for number in range(10_000))


@pytest.mark.second
def test_a_service_hangs_up_on_a_handshake_that_does_not_come(tmp_path, monkeypatch):
    """Within seconds, where asyncio waits a minute; who speaks TLS is served meanwhile."""
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.1)
    ca = tls.make_ca(tmp_path)
    files = tls.make_server_certificate(tmp_path, ca, "kgc")
    settings = KgcSettings(data=tmp_path / "kgc", host="127.0.0.1", port=0, **vars(files))
    with running(open_kgc(settings), settings) as url:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(place, timeout=30) as silent:
            assert is_closed(silent)
        with httpx.Client(timeout=60, verify=tls.client_context(ca.certificate)) as client:
            assert client.get(f"{url}/healthz").status_code == 200
