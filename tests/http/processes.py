"""Services as they are deployed: all three over TLS on loopback, or SP as a process.

Of SP as a process, `Site` has peers that a test can let hang, talk nonsense or go away; `LiveService` measures what it costs.
"""

import contextlib
import json
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

import httpx
import psutil

from crowdfl.documents.signed import Definition
from crowdfl.errors import NotReady
from crowdfl.protocols.exchange import Observer
from crowdfl.retry import Backoff
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Bearer, Link, Service, SystemClock
from crowdfl.services.http import tls
from crowdfl.services.http.auth import Tokens
from crowdfl.services.run import open_csp, open_kgc, open_sp
from crowdfl.services.server import running
from crowdfl.settings import CspSettings, KgcSettings, PeerSettings, SpSettings, TaskSettings, origin_of
from crowdfl.storage import migrations
from crowdfl.storage.atomic import signing_key, write_private
from crowdfl.storage.memory_blobs import MemoryBlobs
from crowdfl.web.console_app import add_pages
from tests import subprocesses
from tests.hosts import INITIAL_MODEL, SMALL_TASK, Desk, small_definition, test_tools
from tests.http.world import DEPOSIT

_Found = TypeVar("_Found")


@dataclass
class Loopback:
    urls: dict[str, str]
    ca: Path
    kgc_key: bytes
    tokens: dict[str, str]
    closing: contextlib.ExitStack
    tools = test_tools()

    def requester(self) -> Requester:
        """One with tokens and a key of its own."""
        blobs = MemoryBlobs()
        kgc, sp = (
            self._kept(self._link(name).as_requester(self.tokens[f"{name} for requester"], own_key(blobs)))
            for name in ("kgc", "sp")
        )
        return Requester(blobs, SystemClock(), KgcClient(kgc), SpClient(sp), self.kgc_key, self.tools)

    def impatient(self, requester: Requester) -> Requester:
        sp = requester.sp
        assert isinstance(sp, SpClient)
        return replace(requester, sp=replace(sp, service=replace(sp.service, retries=Backoff(deadline=0.0))))

    def join(self, requester: Requester, task: str, link: type[SpClient] = SpClient) -> Participant:
        return self.join_all(requester, task, 1, link)[0]

    def join_all(
        self, requester: Requester, task: str, count: int, link: type[SpClient] = SpClient, **own: Any
    ) -> list[Participant]:
        """So many, who share their connections."""
        kgc, sp = KgcClient(self._kept(self._link("kgc").open())), link(self._kept(self._link("sp").open()))
        own = {"sp_key": sp.key(), "least_participants": 1} | own
        people = [Participant(task, MemoryBlobs(), kgc, sp, self.kgc_key, self.tools, **own) for _ in range(count)]
        for person, invitation in zip(people, requester.invite(task, count, 600.0), strict=True):
            person.join(invitation)
        return people

    def open_round(
        self, definition: Definition, links: Sequence[type[SpClient]] = (SpClient,) * 3
    ) -> tuple[Requester, str, list[Participant]]:
        """A prepaid task whose first round takes uploads: its requester, its id, and somebody for each of `links`."""
        requester = self.requester()
        task = requester.create(definition, INITIAL_MODEL)
        self.confirm(task, requester.fund(task, DEPOSIT), DEPOSIT)
        people = [self.join(requester, task, link) for link in links]
        wait_for_round(requester.sp, task, "open")
        return requester, task, people

    def confirm(self, task: str, name: str, amount: int) -> None:
        bank = self._kept(self._link("sp").open(Bearer(self.tokens["sp for bank"])))
        SpClient(bank).confirm_deposit(task, name, amount, "EUR")

    def metrics(self, name: str) -> str:
        operator = self._kept(self._link(name).open(Bearer(self.tokens[f"{name} for operator"])))
        return operator.call("GET", "/metrics").body.decode()

    def _link(self, name: str) -> Link:
        return Link(self.urls[name], self.ca, plain_http=True)  # which an address with https does not use

    def _kept(self, service: Service) -> Service:
        self.closing.callback(service.close)
        return service


