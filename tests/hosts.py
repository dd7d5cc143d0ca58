"""Hosts for tests: the roles of `crowdfl.simulation.host` over real files and databases, and a small task for them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.protocols.profile import Tools
from crowdfl.roles.participant.participant import Participant, Train
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.sp.results import result_name
from crowdfl.settings import PlanSettings, TaskSettings
from crowdfl.simulation.disks import FileDisk
from crowdfl.simulation.host import Host

__all__ = [
    "BUDGET",
    "FEW_LANES",
    "HARDENED",
    "INITIAL_MODEL",
    "ONE",
    "SMALL_BOUNDS",
    "SMALL_TASK",
    "Desk",
    "FileDisk",
    "heard",
    "moved_by",
    "raising",
    "small_definition",
    "test_tools",
    "unchanged",
]

ONE = Threads(1)
BUDGET = 36_000_000  # of a round of `SMALL_TASK`, in millionths
INITIAL_MODEL: list[npt.NDArray[np.float64]] = [np.zeros((2, 3)), np.ones(2)]  # of `small_definition`
SMALL_BOUNDS: dict[str, Any] = {  # so that little is dealt
    "profile": "shares",
    "decimals": 3,
    "clip": 2.0,
    "max_participants": 5,
    "max_samples": 10,
}
FEW_LANES: dict[str, Any] = {"max_norm": 3.0, "lanes": 128}
SMALL_TASK = SMALL_BOUNDS | {"rounds": 2, "budget": "36.00", "window": 100.0}
HARDENED: dict[str, Any] = {
    "profile": "hardened",
    "key_bits": 960,
    "mask_bits": 20,
}  # of it, where Paillier is the subject


def test_tools() -> Tools:
    return Tools(ONE, insecure_test_key=True)


test_tools.__test__ = False  # type: ignore[attr-defined]


def unchanged(arrays: Weights, _settings: object, _number: int = 0) -> tuple[Weights, int]:
    """Training that needs no data, and changes nothing."""
    return arrays, 5


def moved_by(distance: float, samples: int = 5) -> Train:
    """Training that moves every weight as far."""
    return lambda arrays, _settings, _number=0: ([array + distance for array in arrays], samples)


def heard(person: Participant) -> list[tuple[str, dict[str, Any]]]:
    """What a participant is told from now on."""
    events: list[tuple[str, dict[str, Any]]] = []
    person.on_event = lambda what, details: events.append((what, dict(details)))
    return events


def raising(error: BaseException) -> Callable[..., Any]:
    """Whatever it is called with, it fails so."""

    def fail(*_args: object, **_named: object) -> Any:
        raise error

    return fail


def small_definition(settings: TaskSettings, *, claim_window: float = 500, parameters: int | None = None) -> Definition:
    """Of two arrays, or of one with so many parameters."""
    shape = ModelShape(("w", "b"), ((2, 3), (2,))) if parameters is None else ModelShape(("w",), ((parameters,),))
    return Definition("which exercise", "none", "the requester", shape, settings, int(claim_window), {"epochs": 1})


class Desk(Host):
    """All roles on one desk with one task: real stores on disk, function calls for a network, a clock that the test moves."""

    clock: ManualClock

    def __init__(
        self,
        folder: Path,
        plan: Mapping[str, Any] | None = None,
        payer: bytes = b"",
        study: Mapping[str, Any] | None = None,
        at: float = 1000.0,
        recruiter: SigningKey | None = None,
        **settings: Any,
    ) -> None:
        """`study`: what the definition says besides, such as a consent; `at`: when the task is made, in Unix time; `recruiter`:
        SP's key, of a task that it lists."""
        self.folder, self.settings = folder, TaskSettings.of(**(SMALL_TASK | settings))
        super().__init__(test_tools(), disk=FileDisk(folder, durable=False), clock=ManualClock(at))
        self.initial = INITIAL_MODEL
        self.options.payer = self.requester.payer = payer
        self.options.signing = recruiter
        definition = replace(small_definition(self.settings), recruits=recruiter is not None)
        self.task = self.create(replace(definition, plan=PlanSettings(**plan or {}), **study or {}), self.initial)

    @classmethod
    def funded(cls, folder: Path, people: int = 4, **settings: Any) -> Self:
        """With so many people, the money for all rounds, and the first one open."""
        desk = cls(folder, **settings)
        desk.invite(people)
        if desk.settings.budget is not None:
            desk.requester.fund(desk.task, desk.settings.rounds * BUDGET, "all")
        desk.run()
        return desk

    def invite(self, count: int) -> list[Participant]:
        for _ in range(count):
            self.join(self.task, str(len(self.people)))
        return self.crowd

    @property
    def crowd(self) -> list[Participant]:
        return list(self.people.values())

    def result(self, number: int, kind: str) -> str:
        """The file of SP's that a round's record names."""
        return result_name(self.task, number, kind, getattr(self.sp.store.round(self.task, number), kind))

    @property
    def ledger(self) -> Ledger:
        """SP's books."""
        return self.sp.core.ledger(self.task)

    @property
    def state(self) -> str:
        """Of the task, as SP says."""
        return str(self.sp.tasks.status(self.task)["state"])

    def states(self) -> list[str]:
        """Of the rounds, in order."""
        return [entry["state"] for entry in self.sp.tasks.status(self.task)["rounds"]]

    def later(self, seconds: float) -> None:
        """So much time passes, and the servers do what is due then."""
        self.clock.time += seconds
        self.run()

    def leave_to_claim(self, seconds: float) -> None:
        """Go to so many seconds before the end of the last day of claims."""
        self.clock.time = self.sp.store.task(self.task).claims_until - seconds

    def after_claims(self) -> None:
        """Go to the moment at which the books are closed, and close them."""
        self.clock.time = self.sp.store.task(self.task).attests_until
        self.run()

    def upload(self, people: Iterable[Participant] | None = None, train: Train = unchanged) -> None:
        """Everyone, or these, does what is due once."""
        for person in self.crowd if people is None else people:
            person.step(train)

    def play(self, rounds: int = 1, train: Train = unchanged) -> None:
        """Everyone does what is due, and the servers their part."""
        for _ in range(rounds):
            self.upload(train=train)
            self.run()
