"""A requester's console over a platform in this process."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from crowdfl.cli.task.console import requester_desk
from crowdfl.documents.signed import Definition
from crowdfl.learning.models.shape import Weights
from crowdfl.learning.training import LocalTrainer
from crowdfl.roles.defining import defined
from crowdfl.roles.participant.participant import Participant
from crowdfl.services.client import opening as requester_file
from crowdfl.services.client.opening import RequesterFile
from crowdfl.services.client.peers import SpClient
from crowdfl.settings import RequesterSettings
from crowdfl.web.requester_console.app import create_requester_app
from crowdfl.web.requester_console.form import PHONE_TASK, contents, start_values
from crowdfl.web.requester_console.guard import HEADER, RequesterSession
from tests.http.world import InProcess, World

__all__ = ["Browser", "Office", "ended", "opened", "small_values", "task_of"]

PORT = 7999
PATIENCE = 120.0


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
        monkeypatch.setattr(requester_file, "SpClient", lambda _service: SpClient(world.service("sp")))
        places = {"kgc": "https://kgc.example:7101", "sp": "https://sp.example:7102"}
        tokens = {"kgc_token": folder / "kgc.token", "sp_token": folder / "sp.token"}
        settings = RequesterSettings(**places, **tokens, kgc_key=world.signing.public, min_claim_window=60.0)
        own = RequesterFile(folder, settings, "no token", "no token")
        self.desk = requester_desk(own, world.requester)
        self.crowd: list[tuple[Participant, LocalTrainer]] = []

    def app(self, session: RequesterSession) -> FastAPI:
        return create_requester_app(self.desk, session)

    def confirm(self, task: str, name: str, amount: int) -> None:
        """As the platform's operator."""
        SpClient(self.world.service("sp", self.world.token("sp", "bank"))).confirm_deposit(task, name, amount)

    def gather(self, task: str, people: int = 3) -> None:
        """People of the watch data join."""
        training = self.world.requester.definition(task).training
        for place in range(people):
            self.crowd.append((self.world.join(task, str(place)), LocalTrainer(f"watch:{place}", training)))
        self.world.run()

    def play(self, task: str, number: int) -> None:
        """A round, by everyone who joined."""
        training = self.world.requester.definition(task).training
        for person, trainer in self.crowd:
            if number > 1:
                person.read(number - 1)
            person.encrypt(number, *trainer.train(person.model(), training, number))
            person.send(number)
        self.world.run()


class Browser:
    """The page's half of the API, as a browser sends it."""

    def __init__(self, office: Office, session: RequesterSession | None = None) -> None:
        self.session = session or RequesterSession(PORT)
        app = office.app(self.session)
        transport = InProcess(lambda: app, office.world.portal)
        self.http = httpx.Client(transport=transport, base_url=self.session.origin)
        office.world.clients.append(self.http)
        self.headers = {"Origin": self.session.origin, "Sec-Fetch-Site": "same-origin", HEADER: "-"}

    def open(self) -> httpx.Response:
        """With the secret of the printed address."""
        secret = self.session.address.partition("#open=")[2]
        answer = self.post("session", {"secret": secret})
        if answer.status_code == 200:
            self.headers[HEADER] = answer.json()["half"]
        return answer

    def get(self, place: str, **headers: str) -> httpx.Response:
        return self.http.get(f"/api/{place}", headers=self.headers | headers)

    def post(self, place: str, body: object = None, **headers: str) -> httpx.Response:
        return self.http.post(f"/api/{place}", json=body, headers=self.headers | headers)

    def done(self, place: str, body: object = None) -> Any:
        """An action, to its end."""
        job = ended(self, self.post(place, body))
        assert job["state"] == "done", job
        return job["result"]

    def create(self, values: object) -> str:
        """A task from a form."""
        return str(self.done("tasks", {"values": values})["task"])


def ended(browser: Browser, started: httpx.Response) -> dict[str, Any]:
    """What became of an action that was started."""
    assert started.status_code == 202, started.text
    job = started.json()
    until = time.monotonic() + PATIENCE
    while job["state"] == "running" and time.monotonic() < until:
        time.sleep(0.02)
        job = browser.get(f"jobs/{job['job']}").json()
    assert job["state"] != "running", job
    return dict(job)


@contextlib.contextmanager
def opened(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Office, Browser]]:
    """An office, and a page that is open."""
    office = Office(world, folder, monkeypatch)
    browser = Browser(office)
    assert browser.open().status_code == 200
    yield office, browser
