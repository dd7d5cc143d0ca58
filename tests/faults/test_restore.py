"""A campaign goes on after SP's machine is lost: backed up while uploads come, killed, its folder destroyed, restored."""

import contextlib
import os
import secrets
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sqlalchemy import make_url, text

from crowdfl.learning.oracle import fedavg
from crowdfl.retry import Backoff
from crowdfl.roles.participant.agent import Agent
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.requester import Requester, own_key
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Link, Service, SystemClock
from crowdfl.services.run import signing_key
from crowdfl.settings import TaskSettings
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.database import open_engine
from tests.cli.program import Result, finish, start
from tests.cli.test_campaign import allow_short_claims, free_ports
from tests.hosts import HARDENED, INITIAL_MODEL, SMALL_TASK, small_definition, test_tools

PEOPLE, ROUNDS, BUDGET = 4, 2, 36_000_000
SERVERS = ("kgc", "csp", "sp")
PATIENCE = 900.0  # seconds, on a busy machine
SERVER = os.environ.get("CROWDFL_TEST_POSTGRES")
_CALLS = Backoff(first=0.1, longest=0.5, deadline=5.0)
_ROUNDING = 1e-3


def update(person: int, number: int) -> tuple[npt.NDArray[np.float64], int]:
    """What a person has trained in a round."""
    return np.random.default_rng([person, number]).uniform(-1.5, 1.5, 8), 3 + person


@dataclass
class Trainer:
    person: int
    may_train: threading.Event

    def prepare(self, _shape: object) -> None:
        """Nothing to do."""

    def evaluate(self, _arrays: object, _number: int) -> dict[str, float]:
        return {}

    def train(self, _arrays: object, _settings: object, number: int) -> tuple[Any, int]:
        assert self.may_train.wait(PATIENCE)
        weights, samples = update(self.person, number)
        return [weights[:6].reshape(2, 3), weights[6:]], samples


@dataclass
class Phone:
    """A participant's agent in a thread of its own, over TLS."""

    person: Participant
    trainer: Trainer
    events: list[str] = field(default_factory=list)
    failure: BaseException | None = None
    thread: threading.Thread | None = None

    def start(self, invitation: str) -> None:
        self.person.on_event = lambda what, _details: self.events.append(what)

        def run() -> None:
            try:
                agent = Agent(self.person, lambda seconds: time.sleep(min(seconds, 0.2)))
                agent.take_part(self.person.look(), self.trainer, invitation)
            except BaseException as failure:  # noqa: BLE001 -- shown by the test
                self.failure = failure

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def wait_for(self, what: str, times: int = 1) -> None:
        until_true(lambda: self.events.count(what) >= times or self.failure is not None)
        assert self.failure is None

    def wait_to_end(self) -> None:
        """It stops by itself once it has claimed everything."""
        assert self.thread is not None
        until_true(lambda: not self.thread.is_alive())  # type: ignore[union-attr]
        assert self.failure is None


def until_true(look: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)


@dataclass
class Platform:
    """KGC, CSP and SP as processes, made by `crowdfl init`."""

    folder: Path
    processes: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)
    links: list[Service] = field(default_factory=list)

    @property
    def roles(self) -> Path:
        return self.folder / "roles"

    def settings(self, role: str) -> Path:
        return self.roles / role / "settings.toml"

    def prepare(self, database: str | None) -> None:
        """With a bank that writes down every payment it is asked for."""
        self.do("init", self.roles, "--insecure-test-key", *free_ports())
        allow_short_claims(self.settings("sp"))
        bank = self.folder / "pay"
        bank.write_text(f'#!/bin/sh\necho "$2 $3 $4" >> {self.folder}/bank\n')
        bank.chmod(0o700)
        lines = self.settings("sp").read_text().splitlines()
        chosen = {"on_paid": f'on_paid = ["{bank}"]', "tick": 'tick = "0.05 s"'}
        if database is not None:
            chosen["database"] = f'database = "{database}"'
        lines = [next((new for name, new in chosen.items() if old.startswith(f"# {name} =")), old) for old in lines]
        self.settings("sp").write_text("\n".join(lines) + "\n")
        assert all(line in lines for line in chosen.values())

    def start(self, role: str) -> None:
        self.processes[role] = start(role, "serve", self.settings(role), log=self.folder / f"{role}.log")

    def do(self, *args: object) -> Result:
        result = finish(*args)
        assert result.code == 0, (result, self.logs())
        return result

    def kill(self, role: str) -> None:
        self.processes[role].send_signal(signal.SIGKILL)
        self.processes[role].wait()

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    def link(self, role: str) -> Link:
        lines = self.settings("requester").read_text().splitlines()
        (url,) = (line.split('"')[1] for line in lines if line.startswith(f"{role} ="))
        return Link(url, self.roles / "requester/peers/ca.pem")

    def kept(self, service: Service) -> Service:
        self.links.append(service)
        return service

    def requester(self) -> Requester:
        """The one that `init` made."""
        blobs = FileBlobs(self.folder / "requester-state")
        tokens = {name: (self.roles / f"requester/{name}.token").read_text().strip() for name in ("kgc", "sp")}
        kgc, sp = (self.kept(self.link(name).as_requester(token, own_key(blobs))) for name, token in tokens.items())
        return Requester(blobs, SystemClock(), KgcClient(kgc), SpClient(sp), self.kgc_key, test_tools())

    @property
    def kgc_key(self) -> bytes:
        return signing_key(self.roles / "kgc/signing.key").public

    def phone(self, task: str, number: int) -> Phone:
        """A participant with a home of its own."""
        kgc, sp = (self.kept(self.link(name).open(retries=_CALLS)) for name in ("kgc", "sp"))
        blobs, client = FileBlobs(self.folder / f"person-{number}"), SpClient(sp)
        key = signing_key(self.roles / "sp/signing.key").public
        person = Participant(
            task, blobs, KgcClient(kgc), client, self.kgc_key, test_tools(), sp_key=key, least_participants=1
        )
        return Phone(person, Trainer(number, threading.Event()))

    def stop(self) -> None:
        for link in self.links:
            link.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@contextlib.contextmanager
