"""A task with all its parties in one process, round by round, with updates that the caller brings. Start reading here.

fed = LocalFederation(max_participants=36, max_samples=100)
result = fed.round({"p1": Update(weights=[w1, b1], samples=49), ...}, budget="36.00")
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from crowdfl.crypto.compute import Backend, Progress, default_backend
from crowdfl.documents.signed import Definition
from crowdfl.errors import (
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
from crowdfl.protocols.party import Costs, View
from crowdfl.protocols.profile import Audience, Tools
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import RoundState
from crowdfl.roles.sp.core import SpOptions
from crowdfl.settings import TaskSettings, from_millionths, to_millionths
from crowdfl.simulation.host import FOREVER, Host
from crowdfl.simulation.recorder import Recorder, costs_by_role


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
        self.recorder = Recorder()
        backend = backend or default_backend()
        watcher = Progress(progress) if progress else None
        tools = Tools(backend, watcher, insecure_test_key, constant_time, self.recorder)
        self.host = Host(tools, options=SpOptions(tools, checker=backend, min_claim_window=0.0, opens_rounds=False))
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
        task = self._posted()
        number = self.round_number + 1
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
        weights, model = map(self.host.sp.core.definition(task).shape.arrays, (average.weights, average.model))
        seen = self.costs(), self.views(), clipped, rejected
        return RoundResult(weights, average.total, rewards, *seen, model, average.state)

    def _rejected(self, task: str, number: int, people: Sequence[str]) -> dict[str, str]:
        reasons = self.host.sp.rejected(task, number)
        names = {who: self.host.people[who].keys.who for who in people}
        return {who: reasons[name].words for who, name in names.items() if name in reasons}

    def _is_requesters(self, final: bool) -> bool:
        """Where the requester reads every round, nobody else reads the last, whatever the caller says."""
        is_last = self.round_number == self.settings.rounds
        return final or (is_last and Audience.REQUESTER in profile_named(self.settings.profile).audience(final=False))

    def claim(self, who: str) -> Decimal:
        """A participant claims all it has earned; CSP attests, SP pays. Claims end the task: no round follows."""
        if self.task is None or who not in self.host.people:
            raise UnknownParticipant(f"nobody called {who} took part")
        if self.host.sp.tasks.status(self.task)["state"] == "running":
            self.host.requester.order(self.task, "cancel")
        return from_millionths(self.host.people[who].claim())

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
            shape = self._shape or ModelShape((), ())
            words = "a task in one process"
            definition = Definition(words, words, words, shape, self.settings, int(FOREVER), {})
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
            first = not sp.store.rounds(task)
            self.host.requester.fund(task, payment + (sp.core.definition(task).settings.bonus_budget if first else 0))
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
