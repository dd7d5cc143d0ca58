"""Both consoles over a platform in this process, called as their pages call them, and served to a browser."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.from_thread import BlockingPortal
from fastapi import FastAPI

from crowdfl.cli.task.console import requester_actions
from crowdfl.documents.signed import Definition
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.training import LocalTrainer
from crowdfl.roles.defining import defined
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.services.apps.sp_uploads import UnfinishedUploads
from crowdfl.services.client import opening as requester_file
from crowdfl.services.client.breaker import Breaker
from crowdfl.services.client.opening import RequesterFile
from crowdfl.services.client.peers import SpClient
from crowdfl.services.http.tls import make_ca, make_server_certificate
from crowdfl.services.run import SpParts
from crowdfl.services.server import running
from crowdfl.settings import PeerSettings, RequesterSettings, SpSettings
from crowdfl.web.console_app import Console, add_console
from crowdfl.web.pages import add_static, page_assets
from crowdfl.web.requester_console.app import create_requester_app
from crowdfl.web.requester_console.form import PHONE_TASK, contents, start_values
from crowdfl.web.shell import HEADER, OneBrowser
from tests.http.world import InProcess, ObservedWorld, World
from tests.subprocesses import until

__all__ = ["Browser", "ConsoleWorld", "Office", "Operator", "PageClient", "small_values", "task_of"]

PORT = 7999


class PageClient:
    """A browser with a console's page, without the page."""

    base = ""

    def __init__(self, http: httpx.Client, mark: str) -> None:
        self.http, url = http, http.base_url
        origin = f"{url.scheme}://{url.netloc.decode()}"
        self.headers = {"Origin": origin, HEADER: mark, "Sec-Fetch-Site": "same-origin"}

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.http.get(f"{self.base}/{path}", headers=self.headers | headers)

    def post(self, path: str, body: object = None, **headers: str) -> httpx.Response:
        return self.http.post(f"{self.base}/{path}", json=body, headers=self.headers | headers)


class ConsoleWorld(ObservedWorld):
    """As SP is run, with the operator's console; its peers are watched by breakers that nobody calls."""

    console: Console

    def __init__(self, folder: Path, portal: BlockingPortal) -> None:
        super().__init__(folder, portal)
        self.breakers = [Breaker("KGC"), Breaker("CSP")]
        data, nobody = folder / "sp", PeerSettings(url="http://127.0.0.1:9", token=folder / "peer.token")
        self.settings = SpSettings(
            data=data, host="127.0.0.1", port=0, plain_http=True, kgc=nobody, csp=nobody, kgc_key=bytes(32)
        )
        sp = self.sp
        parts = UnfinishedUploads(data / "incoming")
        own = sp.store, sp.ports.bundles, self.clock, sp.blobs, sp.ports.guard, parts
        retention = SpRetention(*own, forget=sp.aggregators.drop)
        given = SpParts(sp, retention, self.tokens["sp"][0], self.breakers, data, self.settings)
        for place, assets in reversed(page_assets("console", "/console").items()):
            if place != "/console":
                add_static(self.apps["sp"], place, assets)
        self.console = add_console(self.apps["sp"], given)

    def operator(self, *, logged_in: bool = True) -> "Operator":
        operator = Operator(self.http("sp"))
        if logged_in:
            assert operator.log_in(self.token("sp", "operator").token).status_code == 204
        return operator

    @contextlib.contextmanager
    def served(self, *, tls: bool = False) -> Iterator[str]:
        """Over plain HTTP on loopback, or TLS; nothing moves but what the test moves."""
        settings = self.settings
        if tls:
            made = make_server_certificate(self.folder, make_ca(self.folder), "sp")
            settings = settings.changed(plain_http=False, **vars(made))
        with running(self.apps["sp"], settings) as url:
            yield url


class Operator(PageClient):
    base = "/console"

    def __init__(self, http: httpx.Client) -> None:
        super().__init__(http, "operator")

    def log_in(self, token: str) -> httpx.Response:
        return self.post("session", {"token": token})

    def log_out(self) -> httpx.Response:
        return self.http.delete("/console/session", headers=self.headers)

    @contextlib.contextmanager
    def watch(self) -> Iterator["Heard"]:
        headers = self.headers | {"Accept": "text/event-stream"}
        with self.http.stream("GET", "/console/events", headers=headers, timeout=60) as answer:
            yield Heard(answer)


