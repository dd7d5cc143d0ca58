"""Every party in one process: the real roles, over a clock, disks, a wire and faults that are handed in.

Each party is a process here: it has its own disk, reaches others over the wire alone, and may die and be started again. Nothing
runs beside anything else. Inside `simulation.replayed.seeded` one seed is one run, to the byte.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from crowdfl.crypto.randomness import secret_hex
from crowdfl.crypto.sealing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.errors import ServiceUnavailable
from crowdfl.protocols.profile import ParticipantKeys, Tools
from crowdfl.roles.csp import Csp
from crowdfl.roles.kgc import Kgc
from crowdfl.roles.participant.claims import ClaimTime
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import Blobs, Clock, CspPeer, KgcPeer, ManualClock
from crowdfl.roles.records import DepositState, PaidClaim
from crowdfl.roles.requester import Requester
from crowdfl.roles.sp.core import SpOptions, SpPorts
from crowdfl.roles.sp.platform import Sp
from crowdfl.simulation.disks import Disk, MemoryDisk
from crowdfl.simulation.faults import Crash, Life, LivedBlobs, Plan, nothing_happens
from crowdfl.storage.sql import SqlStore

FOREVER = 10.0**9  # seconds: nothing in one process waits for a deadline
KGC, SP, CSP, REQUESTER, PEOPLE = "kgc", "sp", "csp", "requester", "people/"
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Call:
    """What one process asks of another."""

    sender: str  # a process
    receiver: str  # a role
    name: str
    arguments: tuple[Any, ...] = field(repr=False)
    named: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Deliver(Protocol):
    """Hands a call to the receiver, to its first process unless another is named; as often as it is called."""

    def __call__(self, to: str | None = None) -> Any: ...  # noqa: ANN401


Wire = Callable[[Call, Deliver], Any]
"""Between all processes: it may lose, delay, repeat or hand to another process what it is given, and looks at all of it."""


def straight(_call: Call, deliver: Deliver) -> Any:  # noqa: ANN401
    """The usual wire."""
    return deliver()


class Host:
    """KGC, SP and CSP in one process or several each, a requester and any number of people."""

    def __init__(
        self,
        tools: Tools,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        wire: Wire = straight,
        faults: Plan = nothing_happens,
        options: SpOptions | None = None,
        signing: SigningKey | None = None,
        sps: int = 1,
        csps: int = 1,
    ) -> None:
        self.tools, self.clock, self.network, self.faults = tools, clock or ManualClock(), wire, faults
        self.disk = disk or MemoryDisk(self.clock.now)
        self.options = options or SpOptions(tools, checker=tools.backend, min_claim_window=0.0)
        self.signing = signing or SigningKey.fresh()  # KGC's
        self.people: dict[str, Participant] = {}
        self._counts: Counter[tuple[str, str]] = Counter()  # of points, by process and name
        self._lives: dict[str, Life] = {}
        self._roles: dict[str, Any] = {}
        self._tasks: dict[str, str] = {}  # of people
        self._names = {KGC: _processes(KGC, 1), SP: _processes(SP, sps), CSP: _processes(CSP, csps)}
        self._fronts = {name: _SpFront(self, name) for name in self._names[SP]}
        self.kgc_link, self.sp_link = _KgcFront(self, KGC), self._fronts[SP]  # as people and the requester are answered
        self.restart()
        self.requester = self.new_requester()

    # Processes.

    def restart(self) -> None:
        """All servers, with nothing but what is on their disks."""
        self.kgc = self.new_kgc()
        self.csp = self.new_csp()
        for name in self._names[CSP][1:]:
            self._roles[name] = self.new_csp(name=name)
        self.sp = self.new_sp()
        for name in self._names[SP][1:]:
            self._roles[name] = self.new_sp(self._other_options(), name=name)

    def kill(self, process: str) -> None:
        """Its memory is gone, its disk stays. Whatever it was doing ends at its next write or message."""
        self._lives[process].is_over = True

    def start(self, process: str) -> None:
        """A process anew, in place of one that runs or has died; an SP waits for the dead one's lease to run out."""
        self.kill(process)
        if process.startswith(PEOPLE):
            name = process.removeprefix(PEOPLE)
            self.people[name] = self.new_participant(self._tasks[name], name)
        elif process == REQUESTER:
            self.requester = self.new_requester()
        elif process == KGC:
            self.kgc = self.new_kgc()
        elif process in self._names[CSP]:
            self._roles[process] = self.new_csp(name=process)
        else:
            self._roles[process] = self.new_sp(self._other_options(), name=process)

    def is_running(self, process: str) -> bool:
        life = self._lives.get(process)  # none: somebody's own kind of party
        return life is None or not life.is_over

    def dead(self) -> list[str]:
        return [name for name, life in self._lives.items() if life.is_over]

    def role(self, process: str) -> Any:  # noqa: ANN401 -- a role of its kind
        if not self.is_running(process):
            raise ServiceUnavailable(f"{process} does not run")
        return self.people[process.removeprefix(PEOPLE)] if process.startswith(PEOPLE) else self._roles[process]

    def act(self, process: str, what: Callable[[Any], _Found]) -> _Found | None:
        """What a process does by itself; None if it dies of it. It stays dead until it is started."""
        try:
            return what(self.role(process))
        except Crash as crash:
            if crash.process != process:
                raise
            return None

    def names(self, role: str) -> Sequence[str]:
        """The processes of a role."""
        return self._names[role]

    def new_kgc(self) -> Kgc:
        life = self._born(KGC)
        return Kgc(
            self._store(KGC, life),
            self._blobs("kgc/keys", life),
            self.clock,
            self.signing,
            self.tools.insecure_test_key,
        )

    def new_csp(self, disk: Disk | None = None, name: str = CSP) -> Csp:
        """A process of CSP; there may be others on the same disk."""
        life = self._born(name)
        blobs, keys = self._blobs("csp/blobs", life, disk), self._blobs("csp/keys", life, disk)
        return Csp(self._store(CSP, life, disk), blobs, keys, self.kgc_for(name), self.signing.public, self.tools)

    def new_sp(self, options: SpOptions | None = None, disk: Disk | None = None, name: str = SP) -> Sp:
        """A process of SP; there may be others on the same disk."""
        life = self._born(name)
        blobs, keys = self._blobs("sp/blobs", life, disk), self._blobs("sp/keys", life, disk)
        peers = self.kgc_for(name), self.csp_for(name)
        ports = SpPorts(self._store(SP, life, disk), self.clock, blobs, keys, *peers, self.signing.public)
        return Sp(ports, options or self.options)

    def new_requester(self) -> Requester:
        life = self._born(REQUESTER)
        blobs, peers = self._blobs(REQUESTER, life), (self._peer(life, KGC), self._peer(life, SP))
        return Requester(blobs, self.clock, *peers, self.signing.public, self.tools)

    def new_participant(self, task: str, name: str) -> Participant:
        life = self._born(f"{PEOPLE}{name}")
        self._tasks[name] = task
        # Whoever plays everyone answers for the size of the crowd.
        return Participant(
            task,
            self._blobs(f"{PEOPLE}{name}", life),
            self._peer(life, KGC),
            self._peer(life, SP),
            self.signing.public,
            self.tools,
            least_participants=1,
            claim_time=ClaimTime(self.clock.now),
        )

    # A host whose servers reach each other in another way says so in these two.

    def kgc_for(self, process: str) -> KgcPeer:
        found: KgcPeer = self._peer(self._lives[process], KGC)
        return found

    def csp_for(self, process: str) -> CspPeer:
        found: CspPeer = self._peer(self._lives[process], CSP)
        return found

    @property
    def kgc(self) -> Kgc:
        found: Kgc = self.role(KGC)
        return found

    @kgc.setter
    def kgc(self, kgc: Kgc) -> None:
        self._roles[KGC] = kgc

    @property
    def sp(self) -> Sp:
        """Its first process."""
        found: Sp = self.role(SP)
        return found

    @sp.setter
    def sp(self, sp: Sp) -> None:
        self._roles[SP] = sp

    @property
    def csp(self) -> Csp:
        """Its first process."""
        found: Csp = self.role(CSP)
        return found

    @csp.setter
    def csp(self, csp: Csp) -> None:
        self._roles[CSP] = csp

    @property
    def requester(self) -> Requester:
        found: Requester = self.role(REQUESTER)
        return found

    @requester.setter
    def requester(self, requester: Requester) -> None:
        self._roles[REQUESTER] = requester

    # What goes on.

    def carry(
        self, sender: str, receiver: str, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any] | None = None
    ) -> Any:  # noqa: ANN401
        """Everything that one process asks of another passes here."""
        call = Call(sender, receiver, name, arguments, named or {})
        return self.network(call, partial(self._deliver, call))

    def _deliver(self, call: Call, to: str | None = None) -> Any:  # noqa: ANN401
        process = to or next(filter(self.is_running, self._names[call.receiver]), call.receiver)
        front, life = self._front(process, call.sender), self._lives[process]
        try:
            reply = getattr(front, call.name)(*call.arguments, **call.named)
        except Crash as crash:
            if crash.process != process:
                raise
            raise ServiceUnavailable(f"{process} died before it had answered") from None
        if life.is_over:  # its reply never left it
            raise ServiceUnavailable(f"{process} died before it had answered")
        return reply

    def _front(self, process: str, sender: str) -> Any:  # noqa: ANN401
        """How a process answers this sender."""
        role = self.role(process)
        if process in self._fronts:
            return self._fronts[process]
        if process == KGC:
            server = next((kind for kind in (SP, CSP) if sender in self._names[kind]), None)
            return self.kgc_link if server is None else KgcFor(role, server)
        return role

    def create(self, definition: Definition, initial: Sequence[npt.NDArray[np.float64]]) -> str:
        return self.requester.create(definition, initial)

    def join(self, task: str, name: str) -> Participant:
        """Invite and enrol somebody, who goes by this name here and by a pseudonym at SP."""
        (invitation,) = self.requester.invite(task, 1, FOREVER)
        person = self.new_participant(task, name)
        person.join(invitation)
        self.people[name] = person
        return person

    def confirm_deposits(self, task: str) -> None:
        """As SP's operator: in one process, money that is announced is there."""
        for deposit in self.sp.store.deposits(task):
            if deposit.state is DepositState.PENDING:
                self.sp.confirm_deposit(task, deposit.name, deposit.amount)

    def tick(self) -> bool:
        """A step of every process of SP that runs, one after the other."""
        running = [name for name in self._names[SP] if self.is_running(name)]
        moved = [self.act(name, lambda sp: bool(sp.tick())) for name in running]
        return any(moved)

    def run(self) -> None:
        while self.tick():
            pass

    def _born(self, process: str) -> Life:
        self._lives[process] = Life(process, lambda: self.faults, self._counts)
        return self._lives[process]

    def _store(self, role: str, life: Life, disk: Disk | None = None) -> SqlStore:
        store = (disk or self.disk).store(role)
        store.at_commit = life.commit
        return store

    def _blobs(self, name: str, life: Life, disk: Disk | None = None) -> Blobs:
        kind = "keys" if name.endswith("/keys") else "blobs"
        return LivedBlobs((disk or self.disk).blobs(name), life, kind)

    def _peer(self, life: Life, receiver: str) -> Any:  # noqa: ANN401
        return _Peer(self, life, receiver)

    def _other_options(self) -> SpOptions:
        return replace(self.options, owner=secret_hex(8))


