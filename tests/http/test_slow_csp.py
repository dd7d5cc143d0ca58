"""A CSP that is slow for one task: it drips or says that it still computes. The other tasks' rounds go on."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from crowdfl.services.http.wire import OCTETS, PROTOCOL, PROTOCOL_HEADER
from tests.http.processes import Gate, Site, site
from tests.http.test_stays_up import upload
from tests.storage.conftest import DATABASES, empty_database
from tests.subprocesses import until

pytestmark = pytest.mark.second
SPEAKS = f"{PROTOCOL_HEADER}: {PROTOCOL}\r\n"
SLOW = ["drips its body", "still computes"]  # `test_pace` has the other ways to be slow


class Moody(Gate):
    """A proxy that answers for CSP, in one task as `mode` says, and passes the rest on."""

    def __init__(self, url: str) -> None:
        self.mode, self.task, self.came, self._over = "pass", "", 0, threading.Event()
        gate, client = self, httpx.Client(base_url=url, timeout=60)
        self._client = client

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if gate.mode != "pass" and gate.task in self.path and "/requests" in self.path:
                    gate.came += 1
                    gate.answer(self)
                    return
                found = client.request(self.command, self.path, content=body, headers=dict(self.headers))
                self.send_response_only(found.status_code)
                for name, value in found.headers.items():
                    if name not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(found.content)))
                self.end_headers()
                self.wfile.write(found.content)

            do_POST = do_GET  # noqa: N815 -- the library's names

            def log_message(self, *_args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        if self.mode == "still computes":
            handler.wfile.write(f"HTTP/1.1 202 Accepted\r\n{SPEAKS}Content-Length: 0\r\n\r\n".encode())
            return
        handler.close_connection = True
        head = f"HTTP/1.1 200 OK\r\n{SPEAKS}Content-Type: {OCTETS}\r\nContent-Length: 100000\r\n\r\n"
        handler.wfile.write(head.encode())
        try:
            while not self._over.wait(0.5):
                handler.wfile.write(b"a")
        except OSError:
            return

    def set(self, mode: str) -> None:
        self.mode = mode
        if mode == "pass":
            self._over.set()
        else:
            self._over.clear()

    def close(self) -> None:
        self.set("pass")
        self._server.shutdown()
        self._server.server_close()
        self._client.close()


@pytest.fixture(scope="module", params=DATABASES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("slow")
    with empty_database(request.param, folder) as url, site(folder, Moody, database=url) as found:
        found.start()
        yield found


@pytest.mark.parametrize("mode", SLOW)
def test_a_csp_that_is_slow_for_one_task_holds_no_other_up(shared: Site, mode: str) -> None:
    """The other task opens, closes and pays two rounds meanwhile; then the first one goes on too."""
    gate = shared.gate
    slow, others = shared.post(rounds=1), shared.post(rounds=2)
    held, people = [shared.join(slow) for _ in range(3)], [shared.join(others) for _ in range(3)]
    until(lambda: shared.state(slow) == shared.state(others) == "open")
    gate.task, gate.came = slow, 0
    gate.set(mode)
    upload(held)
    until(lambda: gate.came > 0)
    for number in (1, 2):
        upload(people)
        until(lambda number=number: shared.rounds(others)[number - 1] == "rewarded")
        until(lambda number=number: number == 2 or shared.rounds(others)[-1] == "open")
    assert shared.rounds(slow) == ["closed"]
    gate.set("pass")
    until(lambda: shared.rounds(slow) == ["rewarded"])
