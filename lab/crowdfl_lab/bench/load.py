"""`crowdfl bench load`: many participants' uploads against one SP process, beside a route that only writes and fsyncs.

KGC, SP and CSP are processes over TLS, with everyone enrolled. Rewards are off. Of `hardened`, one update is encrypted; every
other upload is the last one times an encryption of zeros. Of `shares`, everyone makes an upload of the same update. All differ,
all are valid, and the average is known. Half of the participants come over a connection of their own, as phones do; the others
share connections that are kept open. The bare route and SP take turns, so that a disturbance falls on both.

`python -m crowdfl_lab.bench.load FOLDER PORT CERTIFICATE KEY` is the bare route: it writes a body, fsyncs it, and says so.
"""

import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http.client import HTTPSConnection
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import uvicorn
from anyio import to_thread
from fastapi import FastAPI, Request

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier.vector import CipherVector
from crowdfl.documents.signed import Definition, participant_name
from crowdfl.errors import ProtocolError, ServiceUnavailable
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.hardened.manifest import HardenedUpload
from crowdfl.protocols.profile import ParticipantKeys, ParticipantProtocol, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.uploads import upload_digest
from crowdfl.retry import Backoff
from crowdfl.roles.participant.enrolment import enrol
from crowdfl.services.apps.sp_uploads import IN_WORK
from crowdfl.services.client.opening import RequesterFile, open_requester
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Service, Signer
from crowdfl.settings import SpSettings, TaskSettings
from crowdfl.simulation.sides import following
from crowdfl.storage.database import open_engine
from crowdfl.storage.settings_file import put_settings
from crowdfl_lab.bench.crowds import CROWDS, crowd_rows
from crowdfl_lab.bench.workload import BenchSettings, Say, full_uploads, made_up_weights
from crowdfl_lab.recorder import RoundRecorder
from crowdfl_lab.report.results import Figure, Reference, Result, Row, Target
from crowdfl_lab.timing import family_bytes, machine, processor_seconds, timed, timed_call
from crowdfl_lab.uploads import ciphertexts_in

_SAMPLES = 50
_DAY = 86400.0
_PATIENCE = 600.0
_OCTETS = {"Content-Type": "application/octet-stream"}
_TURNS = 4
_PROGRAM = 48 * 2**20  # what the interpreters, SQLite and threads take once they work, whatever the uploads
_SERVERS = ("bare", "sp")
_OTHERS = ("sp-2", "sp-3")

_Job = tuple[str, bytes, dict[str, str]]
_Seconds = dict[tuple[str, bool], list[float]]  # of each turn, by server and by whether connections were kept


@dataclass(frozen=True, kw_only=True)
class LoadSettings(BenchSettings):
    """A thousand phones and one SP; rewards and, of `shares`, checks are off."""

    profile: str = "hardened"
    parameters: int = 4000
    participants: int = 1000
    lanes: int = 0
    connections: int = 32
    checked: int = 100  # uploads validated and counted off the clock, for the separate figures
    crowds: tuple[int, ...] = CROWDS  # enrolled, of which some upload
    database: str = ""  # of PostgreSQL on this machine: three SPs share it

    @classmethod
    def quick(cls) -> "LoadSettings":
        return cls(participants=12, parameters=60, prime_bits=256, insecure_test_key=True, checked=5, crowds=(10, 50))

    @property
    def judged(self) -> bool:
        return replace(self, profile="hardened", database="") == LoadSettings()

    @property
    def key_title(self) -> str:
        return super().key_title if self.profile == "hardened" else f"`{self.profile}`"

    def task(self, **others: Any) -> TaskSettings:  # noqa: ANN401 -- as `TaskSettings` takes them
        if self.profile == "hardened":
            return super().task(**others)
        sizes = {"max_participants": self.participants, "check": "none", "pay": "none", "lanes": 0}
        return TaskSettings.of(profile=self.profile, **sizes | others)


