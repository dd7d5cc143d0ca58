"""A whole platform in one process: three roles behind their apps, called over ASGI without a network."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
from anyio.from_thread import BlockingPortal
from fastapi import FastAPI

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.sealing import SigningKey
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import ParticipantKeys, ParticipantProtocol, Tools
from crowdfl.protocols.registry import PROFILES
from crowdfl.retry import Backoff
from crowdfl.roles.csp import Csp
from crowdfl.roles.documents import Definition, Invitation, participant_name
from crowdfl.roles.kgc import Created, Kgc, enrolment_context
from crowdfl.roles.sp.core import SpOptions, SpPorts
from crowdfl.roles.sp.platform import Sp
from crowdfl.services.apps import csp as csp_app
from crowdfl.services.apps import kgc as kgc_app
from crowdfl.services.apps import sp as sp_app
from crowdfl.services.client.peers import CspClient, KgcClient, SpClient
from crowdfl.services.client.transport import Bearer, Credential, Owner, Service, Signer
from crowdfl.services.http.auth import ROLES, Tokens
from crowdfl.settings import TaskSettings
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.sql import SqlStore

TOOLS = Tools(Threads(1), insecure_test_key=True)
INITIAL = b"initial weights"
DEPOSIT = 80_000_000
IMPATIENT = Backoff(deadline=0.0)


def definition_of(requester: SigningKey, **changes: object) -> Definition:
    """A small task of one round with rewards."""
    settings = {
        "max_participants": 4,
        "max_samples": 50,
        "key_bits": 1536,
        "rounds": 1,
        "budget": "36.00",
        "window": 100,
    }
    return Definition(
        "to test",
        "none",
        "the requester",
        ModelShape(("w",), ((3, 4),)),
        hashlib.sha256(INITIAL).hexdigest(),
        TaskSettings.of(**(settings | changes)),
        1000.0,
        requester.public,
        {},
    )


class Time:
    """A clock that stands still until it is moved."""

    seconds = 1_000_000.0

    def now(self) -> float:
        """Seconds."""
        return self.seconds


class InProcess(httpx.BaseTransport):
    """Carries requests to an app through a portal: plain functions on this side, an event loop on the other."""

    def __init__(self, app: FastAPI, portal: BlockingPortal) -> None:
        self._app, self._portal = httpx.ASGITransport(app, raise_app_exceptions=False), portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One exchange."""

        async def exchange() -> httpx.Response:
            stream = _Parts(request.stream)
            asked = httpx.Request(request.method, request.url, headers=request.headers, stream=stream)
            found = await self._app.handle_async_request(asked)
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
    """A participant and what it calls SP with."""

    keys: ParticipantKeys
    side: ParticipantProtocol
    sp: SpClient

    @property
    def who(self) -> str:
        """Its name."""
        return self.keys.who

    def update(self) -> bytes:
        """An upload of random weights."""
        return self.side.encrypt_update(np.random.default_rng().normal(size=12), 10)