def own_schema() -> Iterator[str | None]:
    """A place in the PostgreSQL server that tests may use."""
    assert SERVER
    schema, engine = f"test_{secrets.token_hex(8)}", open_engine(SERVER)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    url = make_url(SERVER).update_query_dict({"options": f"-csearch_path={schema}"})
    yield url.render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    engine.dispose()


def destroy(platform: Platform, database: str | None) -> None:
    """SP's machine is gone, its database with it."""
    shutil.rmtree(platform.roles / "sp")
    if database is not None:
        engine = open_engine(database)
        with engine.begin() as connection:
            schema = connection.execute(text("SELECT current_schema()")).scalar()
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
            connection.execute(text(f"CREATE SCHEMA {schema}"))
        engine.dispose()


@pytest.mark.parametrize("kind", ["sqlite", *(["postgresql"] if SERVER else [])])
def test_a_campaign_goes_on_after_sp_was_lost_and_restored(kind: str, tmp_path: Path):
    """Phones send again what the backup lacks; everyone is averaged in both rounds and paid once."""
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(own_schema()) if kind == "postgresql" else None
        platform = Platform(tmp_path)
        stack.callback(platform.stop)
        platform.prepare(database)
        for role in SERVERS:
            platform.start(role)
        check(platform, *rehearse(platform, database))


def rehearse(platform: Platform, database: str | None) -> tuple[Requester, str, list[Phone]]:
    """From the first upload to the last payment."""
    requester = platform.requester()
    settings = TaskSettings.of(**(SMALL_TASK | HARDENED | {"window": 3600.0, "rounds": ROUNDS}))
    task = requester.create(small_definition(settings, claim_window=3600.0), INITIAL_MODEL)
    phones = [platform.phone(task, number) for number in range(PEOPLE)]
    for phone, invitation in zip(phones, requester.invite(task, PEOPLE, 3600.0), strict=True):
        phone.start(invitation)
        phone.wait_for("joined")
    requester.fund(task, ROUNDS * BUDGET, "all")
    announced = task, "all", f"{ROUNDS * BUDGET // 10**6}", "EUR"
    platform.do("sp", "deposit", "confirm", platform.settings("sp"), *announced)
    first, second, third, last = phones
    first.trainer.may_train.set()
    first.wait_for("uploaded")

    second.trainer.may_train.set()  # its upload comes while the backup is taken
    archive = platform.folder / "sp.backup"
    platform.do("backup", platform.settings("sp"), archive)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    second.wait_for("uploaded")
    third.trainer.may_train.set()  # its upload comes after
    third.wait_for("uploaded")

    platform.kill("sp")
    destroy(platform, database)
    named = () if database is None else ("--database", database)
    restored = platform.do("restore", archive, platform.roles / "sp", *named)
    assert "sp reconcile" in restored.out
    platform.start("sp")
    third.wait_for("sending again")
    third.wait_for("uploaded", 2)
    assert platform.do("sp", "payouts", platform.settings("sp"), "--json").out.strip() == "[]"
    platform.do("sp", "reconcile", platform.settings("sp"), task, "--returned", "0")
    last.trainer.may_train.set()

    for phone in phones:
        phone.wait_to_end()
    return requester, task, phones


def check(platform: Platform, requester: Requester, task: str, phones: list[Phone]) -> None:
    """Averages as the plaintext oracle has them; the money of both rounds, once to each."""
    for number in range(1, ROUNDS + 1):
        models, samples = zip(*(update(person, number) for person in range(PEOPLE)), strict=True)
        truth = fedavg(list(models), list(samples))
        found = [phone.person.read(number).weights for phone in phones] if number < ROUNDS else []
        arrays = requester.model(task) if number == ROUNDS else []
        found += [np.concatenate([array.reshape(-1) for array in arrays])] if arrays else []
        assert found
        assert all(np.max(np.abs(weights - truth)) <= _ROUNDING for weights in found)
    assert [phone.events.count("sending again") for phone in phones][::2] == [0, 1]
    assert all(phone.events.count("rewarded") == ROUNDS for phone in phones)
    earned = {phone.person.keys.who: sum(phone.person.rewards().values()) for phone in phones}
    assert ROUNDS * BUDGET - 4 * PEOPLE <= sum(earned.values()) <= ROUNDS * BUDGET
    bank = platform.folder / "bank"
    asked = lambda: [line.split() for line in bank.read_text().splitlines()] if bank.exists() else []  # noqa: E731
    until_true(lambda: sum(int(amount) for _, amount, _ in asked()) >= sum(earned.values()))
    handed = Counter[str]()  # in instalments
    for who, amount, _ in asked():
        handed[who] += int(amount)
    assert handed == earned
    assert set(Counter(key for *_, key in asked()).values()) == {1}
