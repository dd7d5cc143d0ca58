"""The server's half without Flower: one task on SP, who its clients are, what each has not read yet, its rounds and its end.

SP runs in this process; KGC and CSP run here too for a trial, or as services of other organisations.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.invitations import EnrolmentRequest, Ticket, admitted
from crowdfl.errors import CrowdFLError, InvitationRefused, ServiceError, SettingsError
from crowdfl.flower.task_owner import PreparedTask, PublishedRounds
from crowdfl.flower.wire import ENROL, READ, WORK, ClientAnswer, Instruction, states_text
from crowdfl.privacy import AverageNoise, RoundPrivacy
from crowdfl.protocols.profile import Average, Tools
from crowdfl.retry import Backoff
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.guard import Guard
from crowdfl.roles.kgc_retention import KgcRetention
from crowdfl.roles.participant.participant import Train
from crowdfl.roles.ports import Blobs, EndPeer, ManualClock
from crowdfl.roles.records import EndedBy, RoundState, TaskState
from crowdfl.roles.requester import Requester
from crowdfl.roles.sp.core import SpOptions, SpPorts
from crowdfl.roles.sp.end_notices import EndNotices
from crowdfl.roles.sp.platform import Sp
from crowdfl.roles.sp.results import read_result
from crowdfl.roles.sp.retention import NoParts, SpRetention
from crowdfl.roles.sp.uploads import PendingUpload
from crowdfl.settings import DAY, to_millionths
from crowdfl.simulation.disks import MemoryDisk
from crowdfl.simulation.host import Host
from crowdfl.storage.atomic import signing_key
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.memory_blobs import MemoryBlobs
from crowdfl.storage.sql import SqlStore

LOCAL = "local"
_log = logging.getLogger("flwr.crowdfl")
_RESTS = Backoff(first=1.0, longest=5.0)
REQUESTER = "requester"  # the owner's folder, below its home


def _options(tools: Tools) -> SpOptions:
    return SpOptions(tools, checker=tools.backend, min_claim_window=0.0, opens_rounds=False)


class _Disk(MemoryDisk):
    """In memory, but for what the model's owner needs after the run."""

    def __init__(self, home: Path | None) -> None:
        super().__init__()
        self._home = home

    def blobs(self, name: str) -> Blobs:  # type: ignore[override]
        return FileBlobs(self._home / name) if self._home and name == REQUESTER else super().blobs(name)


def _ending(sp: Sp, signing: SigningKey, peers: Mapping[str, EndPeer]) -> SpRetention:
    """What erases a task here once its run is over, and tells KGC and CSP."""
    ports = sp.ports
    notices = EndNotices(ports.store, ports.clock, signing, peers, _RESTS, _warn_not_told)
    return SpRetention(
        ports.store,
        ports.bundles,
        ports.clock,
        ports.blobs,
        ports.guard,
        NoParts(),
        notices=notices,
        forget=sp.aggregators.drop,
    )


def _warn_not_told(_task: str, peer: str, why: Exception) -> None:
    _log.warning("CrowdFL: %s did not hear that the run is over: %s", peer, why)


class LocalServers:
    """All three in one process, for a trial: it could read every update. `home` keeps the requester's keys."""

    is_local = True

    def __init__(self, home: Path | None) -> None:
        tools, self.clock = Tools.unwatched(), ManualClock(time.time())
        host = self._host = Host(tools, disk=_Disk(home), clock=self.clock, options=_options(tools))
        signing = SigningKey.fresh()
        kgc = host.kgc
        csp = host.csp
        key, answers = signing.public, (csp.blobs, csp.guard)
        hearing: dict[str, EndPeer] = {
            "kgc": KgcRetention(kgc.store, kgc.bundles, self.clock, sp_key=key),
            "csp": CspRetention(csp.store, csp.bundles, self.clock, *answers, sp_key=key, forget=csp.drop),
        }
        self.ending = _ending(host.sp, signing, hearing)

    @property
    def sp(self) -> Sp:
        return self._host.sp

    @property
    def kgc_key(self) -> bytes:
        return self._host.signing.public

    @property
    def requester(self) -> Requester:
        return self._host.requester

    def enrol(self, task: str, invitation: str, request: str) -> bytes:
        return self._host.kgc.enrol(task, invitation, request)


