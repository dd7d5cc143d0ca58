"""Every party of one task in one process, each built from its own bundle: KGC as a function call, and a whole round by it.

An observer of that: who worked how long at which stage, and what went over the wire. The parties take turns, so that stretches
of work never overlap.

CSP's side of a single division or of single products, without the order of a round: what is timed, and what is attacked.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from crowdfl.errors import NothingToAverage
from crowdfl.protocols.capabilities import CarriesOver, DealsFiles, Enrols, FollowsModel, TakesDealt, TakesReference
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.common.sdiv import (
    DivideRequest,
    GuardRequest,
    HardenedSdivCsp,
    SdivWidths,
    guard_polynomials,
    guard_tops,
)
from crowdfl.protocols.common.smul import PolynomialsCsp, PolynomialsRequest, products_in
from crowdfl.protocols.exchange import Observer, ask_directly
from crowdfl.protocols.messages import Message
from crowdfl.protocols.party import KeyedParty, View
from crowdfl.protocols.profile import (
    Average,
    CspProtocol,
    Dealing,
    Identity,
    KeyedTask,
    ParticipantKeys,
    ParticipantProtocol,
    Profile,
    ReaderProtocol,
    SpProtocol,
    TaskSpec,
    Tools,
)
from crowdfl.protocols.records import BesideRecords
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.round import AggregationRound

_Flat = npt.NDArray[np.float64]
_Server = TypeVar("_Server", SpProtocol, CspProtocol)
_Reading = TypeVar("_Reading", ReaderProtocol, ParticipantProtocol)


@dataclass(frozen=True)
class Lap:
    """One stretch of a role's work."""

    stage: str
    role: str
    seconds: float


@dataclass
class RoundRecorder(Observer):
    """Records laps and messages by role. Several rounds add up, until `reset`.

    Views and messages hold secrets of a run and grow with it: they are kept where asked for alone. `clock` may be one of
    processor time.
    """

    keep_views: bool = False
    keep_messages: bool = False
    clock: Callable[[], float] = time.perf_counter
    say: Callable[[str], None] = field(default=lambda _: None, repr=False)  # hears of each new stage
    stage: str = ""
    laps: list[Lap] = field(default_factory=list)
    messages: list[tuple[str, str, bytes]] = field(default_factory=list, repr=False)  # sender, receiver, bytes
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)  # messages, by sender and receiver

    def view(self, role: str) -> View:
        return View(keep=self.keep_views)

    def begin(self, stage: str) -> None:
        if stage != self.stage:
            self.say(f"stage of the round: {stage}")
        self.stage = stage

    @contextmanager
    def working(self, role: str) -> Iterator[None]:
        start = self.clock()
        yield
        self.laps.append(Lap(self.stage, role, self.clock() - start))

    def message(self, sender: str, receiver: str, message: bytes) -> None:
        self.sent[sender, receiver] += 1
        if self.keep_messages:
            self.messages.append((sender, receiver, message))

    def reset(self) -> None:
        """Forget laps and messages; parties keep their costs and views."""
        for record in (self.laps, self.messages, self.sent):
            record.clear()

    def seconds_of(self, role: str, *stages: str) -> float:
        return sum(lap.seconds for lap in self.laps if lap.role == role and (not stages or lap.stage in stages))


class LocalDealer:
    """KGC in this process: deals a task's bundles and builds every side from its own, by another profile if one is given.

    Models start from zero unless initial weights are given.
    """

    def __init__(
        self, spec: TaskSpec, tools: Tools, profile: Profile | None = None, initial: _Flat | None = None
    ) -> None:
        self.spec, self.tools = spec, tools
        self._initial = np.zeros(spec.parameters) if initial is None else initial
        self._profile = profile or profile_named(spec.settings.profile)
        self._dealing = self._profile.deal(spec, insecure_test_key=tools.insecure_test_key)
        self._identities: list[Identity] = []
        self._servers: list[Enrols] = []

    @property
    def dealing(self) -> Dealing:
        """What KGC dealt, for whoever attacks with a part of it."""
        return self._dealing

    @cached_property
    def task(self) -> KeyedTask:
        """Of a profile with a key."""
        tools = Tools.unwatched(insecure_test_key=self.tools.insecure_test_key)
        requester = self._profile.requester(self.spec, self._dealing.requester, tools)
        return self.spec.task(keyed_party(requester).public)

    def sp(self) -> SpProtocol:
        return self._tell("sp", self._profile.sp(self.spec, self._dealing.sp, self.tools))

    def csp(self) -> BesideRecords:
        return BesideRecords(self._tell("csp", self._profile.csp(self.spec, self._dealing.csp, self.tools)))

    def requester(self) -> ReaderProtocol:
        return self._following(self._profile.requester(self.spec, self._dealing.requester, self.tools))

    def participant(self, who: str) -> ParticipantProtocol:
        keys = ParticipantKeys.fresh(who)
        self._identities.append(keys.identity)
        for server in self._servers:
            server.enrol(keys.identity)
        return self._following(self._profile.participant(self.spec, self._dealing.participant, keys, self.tools))

    def _following(self, reader: _Reading) -> _Reading:
        if isinstance(reader, FollowsModel):
            reader.resume(None, self._initial)
        return reader

    def dealt(self, role: str, number: int) -> bytes:
        """A role's file of one round, made when it is asked for; nothing of a profile that deals none."""
        if not isinstance(self._profile, DealsFiles):
            return b""
        return b"".join(self._profile.dealt(self.spec, self._dealing.source, role, number))

    def _tell(self, role: str, server: _Server) -> _Server:
        if isinstance(server, TakesDealt):
            server.set_dealt_loader(partial(self.dealt, role))
        if isinstance(server, Enrols):
            for identity in self._identities:
                server.enrol(identity)
            self._servers.append(server)
        return server