class Platform:
    """What runs until the stack is closed, and what is ready to be sent: everything up to the first upload."""

    def __init__(self, folder: Path, settings: LoadSettings, stack: ExitStack, say: Say) -> None:
        self.settings, self.folder = settings, folder
        names = ("kgc", "sp", "csp", "bare", *(_OTHERS if settings.database else ()))
        self.ports = dict(zip(names, _free_ports(len(names)), strict=True))
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
        self.spec, self.bundle = spec, bundle
        self.uploads = self.made_uploads()

    def made_uploads(self) -> list[bytes]:
        sides = (self.side(keys) for keys in self.people)
        if self.settings.profile == "hardened":
            return self._derived(next(sides))
        return [side.encrypt_update(self.weights, _SAMPLES, 1) for side in sides]

    def round_state(self, number: int = 1) -> str:
        """Of a round, "" before it is there."""
        rounds = self.requester.sp.status(self.task)["rounds"]
        return next((str(one["state"]) for one in rounds if one["number"] == number), "")

    def _serve(self, folder: Path, stack: ExitStack) -> dict[str, int]:
        roles = folder / "roles"
        bare = folder / "bare"
        servers = ("kgc", "csp", "sp")
        options = [f"--{role}-port={self.ports[role]}" for role in servers]
        options += ["--insecure-test-key"] if self.settings.insecure_test_key else []
        init = [sys.executable, "-m", "crowdfl", "init", str(roles), *options]
        subprocess.run(init, stdout=subprocess.DEVNULL, check=True)  # noqa: S603 -- this very program
        bare.mkdir()
        tls = [str(roles / "sp" / name) for name in ("tls.pem", "tls.key")]
        commands = {role: ["crowdfl", role, "serve", str(roles / role / "settings.toml")] for role in servers}
        if self.settings.database:
            commands |= self._others(roles / "sp")
        commands["bare"] = ["crowdfl_lab.bench.load", str(bare), str(self.ports["bare"]), *tls]
        return {name: _start(stack, folder / f"{name}.log", command) for name, command in commands.items()}

    def _others(self, folder: Path) -> dict[str, list[str]]:
        """More SPs over the same folder and database, each at its own port."""
        put_settings(folder / "settings.toml", SpSettings, {"database": self.settings.database})
        text, commands = (folder / "settings.toml").read_text(), {}
        for name in _OTHERS:
            path = folder / f"{name}.toml"
            path.write_text(text.replace(f"port = {self.ports['sp']}", f"port = {self.ports[name]}", 1))
            commands[name] = ["crowdfl", "sp", "serve", str(path)]
        return commands

    def _definition(self) -> Definition:
        crowd = self.settings.participants
        clip = float(np.ceil(np.abs(self.weights).max()))
        task = self.task_settings(crowd, clip)
        return Definition("load", "none", "nobody", ModelShape.of({"w": self.weights}), task, int(_DAY), {})

    def task_settings(self, crowd: int, clip: float) -> TaskSettings:
        return self.settings.task(min_participants=crowd, rounds=1, window=_DAY, max_samples=1000, clip=clip)

    def service(self, keys: ParticipantKeys) -> Service:
        """SP, for one of the people."""
        own = RequesterFile.read(self.folder / "roles" / "requester" / "settings.toml")
        return own.link(own.settings.sp).open(Signer(keys.who, keys.signing))

    def _join(self, own: RequesterFile) -> tuple[list[ParticipantKeys], bytes]:
        kgc = KgcClient(own.link(own.settings.kgc).open())
        sp = SpClient(own.link(own.settings.sp).open())
        people, definition = [], self.requester.definition(self.task)
        for invitation in self.requester.invite(self.task, self.settings.participants, _DAY):
            fresh = ParticipantKeys.fresh("")
            people.append(replace(fresh, who=participant_name(fresh.signing.public)))
            enrolled = enrol(kgc, definition, invitation, people[-1], own.settings.kgc_key)
            sp.enrol(self.task, enrolled.certificate)
        kgc.service.close()
        sp.service.close()
        return people, enrolled.bundle

    def side(self, keys: ParticipantKeys) -> ParticipantProtocol:
        tools = Tools.unwatched(insecure_test_key=self.settings.insecure_test_key)
        side = profile_named(self.settings.profile).participant(self.spec, self.bundle, keys, tools)
        return following(side, np.zeros(self.spec.parameters))

    def _derived(self, side: ParticipantProtocol) -> list[bytes]:
        party, update = keyed_party(side), side.encrypt_update(self.weights, _SAMPLES, 1)
        vector = CipherVector.from_bytes(ciphertexts_in(update), party.public, max_count=10**6)
        zeros = party.encrypt([0] * len(vector))
        vectors = accumulate([vector, *[zeros] * (len(self.people) - 1)], CipherVector.add)
        rows = zip(self.people, vectors, strict=True)
        return [HardenedUpload.signed(self.task, 1, k.who, v.to_bytes(), k.signing).to_bytes() for k, v in rows]