def _processes(role: str, count: int) -> tuple[str, ...]:
    return tuple(role if number == 1 else f"{role}{number}" for number in range(1, count + 1))


class _Peer:
    """A role, as one process reaches it."""

    def __init__(self, host: Host, life: Life, receiver: str) -> None:
        self._host, self._life, self._receiver = host, life, receiver

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return partial(self._ask, name)

    def _ask(self, name: str, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        with self._life.passing(f"{self._receiver}.{name}"):
            return self._host.carry(self._life.process, self._receiver, name, arguments, named)


class _Front:
    """A process as it is at this moment: it may be started again while its peers live on. What is not defined is its own."""

    def __init__(self, host: Host, process: str) -> None:
        self._host, self._process = host, process

    @property
    def _own(self) -> Any:  # noqa: ANN401
        return self._host.role(self._process)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._own, name)


@dataclass(frozen=True)
class KgcFor:
    """KGC as it answers a server."""

    kgc: Kgc
    role: str

    def bundle(self, task: str) -> tuple[str, str, bytes]:
        return self.kgc.bundle(task, self.role)

    def dealt(self, task: str, number: int) -> bytes:
        return b"".join(self.kgc.dealt(task, self.role, number))

    def acknowledge(self, task: str) -> bool:
        return self.kgc.acknowledge(task, self.role)