@dataclass
class World:
    """The platform."""

    folder: Path
    portal: BlockingPortal
    clock: Time = field(default_factory=Time)
    patience: float = 5.0
    requester: SigningKey = field(default_factory=SigningKey.fresh)
    signing: SigningKey = field(default_factory=SigningKey.fresh)
    stores: list[SqlStore] = field(default_factory=list)
    clients: list[httpx.Client] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = {name: self._some_tokens(name) for name in ("kgc", "sp", "csp")}
        kgc_blobs = FileBlobs(self.folder / "kgc" / "keys")
        self.kgc = Kgc(self._store("kgc"), kgc_blobs, self.clock, SigningKey.fresh(), insecure_test_key=True)
        self.apps = {"kgc": kgc_app.create_app(self.kgc, self.tokens["kgc"][0], folder=self.folder / "kgc")}
        public = self.kgc.signing.public
        store, blobs, keys = self._disk("csp")
        kgc_for_csp = KgcClient(self.service("kgc", self.token("kgc", "csp")))
        self.csp = Csp(store, blobs, keys, kgc_for_csp, public, TOOLS)
        self.start_csp()
        store, blobs, keys = self._disk("sp")
        kgc_for_sp = KgcClient(self.service("kgc", self.token("kgc", "sp")))
        csp_for_sp = CspClient(self.service("csp", self.token("csp", "sp")))
        ports = SpPorts(store, blobs, keys, self.clock, kgc_for_sp, csp_for_sp, public)
        self.sp = Sp(ports, SpOptions(TOOLS))
        self.apps["sp"] = sp_app.create_app(
            self.sp, self.tokens["sp"][0], folder=self.folder / "sp", signing=self.signing
        )

    def start_csp(self) -> None:
        """CSP's app, afresh: what it was computing is forgotten."""
        tokens, folder = self.tokens["csp"][0], self.folder / "csp"
        self.apps["csp"] = csp_app.create_app(self.csp, tokens, folder=folder, patience=self.patience)

    def token(self, service: str, role: str) -> Bearer:
        """The token that a service gave a role."""
        return Bearer(self.tokens[service][1][role])

    def owner(self, service: str) -> Owner:
        """The requester, as a service that gave it a token knows it."""
        return Owner(self.token(service, "requester").token, self.requester)

    def http(self, service: str) -> httpx.Client:
        """A bare client."""
        client = httpx.Client(transport=InProcess(self.apps[service], self.portal), base_url="https://service")
        self.clients.append(client)
        return client

    def service(self, name: str, credential: Credential | None = None, retries: Backoff = IMPATIENT) -> Service:
        """A service called with a credential."""
        return Service(self.http(name), credential, retries, self.clock.now)

    def create(self, **changes: object) -> Created:
        """A task at KGC and SP, prepaid."""
        definition = definition_of(self.requester, **changes)
        signed = definition.sign(self.requester)
        made = KgcClient(self.service("kgc", self.owner("kgc"))).create_task(signed)
        self.definition = definition
        sp = self.for_requester()
        sp.create_task(signed, made.appointment, INITIAL)
        sp.deposit(made.task, "first", DEPOSIT)
        return made

    def for_requester(self) -> SpClient:
        """SP, for the requester."""
        return SpClient(self.service("sp", self.owner("sp")))

    def join(self, task: str, number: int) -> Person:
        """One more participant."""
        fresh = ParticipantKeys.fresh("unnamed")
        who = participant_name(fresh.signing.public)
        keys = ParticipantKeys(who, fresh.signing, fresh.reader)
        invitation = Invitation(task, str(number), self.clock.now() + 1000).sign(self.requester)
        enrolled = KgcClient(self.service("kgc")).enrol(task, invitation, keys.signing.public, keys.reader.public)
        sp = SpClient(self.service("sp", Signer(who, keys.signing)))
        sp.enrol(task, enrolled.certificate)
        bundle = keys.reader.open(enrolled.sealed, enrolment_context(task, who))
        return Person(keys, PROFILES["hardened"].participant(self.definition.about, bundle, keys, TOOLS), sp)

    def open_round(self, people: int = 3, **changes: object) -> tuple[str, list[Person]]:
        """A task whose first round takes uploads."""
        task = self.create(**changes).task
        joined = [self.join(task, number) for number in range(people)]
        self.work()
        return task, joined

    def work(self) -> None:
        """SP's background work, until nothing is left."""
        while self.sp.tick():
            pass

    def close(self) -> None:
        """Let go."""
        for client in self.clients:
            client.close()
        for store in self.stores:
            store.close()

    def _store(self, name: str) -> SqlStore:
        (self.folder / name).mkdir(exist_ok=True)
        store = SqlStore(f"sqlite:///{self.folder / name / 'state.db'}")
        store.create_tables()
        self.stores.append(store)
        return store

    def _disk(self, name: str) -> tuple[SqlStore, FileBlobs, FileBlobs]:
        return self._store(name), FileBlobs(self.folder / name / "blobs"), FileBlobs(self.folder / name / "keys")

    def _some_tokens(self, name: str) -> tuple[Tokens, dict[str, str]]:
        (self.folder / name).mkdir()
        tokens = Tokens(self.folder / name / "tokens.json")
        return tokens, {role: tokens.add(f"the {role}", role) for role in ROLES}