@dataclass(frozen=True)
class ServiceServers:
    """KGC and CSP as services. SP's settings file, as `crowdfl init` and the exchange of docs/organisations.md make it,
    says where they are and holds the tokens; `crowdfl sp serve` does not run: this process is SP."""

    is_local = False
    sp: Sp
    kgc_key: bytes
    clock: ManualClock  # SP's own: a round ends when its replies are in, not when time has passed
    enrol: Callable[[str, str, str], bytes]
    ending: SpRetention

    @classmethod
    def open(cls, path: Path) -> "ServiceServers":
        from crowdfl.services.client.peer_link import PeerLink
        from crowdfl.services.client.peers import CspClient, KgcClient
        from crowdfl.services.run import peer_access
        from crowdfl.settings import SpSettings
        from crowdfl.storage.settings_file import read_service

        found, clock = read_service(SpSettings, path), ManualClock(time.time())
        access = peer_access(found, found.kgc, "KGC")
        kgc, csp = PeerLink(access), PeerLink(peer_access(found, found.csp, "CSP"))
        store = SqlStore.in_memory()
        own = MemoryBlobs(), MemoryBlobs(), Guard(MemoryBlobs(), store, "sp")
        hearing = KgcClient(kgc.service), CspClient(csp.service)
        sp = Sp(SpPorts(store, clock, *own, *hearing, found.kgc_key), _options(Tools.unwatched()))
        anyone = KgcClient(access.link.open())  # an enrolment needs no token
        ending = _ending(sp, signing_key(found.data / "signing.key"), dict(zip(("kgc", "csp"), hearing, strict=True)))
        return cls(sp, found.kgc_key, clock, anyone.enrol, ending)


def open_servers(csp: str | Path, home: Path | None) -> LocalServers | ServiceServers:
    if csp == LOCAL:
        return LocalServers(home)
    if not Path(csp).is_file():
        raise SettingsError(
            f'csp={str(csp)!r}: expected "{LOCAL}", or the settings file of SP, which names CSP and KGC'
        )
    return ServiceServers.open(Path(csp))


_CSP_PATIENCE = 300.0  # seconds that a CSP may be away while a round waits for it
_REST = 2.0
_END_PATIENCE = 30.0  # seconds in which KGC and CSP are to hear that the run is over
_MOST_JUMPS = 10  # of SP's own clock, until its books are closed
_MOST_STARTS = 3  # or one node could use up everyone's invitations


@dataclass
class Client:
    """A node of Flower's, as this run knows it."""

    invitation: str = field(default="", repr=False)
    sealed: bytes = field(default=b"", repr=False)  # KGC's answer, until the client shows its certificate
    who: str = ""  # its name at SP, once KGC was asked
    enrolled: bool = False
    last: int = -1  # the last round that it has read; -1: it has not even the initial weights
    starts: int = 1  # how often it was a newcomer


@dataclass(frozen=True)
class RoundOutcome:
    """`number` is the task's own; None if too few uploads came for one."""

    number: int | None
    averaged: tuple[int, ...]  # nodes
    left_out: Mapping[int, str]  # nodes, and why
    uploaded: tuple[int, ...] = ()  # nodes whose upload was taken


