"""The small interface through which everything above sees a profile. A third profile is one more module that fills it.

Prepare an update, add an update, publish, read, reward, claim. SP's long steps are generators: they yield requests for CSP as
bytes and are sent CSP's replies, so that a function call, a queue or HTTP can carry them.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Backend, Watch
from crowdfl.crypto.pctd import KeyShare, PublicKey
from crowdfl.protocols.party import Party
from crowdfl.protocols.settings import TaskSettings

__all__ = [
    "Average",
    "CspSide",
    "Dealer",
    "Exchange",
    "ParticipantSide",
    "Profile",
    "RequesterSide",
    "SpSide",
    "Task",
    "Tools",
]

Exchange = Generator[bytes, bytes, None]
"""SP's side of a step: yields requests, is sent replies."""


@dataclass(frozen=True)
class Task:
    """What all roles of a task know."""

    name: str
    settings: TaskSettings
    parameters: int
    public: PublicKey

    def context(self, round_number: int) -> bytes:
        """What a round's sealed messages are bound to."""
        return b"crowdfl task " + self.name.encode() + b" round " + str(round_number).encode()


@dataclass(frozen=True)
class Average:
    """What a reader gets: the averaged weights, flat, and the total of the samples where the task shows it."""

    weights: npt.NDArray[np.float64]
    total: int | None


class ParticipantSide(Protocol):
    """What a participant's device does."""

    party: Party
    clipped: int

    def prepare(self, weights: npt.NDArray[np.float64], samples: int) -> bytes:
        """An update, encrypted, ready to upload. `clipped` then says how many weights were clipped."""

    def read(self, publication: bytes, round_number: int) -> Average:
        """The average of a round that is not the last."""

    def open_reward(self, envelope: bytes, round_number: int) -> int:
        """This participant's reward of a round, in millionths."""

    def claim(self) -> bytes:
        """A signed claim of all rewards opened so far."""


class SpSide(Protocol):
    """What the sensing platform does."""

    party: Party

    def open_round(self, round_number: int) -> None:
        """Start a round with nothing in it."""

    def add(self, who: str, upload: bytes) -> None:
        """Check an upload and extend the running products; the same bytes again are the same upload."""

    def publish(self, *, final: bool) -> Exchange:
        """Average what is in, with CSP; `published` then holds the bytes for the audience."""

    def reward(self, payment: int) -> Exchange:
        """Rewards of those averaged, with CSP; `envelopes` then holds a message for each."""

    def publication(self) -> bytes:
        """What readers are served after `publish`."""

    def envelopes(self) -> Mapping[str, bytes]:
        """What each participant is served after `reward`."""

    def check_claim(self, claim: bytes) -> None:
        """Refuse what is not worth asking CSP about."""

    def pay(self, claim: bytes, attestation: bytes) -> int:
        """Millionths to pay now."""


class CspSide(Protocol):
    """What the computation server does: it answers."""

    party: Party

    def answer(self, request: bytes) -> bytes:
        """One request of SP's, one reply."""


class RequesterSide(Protocol):
    """What the requester does."""

    party: Party

    def read(self, publication: bytes, round_number: int) -> Average:
        """The average of the last round."""


class Dealer(Protocol):
    """KGC of one task: builds every side from that side's part of the keys alone."""

    task: Task

    def sp(self) -> SpSide:
        """The sensing platform."""

    def csp(self) -> CspSide:
        """The computation server."""

    def requester(self) -> RequesterSide:
        """The requester."""

    def participant(self, who: str) -> ParticipantSide:
        """Enrol a participant: SP and CSP learn its public keys."""


class Profile(Protocol):
    """A profile: which key material goes where, and who does what with it."""

    name: str

    def check(self, settings: TaskSettings, parameters: int) -> None:
        """Refuse, with the numbers, a task that could overflow."""

    def deal(self, name: str, settings: TaskSettings, parameters: int, tools: "Tools") -> Dealer:
        """Make the keys of a task."""


@dataclass(frozen=True)
class Tools:
    """Where the sides of a task compute, and whether its key may be a test key."""

    backend: Backend
    watch: Watch | None = None
    insecure_test_key: bool = False
    constant_time: bool = False

    def party(self, name: str, public: PublicKey, share: KeyShare | None = None) -> Party:
        """A party with these tools."""
        return Party(name, public, share, self.backend, watch=self.watch, constant_time=self.constant_time)