class _KgcFront(_Front):
    """KGC as it answers people and the requester."""

    def done(self, task: str) -> None:
        self._own.acknowledge(task, "requester")


class _SpFront(_Front):
    """SP as it answers people and the requester."""

    def deposit(self, task: str, name: str, amount: int) -> None:
        """Announced by the requester, and confirmed by the operator, who is nobody else here."""
        self._own.deposit(task, name, amount)
        self._host.confirm_deposits(task)

    def papers(self, task: str) -> tuple[str, str]:
        stored = self._own.store.task(task)
        return stored.definition, stored.appointment

    def initial_weights(self, task: str) -> bytes:
        return bytes(self._own.blobs.get(f"{task}/initial"))

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        """The digest stands for a receipt: within one process nobody has to prove anything."""
        return str(self._own.upload(task, number, keys.who, upload).digest)

    def uploaded(self, task: str, number: int, keys: ParticipantKeys) -> str | None:
        entry = self._own.store.upload(task, number, keys.who)
        return None if entry is None else str(entry.digest)

    def is_drawn(self, task: str, number: int, keys: ParticipantKeys) -> bool:
        return bool(self._own.is_drawn(task, number, keys.who))

    def average(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return bytes(self._own.publication(task, number, keys.who))

    def reward(self, task: str, number: int, keys: ParticipantKeys) -> bytes:
        return bytes(self._own.envelope(task, number, keys.who))

    def claim(self, task: str, claim: bytes, _keys: ParticipantKeys) -> PaidClaim:
        found: PaidClaim = self._own.claim(task, claim)
        return found

    def pay_to(self, task: str, sealed: bytes, keys: ParticipantKeys) -> None:
        self._own.pay_to(task, keys.who, sealed)

    def enrol(self, task: str, certificate: str, consent: str | None = None) -> str | None:
        self._own.enrol(task, certificate, consent)
        return None

    def leave(self, task: str, keys: ParticipantKeys, *, withdraw: bool = False) -> dict[str, list[int]]:
        if not withdraw:
            self._own.leave(task, keys.who)
            return {}
        found: dict[str, list[int]] = self._own.withdraw(task, keys.who)
        return found

    def final(self, task: str, number: int) -> bytes:
        return bytes(self._own.publication(task, number, None))

    def movements(self, task: str) -> list[dict[str, Any]]:
        return [vars(movement) for movement in self._own.statement(task).movements]
