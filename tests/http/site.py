"""SP as a process, with a KGC and a CSP that a test can let answer, hang, talk nonsense or go away."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from crowdfl.retry import Backoff
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Bearer, Link, Service, SystemClock
from crowdfl.services.http.auth import Tokens
from crowdfl.services.run import open_csp, open_kgc, signing_key
from crowdfl.services.server import running
from crowdfl.settings import CspSettings, KgcSettings, PeerSettings, TaskSettings
from crowdfl.storage.atomic import write_private
from crowdfl.storage.blobs import MemoryBlobs
from tests import subprocesses
from tests.hosts import INITIAL_MODEL, SMALL_TASK, small_definition, test_tools

__all__ = ["Gate", "Site", "until"]

PATIENCE = 60.0  # of a test on a busy machine
GARBAGE = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!"
SERVE = """
import json, sys
from pathlib import Path
from crowdfl.services.server import serve_sp
from crowdfl.settings import SpSettings
{before}
settings = json.loads(sys.argv[1])
serve_sp(SpSettings(**settings | {{"data": Path(settings["data"])}}))
"""


def until(look: Callable[[], object]) -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


class Gate:
    """A port in front of a server. `mode`: pass, hang (whoever comes is let in and hears nothing), garbage, or closed."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = parts.hostname, parts.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.mode, self.url = "pass", f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.came = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, mode: str) -> None:
        """From now on, connections that are open included."""
        self.mode = mode
        while self._open:
            _hang_up(self._open.pop())

    def close(self) -> None:
        """For good."""
        self.set("closed")
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                self.came += 1
                self._open.append(caller)
                {"pass": self._forward, "garbage": self._babble, "closed": _hang_up}.get(self.mode, _nothing)(caller)

    def _forward(self, caller: socket.socket) -> None:
        server = socket.create_connection(self._target)
        self._open.append(server)
        for here, there in ((caller, server), (server, caller)):
            threading.Thread(target=_pump, args=(here, there), daemon=True).start()

    def _babble(self, caller: socket.socket) -> None:
        def answer() -> None:
            with contextlib.suppress(OSError):
                while caller.recv(65536):
                    caller.sendall(GARBAGE)

        threading.Thread(target=answer, daemon=True).start()


def _nothing(_caller: socket.socket) -> None: ...


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _pump(here: socket.socket, there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := here.recv(65536):
            there.sendall(data)
    _hang_up(there)


class Site:
    """Three services on loopback: KGC and CSP in this process, CSP behind a gate, SP as a process of its own."""

    def __init__(self, folder: Path, closing: contextlib.ExitStack) -> None:
        self._folder, self._closing = folder, closing
        self._tokens: dict[str, str] = {}
        kgc_settings = KgcSettings(**self._prepare("kgc", "requester", "sp", "csp"))
        self.kgc = closing.enter_context(running(open_kgc(kgc_settings), kgc_settings))
        self.kgc_key = signing_key(folder / "kgc" / "signing.key").public
        own = self._prepare("csp", "sp") | {"kgc": PeerSettings(**self._peer(self.kgc, "kgc", "csp"))}
        csp_settings = CspSettings(**own, kgc_key=self.kgc_key)
        self.gate = Gate(closing.enter_context(running(open_csp(csp_settings), csp_settings)))
        closing.callback(self.gate.close)
        self._sp = self._prepare("sp", "requester", "bank", "operator")
        self._sp |= {"kgc": self._peer(self.kgc, "kgc", "sp"), "csp": self._peer(self.gate.url, "csp", "sp")}
        self._sp |= {"kgc_key": self.kgc_key.hex(), "tick_seconds": 0.05, "min_claim_window": 0.0, "lease_seconds": 3.0}
        self._blobs = MemoryBlobs()

    def start(self, before: str = "", **settings: Any) -> None:
        """SP, with what is done `before` it serves."""
        command = [sys.executable, "-c", SERVE.format(before=before), json.dumps(self._sp | settings, default=str)]
        self.process = subprocesses.start(command, stderr=subprocess.PIPE, text=True)
        self._closing.callback(self._end)
        self.log: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr, self.log), daemon=True)
        self._reader.start()
        until(lambda: self.events("listening") or self.process.poll() is not None)
        (listening,) = self.events("listening")
        self.url = listening["url"]

    def events(self, name: str) -> list[dict[str, Any]]:
        """What SP has logged under this name."""
        return [entry for entry in list(self.log) if entry.get("event") == name]

    def wait(self) -> int:
        """SP's exit status."""
        return self.process.wait(PATIENCE)

    def read_all(self) -> None:
        """What it logged last."""
        self._reader.join(PATIENCE)

    def _end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def _read(self, stderr: IO[str], log: list[dict[str, Any]]) -> None:
        with stderr:
            for line in stderr:
                log.append(json.loads(line) if line.startswith("{") else {"text": line})

    # Whoever calls it.

    def service(self, role: str | None = None, url: str | None = None, retries: Backoff | None = None) -> Service:
        """SP or another, as this role."""
        credential = None if role is None else Bearer(self._tokens[f"sp for {role}"])
        link = Link(url or self.url, plain_http=True)
        service = link.open(credential, retries or Backoff(deadline=0.0))
        self._closing.callback(service.close)
        return service

    def requester(self) -> Requester:
        """One with a key of its own."""
        kgc, sp = (
            Link(url, plain_http=True).as_requester(self._tokens[f"{name} for requester"], own_key(self._blobs))
            for name, url in (("kgc", self.kgc), ("sp", self.url))
        )
        for service in (kgc, sp):
            self._closing.callback(service.close)
        return Requester(self._blobs, SystemClock(), KgcClient(kgc), SpClient(sp), self.kgc_key, test_tools())

    def post(self, **settings: Any) -> str:
        """A task, paid for."""
        requester, made = self.requester(), TaskSettings.of(**(SMALL_TASK | {"rounds": 1} | settings))
        task = requester.create(small_definition(made, claim_window=10_000.0), INITIAL_MODEL)
        requester.fund(task, 72_000_000, "all")
        SpClient(self.service("bank")).confirm_deposit(task, "all", 72_000_000)
        return task

    def person(self, task: str) -> Participant:
        """Somebody who has not joined yet."""
        kgc, sp = KgcClient(self.service(url=self.kgc)), SpClient(self.service())
        return Participant(task, MemoryBlobs(), kgc, sp, self.kgc_key, test_tools(), least_participants=1)

    def join(self, task: str) -> Participant:
        """Somebody who has."""
        person = self.person(task)
        person.join(*self.requester().invite(task, 1, 600.0))
        return person

    def state(self, task: str) -> str:
        """Of its last round."""
        rounds = SpClient(self.service()).status(task)["rounds"]
        return str(rounds[-1]["state"]) if rounds else "none"

    def _prepare(self, name: str, *roles: str) -> dict[str, Any]:
        folder = self._folder / name
        folder.mkdir(mode=0o700)
        for role in roles:
            self._tokens[f"{name} for {role}"] = Tokens(folder / "tokens.json").add(role, role)
        return {"data": folder, "host": "127.0.0.1", "port": 0, "plain_http": True, "insecure_test_key": True}

    def _peer(self, url: str, given: str, role: str) -> dict[str, Any]:
        path = self._folder / f"{given}-{role}.token"
        write_private(path, self._tokens[f"{given} for {role}"].encode())
        return {"url": url, "token": path}


@contextlib.contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A site that is taken down."""
    with contextlib.ExitStack() as closing:
        yield Site(folder, closing)
