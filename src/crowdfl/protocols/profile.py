"""The small interface through which everything above sees a profile. A third profile is one more module that fills it.

Prepare an update, add an update, publish, read, reward, claim. SP's long steps are generators: they yield requests for CSP as
bytes and are sent CSP's replies to come, so that a function call, a queue or HTTP can carry them, and the two may work at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.budget import WidthBudget
from crowdfl.crypto.compute import Backend, Progress, default_backend
from crowdfl.crypto.pctd import KeyShare, PublicKey
from crowdfl.crypto.sealing import ReaderKey, SigningKey
from crowdfl.errors import CrowdFLError, NothingToContribute, SlotOverflow
from crowdfl.protocols.exchange import Exchange, Observer, Silent
from crowdfl.protocols.party import Party
from crowdfl.settings import TaskSettings


class CspMemory(Protocol):
    """What a CSP must remember across requests, and across its crashes."""

    def get(self, name: str) -> bytes | None: ...
    def keep(self, name: str, value: bytes) -> None: ...  # together with the answer to this request, or not at all

    def reserve(self, name: str, value: bytes) -> bytes:
        """Write at once what nobody has written under this name; what stands there now. Kept even if the request fails."""


class InProcessMemory:
    """A memory that lasts as long as the process."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        return self._kept.get(name)

    def keep(self, name: str, value: bytes) -> None:
        self._kept[name] = value

    def reserve(self, name: str, value: bytes) -> bytes:
        return self._kept.setdefault(name, value)


@dataclass(frozen=True)
class Average:
    """What a reader gets: the averaged weights, flat, and the total of the samples where the task shows it."""

    weights: npt.NDArray[np.float64]
    total: int | None


@dataclass(frozen=True)
class TaskSpec:
    """A task before it has a key."""

    name: str
    settings: TaskSettings
    parameters: int

    def task(self, public: PublicKey) -> "Task":
        return Task(self.name, self.settings, self.parameters, public)


@dataclass(frozen=True)
class Task(TaskSpec):
    """What all roles of a task know."""

    public: PublicKey

    def context(self, round_number: int) -> bytes:
        """What a round's sealed messages are bound to."""
        return b"crowdfl task " + self.name.encode() + b" round " + str(round_number).encode()


@dataclass(frozen=True, repr=False)
class Dealing:
    """What KGC deals: a bundle of bytes for each role, the participants' common one included."""

    public: PublicKey
    sp: bytes
    csp: bytes
    requester: bytes
    participant: bytes

    def __repr__(self) -> str:
        return f"Dealing({self.public!r}, secret)"


@dataclass(frozen=True)
class Identity:
    """A participant's name and public keys, as KGC certifies them."""

    who: str
    signing: bytes
    reading: bytes


class ParticipantProtocol(Protocol):
    """What a participant's device does."""

    party: Party
    clipped: int  # weights that the last `encrypt_update` clipped

    def upload_randomizers(self) -> int: ...  # how many an update takes: what to make ahead of time
    def encrypt_update(self, weights: npt.NDArray[np.float64], samples: int) -> bytes: ...
    def read(self, publication: bytes, round_number: int) -> Average: ...  # of a round that is not the last
    def open_reward(self, envelope: bytes, round_number: int) -> int: ...  # in millionths
    def claim(self) -> bytes: ...  # signed, for all rewards opened so far


class SpProtocol(Protocol):
    """What the sensing platform does."""

    party: Party
    averages_first: bool  # rewards are computed from the average: whoever measures lets `publish` come before `reward`

    def enrol(self, identity: Identity) -> None: ...
    def open_round(self, round_number: int) -> None: ...  # with nothing in it

    def keep_seeds(self, known: Mapping[str, bytes], keep: Callable[[str, bytes], None]) -> None:
        """Go on with the mask seeds made durable before, and make each new one durable before it is used."""

    def read_again(self, load: Callable[[str], bytes]) -> None:
        """From now on, take an upload that is needed again from there, by its participant: keep none in memory."""

    def upload_bytes(self) -> int: ...  # the size of an upload of this task

    def refusals(self, uploads: Sequence[bytes]) -> list[CrowdFLError | None]:
        """Why each of these is not an upload of this task, or None; looked at as one batch."""

    def add(self, who: str, upload: bytes) -> None:
        """Check an upload and extend the running products; the same bytes again are the same upload."""

    def add_all(self, uploads: Mapping[str, bytes], *, validated: bool = False) -> None:
        """`add` for several at once, with the same result; whoever calls it holds them all in memory.

        `validated`: `refusals` has looked at these very bytes, and found nothing.
        """

    def check(self) -> None:
        """Refuse a set of uploads that must not be opened, before anything is."""

    def publish(self, *, final: bool) -> Exchange: ...  # average what is in, with CSP, for `publication`
    def reward(self, payment: int) -> Exchange: ...  # those who are in, with CSP, for `envelopes`; before `publish`
    def publication(self) -> bytes: ...  # what readers are served
    def envelopes(self) -> Mapping[str, bytes]: ...  # what each participant is served
    def claimant(self, claim: bytes) -> str: ...  # who says to have made this claim; nothing is checked yet
    def check_claim(self, claim: bytes) -> str: ...  # whose claim it is; refuses what is not worth asking CSP about
    def pay(self, claim: bytes, attestation: bytes) -> dict[int, int]: ...  # millionths to pay now, by round


