"""Every party in one process: the real roles over in-memory stores, blobs, clock and peers. Reads like the paper; start here.

fed = LocalFederation(max_participants=36, max_samples=100)
result = fed.round({"p1": Update(weights=[w1, b1], samples=49), ...}, budget="36.00")
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.compute import Backend, Progress, default_backend
from crowdfl.crypto.sealing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.errors import (
    AlreadyPaid,
    ModelMismatch,
    RewardsOff,
    RoundEnded,
    SettingsError,
    TooFewParticipants,
    TooManyUploads,
    UnknownParticipant,
)
from crowdfl.learning.models.learner import Update
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.protocols.exchange import Observer
from crowdfl.protocols.party import Costs, View
from crowdfl.protocols.profile import ParticipantKeys, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.csp import Csp
from crowdfl.roles.kgc import Kgc
from crowdfl.roles.participant.claims import ClaimTime
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import Blobs, Clock, CspPeer, KgcPeer, ManualClock
from crowdfl.roles.records import DepositState, PaidClaim, RoundState
from crowdfl.roles.requester import Requester
from crowdfl.roles.sp.core import SpOptions, SpPorts
from crowdfl.roles.sp.platform import Sp
from crowdfl.settings import TaskSettings, from_millionths, to_millionths
from crowdfl.storage.blobs import MemoryBlobs
from crowdfl.storage.sql import SqlStore

_FOREVER = 10.0**9  # seconds: nothing in one process waits for a deadline


class Disk(Protocol):
    """Where the roles of a host keep what must survive: a store and blobs by name."""

    def store(self, role: str) -> SqlStore: ...
    def blobs(self, name: str) -> Blobs: ...


class MemoryDisk:
    """Nothing survives the process; a role that is built again finds what it had."""

    def __init__(self) -> None:
        self._stores: dict[str, SqlStore] = {}
        self._blobs: dict[str, MemoryBlobs] = {}

    def store(self, role: str) -> SqlStore:
        if role not in self._stores:
            self._stores[role] = SqlStore.in_memory()
        return self._stores[role]

    def blobs(self, name: str) -> MemoryBlobs:
        return self._blobs.setdefault(name, MemoryBlobs())


class Recorder(Observer):
    """Counters and views by role, over everything that the roles of a host do."""

    def __init__(self, *, keep_views: bool = True) -> None:
        self._keep_views = keep_views
        self.costs_of: dict[str, Costs] = {}
        self.views_of: dict[str, View] = {}

    def costs(self, role: str) -> Costs:
        return self.costs_of.setdefault(role, Costs())

    def view(self, role: str) -> View:
        return self.views_of.setdefault(role, View(keep=self._keep_views))


class LocalHost:
    """KGC, SP, CSP, a requester and any number of participants, reached by function calls. `restart` builds servers anew."""

    sp: Sp
    csp: Csp
    kgc: Kgc

    def __init__(
        self,
        tools: Tools,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        options: SpOptions | None = None,
        signing: SigningKey | None = None,
        wire: Callable[[CspPeer], CspPeer] = lambda csp: csp,
    ) -> None:
        self.tools, self.disk, self.clock = tools, disk or MemoryDisk(), clock or ManualClock()
        self.options = options or SpOptions(tools, checker=tools.backend, min_claim_window=0.0)
        self.signing = signing or SigningKey.fresh()  # KGC's
        self._wire = wire  # between SP and CSP: a test may lose, delay or repeat what passes
        self.people: dict[str, Participant] = {}
        # Any: most of what the links offer is the role's own.
        self.kgc_link: Any = _KgcLink(self, "kgc")
        self.sp_link: Any = _SpLink(self, "sp")
        self.restart()
        self.requester = self.new_requester()

    def restart(self) -> None:
        """As after a crash: nothing but what is on the disk."""
        self.kgc, self.csp = self.new_kgc(), self.new_csp()
        self.sp = self.new_sp()

    def new_kgc(self) -> Kgc:
        keys = self.disk.blobs("kgc/keys")
        return Kgc(self.disk.store("kgc"), keys, self.clock, self.signing, self.tools.insecure_test_key)

    def new_csp(self, disk: Disk | None = None) -> Csp:
        disk, kgc = disk or self.disk, self.kgc_for("csp")
        blobs, keys = disk.blobs("csp/blobs"), disk.blobs("csp/keys")
        return Csp(disk.store("csp"), blobs, keys, kgc, self.signing.public, self.tools)

    def new_sp(self, options: SpOptions | None = None, disk: Disk | None = None) -> Sp:
        """An SP process; there may be others on the same disk."""
        disk, kgc = disk or self.disk, self.kgc_for("sp")
        blobs, keys = disk.blobs("sp/blobs"), disk.blobs("sp/keys")
        csp: Any = _LiveRole(self, "csp")
        ports = SpPorts(disk.store("sp"), self.clock, blobs, keys, kgc, self._wire(csp), self.signing.public)
        return Sp(ports, options or self.options)

    # A host whose parties reach each other in another way says so in these three.

    def kgc_for(self, role: str) -> KgcPeer:
        return _KgcFor(self, role)

    def new_requester(self) -> Requester:
        links = self.kgc_link, self.sp_link
        return Requester(self.disk.blobs("requester"), self.clock, *links, self.signing.public, self.tools)

    def new_participant(self, task: str, name: str) -> Participant:
        blobs, links = self.disk.blobs(f"people/{name}"), (self.kgc_link, self.sp_link)
        # Whoever plays everyone answers for the size of the crowd.
        return Participant(
            task,
            blobs,
            *links,
            self.signing.public,
            self.tools,
            least_participants=1,
            claim_time=ClaimTime(self.clock.now),
        )

    def create(self, definition: Definition, initial: Sequence[npt.NDArray[np.float64]]) -> str:
        return self.requester.create(definition, initial)

    def join(self, task: str, name: str) -> Participant:
        """Invite and enrol somebody, who goes by this name here and by a pseudonym at SP."""
        (invitation,) = self.requester.invite(task, 1, _FOREVER)
        person = self.new_participant(task, name)
        person.join(invitation)
        self.people[name] = person
        return person

    def confirm_deposits(self, task: str) -> None:
        """As SP's operator: in one process, money that is announced is there."""
        for deposit in self.sp.store.deposits(task):
            if deposit.state is DepositState.PENDING:
                self.sp.confirm_deposit(task, deposit.name, deposit.amount)

    def run(self) -> None:
        while self.sp.tick():
            pass


