"""A platform to load: KGC, SP and CSP as processes over TLS, a task with everyone enrolled, and everyone's upload.

Of `hardened`, one update is encrypted; every other upload is the last one times an encryption of zeros. Of `shares`, everyone
makes an upload of the same update. All differ, all are valid, and the average is known.
"""

import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.documents.signed import Definition, participant_name
from crowdfl.errors import ServiceUnavailable
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.profile import ParticipantKeys, ParticipantProtocol, TaskSpec, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.retry import Backoff
from crowdfl.roles.participant.enrolment import enrol
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.requester_file import RequesterFile, open_requester
from crowdfl.settings import TaskSettings
from crowdfl_lab.bench.workload import BenchSettings, Say

_SAMPLES = 50
_DAY = 86400.0
PATIENCE = 600.0


@dataclass(frozen=True, kw_only=True)
class LoadSettings(BenchSettings):
    """A thousand phones and one SP; rewards and, of `shares`, checks are off."""

    profile: str = "hardened"
    parameters: int = 4000
    participants: int = 1000
    lanes: int = 0
    connections: int = 32
    checked: int = 100  # uploads validated and counted off the clock, for the separate figures

    @classmethod
    def quick(cls) -> "LoadSettings":
        return cls(participants=12, parameters=60, prime_bits=256, insecure_test_key=True, checked=5)

    @property
    def judged(self) -> bool:
        return replace(self, profile="hardened") == LoadSettings()

    @property
    def key_title(self) -> str:
        return super().key_title if self.profile == "hardened" else f"`{self.profile}`"

    def task(self, **others: Any) -> TaskSettings:  # noqa: ANN401 -- as `TaskSettings` takes them
        if self.profile == "hardened":
            return super().task(**others)
        sizes = {"max_participants": self.participants, "check": "none", "rule": "none", "lanes": 0}
        return TaskSettings.of(profile=self.profile, **sizes | others)


class Platform:
    """What runs until the stack is closed, and what is ready to be sent: everything up to the first upload."""

    def __init__(self, folder: Path, settings: LoadSettings, stack: ExitStack, say: Say) -> None:
        self.settings = settings
        self.ports = dict(zip(("kgc", "sp", "csp", "bare"), _free_ports(4), strict=True))
        say("starting KGC, CSP, SP and the bare route")
        self.pids = self._serve(folder, stack)
        wait_until(lambda: all(map(_listens, self.ports.values())), "the servers to start")
        own = RequesterFile.read(folder / "roles" / "requester" / "settings.toml")
        self.ca, self.requester = own.settings.ca, stack.enter_context(open_requester(own))
        self.weights = np.random.default_rng(1).normal(0.0, 0.3, settings.parameters)
        say("making the task's key")
        self.task = self.requester.create(self._definition(), [np.zeros(settings.parameters)])
        say(f"enrolling {settings.participants} participants")
        self.people, bundle = self._join(own)
        say("making everyone's upload")
        spec = Definition.open(self.requester.blobs.get(f"{self.task}/definition").decode()).spec
        sides = (self._side(spec, bundle, keys) for keys in self.people)
        if settings.profile == "hardened":
            self.public, self.uploads = self._derived(next(sides))
        else:
            self.uploads = [side.encrypt_update(self.weights, _SAMPLES, 1) for side in sides]

    def round_state(self) -> str:
        rounds = self.requester.sp.status(self.task)["rounds"]
        return str(rounds[-1]["state"]) if rounds else ""

    def _serve(self, folder: Path, stack: ExitStack) -> dict[str, int]:
        roles, bare, servers = folder / "roles", folder / "bare", ("kgc", "csp", "sp")
        options = [f"--{role}-port={self.ports[role]}" for role in servers]
        options += ["--insecure-test-key"] if self.settings.insecure_test_key else []
        init = [sys.executable, "-m", "crowdfl", "init", str(roles), *options]
        subprocess.run(init, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 -- this very program
        bare.mkdir()
        tls = [str(roles / "sp" / name) for name in ("tls.pem", "tls.key")]
        commands = {role: ["crowdfl", role, "serve", str(roles / role / "settings.toml")] for role in servers}
        commands["bare"] = ["crowdfl_lab.bench.load.bare", str(bare), str(self.ports["bare"]), *tls]
        return {name: _start(stack, folder / f"{name}.log", command) for name, command in commands.items()}

    def _definition(self) -> Definition:
        crowd, clip = self.settings.participants, float(np.ceil(np.abs(self.weights).max()))
        task = self.settings.task(min_participants=crowd, rounds=1, window=_DAY, max_samples=1000, clip=clip)
        return Definition("load", "none", "nobody", ModelShape.of({"w": self.weights}), "", task, 60.0, b"", {})

    def _join(self, own: RequesterFile) -> tuple[list[ParticipantKeys], bytes]:
        kgc, sp = KgcClient(own.link(own.settings.kgc).open()), SpClient(own.link(own.settings.sp).open())
        people = []
        for invitation in self.requester.invite(self.task, self.settings.participants, _DAY):
            fresh = ParticipantKeys.fresh("")
            people.append(replace(fresh, who=participant_name(fresh.signing.public)))
            enrolled = enrol(kgc, self.task, invitation, people[-1], own.settings.kgc_key)
            sp.enrol(self.task, enrolled.certificate)
        kgc.service.close()
        sp.service.close()
        return people, enrolled.bundle

    def _side(self, spec: TaskSpec, bundle: bytes, keys: ParticipantKeys) -> ParticipantProtocol:
        tools = Tools.unwatched(insecure_test_key=self.settings.insecure_test_key)
        side = profile_named(self.settings.profile).participant(spec, bundle, keys, tools)
        side.follow(None, np.zeros(spec.parameters))
        return side

    def _derived(self, side: ParticipantProtocol) -> tuple[PublicKey, list[bytes]]:
        party, update = keyed_party(side), side.encrypt_update(self.weights, _SAMPLES, 1)
        public = party.public
        vector = CipherVector.from_bytes(update, public, max_count=10**6)
        zeros, uploads = party.encrypt([0] * len(vector)), list[bytes]()
        for _ in self.people:
            uploads.append(vector.to_bytes())
            vector = vector.add(zeros)
        return public, uploads


def wait_until(true: Callable[[], bool], what: str) -> None:
    looks = Backoff.steady(0.5, deadline=PATIENCE).start()
    while not true():
        if not looks.wait():
            raise ServiceUnavailable(f"waited {PATIENCE:.0f} s for {what}")


def _start(stack: ExitStack, log: Path, command: list[str]) -> int:
    output = stack.enter_context(log.open("w"))
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=output, stderr=output)  # noqa: S603
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process.pid


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]
