"""A task of the profile `shares` with all its roles in one process, cheating people among them, and its oracle."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.round.upload import make_upload
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import ManualClock
from crowdfl.settings import TaskSettings
from crowdfl.simulation.host import Host
from tests.hosts import FEW_LANES, SMALL_TASK, small_definition, test_tools

__all__ = ["BUDGET", "SETTINGS", "Crowd", "along", "next_model"]

BUDGET = 9_000_000
SETTINGS = SMALL_TASK | FEW_LANES | {"rounds": 3, "budget": "9.00"}
Floats = npt.NDArray[np.float64]
Models = Mapping[str, Floats]


def along(place: int, lengths: Sequence[float], parameters: int = 8) -> dict[str, Floats]:
    """Changes of one coordinate alone, which sketch without any error: person by person how far."""
    return {str(i): np.eye(parameters)[place] * round(length, 3) for i, length in enumerate(lengths)}


def next_model(base: Sequence[int], changes: Models, samples: Mapping[str, int]) -> list[int]:
    """FedAvg of changes to a model, all in thousandths: rounded once, halves to the even."""
    total = sum(samples[who] for who in changes)
    units = {who: [int(x) for x in np.rint(change * 1000)] for who, change in changes.items()}
    sums = [sum(samples[who] * units[who][j] for who in changes) for j in range(len(base))]
    return [b + round(Fraction(s, total)) for b, s in zip(base, sums, strict=True)]


class Crowd(Host):
    """SP opens rounds by itself; the test says who trained what."""

    clock: ManualClock

    def __init__(self, people: int = 3, parameters: int = 8, *, host: Mapping[str, Any] | None = None, **settings: Any):
        self.settings = TaskSettings.of(**(SETTINGS | settings))
        super().__init__(test_tools(), clock=ManualClock(1000.0), **(host or {}))
        self.initial = np.round(np.linspace(-1.0, 1.0, parameters), 3)
        self.task = self.create(small_definition(self.settings, parameters=parameters), [self.initial])
        self.shape = SharesShape(self.sp.core.definition(self.task).spec)
        if self.settings.budget is not None:
            self.requester.fund(self.task, BUDGET * self.settings.rounds)
        for number in range(people):
            self.join(self.task, str(number))
        self.run()

    # What people do.

    def train(self, number: int, changes: Models, samples: Mapping[str, int]) -> None:
        """Everyone named trains from its own newest model, and uploads."""
        for who, change in changes.items():
            self.send(who, number, change, samples[who])

    def send(self, who: str, number: int, change: Floats, samples: int) -> None:
        person = self.people[who]
        person.encrypt(number, [self.base_of(person, number) + change], samples)
        person.send(number)

    def base_of(self, person: Participant, number: int) -> Floats:
        """What a person trains from, once it has read what it missed."""
        person.encrypt(number, [self.initial], 1)
        person.blobs.delete(f"rounds/{number}/upload")
        chain = ModelChain.from_bytes(person.side.chain() or b"", self.shape.spec.parameters)
        return np.asarray(chain.weights / 1000)

    def cheat(self, who: str, number: int, update: npt.ArrayLike, samples: int) -> None:
        """The upload of a phone that somebody has altered: any integers."""
        person = self.people[who]
        self.base_of(person, number)
        base = ModelChain.from_bytes(person.side.chain() or b"", self.shape.spec.parameters).base
        place, sealing = self.shape.place(number, base), person.side.bundle.csp_sealing  # type: ignore[attr-defined]
        integers = np.asarray(update, dtype=np.int64)
        body = make_upload(self.shape, place, person.keys.who, person.keys.signing, sealing, integers, samples)
        person.blobs.put(f"rounds/{number}/upload", body.to_bytes())
        person.send(number)

    def everyone_came(self) -> None:
        self.clock.time += self.settings.window + self.settings.late
        self.run()

    # What came of it.

    @property
    def states(self) -> list[str]:
        return [str(round_.state) for round_ in self.sp.store.rounds(self.task)]

    def units(self, number: int) -> list[int]:
        """A round's average as the requester reads it, in thousandths."""
        return [round(x * 1000) for x in self.requester.read(self.task, number).weights]

    def start(self) -> list[int]:
        return [round(x * 1000) for x in self.initial]

    def rewards(self, number: int, who: Sequence[str]) -> list[int]:
        return [self.people[one].open_reward(number) for one in who]
