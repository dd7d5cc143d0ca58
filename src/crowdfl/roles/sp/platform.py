"""SP: one object per process, made of its concerns. `tick` moves every task one step on, if there is one to take.

Payments are made beside that, by `payments.run_one`.
"""

import json
from typing import Any

from crowdfl.errors import Cancelled, NotReady, UnknownParticipant
from crowdfl.roles.ports import Blobs, Clock, SpStore, StoredParticipant
from crowdfl.roles.sp.aggregators import RoundAggregators
from crowdfl.roles.sp.core import SpCore, SpOptions, SpPorts
from crowdfl.roles.sp.deposits import Deposits
from crowdfl.roles.sp.payments import Payments
from crowdfl.roles.sp.rounds import RoundState, TaskState
from crowdfl.roles.sp.settlement import Claims, Settlement
from crowdfl.roles.sp.steps import RoundSteps, publication_name, rewards_name
from crowdfl.roles.sp.tasks import Tasks
from crowdfl.roles.sp.uploads import Uploads


class Sp:
    """One sensing platform. Several processes may share one store: work is leased."""

    def __init__(self, ports: SpPorts, options: SpOptions | None = None) -> None:
        self.ports, self.options = ports, options or SpOptions()
        core = self._core = SpCore(ports, self.options)
        aggregators = self.aggregators = RoundAggregators(core)
        self.steps = RoundSteps(core, aggregators)
        self.uploads = Uploads(core, aggregators)
        self.claims = Claims(core, aggregators)
        self.settlement = Settlement(core, aggregators, self.steps)
        self.payments = Payments(ports, self.options)
        tasks, deposits = Tasks(core, self.steps.abort), Deposits(ports)
        # What others call, by the concern that does it.
        self.create_task, self.order = tasks.create, tasks.order
        self.deposit = deposits.announce
        self.confirm_deposit, self.reject_deposit = deposits.confirm, deposits.reject  # the operator's alone
        self.enrol, self.leave = tasks.enrol, tasks.leave
        self.statement, self.status, self.deposits = tasks.statement, tasks.status, tasks.deposits
        self.upload, self.receive_all, self.upload_limit = self.uploads.one, self.uploads.receive, self.uploads.limit
        self.claim = self.claims.pay
        self.definition, self.ledger = core.definition, core.ledger

    @property
    def store(self) -> SpStore:
        return self.ports.store

    @property
    def blobs(self) -> Blobs:
        return self.ports.blobs

    @property
    def clock(self) -> Clock:
        return self.ports.clock

    def participant(self, task: str, who: str) -> StoredParticipant:
        return self.store.participant(task, who)

    def publication(self, task: str, number: int, who: str | None) -> bytes:
        """A round's average, for a participant; `who` None is the requester, who gets the last one."""
        if who is not None:
            self.participant(task, who)
        self._require_rewarded(task, number)
        return self.blobs.get(publication_name(task, number, final=who is None))

    def envelope(self, task: str, number: int, who: str) -> bytes:
        """A participant's reward of a round, for that participant alone."""
        self.participant(task, who)
        self._require_rewarded(task, number)
        if self.store.upload(task, number, who) is None:
            raise UnknownParticipant(f"{who} was not averaged in round {number}: there is no reward")
        envelopes: dict[str, Any] = json.loads(self.blobs.get(rewards_name(task, number)))
        return bytes.fromhex(envelopes[who])

    def _require_rewarded(self, task: str, number: int) -> None:
        """What a round made is shown when all of it is there, and not at all if the round was given up."""
        state = self.store.round(task, number).state
        if state is not RoundState.REWARDED:
            raise NotReady(f"round {number} is {state}: nothing of it can be read")

    def tick(self) -> bool:
        """One step of every task that has one to take and that nobody else works on; True if any was taken."""
        moved = False
        trouble: Exception | None = None
        failures, options = self.options.failures, self.options
        for stored in self.store.tasks():
            if stored.state in (TaskState.PAUSED, TaskState.SETTLED) or failures.is_backing_off(stored.task):
                continue
            if self.store.lease(stored.task, options.owner, self.clock.now(), options.lease_seconds):
                try:
                    moved |= self._step(stored.task)
                    failures.record_success(stored.task)
                except Cancelled:  # this process is being stopped
                    raise
                except Exception as failure:  # noqa: BLE001 -- whatever it is, it does not keep the other tasks waiting
                    trouble = trouble or failures.record_failure(stored.task, failure)
                finally:
                    self.store.release(stored.task, options.owner)
        if trouble is not None and not moved:  # while others move, the caller comes back at once
            raise trouble
        return moved

    def _step(self, task: str) -> bool:
        if self.steps.step(task):
            return True
        stored, last = self.store.task(task), self._core.last_round(task)
        if last is not None and not last.is_over:
            return False
        if stored.state == TaskState.RUNNING:
            done = last is not None and last.number >= self.definition(task).settings.rounds
            return self.settlement.finish(task, last) if done else self.steps.open_next(task)
        if stored.state in (TaskState.FINISHED, TaskState.CANCELLED):
            return self.settlement.settle(task, stored)
        return False