class _LiveRole:
    """A role as it is at this moment: it may be restarted while its peers live on. What is not defined here is its own."""

    def __init__(self, host: LocalHost, role: str) -> None:
        self._host, self._role = host, role

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(getattr(self._host, self._role), name)


@dataclass(frozen=True)
class _KgcFor:
    host: LocalHost
    role: str

    def bundle(self, task: str) -> tuple[str, str, bytes]:
        return self.host.kgc.bundle(task, self.role)

    def dealt(self, task: str, number: int) -> bytes:
        return b"".join(self.host.kgc.dealt(task, self.role, number))

    def acknowledge(self, task: str) -> bool:
        return self.host.kgc.acknowledge(task, self.role)


class _KgcLink(_LiveRole):
    """KGC as participants and the requester reach it."""

    def done(self, task: str) -> None:
        self.acknowledge(task, "requester")


class _SpLink(_LiveRole):
    """SP as participants and the requester reach it."""

    def deposit(self, task: str, name: str, amount: int) -> None:
        """Announced by the requester, and confirmed by the operator, who is nobody else here."""
        self._host.sp.deposit(task, name, amount)
        self._host.confirm_deposits(task)

    def papers(self, task: str) -> tuple[str, str]:
        stored = self.store.task(task)
        return stored.definition, stored.appointment

    def initial_weights(self, task: str) -> bytes:
        return bytes(self.blobs.get(f"{task}/initial"))

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        """The digest stands for a receipt: within one process nobody has to prove anything."""
        return str(self.upload(task, number, keys.who, upload).digest)

    def uploaded(self, task: str, number: int, keys: ParticipantKeys) -> str | None:
        entry = self.store.upload(task, number, keys.who)
        return None if entry is None else str(entry.digest)

    def is_drawn(self, task: str, number: int, keys: ParticipantKeys) -> bool:
        return bool(self._host.sp.is_drawn(task, number, keys.who))

    def average(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return bytes(self.publication(task, number, keys.who))

    def reward(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return bytes(self.envelope(task, number, keys.who))

    def claim(self, task: str, claim: bytes, _keys: ParticipantKeys) -> PaidClaim:
        return self._host.sp.claim(task, claim)

    def pay_to(self, task: str, sealed: bytes, keys: ParticipantKeys) -> None:
        self._host.sp.pay_to(task, keys.who, sealed)

    def enrol(self, task: str, certificate: str, consent: str | None = None) -> str | None:
        self._host.sp.enrol(task, certificate, consent)
        return None

    def leave(self, task: str, keys: ParticipantKeys, *, withdraw: bool = False) -> dict[str, list[int]]:
        if withdraw:
            return self._host.sp.withdraw(task, keys.who)
        self._host.sp.leave(task, keys.who)
        return {}

    def final(self, task: str, number: int) -> bytes:
        return bytes(self.publication(task, number, None))

    def movements(self, task: str) -> list[dict[str, Any]]:
        return [vars(movement) for movement in self.statement(task).movements]


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What a round gave, to whom it may concern: a real deployment shows each part to its owner alone.

    `average` is the round's average. `model` is what the next round starts from: the same, unless the task has a server step;
    then `state` is the digest of what every reader holds.
    """

    average: Weights
    total: int | None
    rewards: dict[str, Decimal] | None
    costs: dict[str, Costs]
    views: dict[str, View]
    clipped: dict[str, int]
    rejected: dict[str, str] = field(default_factory=dict)  # whose uploads the servers left out, and why
    model: Weights = field(default_factory=list)
    state: str | None = None


def costs_by_role(observer: Observer) -> dict[str, Costs]:
    """Counters per role so far; those of the participants together."""
    names = {"SP": "SP", "CSP": "CSP", "requester": "requester", "participants": "participant"}
    return {name: observer.costs(role) for name, role in names.items()}


class LocalFederation:
    """A task with all its parties. Keywords are those of `TaskSettings`; keys are dealt at the first round."""

    def __init__(
        self,
        *,
        insecure_test_key: bool = False,
        constant_time: bool = False,
        backend: Backend | None = None,
        progress: Callable[[int, int], None] | None = None,
        **settings: Any,  # noqa: ANN401 -- TaskSettings checks each by name
    ) -> None:
        self.settings = TaskSettings.of(**settings)
        profile_named(self.settings.profile)
        if self.settings.per_round is not None:
            raise SettingsError("`per_round` has no effect here: a round is of those whose updates you pass to it")
        self.recorder, backend = Recorder(), backend or default_backend()
        watcher = Progress(progress) if progress else None
        tools = Tools(backend, watcher, insecure_test_key, constant_time, self.recorder)
        self.host = LocalHost(
            tools, options=SpOptions(tools, checker=backend, min_claim_window=0.0, opens_rounds=False)
        )
        self.task: str | None = None
        self.round_number = 0
        self._shape: ModelShape | None = None

    def round(
        self,
        updates: Mapping[str, Update],
        budget: str | Decimal | None = None,
        *,
        final: bool = False,
        reference: Update | None = None,
    ) -> RoundResult:
        """One round: upload, with a budget reward, average, publish, read. Without one the settings' budget is paid, if any.

        `reference` is the requester's own update, of a federation that was made with reference=True.
        """
        payment = self._payment(budget)
        if self.settings.reference != (reference is not None):
            raise SettingsError("a federation with reference=True, and no other, takes a `reference` in each round")
        if len(updates) < self.settings.min_participants:
            raise TooFewParticipants(f"{len(updates)} updates, {self.settings.min_participants} needed")
        if len(updates) > self.settings.max_participants:
            raise TooManyUploads(f"{len(updates)} updates, at most {self.settings.max_participants} fit into a round")
        arrays = {who: self._checked(who, update) for who, update in updates.items()}
        task, number = self._posted(), self.round_number + 1
        # Participants train (elsewhere) and encrypt: what one of them refuses costs nobody a round.
        clipped = self._encrypted(task, number, arrays, {who: update.samples for who, update in updates.items()})
        # SP opens a round that was paid for, takes the uploads, averages and rewards with CSP.
        self._play(task, payment, list(updates), reference, final=final)
        # Participants (or, at the end, the requester) read the average; each participant opens its own reward.
        reader = self.host.people[next(iter(updates))]
        average = self.host.requester.read(task, number) if self._is_requesters(final) else reader.read(number)
        rejected = self._rejected(task, number, list(updates))
        rewards = None
        if payment:
            paid = {who: self.host.people[who].open_reward(number) for who in updates if who not in rejected}
            rewards = {who: from_millionths(paid.get(who, 0)) for who in updates}
        weights, model = map(self.host.sp.definition(task).shape.arrays, (average.weights, average.model))
        seen = self.costs(), self.views(), clipped, rejected
        return RoundResult(weights, average.total, rewards, *seen, model, average.state)

    def _rejected(self, task: str, number: int, people: Sequence[str]) -> dict[str, str]:
        reasons = self.host.sp.rejected(task, number)
        names = {who: self.host.people[who].keys.who for who in people}
        return {who: reasons[name].words for who, name in names.items() if name in reasons}

    def _is_requesters(self, final: bool) -> bool:
        """Of a chained profile the last round's average is sealed to the requester alone, whatever the caller says."""
        is_last = self.round_number == self.settings.rounds
        return final or (is_last and profile_named(self.settings.profile).chained)

    def claim(self, who: str) -> Decimal:
        """A participant claims all it has earned; CSP attests, SP pays. Claims end the task: no round follows."""
        if self.task is None or who not in self.host.people:
            raise UnknownParticipant(f"nobody called {who} took part")
        if self.host.people[who].blobs.has("paid"):
            raise AlreadyPaid(f"{who} was paid for this task already")
        if self.host.sp.status(self.task)["state"] == "running":
            self.host.requester.order(self.task, "cancel")
        return from_millionths(self.host.people[who].claim(without_missing=True))

    def costs(self) -> dict[str, Costs]:
        return costs_by_role(self.recorder)

    def views(self) -> dict[str, View]:
        return {role: self.recorder.view(role) for role in ("SP", "CSP")}

    def _payment(self, budget: str | Decimal | None) -> int:
        agreed = to_millionths(self.settings.budget or 0)
        if budget is None:
            return agreed
        if agreed and to_millionths(budget) != agreed:
            raise SettingsError(f"every round pays {from_millionths(agreed)}, as the settings say, not {budget}")
        if self.settings.lanes == 0:
            raise RewardsOff("this federation was made with lanes=0: its packing leaves no room for rewards")
        payment = to_millionths(budget)
        if payment == 0:
            raise SettingsError("a budget of nothing pays nobody; leave it out for a round without rewards")
        return payment

    def _posted(self) -> str:
        """The task; it is posted, and KGC deals its keys, once the model's shapes are known."""
        if self.task is None:
            shape, words = self._shape or ModelShape((), ()), "a task in one process"
            definition = Definition(words, words, words, shape, self.settings, _FOREVER, {})
            self.task = self.host.create(definition, [np.zeros(sides) for sides in shape.shapes])
        return self.task

    def _encrypted(
        self, task: str, number: int, arrays: Mapping[str, Weights], samples: Mapping[str, int]
    ) -> dict[str, int]:
        """Everyone's upload, kept where `send` finds it; how many weights of each were clipped."""
        people = {who: self.host.people.get(who) or self.host.join(task, who) for who in arrays}
        for person in people.values():
            person.blobs.delete(f"rounds/{number}/upload")  # of a try that somebody's refusal has ended
        for who, person in people.items():
            person.encrypt(number, arrays[who], samples[who])
        return {who: person.side.clipped for who, person in people.items()}

    def _play(self, task: str, payment: int, people: list[str], reference: Update | None, *, final: bool) -> None:
        sp, clock = self.host.sp, self.host.clock
        if payment:
            self.host.requester.fund(task, payment)
        self.round_number = sp.steps.open(task, payment, final=final)
        if reference is not None:
            own = self._checked("the requester", reference)
            self.host.requester.refer(task, self.round_number, lambda *_: (own, 1))
        for who in people:
            self.host.people[who].send(self.round_number)
        if isinstance(clock, ManualClock):  # whoever is enrolled and not in this round is not waited for
            clock.time = sp.store.round(task, self.round_number).last_call(self.settings)
        while not sp.store.round(task, self.round_number).is_over:
            sp.tick()
        if sp.store.round(task, self.round_number).state is RoundState.ABORTED:
            raise RoundEnded(f"round {self.round_number} is void: too many uploads out of bounds, or CSP ended it")

    def _checked(self, who: str, update: Update) -> Weights:
        """The shape is learnt from the first update and enforced after."""
        arrays = dict(zip(update.names, update.weights, strict=True))
        if self._shape is None:
            self._shape = ModelShape.of(arrays)
        try:
            if len(arrays) == len(self._shape.names):  # else `check` says which array is missing or too many
                known = {name: arrays[name] for name in self._shape.names if name in arrays}
                arrays = known | arrays  # a dictionary may come in another order
                self._shape.match(ModelShape.of(arrays))
            return self._shape.check(list(arrays.values()))
        except ModelMismatch as wrong:
            raise ModelMismatch(f"the update of {who} does not match the model: {wrong}") from None
