"""The three services as a stranger meets them: raw requests to the real apps over real stores, and what must hold of any."""

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import structlog
from anyio.from_thread import BlockingPortal

from crowdfl import errors
from crowdfl.services.client.transport import Signer
from crowdfl.services.http.problems import MEDIA_TYPE, problem_for
from tests.fuzz.trial import Form, Tally
from tests.http.world import Person, World

SERVICES = ("kgc", "sp", "csp")
_ON_PURPOSE = (503, 507)
_TYPES = {problem_for(getattr(errors, name)("")).body()["type"] for name in errors.__all__}
_TYPES |= {f"urn:crowdfl:problem:{slug}" for slug in ("invalid-request", "cut-off", "not-found", "method-not-allowed")}


@dataclass(frozen=True)
class Ask:
    """A request as bytes; `cut` is a client that goes away after the last piece."""

    service: str
    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    pieces: tuple[bytes, ...] = (b"",)
    cut: bool = False


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Platform:
    """A platform with a task that is over and unpaid, and one whose round is open."""

    folder: Path
    portal: BlockingPortal
    world: World = field(init=False)
    people: dict[str, list[Person]] = field(init=False)
    _state: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.world = world = World(self.folder, self.portal)
        answer, asked = world.csp.answer, []
        world.csp.answer = lambda task, request: asked.append(Form(request)) or answer(task, request)  # type: ignore
        self.over, people = world.open_round(window=100)
        for person in people:
            person.sp.upload(self.over, 1, person.update())
        world.run()
        world.csp.answer = answer  # type: ignore[method-assign]
        self.requests = asked  # of every kind that SP asks of CSP
        self.claims = [self._claim(person) for person in people]
        self.open, others = world.open_round(window=10_000)
        others[0].sp.upload(self.open, 1, others[0].update())
        self.people = {self.over: people, self.open: others}
        self.update = Form(others[1].update())
        self._databases = [sqlite3.connect(self.folder / name / "state.db") for name in SERVICES]

    def _claim(self, person: Person) -> Form:
        person.side.open_reward(person.sp.reward(self.over, 1), 1)
        return Form(person.side.claim())

    def close(self) -> None:
        for database in self._databases:
            database.close()
        self.world.close()

    def state(self) -> dict[str, Any]:
        """Every row of every store, and every file beside them."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("state.db")]
        found: dict[str, Any] = {str(path.relative_to(self.folder)): path.stat().st_mtime_ns for path in files}
        for name, database in zip(SERVICES, self._databases, strict=True):
            with closing(database.cursor()):
                found[name] = list(database.iterdump())
        return found

    def headers(self, ask: Ask, credential: str) -> tuple[tuple[bytes, bytes], ...]:
        """What a caller of this kind sends along: a role's token, a participant's signature, or neither."""
        if credential == "none":
            return ()
        if credential == "signed":
            task = self.over if self.over in ask.target else self.open
            person = next((p for p in self.people[task] if p.who in ask.target), self.people[task][0])
            signer = Signer(person.who, person.keys.signing)
            made = signer.headers(ask.method, _signed_target(ask), b"".join(ask.pieces), self.world.clock.now())
        elif credential == "elsewhere":
            made = self.world.token("csp" if ask.service == "sp" else "sp", "sp").headers("", "", b"", 0.0)
        elif credential == "requester":
            owner = self.world.owner(ask.service)
            made = owner.headers(ask.method, _signed_target(ask), b"".join(ask.pieces), self.world.clock.now())
        else:
            made = self.world.token(ask.service, credential).headers("", "", b"", 0.0)
        return tuple((name.encode(), value.encode()) for name, value in made.items())

    def send(self, ask: Ask) -> Answer:
        """One request to an app, as a server passes it on."""
        Tally.inputs += 1
        return self.portal.call(self._exchange, ask)

    def check(self, ask: Ask) -> Answer:
        """Send, and see that what must hold of any request holds of this one."""
        before = self._state or self.state()
        with structlog.testing.capture_logs() as logged:
            answer = self.send(ask)
        self._state = self.state()
        assert [entry for entry in logged if entry["event"] == "failed"] == []
        assert answer.status < 500 or answer.status in _ON_PURPOSE, answer
        assert answer.headers["x-request-id"]
        if answer.status >= 400:
            check_problem(answer)
        if answer.status >= 400 or ask.method in ("GET", "HEAD"):
            assert self._state == before
        return answer

    async def _exchange(self, ask: Ask) -> Answer:
        path, _, query = ask.target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": ask.method,
            "scheme": "https",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in ask.headers],
            "client": ("192.0.2.1", 1),
            "server": ("service", 443),
        }
        coming, sent = list(ask.pieces), []

        async def receive() -> dict[str, Any]:
            if coming:
                body = coming.pop(0)
                return {"type": "http.request", "body": body, "more_body": bool(coming) or ask.cut}
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.world.apps[ask.service](scope, receive, send)
        headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))


def check_problem(answer: Answer) -> None:
    """A refusal is a problem of a known type that names its request."""
    assert answer.headers["content-type"] == MEDIA_TYPE, answer
    problem = json.loads(answer.body)
    assert problem["type"] in _TYPES, problem
    assert (problem["status"], problem["request"]) == (answer.status, answer.headers["x-request-id"])
    assert problem["title"]


def _signed_target(ask: Ask) -> str:
    path, mark, query = ask.target.partition("?")
    return unquote(path) + mark + query


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
