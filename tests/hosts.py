"""Hosts for tests: the roles of `crowdfl.simulation.local_host` over real files and databases, and a small task for them."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import event

from crowdfl.crypto.compute import Threads
from crowdfl.documents.signed import Definition
from crowdfl.learning.models.shape import ModelShape
from crowdfl.protocols.profile import Tools
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import ManualClock
from crowdfl.settings import TaskSettings
from crowdfl.simulation.local_host import LocalHost
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.sql import SqlStore

__all__ = ["INITIAL_MODEL", "ONE", "SMALL_TASK", "Desk", "FileDisk", "small_definition", "test_tools"]

ONE = Threads(1)
INITIAL_MODEL: list[npt.NDArray[np.float64]] = [np.zeros((2, 3)), np.ones(2)]  # of `small_definition`
SMALL_TASK: dict[str, Any] = {  # every bound small, so that a short key has room for rewards
    "key_bits": 960,
    "mask_bits": 20,
    "decimals": 3,
    "clip": 2.0,
    "max_participants": 5,
    "max_samples": 10,
    "rounds": 2,
    "budget": "36.00",
    "window": 100.0,
    "grace": 50.0,
}


def test_tools() -> Tools:
    return Tools(ONE, insecure_test_key=True)


test_tools.__test__ = False  # type: ignore[attr-defined]


class FileDisk:
    """A folder: an SQLite database for each role, files for blobs. `durable=False` waits for no disk."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder, self._durable = folder, durable
        self._opened: list[SqlStore] = []

    def store(self, role: str) -> SqlStore:
        (self.folder / role).mkdir(parents=True, exist_ok=True)
        store = self.open_store(role, f"sqlite:///{self.folder}/{role}/state.db")
        if not self._durable:
            event.listen(store.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        store.create_tables()
        self._opened.append(store)
        return store

    def open_store(self, role: str, url: str) -> SqlStore:
        """A test that watches a role's store opens another kind."""
        del role
        return SqlStore(url)

    def blobs(self, name: str) -> FileBlobs:
        return FileBlobs(self.folder / name)

    def close(self) -> None:
        for store in self._opened:
            store.close()


def small_definition(settings: TaskSettings, *, claim_window: float = 500.0) -> Definition:
    shape = ModelShape(("w", "b"), ((2, 3), (2,)))
    return Definition("which exercise", "none", "the requester", shape, settings, claim_window, {"epochs": 1})


class Desk(LocalHost):
    """All roles on one desk with one task: real stores on disk, function calls for a network, a clock that the test moves."""

    clock: ManualClock

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.settings = folder, TaskSettings.of(**(SMALL_TASK | settings))
        super().__init__(test_tools(), disk=FileDisk(folder), clock=ManualClock(1000.0))
        self.initial = INITIAL_MODEL
        self.task = self.create(small_definition(self.settings), self.initial)

    def invite(self, count: int) -> list[Participant]:
        for _ in range(count):
            self.join(self.task, str(len(self.people)))
        return self.crowd

    @property
    def crowd(self) -> list[Participant]:
        return list(self.people.values())
