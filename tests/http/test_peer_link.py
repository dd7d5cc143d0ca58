"""A server's connection to another, reloaded while it carries a request."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from crowdfl.services.client.peer_link import PeerAccess, PeerLink
from crowdfl.services.client.transport import Link
from crowdfl.storage.atomic import write_private


class _Slow(ThreadingHTTPServer):
    """Answers when it may, with the token that it was shown."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked, self.may_answer = threading.Semaphore(0), threading.Event()


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, _Slow)
        self.server.asked.release()
        if self.path == "/slow":
            self.server.may_answer.wait(60)
        body = self.headers["Authorization"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nowhere."""


@pytest.fixture
def peer() -> Iterator[_Slow]:
    """A peer over plain HTTP on loopback."""
    server = _Slow()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.may_answer.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_request_under_way_ends_well_when_its_token_is_replaced(peer: _Slow, tmp_path):
    """The next one has the new token, over connections of its own."""
    file = tmp_path / "token"
    write_private(file, b"old")
    access = PeerAccess("KGC", Link(f"http://127.0.0.1:{peer.server_port}", plain_http=True), file)
    link, answers = PeerLink(access), []
    with contextlib.closing(link.service):
        asking = threading.Thread(target=lambda: answers.append(link.service.call("GET", "/slow").body))
        asking.start()
        assert peer.asked.acquire(timeout=60)
        write_private(file, b"new", overwrite=True)
        link.prepare(access)()
        assert link.service.call("GET", "/").body == b"Bearer new"
        peer.may_answer.set()
        asking.join(60)
    assert answers == [b"Bearer old"]
