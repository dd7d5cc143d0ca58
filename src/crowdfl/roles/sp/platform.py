"""SP: one object per process, made of its concerns. `tick` moves every task one step on, if there is one to take.

Payments are made beside that, by `payments.run_one`.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from crowdfl.errors import Cancelled, NotReady, UnknownParticipant, UploadRejected
from crowdfl.protocols.capabilities import PaysBonus
from crowdfl.protocols.claims import BONUS
from crowdfl.reasons import Reason
from crowdfl.roles.ports import Blobs, Clock, SpStore
from crowdfl.roles.records import Round, RoundState, StoredTask, TaskState, UploadContext
from crowdfl.roles.sp.aggregators import RoundAggregators
from crowdfl.roles.sp.claims import Claims
from crowdfl.roles.sp.closing import Closing
from crowdfl.roles.sp.core import SpCore, SpOptions, SpPorts
from crowdfl.roles.sp.deposits import Deposits
from crowdfl.roles.sp.extension import Extension
from crowdfl.roles.sp.payments import Payments
from crowdfl.roles.sp.people import People
from crowdfl.roles.sp.recruiting import Recruiting
from crowdfl.roles.sp.reminders import Reminders
from crowdfl.roles.sp.results import open_result, publication_kind, read_result, rejected_in
from crowdfl.roles.sp.rounds import RoundSteps, find_envelope
from crowdfl.roles.sp.settlement import Settlement
from crowdfl.roles.sp.tasks import Tasks
from crowdfl.roles.sp.uploads import Uploads

_LOOKS = 3  # of a task's last worker, before another takes it over


class Sp:
    """One sensing platform. Several processes may share one store: work is leased."""

    def __init__(self, ports: SpPorts, options: SpOptions | None = None) -> None:
        self.ports = ports
        self.options = options or SpOptions()
        self.core = SpCore(ports, self.options)
        aggregators = self.aggregators = RoundAggregators(self.core)
        closing = Closing(self.core)
        extension = Extension(self.core)
        self.steps = RoundSteps(self.core, aggregators)
        self.tasks = Tasks(self.core, self.steps.abort, closing)
        self.deposits = Deposits(self.core.sure_books)  # to confirm and reject them is the operator's alone
        self.people = People(self.core, self.aggregators, self.steps.end_with_csp)
        self.recruiting = Recruiting(self.core, self.tasks.status)
        self.uploads = Uploads(self.core, aggregators)
        self.claims = Claims(self.core, aggregators)
        self.payments = Payments(ports, self.options)
        self.reminders = Reminders(self.core)
        self.settlement = Settlement(self.core, aggregators, self.steps, closing, extension)
        self._chores = (
            _Chore(" places", self.recruiting.due, self.recruiting.step),  # first: before the next round opens
            _Chore("", self._due, self._step),
            _Chore(" closing", closing.due, closing.step),
            _Chore(" end", self.steps.end_due, self.steps.hear_last_end),
            _Chore(" claims", extension.due, extension.step),
            _Chore(" opened", self.steps.opened_due, self.steps.tell_opened),
            _Chore(" unclaimed", self.claims.unclaimed_due, self.claims.pay_unclaimed),
        )
        self._under_way: dict[str, Future[bool]] = {}  # by task
        self._due_since: dict[str, float] = {}  # by task and chore
        self._trouble: list[Exception] = []  # to be raised once every task had its turn

    @property
    def store(self) -> SpStore:
        return self.ports.store

    @property
    def blobs(self) -> Blobs:
        return self.ports.blobs

    @property
    def clock(self) -> Clock:
        return self.ports.clock

    def attested(self, task: str) -> str:
        """CSP's signed sum of all claims, for the requester; kept once CSP has said it."""
        stored = self.store.task(task)
        if stored.attested is not None:
            return stored.attested
        document = self.ports.csp.attested(task)
        self.store.change_task(task, attested=document)
        return document

    def publication(self, task: str, number: int, who: str | None) -> bytes:
        """A round's average, for a participant; `who` None is the requester, who gets the last one, or all of them."""
        with self.open_publication(task, number, who) as file:
            return file.read()

    def open_publication(self, task: str, number: int, who: str | None) -> BinaryIO:
        """The same, to be read piece by piece."""
        # In `paper` people read an average before it is rewarded; a requester who had the last model could let the reward fail.
        states = (RoundState.REWARDED,) if who is None else (RoundState.PUBLISHED, RoundState.REWARDED)
        round_, _ = self._require_done(task, number, who, states)
        kind = publication_kind(self.core.audience(task, final=who is None))
        return open_result(self.blobs, task, round_, kind)

    def end(self, task: str, number: int, who: str) -> bytes:
        """CSP's signed word about a round that was given up, for whoever has joined, left or not."""
        found = self.store.upload_context(task, number, [who])
        if who not in found.enrolled:
            raise UnknownParticipant(f"nobody called {who} is enrolled in this task")
        if found.round is None or found.round.state is not RoundState.ABORTED:
            raise NotReady(f"round {number} was not given up: there is a record of it, or will be")
        return read_result(self.blobs, task, found.round, "word")

    def envelope(self, task: str, number: int, who: str) -> bytes:
        """A participant's reward of a round, for that participant alone; of no round, CSP's word about bonuses."""
        if number == BONUS:
            return self._bonus_envelope(task, who)
        round_, found = self._require_done(task, number, who, (RoundState.REWARDED,))
        if not found.uploads:
            dropped = who in self.store.dropped_uploads(task).get(number, [])
            why = "its upload was damaged here, or withdrawn" if dropped else "no upload"
            raise UnknownParticipant(f"{who} was not averaged in round {number}, {why}: there is no reward")
        envelope = find_envelope(read_result(self.blobs, task, round_, "rewards"), who)
        if envelope is None:
            reason = self.rejected(task, number).get(who)
            words = "the platform does not say why" if reason is None else reason.words
            raise UploadRejected(f"the upload of {who} in round {number} was left out: {words}", reason or "")
        return envelope

    def _bonus_envelope(self, task: str, who: str) -> bytes:
        self.store.participant(task, who)
        word, sp = self.store.task(task).bonus, self.aggregators.checking(task)
        if word is None or not isinstance(sp, PaysBonus):
            raise NotReady("nobody knows yet who gets a bonus: ask again after the last round")
        return sp.bonus_envelope(bytes.fromhex(word))

    def rejected(self, task: str, number: int) -> dict[str, Reason]:
        """Whose uploads both servers left out of a round, and why."""
        return rejected_in(self.blobs, task, self.store.round(task, number))

    def _require_done(
        self, task: str, number: int, who: str | None, states: Collection[RoundState]
    ) -> tuple[Round, UploadContext]:
        """What a round made is shown when all of it is there, and not at all if the round was given up. Where rewards follow
        publication, its average is shown before."""
        found = self.store.upload_context(task, number, [] if who is None else [who])
        if who is not None and who not in found.enrolled:
            raise UnknownParticipant(f"nobody called {who} is enrolled in this task")
        if found.round is None:
            raise NotReady(f"round {number} has not opened yet")
        if found.round.state not in states:
            raise NotReady(f"round {number} is {found.round.state}: nothing of it can be read")
        return found.round, found

    def tick(self) -> bool:
        """One step of every task that has one to take and that nobody else works on; True if any was taken, or goes on.

        A task has one step at a time; those of several tasks wait for nobody but a place to compute (`StepRunner`). A task with
        nothing to do costs a few reads. While the clock is in doubt, nothing moves; nor does a task of a restored SP whose
        money was not compared with the bank.
        """
        if not self._can_tell_time():
            return False
        moved = False
        for stored in self.store.tasks():
            if not _can_move(stored):
                for chore in self._chores:
                    self._well(f"{stored.task}{chore.name}")
            elif stored.task not in self._under_way:
                chores = [chore for chore in self._chores if self._is_due(stored, chore)]
                if chores:
                    self._under_way[stored.task] = self.options.runner.begin(partial(self._take, stored.task, chores))
                    moved = self._ended() or moved
        if not moved and self._under_way:
            wait(self._under_way.values(), self.options.runner.patience, FIRST_COMPLETED)
        moved = self._ended() or moved
        if self.options.watch is not None and self.options.watch.is_sure():
            self.options.watch.note()
        trouble = self._trouble
        self._trouble = []
        if trouble and not moved:  # while others move, the caller comes back at once
            raise trouble[0]
        return moved or bool(self._under_way)

    def oldest_step(self) -> float:
        """For how many seconds a step has been due that nobody has ended, however often it was tried."""
        return self.clock.now() - min(list(self._due_since.values()), default=self.clock.now())

    def _ended(self) -> bool:
        """Whether a step was taken that ended since the last look."""
        ended = [task for task, future in self._under_way.items() if future.done()]
        took = [self._under_way.pop(task).result() for task in ended]
        return any(took)

    def _can_tell_time(self) -> bool:
        watch = self.options.watch
        if watch is None or watch.is_sure():
            return True
        watch.ask()
        if not watch.is_sure():
            watch.note_doubt()
            return False
        return True

    def _is_due(self, stored: StoredTask, chore: "_Chore") -> bool:
        """Whether there is something to do, by reading alone, and the task does not rest after a failure."""
        due = False
        name = f"{stored.task}{chore.name}"
        if not self.options.failures.is_backing_off(name):
            with self._guarded(name):
                due = chore.due(stored)
                if due:
                    self._due_since.setdefault(name, self.clock.now())
                else:
                    self._well(name)
        return due

    def _well(self, name: str) -> None:
        self.options.failures.record_success(name)
        self._due_since.pop(name, None)

    def _take(self, task: str, chores: "Sequence[_Chore]") -> bool:
        """Every chore's step; whether any had one to take."""
        took = False
        for chore in chores:
            with self._guarded(f"{task}{chore.name}"):
                took = self._step_of(task, chore) or took
        return took

    @contextlib.contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Whatever fails of one task does not keep the others waiting."""
        try:
            yield
        except Cancelled:  # this process is being stopped
            raise
        except Exception as failure:  # noqa: BLE001
            told = self.options.failures.record_failure(name, failure)
            self._trouble += [] if told is None else [told]

    def _step_of(self, task: str, chore: "_Chore") -> bool:
        options = self.options
        now = self.clock.now()
        took = False
        if _can_move(self.store.task(task)) and self.store.lease(task, options.owner, now, options.lease_seconds):
            try:
                with options.around_step(task):
                    took = chore.step(task)
            finally:
                # Whoever took a task's last step is the first that may take the next: it has added the round's uploads up.
                patience = options.runner.patience
                stays = patience and _can_move(self.store.task(task))
                self.store.release(task, options.owner, self.clock.now() + _LOOKS * patience if stays else None)
        self._well(f"{task}{chore.name}")
        return took

    def _due(self, stored: StoredTask) -> bool:
        """Whether `_step` has something to do, by reading alone."""
        last = self.core.last_round(stored.task)
        if last is not None and not last.is_over:
            return self.steps.due(stored.task, last)
        if stored.state == TaskState.RUNNING:
            return self._is_done(stored.task, last) or self.steps.can_open(stored, last)
        return self.settlement.due(stored.task, stored)

    def _step(self, task: str) -> bool:
        if self.steps.step(task):
            return True
        stored, last = self.store.task(task), self.core.last_round(task)
        if last is not None and not last.is_over:
            return False
        if stored.state == TaskState.RUNNING:
            done = self._is_done(task, last)
            return self.settlement.finish(task, last) if done else self.steps.open_next(task)
        if stored.state in (TaskState.FINISHED, TaskState.CANCELLED):
            return self.settlement.settle(task, stored)
        return False

    def _is_done(self, task: str, last: Round | None) -> bool:
        return last is not None and last.number >= self.core.definition(task).settings.rounds


def _can_move(stored: StoredTask) -> bool:
    return stored.state not in (TaskState.PAUSED, TaskState.SETTLED) and not stored.unreconciled


@dataclass(frozen=True)
class _Chore:
    """One kind of work for every task; what fails of it does not delay the others."""

    name: str  # after the task's, in the record of failures
    due: Callable[[StoredTask], bool]  # reads only
    step: Callable[[str], bool]