@contextlib.contextmanager
def serving(folder: Path, observer: Observer | None = None, *, plain: bool = False, **of_sp: Any) -> Iterator[Loopback]:
    """KGC, CSP and SP, each with its folder, certificate and tokens; `observer` watches both servers.

    `plain`: without TLS. What else is given is set for SP.
    """
    ca = tls.make_ca(folder)
    tokens: dict[str, str] = {}

    made = {name: tls.make_server_certificate(folder, ca, name) for name in ("kgc", "sp", "csp")}
    pins = {name: () if plain else (tls.key_pin(tls.require_usable(files)),) for name, files in made.items()}

    def prepare(name: str, *roles: str) -> dict[str, Any]:
        (folder / name).mkdir(mode=0o700, exist_ok=True)
        for role in roles:
            tokens[f"{name} for {role}"] = Tokens(folder / name / "tokens.json").add(role, role)
        where = {"data": folder / name, "host": "127.0.0.1", "port": 0}
        safety = {"plain_http": True} if plain else {**vars(made[name]), "ca": ca.certificate}
        return where | safety | {"insecure_test_key": True}

    def peer(url: str, given: str, role: str) -> PeerSettings:
        path = folder / role / f"{given}.token"
        write_private(path, tokens[f"{given} for {role}"].encode())
        return PeerSettings(url=url, token=path)

    with contextlib.ExitStack() as stack:
        (folder / "sp").mkdir(mode=0o700)
        sp_key, known = signing_key(folder / "sp" / "signing.key").public, {"sp": pins["sp"], "csp": pins["csp"]}
        own = prepare("kgc", "requester", "sp", "csp", "operator")
        kgc_settings = KgcSettings(**own, pins=known, sp_key=sp_key)
        kgc_app = open_kgc(kgc_settings)
        kgc = stack.enter_context(running(kgc_app, kgc_settings))
        key = signing_key(folder / "kgc" / "signing.key").public
        own = prepare("csp", "sp", "operator") | {"kgc": peer(kgc, "kgc", "csp"), "kgc_key": key}
        csp_settings = CspSettings(**own, pins={"sp": pins["sp"]}, sp_key=sp_key)
        csp = stack.enter_context(running(open_csp(csp_settings, observer), csp_settings))
        own = prepare("sp", "requester", "bank", "operator") | {
            "kgc": peer(kgc, "kgc", "sp"),
            "csp": peer(csp, "csp", "sp"),
        }
        own |= {"kgc_key": key, "tick": 0.05, "min_claim_window": 0.0}
        sp_settings = SpSettings(**own | of_sp)
        sp_app = open_sp(sp_settings, observer)
        add_pages(sp_app, sp_settings)  # as the command line does
        sp = stack.enter_context(running(sp_app, sp_settings))
        kgc_app.state.web_origins.add(origin_of(sp))
        with contextlib.ExitStack() as closing:
            yield Loopback({"kgc": kgc, "csp": csp, "sp": sp}, ca.certificate, key, tokens, closing)


def wait_for(read: Callable[[], _Found]) -> _Found:
    until = time.monotonic() + subprocesses.PATIENCE
    while time.monotonic() < until:
        try:
            return read()
        except NotReady:
            time.sleep(0.05)
    raise AssertionError("it never came")


def wait_for_round(sp: SpClient, task: str, *states: str) -> None:
    """Until its last round is in one of these states."""

    def look() -> None:
        rounds = sp.status(task)["rounds"]
        if not rounds or rounds[-1]["state"] not in states:
            raise NotReady("not yet")

    wait_for(look)


PATIENCE = 300.0  # of a test on a busy machine
SERVE = """
import json, sys
from pathlib import Path
from crowdfl.services.server import serve_sp
from crowdfl.settings import SpSettings
{before}
settings = json.loads(sys.argv[1])
serve_sp(SpSettings(**settings | {{"data": Path(settings["data"])}}))
"""


def _usual(data: Path) -> dict[str, Any]:
    return {"data": data, "host": "127.0.0.1", "port": 0, "plain_http": True, "insecure_test_key": True}


