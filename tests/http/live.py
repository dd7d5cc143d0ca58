"""SP as a process of its own, over the files that the roles of a test have left: what it costs can be measured from outside."""

import contextlib
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from crowdfl.services.http.auth import Tokens
from crowdfl.storage import migrations
from crowdfl.storage.atomic import write_private
from tests import subprocesses
from tests.hosts import Desk

__all__ = ["LiveService", "finished_desk", "serving_sp"]

_SERVE = """
import json, sys
from pathlib import Path
from crowdfl.services.server import serve_sp
from crowdfl.settings import PeerSettings, SpSettings
given = json.loads(sys.argv[1])
data = Path(given.pop("data"))
peer = PeerSettings(url="http://127.0.0.1:9", token=data / "peer.token")
own = {name: Path(value) if name in ("certificate", "key") else value for name, value in given.items()}
own["kgc_key"] = bytes.fromhex(own["kgc_key"])
serve_sp(SpSettings(data=data, host="127.0.0.1", port=0, insecure_test_key=True, kgc=peer, csp=peer, **own))
"""


@dataclass
class LiveService:
    """A running service, and what it has cost so far."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path
    tokens: dict[str, str] = field(repr=False)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    def memory(self) -> int:
        """Bytes that the process has in memory now; the helpers that it started do not count."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def seconds(self) -> float:
        """Of processor time so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def leave_descriptors(self, count: int) -> None:
        """Let the process open so many more, and no more than that."""
        most = psutil.Process(self.process.pid).num_fds() + count
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (most, most))

    def lines(self) -> list[str]:
        """The log so far."""
        return self.log.read_text().splitlines()

    def events(self, event: str) -> list[dict[str, Any]]:
        """What was logged under this name."""
        return [found for found in map(json.loads, self.lines()) if found.get("event") == event]

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """A bare connection from this address."""
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
    desk = Desk(folder, rounds=rounds)
    desk.clock.time = time.time()
    desk.requester.fund(desk.task, 36_000_000 * rounds, "all")
    desk.invite(3)
    desk.run()
    for number in range(1, rounds + 1):
        for person in desk.crowd:
            person.encrypt(number, desk.initial, 5)
            person.send(number)
        desk.run()
    for person in desk.crowd:
        for number in range(1, rounds + 1):
            person.open_reward(number)
    assert desk.sp.store.task(desk.task).state == "finished"
    return desk


@contextlib.contextmanager
def serving_sp(desk: Desk, descriptors: int | None = None, **settings: Any) -> Iterator[LiveService]:
    """A process of SP over a desk's files; its peers are away. `descriptors`: how many it may have open."""
    data = desk.folder / "sp"
    (data / "tokens.json").unlink(missing_ok=True)
    tokens = {role: Tokens(data / "tokens.json").add(role, role) for role in ("requester", "operator")}
    write_private(data / "peer.token", b"crowdfl_of_nobody", overwrite=True)
    given = {"data": str(data), "kgc_key": desk.signing.public.hex(), "plain_http": True, "tick_seconds": 60.0}
    log = desk.folder / "sp.log"
    command = [sys.executable, "-c", _SERVE, json.dumps(given | settings)]
    limit = _limiting(descriptors)
    with log.open("wb") as errors, subprocesses.running(command, stderr=errors, preexec_fn=limit) as process:
        yield LiveService(process, _listening(process, log), log, tokens)


def _limiting(descriptors: int | None) -> Callable[[], None]:
    def limit() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    return limit


def _listening(process: "subprocess.Popen[bytes]", log: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return str(json.loads(line)["url"])
        time.sleep(0.05)
    raise AssertionError(f"SP did not start: {log.read_text()}")


def room_for(count: int) -> None:
    """Let this test itself open so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard >= 0 else wanted, hard))


def close_all(connections: Sequence[socket.socket]) -> None:
    """Hang up."""
    for connection in connections:
        connection.close()
