"""Every role on one host, and each participant's agent in turn: a simulated task as it is on servers."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from crowdfl.crypto.compute import default_backend
from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError, RoundEnded, ServiceUnavailable, SlotOverflow
from crowdfl.learning.functions import FunctionTrainer
from crowdfl.learning.models.shape import Weights
from crowdfl.protocols.party import Costs
from crowdfl.protocols.profile import Tools
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.dealing.keys import REQUESTER
from crowdfl.protocols.shares.server_optimizers import Moments, ServerStep
from crowdfl.retry import no_jitter
from crowdfl.roles.participant.agent import Agent, Waits
from crowdfl.roles.participant.chain import KeptChain
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import Round, RoundState, taking_uploads
from crowdfl.roles.sp.core import Draw, SpOptions, draw_at_random
from crowdfl.settings import from_millionths, to_millionths
from crowdfl.simulation.disks import LeanDisk
from crowdfl.simulation.dropouts import Away
from crowdfl.simulation.engine import OnChange, OnRead
from crowdfl.simulation.host import PEOPLE, SP, Call, Deliver, Host
from crowdfl.simulation.log import SimulationLog
from crowdfl.simulation.recorder import Recorder, costs_by_role

_FOREVER = 10.0**9  # seconds
_STANDSTILLS = 200  # looks without anything happening
_WAIT = 3600.0  # seconds that pass then


@dataclass
class _Person:
    name: str
    participant: Participant
    turns: Waits[None]
    is_done: bool = False


class RolesEngine:
    """The host with its roles, and everyone's agent. `run` lasts until all of them are done."""

    def __init__(
        self,
        definition: Definition,
        initial: Any,  # noqa: ANN401 -- arrays, as the requester takes them
        trainers: Mapping[str, FunctionTrainer],
        away_in: Away,
        *,
        insecure_test_key: bool = False,
        draw: Draw = draw_at_random,
        on_change: OnChange = lambda _engine: None,
        on_read: OnRead = lambda _engine, _round: False,
        moments: Moments = (),
        reference: FunctionTrainer | None = None,
    ) -> None:
        self.settings = definition.settings
        self.trainers = trainers
        self.counters = Recorder(keep_views=False)
        self.log = SimulationLog()
        self.away = frozenset[str]()
        self._away_in = away_in
        self._reference = reference
        self._said: dict[str, Any] | None = None  # SP's status, while everyone has a turn
        self._on_change = on_change
        self._on_read = on_read  # a round but the last is over, and everyone has read it; True ends the task
        tools = Tools(default_backend(), None, insecure_test_key, False, self.counters)
        self.clock = ManualClock(1.0)
        self._is_stopped = self._has_read_last = False
        self._parameters = definition.shape.parameters
        self.rounds: list[Round] = []  # as the servers left them
        # Rounds open here: nobody trains on before `on_read` has had its say.
        options = SpOptions(tools, checker=tools.backend, min_claim_window=0.0, draw=draw, opens_rounds=False)
        self.host = Host(tools, disk=LeanDisk(), clock=self.clock, wire=self._carry, options=options)
        self.task = self.host.create(definition, initial)
        invitations = self.host.requester.invite(self.task, len(trainers), _FOREVER)
        posted = self.host.requester.definition(self.task)
        self._start = self._resumed_chain(posted, initial, moments)
        if self._start is not None:
            self._chain_of(None).start_from(self._start)
        self._people = [
            self._person(posted, name, trainer, invitation)
            for (name, trainer), invitation in zip(trainers.items(), invitations, strict=True)
        ]

    def _person(self, definition: Definition, name: str, trainer: FunctionTrainer, invitation: str) -> _Person:
        participant = self.host.new_participant(self.task, name)
        if self._start is not None:
            self._chain_of(participant).start_from(self._start)
        participant.on_event = lambda what, details: self._note(name, what, details)
        agent = Agent(participant, time.sleep, jitter=no_jitter)
        return _Person(name, participant, agent.turns(definition, trainer, invitation))

    def _carry(self, call: Call, deliver: Deliver) -> Any:  # noqa: ANN401
        """People reach SP, but not while they are away; what goes between them is counted."""
        if call.receiver != SP or not call.sender.startswith(PEOPLE):
            return deliver()
        name = call.sender.removeprefix(PEOPLE)
        if name in self.away:
            raise ServiceUnavailable(f"{name} is away in this round, as the simulation has it")
        if call.name == "status":  # as SP said it first while everyone had a turn: since then, nothing but uploads came
            self._said = deliver() if self._said is None else self._said
            return self._said
        found = deliver()
        if call.name == "send":
            self._note_upload(name, call.arguments[1], len(call.arguments[3]))
        elif call.name in ("average", "reward", "initial_weights"):
            self.log.down[1 if call.name == "initial_weights" else call.arguments[1]] += len(found)
        return found

    @staticmethod
    def _resumed_chain(posted: Definition, initial: Any, moments: Moments) -> bytes | None:  # noqa: ANN401
        """What every reader holds before the first round, of a task that goes on with a server step's memory."""
        step = ServerStep.of(posted.settings)
        if step is None or not moments:
            return None
        start = ModelChain.start(posted.task, posted.shape.flat(initial), step.unit, step)
        return replace(start, moments=tuple(moments)).to_bytes()

    def _chain_of(self, reader: Participant | None) -> KeptChain:
        """A participant's, or the requester's."""
        if reader is None:
            return KeptChain(self.host.requester.blobs, f"{self.task}/rounds", self.settings.rounds)
        return KeptChain(reader.blobs, "rounds", self.settings.rounds)

    def moments(self) -> Moments:
        step = ServerStep.of(self.settings)
        chain = self._chain_of(self._newest).get() if step is not None else None
        return ModelChain.from_bytes(chain, self._parameters, step).moments if chain is not None else ()

    def model(self) -> Weights:
        reader = self._newest
        return self.host.requester.model(self.task) if reader is None else reader.model()

    @property
    def _newest(self) -> Participant | None:
        """Who has read all that there is: the task's last average is for the requester, None, alone."""
        return None if self._has_read_last else self._people[0].participant

    def read_last(self) -> None:
        last = self.rounds[-1]
        if last.state is not RoundState.REWARDED:
            return
        average = self.host.requester.read(self.task, last.number)
        self._has_read_last = True
        arrays = self.host.requester.definition(self.task).shape.arrays(average.model)
        if average.noise is not None:
            self.log.events["noise", last.number][REQUESTER] = asdict(average.noise)
        for name, trainer in self.trainers.items():
            self._note_read(name, last.number, trainer.evaluate(arrays, last.number))

    @property
    def people(self) -> dict[str, Participant]:
        return {person.name: person.participant for person in self._people}

    def run(self) -> None:
        self._take_turns()  # everyone joins
        budget = self.settings.budget
        if budget is not None:
            self.host.requester.fund(self.task, self.settings.rounds * to_millionths(budget))
        self._open_next()
        standstills = 0
        while any(not person.is_done for person in self._people):
            before = self._state()
            self._go_on()
            self._take_turns()
            self._on_change(self)
            self._after_round()
            standstills = standstills + 1 if self._state() == before else 0
            if standstills:
                self._pass_time()
            if standstills > _STANDSTILLS:
                raise RoundEnded("the simulation stands still: nobody has anything to do, and the task does not end")

    def _open_next(self) -> None:
        last, budget = self._last_round(), self.settings.budget
        final = (last.number if last else 0) + 1 == self.settings.rounds
        number = self.host.sp.steps.open(self.task, to_millionths(budget or 0), final=final)
        if self._reference is not None:
            self.host.requester.refer(self.task, number, self._reference.train)

    def _after_round(self) -> None:
        """Between two rounds nobody is away: in the turn after a round's end, everyone has read it."""
        last = self._last_round()
        if last is None or not last.is_over or last.number == self.settings.rounds or self._is_stopped:
            return
        self._is_stopped = self._on_read(self, last)
        if self._is_stopped:
            self.host.requester.order(self.task, "cancel")  # what was earned is claimed; the rest of the money returns
        else:
            self._open_next()

    def _go_on(self) -> None:
        """The servers do what is due; then a round that is new has its dropouts, and one that is over lets them come back."""
        self.host.run()
        self._look()
        if (last := self._last_round()) is not None:
            self.log.began.setdefault(last.number, time.perf_counter())
            if last.number not in self.log.dropped:
                self.log.dropped[last.number] = self._away_in(last.number)
            if last.is_over:
                self._tidy(last.number)
        self.away = self._away_now()

    def _away_now(self) -> frozenset[str]:
        """Until the window is over; where late uploads are not taken, until the round is."""
        last = self._last_round()
        if last is None or last.state not in taking_uploads(self.settings):
            return frozenset()
        takes_late = self.settings.grace > 0 and last.is_late(self.settings, self.clock.now())
        return frozenset() if takes_late else self.log.dropped[last.number]

    def _take_turns(self) -> None:
        self._said = None
        for person in self._people:
            if not person.is_done:
                try:
                    person.is_done = next(person.turns, None) is None
                except CrowdFLError as error:
                    remedy = "; `max_samples` of `simulate` makes room" if isinstance(error, SlotOverflow) else ""
                    error.add_note(f"(from CrowdFL: {person.name}{remedy})")
                    raise

    def _pass_time(self) -> None:
        """To the end of the round's window, then to that of late uploads; without an open round, an hour."""
        self._look()
        last, now = self._last_round(), self.clock.now()
        if last is None or last.state not in taking_uploads(self.settings):
            self.clock.time = now + _WAIT
        elif now < last.deadline(self.settings):
            late = min(1.0, self.settings.grace / 2)
            self.clock.time = last.deadline(self.settings) + late
        else:
            self.clock.time = max(now, last.last_call(self.settings))

    def _state(self) -> object:
        """What changes whenever somebody has done something."""
        store = self.host.sp.store
        done = sum(person.is_done for person in self._people)
        return done, store.task(self.task).state, store.rounds(self.task), store.upload_counts(self.task)

    def _look(self) -> None:
        self.rounds = self.host.sp.store.rounds(self.task)

    def _last_round(self) -> Round | None:
        return self.rounds[-1] if self.rounds else None

    def _tidy(self, number: int) -> None:
        """A round that is over is never computed again: its uploads, the largest things there are, need not stay."""
        for person in self._people:
            person.participant.blobs.delete(f"rounds/{number}/upload")
        self.host.sp.blobs.clear(f"{self.task}/rounds/{number}/uploads")

    def sampled(self, number: int) -> tuple[str, ...]:
        """Who was drawn for a round; nobody, where everyone is in it."""
        drawn = self.host.sp.store.drawn(self.task, number)
        return tuple(name for name, person in self.people.items() if person.keys.who in drawn) if drawn else ()

    def averaged(self, number: int) -> tuple[str, ...]:
        """Whose updates are in a round's average."""
        rejected = self.host.sp.rejected(self.task, number)
        uploaded = {upload.who for upload in self.host.sp.store.uploads(self.task, number)} - set(rejected)
        return tuple(name for name, person in self.people.items() if person.keys.who in uploaded)

    def rejected(self, number: int) -> dict[str, str]:
        """Whose updates the servers left out, and why, in words."""
        left = self.host.sp.rejected(self.task, number)
        return {name: left[person.keys.who].words for name, person in self.people.items() if person.keys.who in left}

    def _note_upload(self, name: str, number: int, size: int) -> None:
        self.log.up[number] += size
        now = self.clock.now()
        if not self.rounds[number - 1].is_late(self.settings, now):
            return
        if self.host.sp.store.round(self.task, number).is_late(self.settings, now):  # else it was extended just now
            self.log.late[number].append(name)

    def _note(self, name: str, what: str, details: Mapping[str, Any]) -> None:
        if what == "claimed":
            self.log.paid[name] = from_millionths(details["millionths"])
        if what == "rewarded":
            details = {"round": details["round"], "amount": from_millionths(details["millionths"])}
        if what == "read":
            self._note_read(name, details["round"], details)
        elif "round" in details:
            metrics = {"metrics": self.trainers[name].metrics} if what == "trained" else {}
            self.log.events[what, details["round"]][name] = dict(details) | metrics
        if what in ("trained", "read"):
            self._on_change(self)

    def _note_read(self, name: str, number: int, metrics: Mapping[str, Any]) -> None:
        self.log.events["read", number][name] = dict(metrics)
        self.log.weights[number, name] = self.trainers[name].weight

    def costs(self) -> dict[str, Costs]:
        return costs_by_role(self.counters)
