"""The sides of a profile, paired in memory: protocol code alone, without roles, stores or a clock.

Whoever measures, attacks or tests a protocol plays it here, and nothing else pairs sides; the roles play in `simulation.host`.
What is watched, lost or altered comes from outside: an `Observer` among the tools, a way to ask CSP, CSP's records, a profile
whose sides deviate. Inside `simulation.replayed.seeded` one seed is one run.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from crowdfl.protocols.capabilities import CarriesOver, DealsFiles, FollowsModel, TakesDealt, TakesReference
from crowdfl.protocols.common.keyed import keyed_party
from crowdfl.protocols.exchange import Ask, ask_directly
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
from crowdfl.protocols.records import AnsweringSide, MemoryRecords
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.round import AggregationRound

_FILES_KEPT = 4  # of two cohorts
_Flat = npt.NDArray[np.float64]
_Server = TypeVar("_Server", bound=SpProtocol | CspProtocol)
_Reader = TypeVar("_Reader", bound=ReaderProtocol)


def told(server: _Server, people: Iterable[Identity], dealt: Callable[[int], Any]) -> _Server:
    """A server with whom it knows, and where it finds what KGC dealt for a round."""
    if isinstance(server, TakesDealt):
        server.set_dealt_loader(dealt)
    for identity in people:
        server.enrol(identity)
    return server


def following(reader: _Reader, initial: _Flat) -> _Reader:
    """A reader who has read nothing yet."""
    if isinstance(reader, FollowsModel):
        reader.resume(None, initial)
    return reader


class BesideRecords:
    """CSP's side with its records, asked by a call. The rest is the side's own."""

    def __init__(self, side: AnsweringSide, records: MemoryRecords | None = None) -> None:
        self.side, self.records = side, records or MemoryRecords()

    def answer(self, request: bytes) -> bytes:
        return self.records.answer(self.side, request)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.side, name)


def dealt_by(profile: Profile, spec: TaskSpec, *, insecure_test_key: bool) -> Dealing:
    """As KGC does, for whoever keeps it and plays on with the same keys."""
    return profile.deal(spec, insecure_test_key=insecure_test_key)


class Sides:
    """All sides of one task, each from its own bundle. Models start from zero unless initial weights are given.

    KGC deals unless a `dealing` that was kept is given.
    """

    def __init__(
        self,
        spec: TaskSpec,
        tools: Tools,
        profile: Profile | None = None,
        initial: _Flat | None = None,
        people: Iterable[str] = (),
        dealing: Dealing | None = None,
    ) -> None:
        self.spec, self.tools, self.observer = spec, tools, tools.observer
        self.initial = np.zeros(spec.parameters) if initial is None else initial
        self.profile = profile or profile_named(spec.settings.profile)
        self.dealing = dealing or dealt_by(self.profile, spec, insecure_test_key=tools.insecure_test_key)
        self._files: dict[tuple[str, int], bytes] = {}  # that were dealt, by role and number
        self.keys: dict[str, ParticipantKeys] = {}
        self.people: dict[str, ParticipantProtocol] = {}
        self.left: bytes | None = None  # by the last round that was published
        self._servers: list[SpProtocol | CspProtocol] = []
        self.sp = self.fresh_sp()
        self.csp = self.fresh_csp()
        self.requester = self.fresh_requester()
        for who in people:
            self.participant(who)

    # Sides: each call makes another one.

    def fresh_sp(self, tools: Tools | None = None) -> SpProtocol:
        return self._knowing("sp", self.profile.sp(self.spec, self.dealing.sp, tools or self.tools))

    def fresh_csp(self, records: MemoryRecords | None = None, tools: Tools | None = None) -> BesideRecords:
        side = self.profile.csp(self.spec, self.dealing.csp, tools or self.tools)
        return BesideRecords(self._knowing("csp", side), records)

    def fresh_requester(self) -> ReaderProtocol:
        return following(self.profile.requester(self.spec, self.dealing.requester, self.tools), self.initial)

    def fresh_person(self, who: str) -> ParticipantProtocol:
        keys = self.enrol(who)
        side = self.profile.participant(self.spec, self.dealing.participant, keys, self.tools)
        return following(side, self.initial)

    def enrol(self, who: str) -> ParticipantKeys:
        """Somebody's keys; the servers know them."""
        if who not in self.keys:
            self.keys[who] = ParticipantKeys.fresh(who)
            for server in self._servers:
                server.enrol(self.keys[who].identity)
        return self.keys[who]

    def participant(self, who: str) -> ParticipantProtocol:
        if who not in self.people:
            self.people[who] = self.fresh_person(who)
        return self.people[who]

    def _knowing(self, role: str, server: _Server) -> _Server:
        told(server, (keys.identity for keys in self.keys.values()), partial(self.dealt, role))
        self._servers.append(server)
        return server

    @cached_property
    def task(self) -> KeyedTask:
        """Of a profile with a key."""
        tools = Tools.unwatched(insecure_test_key=self.tools.insecure_test_key)
        return self.spec.task(keyed_party(self.profile.requester(self.spec, self.dealing.requester, tools)).public)

    def dealt(self, role: str, number: int) -> bytes:
        """A role's file of one cohort of one round; nothing of a profile that deals none.

        To make one takes longer than to use it, so that the last few are kept.
        """
        if not isinstance(self.profile, DealsFiles):
            return b""
        if (role, number) not in self._files:
            self._files[role, number] = b"".join(self.profile.dealt(self.spec, self.dealing.source, role, number))
            for old in list(self._files)[:-_FILES_KEPT]:
                del self._files[old]
        return self._files[role, number]

    # What servers do in a round.

    def open(self, number: int, sp: SpProtocol | None = None, ask: Ask | None = None) -> AggregationRound:
        """With nothing in it; of another process of SP if one is given."""
        side = sp or self.sp
        side.open_round(number)
        if isinstance(side, CarriesOver):
            side.load_previous(self.left)
        return self.current(side, ask)

    def current(self, sp: SpProtocol | None = None, ask: Ask | None = None) -> AggregationRound:
        """The round that SP has open; CSP is a call away unless there is another way to ask it."""
        return AggregationRound(sp or self.sp, ask or ask_directly(self.csp.answer, self.observer), self.observer)

    def finish(
        self, round_: AggregationRound, payment: int | None, *, final: bool = False, reference: bytes | None = None
    ) -> tuple[bytes, dict[str, bytes]]:
        """The publication, and the envelopes if there is a payment, each when the profile computes it."""
        publication, envelopes = b"", dict[str, bytes]()
        if reference is not None and isinstance(round_.sp, TakesReference):
            with self.observer.working("SP"):
                round_.sp.take_reference(reference)
        for stage in round_.sp.stages:
            if stage == "average":
                publication = self.publish(round_, final=final)
            elif payment is not None:
                envelopes |= round_.reward(payment)
        return publication, envelopes

    def publish(self, round_: AggregationRound, *, final: bool = False) -> bytes:
        """The round's average, and what the next round needs of this one."""
        publication = round_.average(final=final)
        self.left = round_.carry_over()
        return publication


