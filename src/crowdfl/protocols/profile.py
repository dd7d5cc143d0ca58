"""The small interface through which everything above sees a profile. Another profile is one more package that fills it.

Prepare an update, add an update, publish, read, reward, claim. SP's long steps are generators: they yield requests for CSP as
bytes and are sent CSP's replies to come, so that a function call, a queue or HTTP can carry them, and the two may work at once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from operator import index
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Backend, Progress, Read, default_backend
from crowdfl.crypto.long_bytes import Long
from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.crypto.paillier.pctd import KeyShare, PublicKey
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import CrowdFLError, NothingToContribute, SlotOverflow
from crowdfl.privacy import AverageNoise
from crowdfl.protocols.claims import Attested, Beside, Claim
from crowdfl.protocols.exchange import Exchange, Observer, ReplyForm, Silent
from crowdfl.protocols.party import KeyedParty, Party
from crowdfl.protocols.records import Look, Outcome
from crowdfl.reasons import Reason
from crowdfl.settings import TaskSettings


class Audience(Flag):
    """Who reads a publication."""

    PARTICIPANTS = auto()
    REQUESTER = auto()
    EVERYONE = PARTICIPANTS | REQUESTER


Stage = Literal["average", "reward"]
"""Of a round, once its uploads are checked."""

TrainFlat = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
"""From the weights that a round starts from to those that training leads to."""


@dataclass(frozen=True)
class Average:
    """What a reader gets: the averaged weights, flat, and the total of the samples where the task shows it.

    In a task with a server step also what the step makes of them, and the digest of the reader's state, which is the same for
    everyone who has read the same rounds.
    """

    weights: npt.NDArray[np.float64]
    total: int | None
    standing: Reason | None = (
        None  # why this reader's own upload was left out, by CSP's signed word; None if it was not
    )
    stepped: npt.NDArray[np.float64] | None = None
    state: str | None = None
    record: bytes = b""  # CSP's signed record of the round, of a profile that has one
    noise: AverageNoise | None = None  # of a task with `epsilon`

    @property
    def model(self) -> npt.NDArray[np.float64]:
        """What the next round starts from."""
        return self.weights if self.stepped is None else self.stepped


@dataclass(frozen=True)
class TaskSpec:
    """What all roles of a task know, before anything is dealt for it and after."""

    name: str
    settings: TaskSettings
    parameters: int
    requester: bytes = field(default=b"", kw_only=True)  # its key, which signs references and orders

    def task(self, public: PublicKey) -> "KeyedTask":
        return KeyedTask(self.name, self.settings, self.parameters, public, requester=self.requester)

    def context(self, round_number: int) -> bytes:
        """What a round's sealed messages are bound to."""
        return b"crowdfl task " + self.name.encode() + b" round " + str(round_number).encode()


@dataclass(frozen=True)
class KeyedTask(TaskSpec):
    """A task of a profile with a Paillier key."""

    public: PublicKey


@dataclass(frozen=True, repr=False)
class Dealing:
    """What KGC deals: a bundle of bytes for each role, the participants' common one included.

    `source` is what the files of the rounds are made from, where the profile deals such files.
    """

    fingerprint: bytes  # names the dealing: every side that is made from one of its bundles has the same
    sp: bytes
    csp: bytes
    requester: bytes
    participant: bytes
    source: bytes = b""
    csp_key: bytes = b""  # what CSP's signatures are checked with; none, if it signs nothing

    def __repr__(self) -> str:
        return f"Dealing({self.fingerprint.hex()[:16]}, secret)"


@dataclass(frozen=True)
class Identity:
    """A participant's name and public keys, as KGC certifies them."""

    who: str
    signing: bytes
    reading: bytes
    place: str = field(
        default="", compare=False
    )  # the number of its invitation, which a person's devices have in common


class RoleProtocol(Protocol):
    """What the sides of all roles have."""

    @property
    def party(self) -> Party: ...
    @property
    def fingerprint(self) -> bytes: ...  # of the dealing that this side's bundle is from


@dataclass(frozen=True)
class RoundWord:
    """What CSP's signed word says of a participant in a round without a model."""

    standing: Reason | None  # why its upload was left out, if it was
    shown: bool  # whether CSP has shown SP whether it is within the bounds
    record: bytes = field(default=b"", repr=False)  # of a sum that was opened all the same


class ReaderProtocol(RoleProtocol, Protocol):
    """Whoever reads averages."""

    def read(self, publication: bytes, round_number: int) -> Average: ...


class ParticipantProtocol(ReaderProtocol, Protocol):
    """What a participant's device does. It reads every round but the last, whose record it checks where there is one."""

    @property
    def clipped(self) -> int: ...  # weights that the last `encrypt_update` clipped

    def encrypt_update(self, weights: npt.NDArray[np.float64], samples: int, round_number: int) -> bytes:
        """An upload; `weights` is the trained model, whatever the profile sends of it."""

    def open_reward(self, envelope: bytes, round_number: int) -> int: ...  # in millionths
    def claim(self, beside: Beside | None = None) -> bytes: ...  # signed, for all rewards opened so far

    @property
    def csp_key(self) -> bytes: ...  # with which CSP signs what it says about the task


@dataclass(frozen=True)
class SpRecord:
    """What SP's half of a protocol has decided, mask seeds above all: of the task, and of one round. Empty: nothing yet."""

    task: bytes = field(default=b"", repr=False)
    round: bytes = field(default=b"", repr=False)