class Heard:
    def __init__(self, answer: httpx.Response) -> None:
        self.answer, self._lines = answer, answer.iter_lines()

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event; StopIteration when the stream has ended."""
        event = ""
        for line in self._lines:
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return event, json.loads(line.removeprefix("data: "))
        raise StopIteration

    def until(self, section: str) -> dict[str, Any]:
        while True:
            event, found = self.next()
            if event == "change" and section in found:
                changed: dict[str, Any] = found[section]["changed"]
                return changed

    def rest(self) -> list[str]:
        found = []
        with contextlib.suppress(StopIteration):
            while True:
                found.append(self.next()[0])
        return found


def small_values(**changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A form for a task of the watch data that costs little, with some fields typed over."""
    values = start_values(PHONE_TASK)
    small = {
        "settings": {"decimals": "3", "clip": "4.0", "lanes": "128", "max_participants": "4", "min_participants": "3"},
        "training": {
            "learner": "softmax",
            "channels": "6",
            "labels": "PEN\nABD\nFEL\nIR\nER\nTRAP\nROW",
            "epochs": "2",
        },
    }
    small["settings"] |= {"rounds": "2", "window": "100", "budget": "36.00", "max_norm": "30.0"}
    for part in (small, changes):
        for section, typed in part.items():
            values[section] |= typed
    return values


def task_of(values: dict[str, dict[str, Any]]) -> tuple[Definition, Weights]:
    """The task of a form, as a requester creates it."""
    return defined("the form", contents(values))


class Office:
    """The world, the requester's folder, and the app that its page calls."""

    def __init__(self, world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.folder = world, folder
        folder.mkdir(mode=0o700)
        monkeypatch.setattr(requester_file, "SpClient", lambda _service: SpClient(world.service("sp")))
        places = {"kgc": "https://kgc.example:7101", "sp": "https://sp.example:7102"}
        tokens = {"kgc_token": folder / "kgc.token", "sp_token": folder / "sp.token"}
        settings = RequesterSettings(**places, **tokens, kgc_key=world.signing.public)
        own = RequesterFile(folder, settings, "no token", "no token")
        self.actions = requester_actions(own, world.requester)
        self.crowd: list[tuple[Participant, LocalTrainer]] = []

    def app(self, session: OneBrowser) -> FastAPI:
        return create_requester_app(self.actions, session)

    def browser(self, session: OneBrowser | None = None, *, opened: bool = True) -> "Browser":
        browser = Browser(self, session or OneBrowser(PORT))
        if opened:
            assert browser.open().status_code == 200
        return browser

    def confirm(self, task: str, name: str, amount: int) -> None:
        SpClient(self.world.service("sp", self.world.token("sp", "bank"))).confirm_deposit(task, name, amount, "EUR")

    def gather(self, task: str, people: int = 3) -> None:
        training = self.world.requester.definition(task).training
        self.crowd = [
            (self.world.join(task, f"{task} {place}"), LocalTrainer(f"watch:{place}", training))
            for place in range(people)
        ]
        self.world.run()

    def play(self, task: str, number: int) -> None:
        training = self.world.requester.definition(task).training
        for person, trainer in self.crowd:
            if number > 1:
                person.read(number - 1)
            person.encrypt(number, *trainer.train(person.model(), training, number))
            person.send(number)
        self.world.run()


@contextlib.contextmanager
def office_over(folder: Path, portal: BlockingPortal) -> Iterator[Office]:
    """A requester's office, over a platform of its own."""
    world = World(folder, portal)
    with pytest.MonkeyPatch.context() as patch:
        yield Office(world, folder / "own", patch)
    world.close()


class Browser(PageClient):
    base = "/api"

    def __init__(self, office: Office, session: OneBrowser) -> None:
        self.session, self.app = session, office.app(session)
        http = httpx.Client(transport=InProcess(lambda: self.app, office.world.portal), base_url=session.origin)
        office.world.clients.append(http)
        super().__init__(http, "-")

    def open(self) -> httpx.Response:
        secret = self.session.address.partition("#open=")[2]
        answer = self.post("session", {"secret": secret})
        if answer.status_code == 200:
            self.headers[HEADER] = answer.json()["half"]
        return answer

    def done(self, place: str, body: object = None) -> Any:
        job = self.ended(self.post(place, body))
        assert job["state"] == "done", job
        return job["result"]

    def ended(self, started: httpx.Response) -> dict[str, Any]:
        assert started.status_code == 202, started.text
        job = started.json()["job"]
        return dict(until(lambda: (found := self.get(f"jobs/{job}").json())["state"] != "running" and found))

    def create(self, values: object) -> str:
        return str(self.done("tasks", {"values": values})["task"])


def problem(answer: httpx.Response | dict[str, Any]) -> str:
    body = answer if isinstance(answer, dict) else answer.json()
    return str(body["type"]).removeprefix("urn:crowdfl:problem:")