class CspProtocol(Protocol):
    """What the computation server does: it answers."""

    party: Party

    def enrol(self, identity: Identity) -> None: ...
    def remember(self, memory: CspMemory) -> None: ...  # keep there what must outlive a request
    def answer(self, request: bytes) -> bytes: ...


class RequesterProtocol(Protocol):
    """What the requester does."""

    party: Party

    def read(self, publication: bytes, round_number: int) -> Average: ...  # of the last round


class Profile(Protocol):
    """A profile: which key material goes where, and who does what with it."""

    name: str

    def check(self, settings: TaskSettings, parameters: int) -> None:
        """Refuse, with the numbers, a task that could overflow."""

    def claim_bytes(self, settings: TaskSettings, rounds: int) -> int: ...  # of the longest claim of so many rounds
    def deal(self, spec: TaskSpec, *, insecure_test_key: bool) -> Dealing: ...
    def sp(self, spec: TaskSpec, bundle: bytes, tools: "Tools") -> SpProtocol: ...
    def csp(self, spec: TaskSpec, bundle: bytes, tools: "Tools") -> CspProtocol: ...
    def requester(self, spec: TaskSpec, bundle: bytes, tools: "Tools") -> RequesterProtocol: ...
    def participant(
        self, spec: TaskSpec, bundle: bytes, keys: "ParticipantKeys", tools: "Tools"
    ) -> ParticipantProtocol: ...


@dataclass(frozen=True)
class ParticipantKeys:
    """The keys that a participant makes for itself; KGC certifies their public halves."""

    who: str
    signing: SigningKey
    reader: ReaderKey

    @classmethod
    def fresh(cls, who: str) -> "ParticipantKeys":
        return cls(who, SigningKey.fresh(), ReaderKey.fresh())

    @property
    def identity(self) -> "Identity":
        return Identity(self.who, self.signing.public, self.reader.public)


def whole_samples(samples: int) -> int:
    """A number of samples as a plain int; a fraction is refused, and so is none: nobody uploads without data."""
    try:
        whole = index(samples)
    except TypeError:
        raise SlotOverflow(f"samples are counted in whole numbers, not {samples!r}") from None
    if whole == 0:  # it would hide nobody: the average of the others is theirs alone
        raise NothingToContribute(
            "no samples, so there is nothing to upload: stay out of this round, come back with data"
        )
    return whole


def width_budget(settings: TaskSettings, parameters: int, sigma: int) -> WidthBudget:
    """The widths that follow from a task's settings, or a refusal with the numbers."""
    return WidthBudget(
        key_bits=settings.key_bits,
        parameters=parameters,
        max_participants=settings.max_participants,
        max_samples=settings.max_samples,
        clip=settings.clip,
        decimals=settings.decimals,
        rounds=settings.rounds,
        sigma=sigma,
        lanes=settings.lanes,
        total=settings.total,
    )


@dataclass(frozen=True)
class Tools:
    """Where the sides of a task compute, and whether its key may be a test key."""

    backend: Backend
    progress: Progress | None = None
    insecure_test_key: bool = False
    constant_time: bool = False
    observer: Observer = field(default_factory=Observer)

    @classmethod
    def unwatched(cls, *, insecure_test_key: bool = False) -> "Tools":
        """A role's own: this machine's cores, and no record of what is opened."""
        return cls(default_backend(), insecure_test_key=insecure_test_key, observer=Silent())

    def party(self, name: str, public: PublicKey, share: KeyShare | None = None) -> Party:
        costs, view = self.observer.costs(name), self.observer.view(name)
        return Party(
            name, public, share, self.backend, costs, view, progress=self.progress, constant_time=self.constant_time
        )