class Federation:
    """A task of one run. `owner`: the keys of the task's owner, where averages are to be opened in this process, or where it
    trains a reference."""

    def __init__(
        self,
        servers: LocalServers | ServiceServers,
        prepared: PreparedTask,
        owner: Blobs | None,
        reference: Train | None = None,
    ) -> None:
        self.servers = servers
        self.sp = servers.sp
        self._prepared = prepared
        self._owner = owner
        self._reference = reference
        self.task = self.sp.tasks.create(prepared.definition, prepared.appointment, prepared.initial)
        definition = self.sp.core.definition(self.task)
        self.settings, self.shape = definition.settings, definition.shape
        self.clients: dict[int, Client] = {}
        self.costs: list[RoundPrivacy] = []  # of a task with noise, by round of Flower's
        self._invitations = iter(prepared.invitations)
        self._csp_patience, self._end_patience, self._sleep = _CSP_PATIENCE, _END_PATIENCE, time.sleep

    @property
    def budget(self) -> int:
        """Millionths, of each round."""
        return to_millionths(self.settings.budget or 0)

    @property
    def next_number(self) -> int:
        rounds = self.sp.store.rounds(self.task)
        return rounds[-1].number + 1 if rounds else 1

    # Newcomers.

    def is_new(self, node: int) -> bool:
        """Whether KGC must be asked through this server, before the node can do anything."""
        client = self.clients.setdefault(node, Client())
        return not client.enrolled and not client.sealed

    def introduction(self, node: int) -> Instruction:
        client = self.clients[node]
        if not client.invitation and client.starts <= _MOST_STARTS:
            client.invitation = next(self._invitations, "")  # none left: the node must bring its own
        return self._instruction(ENROL, client)

    def take_request(self, node: int, answer: ClientAnswer) -> None:
        """A newcomer's request to enrol goes to KGC; whose it is, is known from here on."""
        client = self.clients[node]
        if answer.certificate:  # it has asked KGC itself
            self._enrol(node, client, answer.certificate)
            return
        if not client.invitation:
            raise InvitationRefused("there is no invitation left for this node: the task's owner must give it one")
        ticket = Ticket.parse(client.invitation)
        who = EnrolmentRequest.open_under(answer.request, ticket.opened).identity.who
        self._require_own(node, who)
        client.sealed = self.servers.enrol(self.task, ticket.invitation, answer.request)
        client.who = who

    def _require_own(self, node: int, who: str) -> None:
        """One node cannot come as another."""
        if any(other.who == who for number, other in self.clients.items() if number != node):
            raise InvitationRefused("this node shows the keys of another node of the run")

    def _enrol(self, node: int, client: Client, certificate: str) -> None:
        if client.enrolled:
            return
        who = admitted(certificate, self.servers.kgc_key, self.sp.core.definition(self.task)).identity.who
        if client.who not in ("", who):
            raise InvitationRefused("this node shows the certificate of another node of the run")
        self._require_own(node, who)
        self.sp.people.enrol(self.task, certificate)
        client.who, client.enrolled, client.sealed = who, True, b""

    def forget(self, node: int) -> None:
        """A node that has lost its keys is a newcomer again. An invitation that KGC has not seen serves once more."""
        client = self.clients[node]
        used = client.enrolled or bool(client.sealed)
        self.clients[node] = Client("" if used else client.invitation, starts=client.starts + used)

    def refuses(self, node: int) -> None:
        """A node that says no before it was ever in may have other keys than KGC's answer was sealed to."""
        if not self.clients[node].enrolled:
            self.forget(node)

    # What a client is sent.

    def instruction(self, node: int, *, training: bool) -> Instruction:
        return self._instruction(WORK, self.clients[node], number=self.next_number if training else 0)

    def reminder(self, node: int) -> Instruction:
        """After the last round: a client's reward, and the average that it came with."""
        return self._instruction(READ, self.clients[node])

    def _instruction(self, step: str, client: Client, **more: object) -> Instruction:
        new = not client.enrolled
        papers = (self._prepared.definition, self._prepared.appointment, client.invitation) if new else ("", "", "")
        unread = [(r.number, str(r.state)) for r in self.sp.store.rounds(self.task) if r.number > client.last]
        done = [number for number, state in unread if state == RoundState.REWARDED and step != ENROL]
        envelopes, ends = self._envelopes(client, done), self._ends(client)
        return Instruction(
            step,
            self.task,
            self.servers.is_local,
            self.servers.kgc_key,
            *papers,
            sealed=client.sealed,
            initial=self._prepared.initial if step != ENROL and client.last < 0 else b"",
            states=states_text(unread),
            numbers=done,
            publications=[self.publication(number) for number in done],
            rewarded=list(envelopes),
            envelopes=list(envelopes.values()),
            ended=list(ends),
            ends=list(ends.values()),
            **more,  # type: ignore[arg-type]
        )

    def _envelopes(self, client: Client, numbers: Iterable[int]) -> dict[int, bytes]:
        """A client's rewards; it alone can open them."""
        if not self.budget or not client.enrolled:
            return {}
        found = {}
        for number in numbers:
            took_part = self.sp.store.upload(self.task, number, client.who) is not None
            if took_part and client.who not in self.sp.rejected(self.task, number):
                found[number] = self.sp.envelope(self.task, number, client.who)
        return found

    def _ends(self, client: Client) -> dict[int, bytes]:
        """CSP's signed words about rounds that were given up: without them no client sends anything more."""
        unread = [r for r in self.sp.store.rounds(self.task) if r.number > client.last and r.word is not None]
        return {r.number: read_result(self.sp.blobs, self.task, r, "word") for r in unread}

    def publication(self, number: int) -> bytes:
        return self.sp.publication(self.task, number, None)

    # Rounds.

    def note(self, node: int, answer: ClientAnswer) -> None:
        """Whatever a client has answered: who it is, and how far it has read."""
        if answer.task != self.task:
            raise InvitationRefused("this node answers for another task")
        client = self.clients[node]
        self._enrol(node, client, answer.certificate)
        client.last = min(max(answer.last, 0), self.next_number - 1)

    def play(self, uploads: Mapping[int, bytes], left_out: Mapping[int, str]) -> RoundOutcome:
        """One round from what came: check, average and reward with CSP. Uploads that do not pass are left out, by name."""
        self._hear_end()  # if CSP was away: clients wait for it
        left, fewest = dict(left_out), self.settings.min_participants
        if len(uploads) < fewest:
            return RoundOutcome(None, (), left)
        if self.budget:
            name = f"round {self.next_number}"
            self.sp.deposits.announce(self.task, name, self.budget)
            self.sp.deposits.confirm(self.task, name, self.budget, self.settings.currency)
        number = self.sp.steps.open(self.task, self.budget)
        if self._reference is not None and self._owner is not None:
            own = self.published().reader(self._owner).reference(self.task, number, self._reference)
            self.sp.uploads.reference(self.task, number, own)
        refused = self._receive(number, uploads)
        left |= refused
        taken = tuple(node for node in uploads if node not in refused)
        self._run(number)
        self._hear_end()
        self.sp.blobs.clear(f"{self.task}/rounds/{number}/uploads")  # nothing of a round that is over needs them
        left |= self._rejected(
            number
        )  # of a round that was given up too: its operator wants to know whose fault it was
        if self.sp.store.round(self.task, number).state is RoundState.ABORTED:
            return RoundOutcome(number, (), left, taken)
        return RoundOutcome(number, tuple(node for node in uploads if node not in left), left, taken)

    def _hear_end(self) -> None:
        """Of a round that was given up: clients are sent it with the next instruction."""
        with contextlib.suppress(ServiceError):
            self.sp.steps.hear_end(self.task)

    def _receive(self, number: int, uploads: Mapping[int, bytes]) -> dict[int, str]:
        arrivals = [PendingUpload.of(self.clients[node].who, upload) for node, upload in uploads.items()]
        outcomes = zip(uploads, self.sp.uploads.receive(self.task, number, arrivals), strict=True)
        return {node: in_words(one) for node, one in outcomes if isinstance(one, CrowdFLError)}

    def _rejected(self, number: int) -> dict[int, str]:
        nodes = {client.who: node for node, client in self.clients.items()}
        return {nodes[who]: why.words for who, why in self.sp.rejected(self.task, number).items() if who in nodes}

    def _run(self, number: int) -> None:
        """To the round's end. A CSP that is away is waited for; then the run ends with what CSP's client says."""
        store, deadline = self.sp.store, time.monotonic() + self._csp_patience
        while not (current := store.round(self.task, number)).is_over:
            self.servers.clock.time = max(self.servers.clock.time, current.last_call(self.settings))
            try:
                if self.sp.tick():
                    continue
                away: ServiceError = ServiceError(f"round {number} does not move: ask whoever runs CSP")
            except ServiceError as wrong:
                away = wrong
            if time.monotonic() > deadline:
                raise away
            _log.warning("CrowdFL: CSP does not answer; round %s waits for it", number)
            self._sleep(_REST)

    def end(self) -> None:
        """The run is over: SP's books are closed and its keys erased, and so are KGC's and CSP's once they have heard it.

        Nothing is paid here, so that nobody's claim is waited for."""
        self.sp.steps.end_with_csp(self.task, "the run is over", EndedBy.SP)
        for _ in range(_MOST_JUMPS):
            with contextlib.suppress(
                CrowdFLError, ConnectionError
            ):  # what CSP was to answer for readers: they have theirs
                while self.sp.tick():
                    pass
            stored = self.sp.store.task(self.task)
            if stored.state == TaskState.SETTLED:
                break
            self.servers.clock.time = max(self.servers.clock.time + DAY, stored.attests_until)
        deadline = time.monotonic() + self._end_patience
        while self._has_not_heard():
            self.servers.ending.tick()
            if not self._has_not_heard() or time.monotonic() > deadline:
                break
            self._sleep(_REST)
        for name in self._has_not_heard():
            _log.warning(
                "CrowdFL: %s was not told that task %s is over: it keeps its keys until the task's last day, or its operator "
                "cancels it",
                name.upper(),
                self.task,
            )

    def _has_not_heard(self) -> list[str]:
        notices = self.servers.ending.notices
        return [] if notices is None else self.sp.store.task(self.task).unnotified(notices.peers)

    def read(self, number: int) -> Average | None:
        """What a round gave, and the model that it led to, where the owner has lent its keys."""
        if self._owner is None:
            return None
        return self.published().reader(self._owner).read(self.task, number)

    def cost(self, outcome: RoundOutcome, made: Iterable[int], average: Average | None) -> RoundPrivacy | None:
        """Of a round's outcome: `made` are the nodes that sent an upload. None in a task without noise."""
        settings, people = self.settings, len(outcome.averaged)
        if settings.epsilon is None:
            return None
        noise = AverageNoise.of(settings, self.shape.parameters, people, None) if people else None
        noise = noise if average is None else average.noise
        taken = map(str, outcome.uploaded if people else ())
        cost = RoundPrivacy.of(settings, self.costs, charged=map(str, made), spent_by=taken, noise=noise)
        self.costs.append(cost)
        return cost

    def published(self) -> PublishedRounds:
        rounds = [(r.number, str(r.state)) for r in self.sp.store.rounds(self.task)]
        done = [number for number, state in rounds if state == RoundState.REWARDED]
        return PublishedRounds(self.task, rounds, {number: self.publication(number) for number in done})

    def write(self, home: Path) -> Path:
        """The sealed averages, for the owner of the model."""
        self.published().write(home / "published")
        return home / "published"


def in_words(wrong: Exception) -> str:
    return f"{type(wrong).__name__}: {wrong}"
