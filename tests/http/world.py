"""A whole platform in one process: the roles of `Host` behind their apps, called over ASGI without a network."""

import base64
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from anyio.from_thread import BlockingPortal
from fastapi import FastAPI

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.learning.models.forms import to_safetensors
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import ParticipantKeys, ParticipantProtocol
from crowdfl.retry import Backoff
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.kgc_retention import KgcRetention
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import Blobs, ManualClock
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.apps import csp as csp_app
from crowdfl.services.apps import kgc as kgc_app
from crowdfl.services.apps import sp as sp_app
from crowdfl.services.client.peer_link import calls_to
from crowdfl.services.client.peers import CspClient, KgcClient, SpClient
from crowdfl.services.client.transport import Bearer, Credential, Owner, Service, Signer
from crowdfl.services.http import logs
from crowdfl.services.http.auth import Tokens
from crowdfl.services.run import around_step
from crowdfl.services.tracing import TracedRounds
from crowdfl.settings import TOKEN_ROLES, TaskSettings
from crowdfl.simulation.host import Host
from crowdfl.storage.memory_blobs import MemoryBlobs
from crowdfl.storage.sql import SqlStore
from tests.hosts import INITIAL_MODEL, SMALL_TASK, FileDisk, small_definition, test_tools

TASK: dict[str, Any] = SMALL_TASK | {"rounds": 1}  # with rewards
BEGIN = 1_000_000.0  # by the clock of `World`
INITIAL = to_safetensors(ModelShape(("w", "b"), ((2, 3), (2,))), INITIAL_MODEL)
DEPOSIT = 80_000_000
IMPATIENT = Backoff(deadline=0.0)


def task_definition(**changes: object) -> Definition:
    return small_definition(TaskSettings.of(**(TASK | changes)), claim_window=1000.0)


def definition_of(requester: SigningKey, now: float = BEGIN, **changes: object) -> Definition:
    initial = hashlib.sha256(INITIAL).hexdigest()
    return replace(task_definition(**changes), requester=requester.public, initial=initial).dated(now)


class InProcess(httpx.BaseTransport):
    """Carries requests to the app of the moment through a portal: plain functions on this side, an event loop on the other."""

    def __init__(self, app: Callable[[], FastAPI], portal: BlockingPortal) -> None:
        self._app, self._portal = app, portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def exchange() -> httpx.Response:
            stream = _Parts(request.stream)
            asked = httpx.Request(request.method, request.url, headers=request.headers, stream=stream)
            app = httpx.ASGITransport(self._app(), raise_app_exceptions=False)
            found = await app.handle_async_request(asked)
            body = b"".join([part async for part in found.stream])  # type: ignore[union-attr]
            return httpx.Response(found.status_code, headers=found.headers, content=body)

        return self._portal.call(exchange)


class _Parts(httpx.AsyncByteStream):
    def __init__(self, stream: object) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._stream:  # type: ignore[attr-defined]
            yield part


@dataclass
class Person:
    participant: Participant
    sp: SpClient

    @property
    def keys(self) -> ParticipantKeys:
        return self.participant.keys

    @property
    def side(self) -> ParticipantProtocol:
        return self.participant.side

    @property
    def who(self) -> str:
        return self.keys.who

    def update(self) -> bytes:
        return self.side.encrypt_update(np.random.default_rng().normal(size=8), 10, 1)


