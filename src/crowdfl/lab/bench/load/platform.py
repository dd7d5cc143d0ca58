"""A platform to load: KGC, SP and CSP as processes over TLS, a task with everyone enrolled, and everyone's upload.

One update is encrypted; every other upload is the last one times an encryption of zeros, so that all differ, all are valid, and
the average is known.
"""

import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.vector import Unchecked
from crowdfl.errors import ServiceUnavailable
from crowdfl.protocols.profile import ParticipantKeys, ParticipantProtocol, Tools
from crowdfl.protocols.registry import PROFILES
from crowdfl.retry import Backoff
from crowdfl.roles.documents import Definition, ModelArray, participant_name
from crowdfl.roles.kgc import Enrolled, enrolment_context
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Link
from crowdfl.services.clock import SystemClock
from crowdfl.settings import TaskSettings
from crowdfl.storage.blobs import FileBlobs

__all__ = ["FULL", "SMOKE", "LoadSetting", "Platform", "platform", "wait_until"]

_SAMPLES = 50
_PATIENCE = 600.0


@dataclass(frozen=True)
class LoadSetting:
    """How much of it."""

    participants: int = 1000
    parameters: int = 4000
    connections: int = 32
    key_bits: int = 2048
    checked: int = 100  # uploads validated and counted off the clock, for the separate figures

    @property
    def title(self) -> str:
        """For the table."""
        return f"{self.participants} participants, {self.parameters} parameters, {self.key_bits}-bit key, one SP"


FULL = LoadSetting()
SMOKE = LoadSetting(participants=12, parameters=60, key_bits=512, checked=5)


@dataclass(frozen=True)
class Platform:
    """What runs, and what is ready to be sent."""

    ca: Path
    pids: dict[str, int]
    ports: dict[str, int]
    task: str
    requester: Requester
    people: list[ParticipantKeys]
    uploads: list[bytes]
    public: PublicKey
    weights: npt.NDArray[np.float64]

    def round_state(self) -> str:
        """Of the one round; empty before it opens."""
        rounds = self.requester.sp.status(self.task)["rounds"]
        return str(rounds[-1]["state"]) if rounds else ""


@contextmanager
def platform(folder: Path, setting: LoadSetting, say: Callable[[str], None]) -> Iterator[Platform]:
    """Everything up to the first upload."""
    roles, ports = folder / "roles", dict(zip(("kgc", "sp", "csp", "bare"), _free_ports(4), strict=True))
    options = [f"--{role}-port={ports[role]}" for role in ("kgc", "sp", "csp")]
    options += ["--insecure-test-key"] if setting.key_bits < 2048 else []
    subprocess.run([sys.executable, "-m", "crowdfl", "init", str(roles), *options], stdout=-3, check=True)  # noqa: S603
    (folder / "bare").mkdir()
    tls = [str(roles / "sp" / name) for name in ("tls.pem", "tls.key")]
    commands = {role: ["crowdfl", role, "serve", str(roles / role / "settings.toml")] for role in ("kgc", "csp", "sp")}
    commands["bare"] = ["crowdfl.lab.bench.load.bare", str(folder / "bare"), str(ports["bare"]), *tls]
    with ExitStack() as stack:
        say("starting KGC, CSP, SP and the bare route")
        pids = {name: stack.enter_context(_process(folder, name, *command)) for name, command in commands.items()}
        for port in ports.values():
            wait_until(lambda port=port: _listens(port), "the servers to start")  # type: ignore[misc]
        yield _enrolled(roles / "requester", setting, pids, ports, say, stack)


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Look twice a second."""
    looks = Backoff.steady(0.5, deadline=_PATIENCE).start()
    while not true():
        if not looks.wait():
            raise ServiceUnavailable(f"waited {_PATIENCE:.0f} s for {what}")


def _enrolled(
    here: Path,
    setting: LoadSetting,
    pids: dict[str, int],
    ports: dict[str, int],
    say: Callable[[str], None],
    closing: ExitStack,
) -> Platform:
    insecure = bool(tomllib.loads((here / "settings.toml").read_text())["insecure_test_key"])
    links = {role: Link(f"https://127.0.0.1:{ports[role]}", here / "ca.pem") for role in ("kgc", "sp")}
    tokens = {role: (here / f"{role}.token").read_text().strip() for role in ("kgc", "sp")}
    blobs = FileBlobs(here / "blobs")
    key = own_key(blobs)
    kgc = KgcClient(links["kgc"].as_requester(tokens["kgc"], key))
    sp = SpClient(links["sp"].as_requester(tokens["sp"], key))
    for link in (kgc, sp):
        closing.callback(link.close)
    requester = Requester(blobs, SystemClock(), kgc, sp, Tools.unwatched(insecure_test_key=insecure))
    weights = np.random.default_rng(1).normal(0.0, 0.3, setting.parameters)
    say("making the task's key")
    task = requester.create(_definition(setting, weights), [np.zeros(setting.parameters)])
    say(f"enrolling {setting.participants} participants")
    people = list(_join(links, task, requester.invite(task, setting.participants, 86400.0)))
    keys, enrolled = people[-1]
    about = Definition.open(requester.blobs.get(f"{task}/definition").decode()).about
    bundle = keys.reader.open(enrolled.sealed, enrolment_context(task, keys.who))
    side = PROFILES["hardened"].participant(about, bundle, keys, Tools(Threads(), insecure_test_key=insecure))
    say("deriving everyone's upload from one")
    uploads = list(_derived(side, weights, setting.participants))
    names = [keys for keys, _ in people]
    return Platform(here / "ca.pem", pids, ports, task, requester, names, uploads, side.party.public, weights)


def _join(links: dict[str, Link], task: str, invitations: list[str]) -> Iterator[tuple[ParticipantKeys, Enrolled]]:
    kgc, sp = KgcClient(links["kgc"].open()), SpClient(links["sp"].open())
    for invitation in invitations:
        fresh = ParticipantKeys.fresh("")
        keys = ParticipantKeys(participant_name(fresh.signing.public), fresh.signing, fresh.reader)
        enrolled = kgc.enrol(task, invitation, keys.signing.public, keys.reader.public)
        sp.enrol(task, enrolled.certificate)
        yield keys, enrolled
    kgc.service.close()
    sp.service.close()


def _definition(setting: LoadSetting, weights: npt.NDArray[np.float64]) -> Definition:
    settings = TaskSettings.of(
        key_bits=setting.key_bits,
        max_participants=setting.participants,
        min_participants=setting.participants,
        rounds=1,
        lanes=0,
        window=86400.0,
        max_samples=1000,
        clip=float(np.ceil(np.abs(weights).max())),
    )
    return Definition("load", "none", "nobody", (ModelArray("w", weights.shape),), "", settings, 60.0, b"", {})


def _derived(side: ParticipantProtocol, weights: npt.NDArray[np.float64], count: int) -> Iterator[bytes]:
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
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
