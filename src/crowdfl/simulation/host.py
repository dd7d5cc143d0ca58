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
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.signed import Definition
from crowdfl.errors import ServiceUnavailable
from crowdfl.protocols.profile import Tools
from crowdfl.roles.csp import Csp
from crowdfl.roles.guard import Guard
from crowdfl.roles.kgc import Kgc
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import Blobs, Clock, CspPeer, KgcPeer, ManualClock
from crowdfl.roles.records import DepositState
from crowdfl.roles.requester import Requester
from crowdfl.roles.sp.core import SpOptions, SpPorts
from crowdfl.roles.sp.platform import Sp
from crowdfl.simulation.disks import Disk, MemoryDisk
from crowdfl.simulation.faults import Crash, Life, LivedBlobs, Plan, nothing_happens
from crowdfl.simulation.links import KgcFor, KgcFront, LinkToCsp, LinkToKgc, LinkToSp, SpFront
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
        self.tools = tools
        self.clock = clock or ManualClock()
        self.network = wire
        self.faults = faults
        self.disk = disk or MemoryDisk(self.clock.now)
        self.options = options or SpOptions(tools, checker=tools.backend, min_claim_window=0.0)
        self.signing = signing or SigningKey.fresh()  # KGC's
        self.people: dict[str, Participant] = {}
        self._counts: Counter[tuple[str, str]] = Counter()  # of points, by process and name
        self._lives: dict[str, Life] = {}
        self._roles: dict[str, Any] = {}
        self._tasks: dict[str, str] = {}  # of people
        self._names = {KGC: _processes(KGC, 1), SP: _processes(SP, sps), CSP: _processes(CSP, csps)}
        self._fronts = {name: SpFront(partial(self.role, name), self.confirm_deposits) for name in self._names[SP]}
        # As people and the requester are answered.
        self.kgc_link = KgcFront(partial(self.role, KGC))
        self.sp_link = self._fronts[SP]
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
        store = self._store(CSP, life, disk)
        own = *self._folders(CSP, life, disk), Guard(self._blobs("csp/guard", life, disk), store, CSP)
        return Csp(store, *own, self.kgc_for(name), self.signing.public, self.clock, self.tools)

    def new_sp(self, options: SpOptions | None = None, disk: Disk | None = None, name: str = SP) -> Sp:
        """A process of SP; there may be others on the same disk."""
        life = self._born(name)
        store = self._store(SP, life, disk)
        own = *self._folders(SP, life, disk), Guard(self._blobs("sp/guard", life, disk), store, SP)
        ports = SpPorts(store, self.clock, *own, self.kgc_for(name), self.csp_for(name), self.signing.public)
        return Sp(ports, options or self.options)

    def new_requester(self) -> Requester:
        life = self._born(REQUESTER)
        return Requester(
            self._blobs(REQUESTER, life),
            self.clock,
            LinkToKgc(self.carry, life, KGC),
            LinkToSp(self.carry, life, SP),
            self.signing.public,
            self.tools,
        )

    def new_participant(self, task: str, name: str) -> Participant:
        life = self._born(f"{PEOPLE}{name}")
        self._tasks[name] = task
        # Whoever plays everyone answers for the size of the crowd.
        return Participant(
            task,
            self._blobs(f"{PEOPLE}{name}", life),
            LinkToKgc(self.carry, life, KGC),
            LinkToSp(self.carry, life, SP),
            self.signing.public,
            self.tools,
            least_participants=1,
            now=self.clock.now,
        )

    # A host whose servers reach each other in another way says so in these two.

    def kgc_for(self, process: str) -> KgcPeer:
        return LinkToKgc(self.carry, self._lives[process], KGC)

    def csp_for(self, process: str) -> CspPeer:
        return LinkToCsp(self.carry, self._lives[process], CSP)

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
        front = self._front(process, call.sender)
        life = self._lives[process]
        try:
            reply = getattr(front, call.name)(*call.arguments, **call.named)
        except Crash as crash:
            if crash.process != process:
                raise
            raise ServiceUnavailable(f"{process} died before it had answered") from None
        if life.is_over:  # its reply never left it
            raise ServiceUnavailable(f"{process} died before it had answered")
        if (call.receiver, call.name) == (CSP, "answer"):  # the reply has left
            self.act(process, lambda csp: csp.tidy(call.arguments[0]))
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
                self.sp.deposits.confirm(
                    task, deposit.name, deposit.amount, self.sp.core.definition(task).settings.currency
                )

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
        folder = name.rpartition("/")[2]
        return LivedBlobs((disk or self.disk).blobs(name), life, folder if folder in ("keys", "guard") else "blobs")

    def _folders(self, role: str, life: Life, disk: Disk | None = None) -> tuple[Blobs, Blobs]:
        return self._blobs(f"{role}/blobs", life, disk), self._blobs(f"{role}/keys", life, disk)

    def _other_options(self) -> SpOptions:
        return replace(self.options, owner=secret_hex(8))


def _processes(role: str, count: int) -> tuple[str, ...]:
    return tuple(role if number == 1 else f"{role}{number}" for number in range(1, count + 1))
