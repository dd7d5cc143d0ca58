"""All roles on one desk: real stores on disk, function calls for a network, a clock that the test moves."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.sealing import SigningKey
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.roles.csp import Csp
from crowdfl.roles.documents import Definition, ModelArray
from crowdfl.roles.kgc import Created, Enrolled, Kgc
from crowdfl.roles.participant import Participant
from crowdfl.roles.requester import Requester
from crowdfl.roles.sp.platform import Sp
from crowdfl.settings import TaskSettings
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.sql import SqlStore

ONE = Threads(1)
SETTINGS = {  # every bound small, so that a short key has room for rewards
    "key_bits": 768,
    "sigma": 20,
    "decimals": 3,
    "clip": 2.0,
    "max_participants": 5,
    "max_samples": 10,
    "rounds": 2,
    "budget": "36.00",
    "window": 100.0,
    "grace": 50.0,
}


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        """Now."""
        return self.time


class Desk:
    """One KGC, SP and CSP in a folder; `restart()` builds them anew on the same files."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.clock = folder, Clock()
        self.settings = TaskSettings.of(**(SETTINGS | settings))
        self.kgc_key = SigningKey.fresh()
        self.people: list[Participant] = []
        self.restart()
        self.requester = Requester(FileBlobs(folder / "requester"), self.clock, self, self, True, ONE)
        definition = Definition(
            purpose="which exercise",
            terms="none",
            readers="the requester",
            arrays=(ModelArray("w", (2, 3)), ModelArray("b", (2,))),
            initial="",
            settings=self.settings,
            claim_window=500.0,
            requester=b"",
            training={"epochs": 1},
        )
        self.initial = [np.zeros((2, 3)), np.ones(2)]
        self.task = self.requester.create(definition, self.initial)

    def restart(self) -> None:
        """As after a crash: nothing but the files."""
        here = self.folder
        self.kgc = Kgc(
            self._store("kgc"), FileBlobs(here / "kgc/keys"), self.clock, self.kgc_key, insecure_test_key=True
        )
        self.csp = Csp(
            self._store("csp"),
            FileBlobs(here / "csp/blobs"),
            FileBlobs(here / "csp/keys"),
            _KgcFor(self, "csp"),
            self.kgc_key.public,
            True,
            ONE,
        )
        self.platform = Sp(
            self._store("sp"),
            FileBlobs(here / "sp/blobs"),
            FileBlobs(here / "sp/keys"),
            self.clock,
            _KgcFor(self, "sp"),
            self.csp,
            self.kgc_key.public,
            True,
            ONE,
        )

    def _store(self, name: str) -> SqlStore:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        store = SqlStore(f"sqlite:///{self.folder}/{name}/state.db")
        store.create_tables()
        return store

    def join(self, count: int) -> list[Participant]:
        """Invite and enrol some people."""
        for invitation in self.requester.invite(self.task, count, 1000):
            blobs = FileBlobs(self.folder / f"person{len(self.people)}")
            person = Participant(self.task, blobs, self, self, self.kgc_key.public, True, ONE)
            person.join(invitation)
            self.people.append(person)
        return self.people

    def run(self) -> None:
        """Tick until nothing is due."""
        while self.platform.tick():
            pass

    # The ports of participants and requester, as function calls.

    def enrol(self, task: str, *papers: Any) -> Any:
        """KGC's with an invitation and keys, SP's with a certificate."""
        return self.kgc.enrol(task, *papers) if len(papers) == 3 else self.platform.enrol(task, *papers)

    def create_task(self, definition: str, *rest: Any) -> Created | str:
        """KGC's, or SP's with appointment and weights."""
        return self.platform.create_task(definition, *rest) if rest else self.kgc.create_task(definition)

    def done(self, task: str) -> None:
        """The requester has its bundle."""
        self.kgc.acknowledge(task, "requester")

    def close_enrolment(self, task: str, order: str) -> None:
        """KGC's."""
        self.kgc.close_enrolment(task, order)

    def papers(self, task: str) -> tuple[str, str]:
        """SP's."""
        stored = self.platform.store.task(task)
        return stored.definition, stored.appointment

    def initial_weights(self, task: str) -> bytes:
        """SP's."""
        return self.platform.blobs.get(f"{task}/initial")

    def status(self, task: str) -> dict[str, Any]:
        """SP's."""
        return self.platform.status(task)

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        """SP's; the digest stands for the receipt."""
        return self.platform.upload(task, number, keys.who, upload).digest

    def average(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        """SP's."""
        return self.platform.publication(task, number, keys.who)

    def reward(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        """SP's."""
        return self.platform.envelope(task, number, keys.who)

    def claim(self, task: str, claim: bytes) -> int:
        """SP's."""
        return self.platform.claim(task, claim)

    def quit(self, task: str, keys: ParticipantKeys) -> None:
        """SP's."""
        self.platform.leave(task, keys.who)

    def deposit(self, task: str, name: str, amount: int) -> None:
        """SP's."""
        self.platform.deposit(task, name, amount)

    def order(self, task: str, order: str) -> None:
        """SP's."""
        self.platform.order(task, order)

    def final(self, task: str, number: int) -> bytes:
        """SP's."""
        return self.platform.publication(task, number, None)

    def movements(self, task: str) -> list[dict[str, Any]]:
        """SP's."""
        return [vars(movement) for movement in self.platform.statement(task).movements]


class _KgcFor:
    def __init__(self, desk: Desk, role: str) -> None:
        self._desk, self._role = desk, role

    def bundle(self, task: str) -> tuple[str, str, bytes]:
        return self._desk.kgc.bundle(task, self._role)

    def acknowledge(self, task: str) -> None:
        self._desk.kgc.acknowledge(task, self._role)


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


__all__ = ["SETTINGS", "Clock", "Desk", "Enrolled", "digest"]