def wait_until(true: Callable[[], bool], what: str) -> None:
    looks = Backoff.steady(0.5, deadline=_PATIENCE).start()
    while not true():
        if not looks.wait():
            raise ServiceUnavailable(f"waited {_PATIENCE:.0f} s for {what}")


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


def bench_load(settings: LoadSettings, *, say: Say = lambda _: None) -> Result:
    """Acknowledged uploads per second, memory, validation, counting; every upload must be in the average."""
    where = machine()
    with tempfile.TemporaryDirectory(prefix="crowdfl-load-") as folder, ExitStack() as stack:
        ready = Platform(Path(folder), settings, stack, say)
        wait_until(lambda: ready.round_state() == "open", "the round to open")
        rows = _turns(ready, settings, say)
        say("waiting for the average")
        done = ("published", "rewarded")
        waited = timed(lambda: wait_until(lambda: ready.round_state() in done, "the average"))
        error = float(np.abs(ready.requester.model(ready.task)[0] - ready.weights).max())
        say("validation and counting, one core")
        rows += _alone(settings)
    rows += crowd_rows(settings.crowds, settings.checked, say)
    if error > 1e-4:
        raise ProtocolError(f"the average is off by {error}: an upload was lost or counted twice")
    note = f"every upload counted: the average is off by {error:.1e} at most"
    published = Row("published", "from the last receipt to the published average", Figure(waited, "s"), note=note)
    name = "load" if settings.profile == "hardened" else f"load-{settings.profile}"
    result = settings.result(name, where, [*rows, published])
    return replace(result, command=f"crowdfl bench load --profile {settings.profile}")


def bench_machines(settings: LoadSettings, *, say: Say = lambda _: None) -> Result:
    """Processor time of an upload to one SP and to three that share a database, in turns, with all three running."""
    where = machine()
    with tempfile.TemporaryDirectory(prefix="crowdfl-load-") as folder, ExitStack() as stack:
        ready = Platform(Path(folder), settings, stack, say)
        wait_until(lambda: ready.round_state() == "open", "the round to open")
        sps, keeper = ("sp", *_OTHERS), _server_of(settings.database)
        spent: dict[int, list[tuple[float, float]]] = {1: [], len(sps): []}
        for turn, part in enumerate(np.array_split(np.arange(settings.participants), 2 * _TURNS)):
            used = sps if turn % 2 else sps[:1]
            say(f"turn {turn + 1} of {2 * _TURNS}: {len(part)} uploads to {len(used)}")
            before = sum(processor_seconds(ready.pids[name]) for name in sps), processor_seconds(keeper)
            for place, name in enumerate(used):
                jobs = [_job(ready, "sp", int(number)) for number in part[place :: len(used)]]
                send_all(ready, name, settings.connections, jobs, kept=False)
            after = sum(processor_seconds(ready.pids[name]) for name in sps), processor_seconds(keeper)
            spent[len(used)].append(((after[0] - before[0]) / len(part), (after[1] - before[1]) / len(part)))
    # The first turn of each warms up.
    own, kept = ({many: float(np.mean([one[k] for one in of[1:]])) for many, of in spent.items()} for k in (0, 1))
    whole = {many: Figure(own[many] + kept[many], "s") for many in spent}
    most = Target("within 1.2", "ratio", at_most=1.2)
    note = f"with the database's; of that {own[1] * 1e3:.1f} ms SP with one, {own[3] * 1e3:.1f} ms with three"
    row = Row("machines", "processor time an upload, three SPs", whole[3], most, judged=settings.judged, note=note)
    keeping = Row("database", "of that, the database's", Figure(kept[3], "s"), note="PostgreSQL, all its processes")
    rows = [
        row.over(Reference("one SP", whole[1]), "three / one"),
        keeping.over(Reference("one SP", Figure(kept[1], "s")), "three / one"),
    ]
    return settings.result("machines", where, rows)