@dataclass(frozen=True)
class PlayedRound:
    """A round with everything that went between the parties."""

    uploads: dict[str, bytes] = field(repr=False)
    publication: bytes = field(repr=False)
    average: Average
    envelopes: Mapping[str, bytes] = field(repr=False)
    rewards: dict[str, int]  # millionths; empty without a payment


class Parties(Sides):
    """Whole rounds: people train elsewhere, upload, read and open; each stretch of work is watched."""

    def encrypt(self, updates: Mapping[str, tuple[_Flat, int]], number: int = 1) -> dict[str, bytes]:
        self.observer.begin("encrypt")
        uploads = {}
        for who, (weights, samples) in updates.items():
            person = self.participant(who)
            with self.observer.working("participant"):
                uploads[who] = person.encrypt_update(weights, samples, number)
            self.observer.message("participant", "SP", uploads[who])
        return uploads

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
        publication, envelopes = self.finish(round_, payment, final=final, reference=reference)
        average = self.read(publication, number, list(uploads)[:readers], final=final)
        return PlayedRound(dict(uploads), publication, average, envelopes, self.open_rewards(envelopes, number))

    def read(self, publication: bytes, number: int, readers: Iterable[str], *, final: bool = False) -> Average:
        """What the requester, or each of these, reads: the same for all."""
        self.observer.begin("read")
        average: Average | None = None
        role = "requester" if final else "participant"
        for reader in [self.requester] if final else [self.people[who] for who in readers]:
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