class ServersDisk(FileDisk):
    """The servers' files; a requester and participants have machines of their own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._elsewhere: dict[str, MemoryBlobs] = {}

    def blobs(self, name: str) -> Blobs:  # type: ignore[override]
        if name.startswith(("people/", "requester")):
            return self._elsewhere.setdefault(name, MemoryBlobs())
        return super().blobs(name)


class World(Host):
    """The roles of a local host; every call between two of them goes through an app."""

    disk: ServersDisk
    patience = 5.0
    new_disk = ServersDisk
    new_tools = staticmethod(test_tools)

    def __init__(self, folder: Path, portal: BlockingPortal) -> None:
        self.folder, self.portal = folder, portal
        self.receipts = SigningKey.fresh()  # SP's
        self.clients: list[httpx.Client] = []
        self.tokens = {name: self._some_tokens(name) for name in ("kgc", "sp", "csp")}
        clock, disk = ManualClock(BEGIN), self.new_disk(folder)
        super().__init__(self.new_tools(), disk=disk, clock=clock)

    def restart(self) -> None:
        super().restart()
        tokens, folder = {name: given for name, (given, _) in self.tokens.items()}, self.folder
        retention = KgcRetention(self.kgc.store, self.kgc.bundles, self.clock, sp_key=self.receipts.public)
        self.apps = {
            "kgc": kgc_app.create_app(self.kgc, tokens["kgc"], folder=folder / "kgc", retention=retention),
            "sp": sp_app.create_app(self.sp, tokens["sp"], folder=folder / "sp", signing=self.receipts),
        }
        self.start_csp()

    def start_csp(self) -> None:
        """CSP's app, afresh: what it was computing is forgotten."""
        tokens, folder = self.tokens["csp"][0], self.folder / "csp"
        csp, key = self.csp, self.receipts.public
        retention = CspRetention(csp.store, csp.bundles, self.clock, csp.blobs, csp.guard, sp_key=key, forget=csp.drop)
        self.apps["csp"] = csp_app.create_app(csp, tokens, folder=folder, patience=self.patience, retention=retention)

    def kgc_for(self, role: str) -> KgcClient:
        return KgcClient(self.peer("kgc", role))

    def new_requester(self) -> Requester:
        kgc, blobs = KgcClient(self.service("kgc", self.owner("kgc"))), self.disk.blobs("requester")
        return Requester(blobs, self.clock, kgc, self.for_requester(), self.signing.public, self.tools)

    def new_participant(self, task: str, name: str) -> Participant:
        kgc, sp = KgcClient(self.service("kgc")), SpClient(self.service("sp"))
        blobs, kgc_key = self.disk.blobs(f"people/{name}"), self.signing.public
        return Participant(task, blobs, kgc, sp, kgc_key, self.tools, least_participants=1)

    def token(self, service: str, role: str) -> Bearer:
        return Bearer(self.tokens[service][1][role])

    def owner(self, service: str) -> Owner:
        """The requester, as a service that gave it a token knows it."""
        return Owner(self.token(service, "requester").token, own_key(self.disk.blobs("requester")))

    def http(self, service: str) -> httpx.Client:
        transport = InProcess(lambda: self.apps[service], self.portal)
        self.clients.append(httpx.Client(transport=transport, base_url="https://service"))
        return self.clients[-1]

    def service(self, name: str, credential: Credential | None = None, retries: Backoff = IMPATIENT) -> Service:
        return Service(self.http(name), credential, retries, self.clock.now)

    def post(self, **changes: object) -> str:
        task = self.create(task_definition(**changes), INITIAL_MODEL)
        self.requester.fund(task, DEPOSIT, "first")
        SpClient(self.service("sp", self.token("sp", "bank"))).confirm_deposit(task, "first", DEPOSIT, "EUR")
        return task

    def for_requester(self) -> SpClient:
        return SpClient(self.service("sp", self.owner("sp")))

    def add_person(self, task: str) -> Person:
        participant = self.join(task, f"{task}/{len(self.people)}")
        keys = participant.keys
        return Person(participant, SpClient(self.service("sp", Signer(keys.who, keys.signing))))

    def open_round(self, people: int = 3, **changes: object) -> tuple[str, list[Person]]:
        task = self.post(**changes)
        joined = [self.add_person(task) for _ in range(people)]
        self.run()
        return task, joined

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.disk.close()

    def csp_for(self, process: str) -> CspClient:
        return CspClient(self.peer("csp", process))

    def peer(self, name: str, role: str) -> Service:
        return self.service(name, self.token(name, role))

    def _some_tokens(self, name: str) -> tuple[Tokens, dict[str, str]]:
        (self.folder / name).mkdir()
        tokens = Tokens(self.folder / name / "tokens.json")
        return tokens, {role: tokens.add(f"the {role}", role) for role in TOKEN_ROLES}


class ObservedDisk(ServersDisk):
    """Whose stores tell the log what becomes durable."""

    def open_store(self, role: str, url: str) -> SqlStore:
        return SqlStore(url, logs.events(role))


class ObservedWorld(World):
    new_disk = ObservedDisk
    new_tools = staticmethod(lambda: replace(test_tools(), observer=TracedRounds()))

    def __init__(self, folder: Path, portal: BlockingPortal) -> None:
        super().__init__(folder, portal)
        self.options.events, self.options.around_step = logs.events("sp"), around_step

    def peer(self, name: str, role: str) -> Service:
        return replace(super().peer(name, role), watch=calls_to(name.upper(), logs.events(role)))

    def whole_campaign(self) -> tuple[str, list[Person], list[bytes]]:
        """From the first deposit to the settlement: the task, its people, their uploads."""
        task, people = self.open_round()
        uploads = [person.update() for person in people]
        for person, upload in zip(people, uploads, strict=True):
            person.sp.upload(task, 1, upload)
            person.participant.blobs.put("rounds/1/receipt", b"")
        self.run()
        for person in people:
            person.participant.claim()
        self.clock.time = self.sp.store.task(task).attests_until
        self.run()
        return task, people, uploads


def forms_of(secret: bytes | str) -> Iterator[str]:
    """How a secret, or a part of it, may look in a text."""
    if isinstance(secret, str):
        yield secret
        return
    for start in {0, len(secret) // 2, max(0, len(secret) - 24)}:
        part = secret[start : start + 24]
        yield part.hex()
        yield str(int.from_bytes(part, "big"))
        yield repr(part)[2:-1]
        for shift in range(3):  # wherever base64 of the whole begins
            inner = base64.b64encode(part[shift : shift + 18]).decode()
            yield inner
            yield inner.replace("+", "-").replace("/", "_")


def found_in(text: str, secrets: Iterable[bytes | str]) -> list[str]:
    """Which of them a text holds, in any form."""
    return [form for secret in secrets for form in forms_of(secret) if form in text]
