"""Four machines of four organisations, set up by the commands of docs/organisations.md, and processes that run there."""

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509

from crowdfl.cli.exchange.role_folder import read_part
from crowdfl.services.client.transport import Bearer, Link
from crowdfl.services.http import tls
from tests.cli.program import Result, call, start, wait_or_kill
from tests.cli.test_campaign import allow_short_claims, task_file
from tests.http.world import IMPATIENT

DOCUMENT = Path(__file__).parents[2] / "docs/organisations.md"
PLACES = {"KGC": "kgc", "SP": "sp", "CSP": "csp", "A requester": "acme", "The requester": "acme"}
PEOPLE = 3
PATIENCE = 240.0


def documented() -> Iterator[tuple[str, str]]:
    """Every command of the page with whose it is, in the page's order."""
    who = ""
    for line in DOCUMENT.read_text().splitlines():
        heading = re.match(r"(KGC|SP|CSP|A requester|The requester)\b.*:$", line)
        who = PLACES[heading[1]] if heading else who
        if line.startswith("    crowdfl "):
            yield who, line.strip().removeprefix("crowdfl ")


@dataclass
class Organisations:
    """Four places that share nothing but what one sends to another."""

    root: Path
    ports: dict[str, int]
    processes: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    task: str = ""

    def place(self, role: str) -> Path:
        """A role's machine."""
        return self.root / f"machine-of-{role}"

    def folder(self, role: str) -> Path:
        """The folder that `init` made there."""
        return self.place(role) / role

    def settings(self, role: str) -> Path:
        """A role's settings file."""
        return self.folder(role) / "settings.toml"

    def public(self, role: str) -> Path:
        """The file that a role hands out."""
        return self.folder(role) / f"{role}.public.json"

    def do(self, role: str, *words: object) -> Result:
        """A command on a role's machine, which must end well."""
        with contextlib.chdir(self.place(role)):
            result = call(*words)
        assert result.code == 0, (role, words, result, self.logs())
        return result

    def send(self, role: str) -> None:
        """A public file, to everyone."""
        for other in ("kgc", "sp", "csp", "acme"):
            if other != role:
                shutil.copy(self.public(role), self.place(other) / f"{role}.public.json")

    def accept(self, own: str, peer: str, *more: object) -> Result:
        """With the digits that the peer's operator reads out."""
        told = read_part(self.public(peer)).fingerprint
        return self.do(
            own, "exchange", "accept", f"{own}/settings.toml", f"{peer}.public.json", "--fingerprint", told, *more
        )

    def start(self, name: str, *words: object) -> None:
        """A process of its own."""
        self.processes[name] = start(*words, log=self.root / f"{name}.log")

    def reload(self, role: str) -> None:
        """SIGHUP, and its outcome in the log."""
        before = self.log(role).count('"reloaded"')
        os.kill(self.processes[role].pid, signal.SIGHUP)
        self.wait(lambda: self.log(role).count('"reloaded"') > before)

    def log(self, name: str) -> str:
        """What a process wrote."""
        path = self.root / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def wait(self, there: Callable[[], bool]) -> None:
        """With a margin for a busy machine."""
        until = time.monotonic() + PATIENCE
        while not there():
            assert time.monotonic() < until, self.logs()
            time.sleep(0.1)

    def up(self, role: str) -> bool:
        """Whether it listens."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[role]), timeout=5):
            return True
        return False

    def doctor(self) -> dict[str, str]:
        """Every check of every role, which all must be good."""
        findings: dict[str, str] = {}
        for role in ("kgc", "sp", "csp", "acme"):
            found = json.loads(self.do(role, "doctor", f"{role}/settings.toml", "--json").out)["findings"]
            findings |= {line["what"]: line["verdict"] for line in found}
        assert "fail" not in findings.values()
        return findings

    def serial(self, role: str) -> int:
        """Of the certificate that a service shows now."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.ports[role]))
        return int(x509.load_pem_x509_certificate(pem.encode()).serial_number)

    def call(self, service: str, token: str, own: tls.CertificateFiles | None = None) -> dict[str, Any]:
        """Whose token it is, at a service; as whoever has this certificate."""
        trusted = self.folder("acme" if service != "csp" else "sp") / "peers/ca.pem"
        link = Link(f"https://127.0.0.1:{self.ports[service]}", trusted, own=own)
        with contextlib.closing(link.open(Bearer(token), IMPATIENT)) as opened:
            return opened.call("GET", "/v1/whoami").json()

    def certificate(self, role: str) -> tls.CertificateFiles:
        """A role's own."""
        return made_files(self.folder(role))

    def logs(self) -> str:
        """To explain a failure."""
        return "\n".join(f"{path.name}: {path.read_text()[-800:]}" for path in sorted(self.root.glob("*.log")))

    def stop(self) -> None:
        """End what still runs."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            wait_or_kill(process)


def free_port() -> int:
    """One that nothing listens on, and that the system gives to nobody who asks for any."""
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def follow(made: Organisations) -> None:
    """The page, command by command; what stands for a host, a port or digits is filled in."""
    for role, words in documented():
        made.done.append(words)
        if words.startswith("init "):
            made.place(role).mkdir()
            port = ["--port", str(made.ports[role])] if role in made.ports else []
            made.do(role, *re.sub(r"\w+\.example\.org", "127.0.0.1", words).split(), *port, "--insecure-test-key")
        elif words.startswith("exchange show"):
            for sender in ("kgc", "sp", "csp", "acme"):
                made.send(sender)
            assert read_part(made.public("sp")).fingerprint in made.do("sp", *words.split()).out
        elif words.startswith("exchange accept"):
            _, _, own, part, *_ = words.split()
            peer = part.removesuffix(".public.json")
            assert own == f"{role}/settings.toml"
            made.accept(role, peer)
        else:
            service, serve, own = words.split()
            assert (service, serve) == (role, "serve")
            if role == "sp":
                allow_short_claims(made.settings("sp"))
                allow_short_claims(made.settings("acme"))
            made.start(role, service, serve, made.place(role) / own)
    made.wait(lambda: all(made.up(role) for role in made.ports))


def enrol(made: Organisations) -> None:
    (made.place("acme") / "task.toml").write_text(task_file().replace("rounds = 2", "rounds = 1"))
    own = ("-s", "acme/settings.toml")
    made.task = json.loads(made.do("acme", "task", "create", "task.toml", "--json", *own).out)["task"]
    made.do("acme", "task", "invite", made.task, "invitations", "-n", PEOPLE, *own)
    for person in range(PEOPLE):
        invitation = made.place("acme") / f"invitations/invitation-{person}.json"
        home = ("--home", made.root / f"person-{person}", "--least-participants", PEOPLE)
        made.start(
            f"person-{person}", "participant", "run", invitation, "--data", f"watch:{person}", *home, "--yes", "--json"
        )
    made.wait(lambda: status(made)["enrolled"] == PEOPLE)


def status(made: Organisations) -> dict[str, Any]:
    return dict(json.loads(made.do("acme", "task", "watch", made.task, "--json", "-s", "acme/settings.toml").out))


def made_files(folder: Path) -> tls.CertificateFiles:
    """A folder's certificate."""
    return tls.CertificateFiles(folder / "tls.pem", folder / "tls.key")