@dataclass(frozen=True)
class PlayedRound:
    """A round with everything that went between the parties."""

    uploads: dict[str, bytes] = field(repr=False)
    publication: bytes = field(repr=False)
    average: Average
    envelopes: Mapping[str, bytes] = field(repr=False)
    rewards: dict[str, int]  # millionths; empty without a payment


class LocalParties:
    """The parties of a task: what the laboratory and the tests of the protocols play rounds with. It has no roles, no store."""

    def __init__(
        self, spec: TaskSpec, tools: Tools, profile: Profile | None = None, initial: _Flat | None = None
    ) -> None:
        self.dealer = LocalDealer(spec, tools, profile, initial)
        self.observer = tools.observer
        self.sp, self.csp, self.requester = self.dealer.sp(), self.dealer.csp(), self.dealer.requester()
        self.people: dict[str, ParticipantProtocol] = {}
        self._left: bytes | None = None  # of the last round that was published

    def participant(self, who: str) -> ParticipantProtocol:
        if who not in self.people:
            self.people[who] = self.dealer.participant(who)
        return self.people[who]

    def encrypt(self, updates: Mapping[str, tuple[npt.NDArray[np.float64], int]], number: int = 1) -> dict[str, bytes]:
        self.observer.begin("encrypt")
        uploads = {}
        for who, (weights, samples) in updates.items():
            person = self.participant(who)
            with self.observer.working("participant"):
                uploads[who] = person.encrypt_update(weights, samples, number)
            self.observer.message("participant", "SP", uploads[who])
        return uploads

    def open(self, number: int) -> AggregationRound:
        self.sp.open_round(number)
        if isinstance(self.sp, CarriesOver):
            self.sp.load_previous(self._left)
        return self.current()

    def current(self) -> AggregationRound:
        return AggregationRound(self.sp, ask_directly(self.csp.answer, self.observer), self.observer)

    def play(
        self,
        number: int,
        uploads: Mapping[str, bytes],
        *,
        payment: int | None = None,
        final: bool = False,
        readers: int | None = 1,
        reference: bytes | None = None,
    ) -> PlayedRound:
        """Collect, reward, average, let `readers` read (None: everyone; the last round: the requester), open."""
        round_ = self.open(number)
        for who, upload in uploads.items():
            round_.collect({who: upload})
        if reference is not None and isinstance(self.sp, TakesReference):
            with self.observer.working("SP"):
                self.sp.take_reference(reference)
        publication, envelopes = self.finish(round_, payment, final=final)
        average = self.read(publication, number, list(uploads)[:readers], final=final)
        return PlayedRound(dict(uploads), publication, average, envelopes, self.open_rewards(envelopes, number))

    def finish(
        self, round_: AggregationRound, payment: int | None, *, final: bool = False
    ) -> tuple[bytes, dict[str, bytes]]:
        """The publication, and the envelopes if there is a payment, each when the profile computes it."""
        publication, envelopes = b"", dict[str, bytes]()
        for stage in self.sp.stages:
            if stage == "average":
                publication = self.publish(round_, final=final)
            elif payment is not None:
                envelopes |= round_.reward(payment)
        return publication, envelopes

    def publish(self, round_: AggregationRound, *, final: bool = False) -> bytes:
        """The round's average, and what the next round needs of this one."""
        publication = round_.average(final=final)
        self._left = round_.carry_over()
        return publication

    def read(self, publication: bytes, number: int, readers: list[str], *, final: bool = False) -> Average:
        """What the requester, or each of these, reads: the same for all."""
        self.observer.begin("read")
        average: Average | None = None
        for reader in [self.requester] if final else [self.people[who] for who in readers]:
            role = "requester" if final else "participant"
            self.observer.message("SP", role, publication)
            with self.observer.working(role):
                average = reader.read(publication, number)
        if average is None:
            raise ValueError("somebody has to read the average")
        return average

    def open_rewards(self, envelopes: Mapping[str, bytes], number: int) -> dict[str, int]:
        self.observer.begin("open")
        rewards = {}
        for who, envelope in envelopes.items():
            self.observer.message("SP", "participant", envelope)
            with self.observer.working("participant"):
                rewards[who] = self.people[who].open_reward(envelope, number)
        return rewards


@dataclass
class DivisionCsp:
    """Answers guard, squares and division, as often as asked."""

    party: KeyedParty
    widths: SdivWidths
    dividends: int
    divisors: int

    def answer(self, request: bytes) -> bytes:
        limits, kind = self.party.limits(self.dividends + self.divisors), Message.kind_of(request)
        if kind == GuardRequest.kind:
            return self.party.send(self.guard(GuardRequest.from_bytes(request, limits)))
        if kind == PolynomialsRequest.kind:
            products = products_in(guard_polynomials(self.dividends + self.divisors))
            squares = PolynomialsRequest.from_bytes(request, limits)
            return self.party.send(PolynomialsCsp(self.party).answer(squares, products))
        return self.party.send(self.divide(DivideRequest.from_bytes(request, limits)))

    def guard(self, message: GuardRequest) -> Message:
        tops = guard_tops(self.widths, self.dividends, self.divisors)
        return HardenedSdivCsp(self.party).guard(message, tops)

    def divide(self, message: DivideRequest) -> Message:
        reply, fits = HardenedSdivCsp(self.party).divide(message, self.widths)
        if not fits:
            raise NothingToAverage("a divisor is not one that honest parties make")
        return reply
