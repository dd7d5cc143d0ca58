"""Four machines of four organisations, set up as docs/organisations.md says, and processes that run there."""

import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crowdfl.services.client.transport import Bearer, Link
from crowdfl.services.folders.public_part import read_part
from crowdfl.services.http import tls
from tests import subprocesses
from tests.cli.program import Processes, Result, call
from tests.cli.test_campaign import allow_short_claims, task_file
from tests.http.world import IMPATIENT

ACCEPTED = {  # whose public file each of them takes
    "kgc": ("sp", "csp", "acme"),
    "sp": ("kgc", "csp", "acme"),
    "csp": ("kgc", "sp"),
    "acme": ("kgc", "sp"),
}
PEOPLE = 3
PATIENCE = 900.0


@dataclass
class Organisations(Processes):
    """Four places that share nothing but what one sends to another."""

    ports: dict[str, int] = field(default_factory=dict)

    def place(self, role: str) -> Path:
        return self.folder / f"machine-of-{role}"

    def home(self, role: str) -> Path:
        return self.place(role) / role

    def settings(self, role: str) -> Path:
        return self.home(role) / "settings.toml"

    def public(self, role: str) -> Path:
        return self.home(role) / f"{role}.public.json"

    def do(self, role: str, *words: object) -> Result:
        """A command on a role's machine, which must end well."""
        with contextlib.chdir(self.place(role)):
            result = call(*words)
        assert result.code == 0, (role, words, result, self.logs())
        return result

    def send(self, role: str) -> None:
        for other in ("kgc", "sp", "csp", "acme"):
            if other != role:
                shutil.copy(self.public(role), self.place(other) / f"{role}.public.json")

    def accept(self, own: str, peer: str, *more: object) -> Result:
        """With the digits that the peer's operator reads out."""
        told = read_part(self.public(peer)).fingerprint
        return self.do(
            own, "exchange", "accept", f"{own}/settings.toml", f"{peer}.public.json", "--fingerprint", told, *more
        )

    def reload(self, role: str) -> None:
        before = self.log(role).count('"reloaded"')
        os.kill(self.processes[role].pid, signal.SIGHUP)
        self.wait(lambda: self.log(role).count('"reloaded"') > before)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def wait(self, there: Callable[[], bool]) -> None:
        subprocesses.until(there, self.logs)

    def up(self, role: str) -> bool:
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

    def call(self, service: str, token: str, own: tls.CertificateFiles | None = None) -> dict[str, Any]:
        """Whose token it is, at a service; as whoever has this certificate."""
        trusted = self.home("acme" if service != "csp" else "sp") / "peers/ca.pem"
        link = Link(f"https://127.0.0.1:{self.ports[service]}", trusted, own=own)
        with contextlib.closing(link.open(Bearer(token), IMPATIENT)) as opened:
            return opened.call("GET", "/v1/whoami").json()

    def certificate(self, role: str) -> tls.CertificateFiles:
        return made_files(self.home(role))


def set_up(made: Organisations) -> None:
    """Everyone makes keys at home, sends the public file, accepts the others' and starts."""
    for role in ACCEPTED:
        made.place(role).mkdir()
        kind = ["--role", role, "--host", "127.0.0.1", "--port", made.ports[role]] if role in made.ports else []
        named = kind or ["--role", "requester", "--name", role]
        made.do(role, "init", role, *named, "--insecure-test-key")
    for role in ACCEPTED:
        made.send(role)
    for role, peers in ACCEPTED.items():
        for peer in peers:
            made.accept(role, peer)
    allow_short_claims(made.settings("sp"))
    for role in made.ports:
        made.start(role, role, "serve", made.settings(role))
    made.wait(lambda: all(made.up(role) for role in made.ports))


def enrol(made: Organisations) -> None:
    (made.place("acme") / "task.toml").write_text(task_file().replace("rounds = 2", "rounds = 1"))
    own = ("-s", "acme/settings.toml")
    made.task = json.loads(made.do("acme", "task", "create", "task.toml", "--json", *own).out)["task"]
    made.do("acme", "task", "invite", made.task, "invitations", "-n", PEOPLE, *own)
    for person in range(PEOPLE):
        invitation = made.place("acme") / f"invitations/invitation-{person}.json"
        home = ("--home", made.folder / f"person-{person}", "--least-participants", PEOPLE)
        made.start(
            f"person-{person}", "participant", "run", invitation, "--data", f"watch:{person}", *home, "--yes", "--json"
        )
    made.wait(lambda: status(made)["enrolled"] == PEOPLE)


def status(made: Organisations) -> dict[str, Any]:
    return dict(json.loads(made.do("acme", "task", "watch", made.task, "--json", "-s", "acme/settings.toml").out))


def made_files(folder: Path) -> tls.CertificateFiles:
    return tls.CertificateFiles(folder / "tls.pem", folder / "tls.key")