def _server_of(url: str) -> int:
    """The process that all of a database's on this machine come from."""
    engine = open_engine(url)
    with engine.connect() as connection:
        own = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        found = int(Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()[1])
    engine.dispose()
    return found


def _turns(ready: Platform, settings: LoadSettings, say: Say) -> list[Row]:
    """Every upload once to each server; even turns over connections of their own, odd ones over those that are kept."""
    seconds: _Seconds = {(s, k): [] for s in _SERVERS for k in (False, True)}
    before = {s: processor_seconds(ready.pids[s]) for s in _SERVERS}
    memory = family_bytes("VmRSS", ready.pids["sp"])
    growth = []
    for turn, part in enumerate(np.array_split(np.arange(settings.participants), _TURNS)):
        say(f"turn {turn + 1} of {_TURNS}: {len(part)} uploads to the bare route, then to SP")
        kept = turn % 2 == 1
        for server in _SERVERS:
            jobs = [_job(ready, server, int(number)) for number in part]
            seconds[server, kept].append(send_all(ready, server, settings.connections, jobs, kept=kept))
        if turn + 1 in (_TURNS // 2, _TURNS):
            growth.append(Figure(family_bytes("VmHWM", ready.pids["sp"]) - memory, "B"))
    spent = {s: (processor_seconds(ready.pids[s]) - before[s]) / settings.participants for s in _SERVERS}
    cpu = {server: Figure(each, "s") for server, each in spent.items()}
    return _rows(seconds, cpu, growth, settings, len(ready.uploads[0]))


def bare_job(number: int, upload: bytes) -> _Job:
    return f"/bodies/{number}", upload, _OCTETS


def _job(ready: Platform, server: str, number: int) -> _Job:
    keys, upload = ready.people[number], ready.uploads[number]
    if server == "bare":
        return bare_job(number, upload)
    target = f"/v1/tasks/{ready.task}/rounds/1/uploads/{keys.who}"
    return (
        target,
        upload,
        Signer(keys.who, keys.signing).headers("PUT", target, b"", time.time(), upload_digest(upload)) | _OCTETS,
    )


def send_all(ready: Platform, server: str, connections: int, jobs: Sequence[_Job], *, kept: bool) -> float:
    """Every body, so many at once; seconds. Every one must be acknowledged."""
    context = ssl.create_default_context(cafile=ready.ca)
    idle: SimpleQueue[HTTPSConnection] = SimpleQueue()
    for _ in range(connections):
        wire = HTTPSConnection("127.0.0.1", ready.ports[server], context=context, timeout=_PATIENCE)
        if kept:
            wire.connect()
        idle.put(wire)

    def put(job: _Job) -> None:
        wire = idle.get()
        try:
            wire.request("PUT", *job)
            reply = wire.getresponse()
            said = reply.read()
        except OSError as problem:
            raise ServiceUnavailable(f"an upload was not acknowledged: {problem}") from problem
        finally:
            if not kept:
                wire.close()  # it connects again by itself
            idle.put(wire)
        if reply.status != 201:
            raise ServiceUnavailable(f"an upload was refused: {reply.status} {said[:300].decode(errors='replace')}")

    with ThreadPoolExecutor(connections) as pool:
        seconds = timed(lambda: list(pool.map(put, jobs)))
    while not idle.empty():
        idle.get().close()
    return seconds


def _alone(settings: LoadSettings) -> tuple[Row, ...]:
    """Seconds of one core to validate an upload, and to count it: by SP's side of a task of the same sizes, with uploads of its
    own."""
    parties = settings.parties(settings.task(rounds=2), Threads(1), RoundRecorder())
    if settings.profile == "hardened":
        uploads = full_uploads(parties, 10**6, settings.checked)
    else:
        weights = made_up_weights(settings.parameters, 1)
        uploads = parties.encrypt({f"p{i:03}": (weights, 1) for i in range(settings.checked)})
    parties.sp.open_round(1)
    validate, refusals = timed_call(lambda: parties.sp.refusals(list(uploads.items())))
    if any(refusals):
        raise ProtocolError(f"SP refuses uploads of its own task: {refusals}")
    count = timed(lambda: parties.sp.add_all(uploads, validated=True))
    mean = f"mean of {settings.checked}, off the clock"
    return tuple(
        Row(key, f"{what} an upload, one core", Figure(seconds / settings.checked, "s"), note=mean)
        for key, what, seconds in (("validate", "validating", validate), ("count", "counting", count))
    )


def _rows(
    seconds: _Seconds, cpu: dict[str, Figure], growth: list[Figure], settings: LoadSettings, upload: int
) -> list[Row]:
    """`cpu`: processor time an upload; `growth`: of SP's resident bytes, at their peak after each half of the uploads."""
    # A body for each connection, twice while it is received; a batch that is checked, here, joined, and beside; a running
    # product, the side that checks, and an opening: eight. Nothing grows with the participants.
    bound = Figure(_PROGRAM + (2 * settings.connections + 4 * IN_WORK + 8) * upload, "B")
    everything = Reference("all uploads together", Figure(upload * settings.participants, "B"))
    note = "SP's validation included, and its counting as far as it went on meanwhile"
    processor = Row("processor", "server's processor time an upload", cpu["sp"], note=note)
    within = Target("within the bound", "ratio", at_most=1.0)
    note = "after each half of the uploads: " + ", ".join(map(str, growth))
    memory = Row("memory", "SP's memory: growth over the round", growth[-1], within, note=note)
    return [
        _rate_row("acknowledged", "acknowledged uploads per second", seconds, settings, kept=False),
        _rate_row("kept", "the same over connections kept open", seconds, settings, kept=True),
        processor.under(Reference("bare route", cpu["bare"]), "bare / SP"),
        memory.over(Reference("bound", bound), "growth / bound", everything),
        Row("upload", "an upload", Figure(upload, "B"), note="durable before its receipt is signed"),
    ]


def _rate_row(key: str, quantity: str, seconds: _Seconds, settings: LoadSettings, *, kept: bool) -> Row:
    turns = np.array([seconds[server, kept] for server in _SERVERS])
    uploads = sum(map(len, np.array_split(np.arange(settings.participants), _TURNS)[kept::2]))
    bare, sp = (Figure(uploads / float(spent), "") for spent in turns.sum(axis=1))
    how = "connections kept" if kept else "each over its own connection"
    note = f"{settings.connections} at once, {how}; by turns: {', '.join(f'{r:.2f}' for r in turns[0] / turns[1])}"
    least = 0.6 if kept else 0.8
    target = Target(f"at least {least}", "ratio", at_least=least)
    row = Row(key, quantity, sp, target, note=note)
    return row.over(Reference("bare FastAPI route, TLS, write, fsync", bare), "SP / bare")


def make_app(folder: Path) -> FastAPI:
    app = FastAPI()

    @app.put("/bodies/{name}", status_code=201)
    async def put(request: Request, name: str) -> dict[str, int]:
        body = await request.body()
        await to_thread.run_sync(write, folder / f"{int(name)}", body)
        return {"bytes": len(body)}

    def write(path: Path, body: bytes) -> None:
        with path.open("wb", buffering=0) as file:
            file.write(body)
            os.fsync(file.fileno())

    return app


if __name__ == "__main__":
    _folder, _port, _certificate, _key = sys.argv[1:]
    _app = make_app(Path(_folder))
    uvicorn.run(_app, port=int(_port), ssl_certfile=_certificate, ssl_keyfile=_key, log_config=None, access_log=False)
