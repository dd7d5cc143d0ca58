"""An exchange with a peer ends in time, whatever part of it is slow; one that moves may take as long as its bytes."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from crowdfl.errors import ServiceUnavailable
from crowdfl.retry import Backoff
from crowdfl.services.client.transport import Link
from crowdfl.services.http.wire import OCTETS

HEAD = f"HTTP/1.1 200 OK\r\nContent-Type: {OCTETS}\r\n".encode()
PACE = 0.4  # seconds
PIECE = bytes(100_000)


@contextlib.contextmanager
def peer(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """Whoever calls is answered like that, until the end."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                caller, _ = listener.accept()
                with caller:
                    answer(caller, over)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.close()
            thread.join()


def drip(caller: socket.socket, over: threading.Event) -> None:
    while not over.wait(PACE / 8):
        caller.sendall(b"a")


def drips_headers(caller: socket.socket, over: threading.Event) -> None:
    caller.sendall(HEAD + b"X-Slow: ")
    drip(caller, over)


def drips_body(caller: socket.socket, over: threading.Event) -> None:
    caller.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
    drip(caller, over)


def hangs(_caller: socket.socket, over: threading.Event) -> None:
    over.wait()


def reads_slowly(caller: socket.socket, over: threading.Event) -> None:
    while not over.wait(PACE / 8):
        caller.recv(10)


def is_steady(caller: socket.socket, over: threading.Event) -> None:
    """Longer than the pace in all, and faster than the least rate."""
    caller.recv(65536)
    caller.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (8 * len(PIECE)))
    for _ in range(8):
        over.wait(PACE / 4)
        caller.sendall(PIECE)


def asked(url: str, body: bytes = b"") -> bytes:
    service = Link(url, plain_http=True).open(retries=Backoff(deadline=0.0))
    with contextlib.closing(service):
        return replace(service, pace=PACE).call("POST", "/", body, media_type=OCTETS).octets()


@pytest.mark.parametrize("slow", [drips_headers, drips_body, hangs, reads_slowly])
def test_a_slow_exchange_ends(slow: Callable[[socket.socket, threading.Event], None]) -> None:
    """It would last until the test ends it, which is never."""
    with peer(slow) as url, pytest.raises(ServiceUnavailable, match="Timeout"):
        asked(url, bytes(64 * 1024 * 1024) if slow is reads_slowly else b"")


def test_a_long_answer_that_moves_is_read_to_its_end() -> None:
    with peer(is_steady) as url:
        assert asked(url) == 8 * PIECE
