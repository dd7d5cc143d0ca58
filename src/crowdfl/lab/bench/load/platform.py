"""A platform to load: KGC, SP and CSP as processes over TLS, a task with everyone enrolled, and everyone's upload.

One update is encrypted; every other upload is the last one times an encryption of zeros, so that all differ, all are valid, and
the average is known.
"""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from crowdfl.cli.requester_file import RequesterFile, open_requester
from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.vector import Unchecked
from crowdfl.errors import ServiceUnavailable
from crowdfl.lab.bench.workload import BenchSettings, Floats, Say
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import ParticipantKeys, ParticipantProtocol, Tools
from crowdfl.protocols.registry import PROFILES
from crowdfl.retry import Backoff
from crowdfl.roles.documents import Definition, participant_name
from crowdfl.roles.kgc import Enrolled, enrolment_context
from crowdfl.roles.requester import Requester
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.settings import TaskSettings

__all__ = ["FULL", "PATIENCE", "SMOKE", "LoadSettings", "Platform", "platform", "wait_until"]

_SAMPLES = 50
PATIENCE = 600.0


@dataclass(frozen=True, kw_only=True)
class LoadSettings(BenchSettings):
    """A thousand phones and one SP; rewards are off."""

    parameters: int = 4000
    participants: int = 1000
    lanes: int = 0
    connections: int = 32
    checked: int = 100  # uploads validated and counted off the clock, for the separate figures


FULL = LoadSettings()
SMOKE = LoadSettings(participants=12, parameters=60, prime_bits=256, insecure_test_key=True, checked=5)


@dataclass(frozen=True)
class Platform:
    """What runs, and what is ready to be sent."""

    ca: Path | None
    pids: dict[str, int]
    ports: dict[str, int]
    task: str
    requester: Requester
    people: list[ParticipantKeys]
    uploads: list[bytes]
    public: PublicKey
    weights: Floats

    def round_state(self) -> str:
        """Of the one round; empty before it opens."""
        rounds = self.requester.sp.status(self.task)["rounds"]
        return str(rounds[-1]["state"]) if rounds else ""


@contextmanager
def platform(folder: Path, settings: LoadSettings, say: Say) -> Iterator[Platform]:
    """Everything up to the first upload."""
    roles, ports = folder / "roles", dict(zip(("kgc", "sp", "csp", "bare"), _free_ports(4), strict=True))
    options = [f"--{role}-port={ports[role]}" for role in ("kgc", "sp", "csp")]
    options += ["--insecure-test-key"] if settings.insecure_test_key else []
    init = [sys.executable, "-m", "crowdfl", "init", str(roles), *options]
    subprocess.run(init, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 -- this very program
    (folder / "bare").mkdir()
    tls = [str(roles / "sp" / name) for name in ("tls.pem", "tls.key")]
    commands = {role: ["crowdfl", role, "serve", str(roles / role / "settings.toml")] for role in ("kgc", "csp", "sp")}
    commands["bare"] = ["crowdfl.lab.bench.load.bare", str(folder / "bare"), str(ports["bare"]), *tls]
    with ExitStack() as stack:
        say("starting KGC, CSP, SP and the bare route")
        pids = {name: stack.enter_context(_process(folder, name, *command)) for name, command in commands.items()}
        for port in ports.values():
            wait_until(partial(_listens, port), "the servers to start")
        own = RequesterFile.read(roles / "requester" / "settings.toml")
        yield _enrolled(own, stack.enter_context(open_requester(own)), settings, pids, ports, say)


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Look twice a second."""
    looks = Backoff.steady(0.5, deadline=PATIENCE).start()
    while not true():
        if not looks.wait():
            raise ServiceUnavailable(f"waited {PATIENCE:.0f} s for {what}")


def _enrolled(
    own: RequesterFile,
    requester: Requester,
    settings: LoadSettings,
    pids: dict[str, int],
    ports: dict[str, int],
    say: Say,
) -> Platform:
    weights = np.random.default_rng(1).normal(0.0, 0.3, settings.parameters)
    say("making the task's key")
    task = requester.create(_definition(settings, weights), [np.zeros(settings.parameters)])
    say(f"enrolling {settings.participants} participants")
    people = list(_join(own, task, requester.invite(task, settings.participants, 86400.0)))
    keys, enrolled = people[-1]
    about = Definition.open(requester.blobs.get(f"{task}/definition").decode()).about
    bundle = keys.reader.open(enrolled.sealed, enrolment_context(task, keys.who))
    tools = Tools.unwatched(insecure_test_key=settings.insecure_test_key)
    side = PROFILES["hardened"].participant(about, bundle, keys, tools)
    say("deriving everyone's upload from one")
    uploads = list(_derived(side, weights, settings.participants))
    names = [keys for keys, _ in people]
    return Platform(own.settings.ca, pids, ports, task, requester, names, uploads, side.party.public, weights)


def _join(own: RequesterFile, task: str, invitations: list[str]) -> Iterator[tuple[ParticipantKeys, Enrolled]]:
    kgc, sp = KgcClient(own.link(own.settings.kgc).open()), SpClient(own.link(own.settings.sp).open())
    for invitation in invitations:
        fresh = ParticipantKeys.fresh("")
        keys = ParticipantKeys(participant_name(fresh.signing.public), fresh.signing, fresh.reader)
        enrolled = kgc.enrol(task, invitation, keys.signing.public, keys.reader.public)
        sp.enrol(task, enrolled.certificate)
        yield keys, enrolled
    kgc.service.close()
    sp.service.close()


def _definition(settings: LoadSettings, weights: Floats) -> Definition:
    task = TaskSettings.of(
        key_bits=2 * settings.prime_bits,
        max_participants=settings.participants,
        min_participants=settings.participants,
        rounds=1,
        lanes=settings.lanes,
        window=86400.0,
        max_samples=1000,
        clip=float(np.ceil(np.abs(weights).max())),
    )
    return Definition("load", "none", "nobody", ModelShape.of({"w": weights}), "", task, 60.0, b"", {})


def _derived(side: ParticipantProtocol, weights: Floats, count: int) -> Iterator[bytes]:
    vector = Unchecked.parse(side.encrypt_update(weights, _SAMPLES), side.party.public, max_count=10**6).validate()
    zeros = side.party.encrypt([0] * len(vector))
    for _ in range(count):
        yield vector.to_bytes()
        vector = vector.add(zeros)


@contextmanager
def _process(folder: Path, name: str, module: str, *arguments: str) -> Iterator[int]:
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=log, stderr=log)  # noqa: S603
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]
