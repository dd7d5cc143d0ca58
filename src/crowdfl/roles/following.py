"""How a requester follows a task from its definition until its money is settled.

How to wait is passed in, so that a test can follow a task without waiting.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from crowdfl.documents.signed import Definition
from crowdfl.errors import (
    Conflict,
    NotReady,
    RoundNotOpen,
    SettingsError,
    TaskEnded,
    TooLate,
    WrongBase,
)
from crowdfl.learning.models.shape import Weights
from crowdfl.roles.dealt import dealt_words
from crowdfl.roles.participant.participant import Train
from crowdfl.roles.requester import Requester
from crowdfl.roles.waiting import unannounced, waits_for
from crowdfl.settings import from_millionths

_ENDED = ("finished", "cancelled", "settled")
_OVER = ("rewarded", "aborted")
_NO_BOOKS: Mapping[str, Any] = MappingProxyType({"movements": (), "deposits": (), "pending": 0, "paid_in": 0})
_PAYMENT = "all-rounds"  # one name, so that a campaign that is run again does not pay again

Invite = Callable[[str, int], str]
"""Hand out so many invitations to a task; where they are."""
Save = Callable[[Definition, Weights], str]
"""Keep the model; where it is."""


@dataclass
class Following:
    """A requester, and how it waits and tells."""

    requester: Requester
    sleep: Callable[[float], None]
    on_event: Callable[[str, Mapping[str, Any]], None] = lambda _what, _details: None
    poll_seconds: float = 0.5
    reference: Train | None = None  # trains on the requester's own data, of a task with `reference`

    def run(
        self,
        definition: Definition,
        initial: Sequence[npt.NDArray[np.float64]],
        people: int,
        *,
        invite: Invite,
        save: Save,
    ) -> str:
        """Start the rounds once `people` have joined, and follow the task until its money is settled. The task's id."""
        most = definition.settings.max_participants
        if people > most:
            raise SettingsError(f"{people} people do not fit into a task with max_participants = {most}")
        if people < (fewest := definition.settings.min_participants):
            raise SettingsError(f"{people} people are too few for min_participants = {fewest}: no round would open")
        if definition.settings.reference and self.reference is None:
            raise SettingsError(
                "this task has `reference = true`: give data of your own to train on, `--reference DATA`"
            )
        task = self._posted(definition, initial)
        dealt = dealt_words(definition)
        created = {"task": task, "parameters": definition.spec.parameters} | ({"dealt": dealt} if dealt else {})
        self.on_event("created", created)
        self.on_event("invited", {"people": people, "folder": invite(task, people)})
        status = self.watch(task, lambda status: status["enrolled"] >= people or status["state"] in _ENDED)
        self.requester.close_enrolment(task)  # everyone is in: KGC need not keep the participants' key any longer
        if status["state"] not in _ENDED:  # it may have been cancelled while people were awaited
            self._fund(task, definition)
        self.watch(task, lambda status: status["state"] in _ENDED)
        self._fetch(task, save)
        self.watch(task, lambda status: status["state"] == "settled")
        self.on_event("report", self.requester.report(task))
        return task

    def _posted(self, definition: Definition, initial: Sequence[npt.NDArray[np.float64]]) -> str:
        """A campaign that is run again after its end has a model to fetch and a bill to report."""
        try:
            return self.requester.create(definition, initial)
        except TaskEnded:
            return self.requester.posted(definition, initial)

    def watch(self, task: str, done: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """Tell every change of the task's status until it is as wanted, or the task is settled and no longer changes.

        What the task `waits` for is told with it.
        """
        definition = self.requester.definition(task)
        seen = None
        while True:
            status = self.requester.sp.status(task)
            told = {**status, **self._waits(definition, status)}
            if (lasting := told | {"claim_seconds_left": None, "now": None}) != seen:  # time that passes is no change
                self.on_event("status", told)
                seen = lasting
            self.refer(task, status)
            if done(status) or status["state"] == "settled":
                return status
            self.sleep(self.poll_seconds)

    def refer(self, task: str, status: Mapping[str, Any]) -> None:
        """Where a round waits for its reference; one that cannot be sent any more costs that round, and is told."""
        train = self.reference
        rounds = status["rounds"]
        if train is None:
            return
        for number in [r["number"] for r in rounds if r["state"] == "open" and r.get("reference") is False]:
            try:
                self.requester.refer(task, number, train)
                self.on_event("reference", {"round": number})
            except (RoundNotOpen, TooLate, WrongBase, Conflict) as refusal:
                self.on_event("no reference", {"round": number, "why": str(refusal)})

    def _waits(self, definition: Definition, status: Mapping[str, Any]) -> dict[str, Any]:
        """The books are looked at only while a round may wait for money."""
        between = status["state"] == "running" and all(one["state"] in _OVER for one in status["rounds"])
        asked = between and definition.settings.budget is not None
        report = self.requester.report(definition.task) if asked else _NO_BOOKS
        missing = unannounced(definition, report) if asked else 0
        return {"waits": waits_for(definition, status, report)} | ({"to_fund": missing} if missing else {})

    def _fund(self, task: str, definition: Definition) -> None:
        payment = definition.plan.whole_cost(definition.settings)
        if payment:
            self.requester.fund(task, payment, _PAYMENT)
            told = {"amount": str(from_millionths(payment)), "currency": definition.settings.currency}
            self.on_event("funded", told | {"deposit": _PAYMENT})

    def _fetch(self, task: str, save: Save) -> None:
        try:
            place = save(self.requester.definition(task), self.requester.model(task))
            states = self.requester.states(task)
            self.on_event("fetched", {"model": place} | ({"states": states} if states else {}))
        except NotReady as missing:
            self.on_event("no model", {"why": str(missing)})