class ChecksClaims(Protocol):
    """SP's half of a claim; it knows the claimant."""

    def claimant(self, claim: bytes) -> str: ...  # who says to have made this claim; nothing is checked yet
    def check_claim(self, claim: bytes) -> Claim: ...  # refuses what is not worth asking CSP about
    def claim_request(
        self, claim: bytes, served: Callable[[], Mapping[int, bytes]]
    ) -> bytes: ...  # to CSP; `served` looks up what the claimant was served, by round
    def shown_claim(
        self, claim: bytes, envelopes: Mapping[int, bytes]
    ) -> bytes: ...  # the same for a CSP that was set back
    def attested(self, claim: bytes, attestation: bytes) -> Attested: ...  # refuses what CSP did not attest


class SpProtocol(RoleProtocol, ChecksClaims, Protocol):
    """What the sensing platform does."""

    record: SpRecord
    """Before a request leaves, whoever runs this half makes what is new in here durable; after `open_round` it sets what is
    durable already. With the same record and the same replies, a round that is run again sends the same bytes."""

    stages: Sequence[Stage]
    """In the order that lets each cost what it is: what the other one takes over from it is computed once."""

    @property
    def csp_key(self) -> bytes: ...  # with which CSP signs what it says about the task
    def enrol(self, identity: Identity) -> None: ...  # somebody by its certified keys
    def open_round(self, round_number: int) -> None: ...  # with nothing in it

    def upload_bytes(self) -> int: ...  # the size of an upload of this task
    def head_bytes(self) -> int: ...  # of its head, by which it is named: all of it, if it does not come in pieces

    def refusals(self, uploads: Sequence[tuple[str, bytes]], *, heads: bool = False) -> list[CrowdFLError | None]:
        """Why each of these, by participant, is not an upload of this task and round, or None; looked at as one batch.

        `heads`: of each its head alone; its pieces were held against their leaves.
        """

    def add_all(self, uploads: Mapping[str, bytes], *, validated: bool = False) -> None:
        """Check uploads and extend the running products; the same bytes again are the same upload.

        `validated`: `refusals` has looked at these very bytes, and found nothing.
        """

    def add_stored(self, folder: str, names: Mapping[str, str], read: Read) -> None:
        """The same of validated uploads in a folder of a store, under these names: read there, now and when needed again."""

    def check(self) -> None:
        """Refuse a set of uploads that must not be opened, before anything is."""

    def reply_form(self, request: Long) -> ReplyForm: ...  # of what CSP answers to it: nothing else is recorded
    def publish(self, *, final: bool) -> Exchange: ...  # average what is in, with CSP, for `publication`
    def reward(self, payment: int) -> Exchange: ...  # those who are in, with CSP, for `envelopes`
    def publication(self) -> bytes: ...  # what readers are served
    def envelopes(self) -> Mapping[str, bytes]: ...  # what each participant is served
    def paying(self, identity: Identity) -> ChecksClaims: ...  # to check one claim with: it knows nobody else


class CspProtocol(RoleProtocol, Protocol):
    """What the computation server does: it answers."""

    @property
    def task_key(self) -> SigningKey: ...  # what it signs with
    def enrol(self, identity: Identity) -> None: ...  # somebody by its certified keys
    def answer(self, records: Look, request: bytes) -> Outcome: ...  # by the records as they stand


class Profile(Protocol):
    """A profile: which key material goes where, and who does what with it."""

    @property
    def name(self) -> str: ...

    @property
    def most_unshown(self) -> float:
        """Rounds that took an upload of a participant's and that no record shows: after so many it takes no further part."""

    def audience(self, *, final: bool) -> Audience:
        """Whom a round's publication serves; the requester's own is made of the last round, once more if need be."""

    def check(self, settings: TaskSettings, parameters: int) -> None:
        """Refuse, with the numbers, a task that could overflow."""

    def explain(self, settings: TaskSettings, parameters: int) -> str:
        """The widths, chances and bounds of a task that `check` accepts, for people."""

    def claim_bytes(self, settings: TaskSettings, rounds: int) -> int: ...  # of the longest claim of so many rounds

    def claims_bundle(self, bundle: bytes) -> bytes: ...  # CSP's, without all that only steps need
    def attesting_key(self, bundle: bytes) -> SigningKey: ...  # of either

    def close_steps(self, spec: TaskSpec, records: Look) -> Collection[int]:
        """After the last round, take out of CSP's records what only steps need; the kinds of those that claims need, all others
        are erased."""

    def deal(self, spec: TaskSpec, *, insecure_test_key: bool) -> Dealing: ...
    def sp(self, spec: TaskSpec, bundle: bytes, tools: "Tools") -> SpProtocol: ...
    def csp(self, spec: TaskSpec, bundle: bytes, tools: "Tools") -> CspProtocol: ...
    def requester(self, spec: TaskSpec, bundle: bytes, tools: "Tools") -> ReaderProtocol: ...
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
        max_participants=settings.most_in_round,
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

    def party(self, name: str) -> Party:
        costs, view = self.observer.costs(name), self.observer.view(name)
        return Party(name, backend=self.backend, costs=costs, view=view, progress=self.progress)

    def keyed_party(self, name: str, public: PublicKey, share: KeyShare | None = None) -> KeyedParty:
        return KeyedParty(
            name,
            public,
            share,
            backend=self.backend,
            costs=self.observer.costs(name),
            view=self.observer.view(name),
            progress=self.progress,
            constant_time=self.constant_time,
        )