class Gate:
    """A port in front of a server. `mode`: pass, or hang: whoever comes is let in and hears nothing."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = parts.hostname, parts.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.mode, self.url = "pass", f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.came = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, mode: str) -> None:
        self.mode = mode
        while self._open:
            _hang_up(self._open.pop())

    def close(self) -> None:
        self.set("hang")
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                self.came += 1
                self._open.append(caller)
                if self.mode == "pass":
                    self._forward(caller)

    def _forward(self, caller: socket.socket) -> None:
        server = socket.create_connection(self._target)
        self._open.append(server)
        for here, there in ((caller, server), (server, caller)):
            threading.Thread(target=_pump, args=(here, there), daemon=True).start()


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

    def __init__(
        self, folder: Path, closing: contextlib.ExitStack, gate: "Callable[[str], Gate]" = Gate, **sp_settings: Any
    ) -> None:
        self._folder, self._closing = folder, closing
        self._tokens: dict[str, str] = {}
        kgc_settings = KgcSettings(**self._prepare("kgc", "requester", "sp", "csp"))
        self.kgc = closing.enter_context(running(open_kgc(kgc_settings), kgc_settings))
        self.kgc_key = signing_key(folder / "kgc" / "signing.key").public
        own = self._prepare("csp", "sp") | {"kgc": PeerSettings(**self._peer(self.kgc, "kgc", "csp"))}
        csp_settings = CspSettings(**own, kgc_key=self.kgc_key)
        self.gate = gate(closing.enter_context(running(open_csp(csp_settings), csp_settings)))
        closing.callback(self.gate.close)
        self._sp = self._prepare("sp", "requester", "bank", "operator")
        self._sp |= {"kgc": self._peer(self.kgc, "kgc", "sp"), "csp": self._peer(self.gate.url, "csp", "sp")}
        self._sp |= {"kgc_key": self.kgc_key.hex(), "tick": 0.05, "min_claim_window": 0.0, "lease": 3.0}
        self._sp |= sp_settings
        self._blobs, self._posted = MemoryBlobs(), 0
        self.process: subprocess.Popen[str] | None = None
        self._closing.callback(self._end)

    def start(self, before: str = "", **settings: Any) -> None:
        """SP, in place of the one that runs, with what is done `before` it serves."""
        self._end()
        self._is_usual = not (before or settings)
        command = [sys.executable, "-c", SERVE.format(before=before), json.dumps(self._sp | settings, default=str)]
        self.process = subprocesses.start(command, stderr=subprocess.PIPE, text=True)
        self.log: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr, self.log), daemon=True)
        self._reader.start()
        subprocesses.until(lambda: self.events("listening") or self.process.poll() is not None)
        (listening,) = self.events("listening")
        self.url = listening["url"]

    @property
    def is_up(self) -> bool:
        """Whether SP runs, as it usually does."""
        return self.process is not None and self.process.poll() is None and self._is_usual

    def events(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in list(self.log) if entry.get("event") == name]

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def read_all(self) -> None:
        self._reader.join(PATIENCE)

    def _end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)

    def _read(self, stderr: IO[str], log: list[dict[str, Any]]) -> None:
        with stderr:
            for line in stderr:
                log.append(json.loads(line) if line.startswith("{") else {"text": line})

    # Whoever calls it.

    def service(self, role: str | None = None, url: str | None = None, retries: Backoff | None = None) -> Service:
        credential = None if role is None else Bearer(self._tokens[f"sp for {role}"])
        link = Link(url or self.url, plain_http=True)
        service = link.open(credential, retries or Backoff(deadline=0.0))
        self._closing.callback(service.close)
        return service

    def requester(self) -> Requester:
        kgc, sp = (
            Link(url, plain_http=True).as_requester(self._tokens[f"{name} for requester"], own_key(self._blobs))
            for name, url in (("kgc", self.kgc), ("sp", self.url))
        )
        for service in (kgc, sp):
            self._closing.callback(service.close)
        return Requester(self._blobs, SystemClock(), KgcClient(kgc), SpClient(sp), self.kgc_key, test_tools())

    def post(self, **settings: Any) -> str:
        """Another task than all before."""
        self._posted += 1
        requester, made = self.requester(), TaskSettings.of(**(SMALL_TASK | {"rounds": 1} | settings))
        definition = replace(small_definition(made, claim_window=10_000.0), purpose=f"task {self._posted}")
        task = requester.create(definition, INITIAL_MODEL)
        requester.fund(task, 72_000_000, "all")
        SpClient(self.service("bank")).confirm_deposit(task, "all", 72_000_000, "EUR")
        return task

    def person(self, task: str) -> Participant:
        kgc, sp = KgcClient(self.service(url=self.kgc)), SpClient(self.service())
        return Participant(task, MemoryBlobs(), kgc, sp, self.kgc_key, test_tools(), least_participants=1)

    def join(self, task: str) -> Participant:
        person = self.person(task)
        person.join(*self.requester().invite(task, 1, 600.0))
        return person

    def rounds(self, task: str) -> list[str]:
        return [str(found["state"]) for found in SpClient(self.service()).status(task)["rounds"]]

    def state(self, task: str) -> str:
        return (self.rounds(task) or ["none"])[-1]

    def _prepare(self, name: str, *roles: str) -> dict[str, Any]:
        folder = self._folder / name
        folder.mkdir(mode=0o700)
        for role in roles:
            self._tokens[f"{name} for {role}"] = Tokens(folder / "tokens.json").add(role, role)
        return _usual(folder)

    def _peer(self, url: str, given: str, role: str) -> dict[str, Any]:
        path = self._folder / f"{given}-{role}.token"
        write_private(path, self._tokens[f"{given} for {role}"].encode())
        return {"url": url, "token": path}


@contextlib.contextmanager
def site(folder: Path, gate: Callable[[str], Gate] = Gate, **sp_settings: Any) -> Iterator[Site]:
    with contextlib.ExitStack() as closing:
        yield Site(folder, closing, gate, **sp_settings)


@dataclass
class LiveService:
    """A running service, and what it has cost so far."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path
    tokens: dict[str, str] = field(repr=False)

    @property
    def place(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    def memory(self) -> int:
        """Bytes that the process has in memory now; the helpers that it started do not count."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def seconds(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def leave_descriptors(self, count: int) -> None:
        """Let the process open so many more, and no more than that."""
        most = psutil.Process(self.process.pid).num_fds() + count
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (most, most))

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def events(self, event: str) -> list[dict[str, Any]]:
        return [found for found in map(json.loads, self.lines()) if found.get("event") == event]

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(self.place, timeout=20, source_address=(source, 0))

    def get(self, path: str, source: str = "127.0.0.1", **how: Any) -> httpx.Response:
        """A whole request over a connection of its own, from this address."""
        with httpx.Client(transport=httpx.HTTPTransport(local_address=source), base_url=self.url, timeout=20) as client:
            return client.get(path, **how)

    def metric(self, name: str) -> dict[str, float]:
        """A metric's values, by its name with the labels."""
        page = self.get("/metrics", "127.0.0.9", headers={"Authorization": f"Bearer {self.tokens['operator']}"}).text
        lines = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        return {where: float(value) for where, value in lines if where.partition("{")[0] == name}


def finished_desk(folder: Path, rounds: int = 2) -> Desk:
    """A task that three people took part in to its end; claims are open, and nobody has claimed."""
    (folder / "sp").mkdir(mode=0o700)
    migrations.upgrade(f"sqlite:///{folder}/sp/state.db")  # as the process will expect it
    desk = Desk(folder, at=time.time(), rounds=rounds)  # its last days are counted from then
    desk.requester.fund(desk.task, 36_000_000 * rounds, "all")
    desk.invite(3)
    desk.run()
    desk.play(rounds)
    desk.upload()  # nothing any more; the last reward is opened
    assert desk.sp.store.task(desk.task).state == "finished"
    return desk


@contextlib.contextmanager
def serving_sp(desk: Desk, descriptors: int | None = None, **settings: Any) -> Iterator[LiveService]:
    """A process of SP over a desk's files; its peers are away. `descriptors`: how many it may have open."""
    data = desk.folder / "sp"
    (data / "tokens.json").unlink(missing_ok=True)
    tokens = {role: Tokens(data / "tokens.json").add(role, role) for role in ("requester", "operator")}
    write_private(data / "peer.token", b"crowdfl_of_nobody", overwrite=True)
    peer, log = {"url": "http://127.0.0.1:9", "token": data / "peer.token"}, desk.folder / "sp.log"
    own = {"kgc": peer, "csp": peer, "kgc_key": desk.signing.public.hex(), "tick": 60.0}
    command = [sys.executable, "-c", SERVE.format(before=""), json.dumps(_usual(data) | own | settings, default=str)]
    limit = _limiting(descriptors)
    with log.open("wb") as errors, subprocesses.running(command, stderr=errors, preexec_fn=limit) as process:
        sp = LiveService(process, "", log, tokens)
        subprocesses.until(lambda: sp.events("listening") or process.poll() is not None)
        (listening,) = sp.events("listening")
        yield replace(sp, url=listening["url"])


def _limiting(descriptors: int | None) -> Callable[[], None]:
    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    return limit


def room_for(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard >= 0 else wanted, hard))
