"""SP: tasks, enrolment, rounds, averages, rewards, claims, and the escrow. Every step is durable and can be repeated.

`tick` moves every task one step on, if there is one to take: it decides about the open round, or carries a closed one through
averaging, publication and rewards with CSP. A process that dies inside a step leaves a state from which the next `tick`, here
or in another process, takes the same step with the same masks.
"""

import contextlib
import hashlib
import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from crowdfl.crypto.compute import Backend, Threads, default_backend
from crowdfl.errors import (
    AlreadyPaid,
    Conflict,
    CrowdFLError,
    DocumentError,
    Forbidden,
    NotReady,
    UnknownParticipant,
)
from crowdfl.protocols.exchange import Exchange, Reply, Silent
from crowdfl.protocols.profile import Tools
from crowdfl.roles.documents import Appointment, Certificate, Definition, open_document
from crowdfl.roles.ports import Blobs, Clock, CspPeer, KgcPeer, SpStore, StoredParticipant, StoredTask, Upload
from crowdfl.roles.sp.aggregators import RoundAggregators
from crowdfl.roles.sp.failures import Failures
from crowdfl.roles.sp.ledger import ESCROW, REWARDS, Ledger
from crowdfl.roles.sp.rounds import Round, RoundState, TaskState
from crowdfl.roles.sp.uploads import Intake, PendingUpload, UploadOutcome, require_running
from crowdfl.settings import to_millionths

__all__ = ["Sp", "TaskState"]

_ORDERED = "ordered at"
_PAUSED = "paused at"
_PIECE = 100  # uploads counted at a look, so that other tasks and uploads have their turn
_UNDER_WAY = (RoundState.CLOSED, RoundState.AVERAGED, RoundState.PUBLISHED)


_ENDED = (TaskState.FINISHED, TaskState.CANCELLED, TaskState.SETTLED)


@dataclass
class Sp:
    """One sensing platform. Several processes may share one store: work is leased."""

    store: SpStore
    blobs: Blobs
    bundles: Blobs
    clock: Clock
    kgc: KgcPeer
    csp: CspPeer
    kgc_key: bytes
    insecure_test_key: bool = False
    backend: Backend = field(default_factory=default_backend)
    checker: Backend = field(default_factory=lambda: Threads(1))  # where uploads are looked at as they come
    owner: str = field(default_factory=lambda: secrets.token_hex(8))
    on_paid: Callable[[str, str, int], None] | None = (
        None  # task, participant, millionths: once or more for each payment
    )
    failures: Failures = field(default_factory=Failures, repr=False)
    ahead: Executor | None = None  # where CSP is asked, so that SP computes meanwhile; else one waits for the other
    lease_seconds: float = 30.0  # how long a killed process keeps others waiting; two at once would send the same bytes
    csp_patience: float = 86400.0  # seconds after a round's end until a CSP that stays away costs the round
    constant_time: bool = False  # on a host that others share: docs/constant-time.md
    sides: RoundAggregators = field(init=False, repr=False)
    intake: Intake = field(init=False, repr=False)
    _all_told: set[str] = field(default_factory=set, repr=False)
    _last_look: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)  # by task: round, uploads in it

    def __post_init__(self) -> None:
        tools = Tools(
            self.backend,
            insecure_test_key=self.insecure_test_key,
            constant_time=self.constant_time,
            observer=Silent(),
        )
        self.sides = RoundAggregators(self.store, self.blobs, self.bundles, tools, self.checker)
        self.intake = Intake(self.store, self.blobs, self._time, self.sides, self._extended)

    # The requester's part.

    def create_task(self, definition: str, appointment: str, initial: bytes) -> str:
        """Take a task over: papers checked, key fetched, CSP told. Again is fine."""
        opened = Definition.open(definition)
        task = opened.task
        if Appointment.open(appointment, self.kgc_key).task != task:
            raise DocumentError("this appointment is for another task")
        if hashlib.sha256(initial).hexdigest() != opened.initial:
            raise DocumentError("the initial weights are not those the definition names")
        self.blobs.put(f"{task}/initial", initial)
        if not self.bundles.has(f"{task}.sp"):
            _, _, bundle = self.kgc.bundle(task)
            self.bundles.put(f"{task}.sp", bundle)
        self.kgc.acknowledge(task)
        self.csp.prepare(task)
        self.store.add_task(StoredTask(task, definition, appointment, TaskState.RUNNING))
        return task

    def deposit(self, task: str, name: str, amount: int) -> None:
        """The requester pays in, once per name."""
        with self.store.transaction():  # or the task could end in between, and nobody would look at the money again
            ledger = self.ledger(task)
            movement = ledger.deposit(name, amount)
            if movement not in ledger.movements:  # a repeat is the same payment, whatever has become of the task
                self._require_running(task)
            self.store.post(task, movement)

    def order(self, task: str, order: str) -> None:
        """A signed order of the requester's: pause, resume or cancel."""
        definition = self.definition(task)
        body = open_document(order, "order", definition.requester)
        actions = {"pause": self._pause, "resume": self._resume, "cancel": self._cancel}
        if body.get("task") != task or body.get("action") not in actions:
            raise DocumentError(f"an order names this task and one of {', '.join(actions)}")
        with self.store.transaction():  # a delayed "pause" must not undo the "resume" that was signed after it
            memory, at = self.store.memory(task), _moment(body)
            if at < float(memory.get(_ORDERED, b"-inf")):
                raise DocumentError("a later order was given since: this one is out of date")
            actions[body["action"]](task)
            memory[_ORDERED] = repr(at).encode()

    def _pause(self, task: str) -> None:
        self._require_running(task)
        self.store.memory(task).setdefault(_PAUSED, repr(self.clock.now()).encode())
        self.store.set_state(task, TaskState.PAUSED)

    def _resume(self, task: str) -> None:
        self._require_running(task)
        self._go_on(task)
        self.store.set_state(task, TaskState.RUNNING)

    def _go_on(self, task: str) -> None:
        """Whatever a round has of time, it has it pauses apart."""
        since, last = self.store.memory(task).pop(_PAUSED, None), self._last_round(task)
        if since is not None and last is not None and last.state in (RoundState.OPEN, *_UNDER_WAY):
            lost = max(0.0, self.clock.now() - float(since))
            self.store.put_round(task, replace(last, opened_at=last.opened_at + lost))

    def _cancel(self, task: str) -> None:
        """No further round; an open one is aborted, a closed one is carried to its end, what is earned stays claimable."""
        if self.store.task(task).state == TaskState.CANCELLED:
            return
        self._require_running(task)
        with self.store.transaction():
            self._go_on(task)
            last = self._last_round(task)
            if last is not None and last.state is RoundState.OPEN:
                self._abort(task, last)
            self.store.set_state(task, TaskState.CANCELLED, self.clock.now())

    # The participants' part.

    def enrol(self, task: str, certificate: str) -> str:
        """A certified participant joins; CSP is told too, so that its rewards can be sealed. Again is fine."""
        definition = self.definition(task)
        opened = Certificate.open(certificate, self.kgc_key)
        if opened.task != task:
            raise DocumentError("this certificate is for another task")
        if self.store.task(task).state in _ENDED:
            with contextlib.suppress(UnknownParticipant):  # back after the end, for what it earned
                return self.participant(task, opened.identity.who).identity.who
        self._require_running(task)
        participant = StoredParticipant(opened.identity, certificate)
        self.store.add_participant(task, participant, definition.settings.max_participants)
        self.csp.enrol(task, certificate)
        return opened.identity.who

    def leave(self, task: str, who: str) -> None:
        """A participant leaves: rounds neither wait for it nor take its uploads; what it earned stays claimable."""
        self.participant(task, who)
        self.store.leave(task, who)

    def upload(self, task: str, number: int, who: str, upload: bytes) -> Upload:
        """Check, keep durably, acknowledge. The same bytes again are the same upload."""
        return self.receive(task, number, who, upload)[0]

    def receive(self, task: str, number: int, who: str, upload: bytes) -> tuple[Upload, bool]:
        """The same, and whether it is new."""
        (received,) = self.receive_all(task, number, [PendingUpload.of(who, upload)])
        if isinstance(received, CrowdFLError):
            raise received
        return received

    def receive_all(self, task: str, number: int, arrivals: Sequence[PendingUpload]) -> list[UploadOutcome]:
        """`receive` for what came at the same moment; one that is refused says why, and hinders no other."""
        return self.intake.receive(task, number, arrivals)

    def _extended(self, task: str, number: int, seen: Round | None) -> Round:
        """A round as it was just seen, extended if it is below the quorum and its window has just passed."""
        if seen is not None and self.clock.now() < seen.deadline(self.definition(task).settings):
            return seen
        with self.store.transaction():
            current = self.store.round(task, number)
            if self.store.task(task).state == TaskState.PAUSED:
                return current
            decided = self._as_of_now(task, current)
            if decided.state is RoundState.OPEN and decided != current:
                self.store.put_round(task, decided)
                return decided
        return current

    def _time(self, task: str, state: str) -> float:
        """The task's own, which stands still while it is paused."""
        since = self.store.memory(task).get(_PAUSED) if state == TaskState.PAUSED else None
        return self.clock.now() if since is None else float(since)

    def upload_limit(self, task: str) -> int:
        """Bytes of an upload of this task: a longer body is refused before it is read."""
        return self.sides.checking(task).upload_bytes()

    def publication(self, task: str, number: int, who: str | None) -> bytes:
        """A round's average, for a participant; `who` None is the requester, who gets the last one."""
        if who is not None:
            self.participant(task, who)
        return self.blobs.get(f"{task}/rounds/{number}/{'requester' if who is None else 'participants'}")

    def envelope(self, task: str, number: int, who: str) -> bytes:
        """A participant's reward of a round, for that participant alone."""
        self.participant(task, who)
        if self.store.upload(task, number, who) is None:
            raise UnknownParticipant(f"{who} was not averaged in round {number}: there is no reward")
        envelopes = json.loads(self.blobs.get(f"{task}/rounds/{number}/rewards"))
        return bytes.fromhex(envelopes[who])

    def claim(self, task: str, claim: bytes) -> int:
        """Pay a claim that CSP attests, once per task, after its end and before its deadline."""
        self._require_claims(task)
        last = self._last_round(task)
        if last is not None and last.state in _UNDER_WAY:
            raise NotReady(f"round {last.number} is not rewarded yet, and claims are paid once: ask again later")
        side = self.sides.claiming(task, claim)
        who = side.check_claim(claim)
        before = self._paid(task, who, claim)
        if before is not None:
            return before
        amount = side.pay(claim, self.csp.answer(task, claim))
        self.blobs.put(_claim_name(task, who, claim), b"")
        with self.store.transaction():
            self._require_claims(task)  # the deadline may have passed while CSP looked
            self.store.post(task, self.ledger(task).pay(who, amount))
        return amount

    def _require_claims(self, task: str) -> None:
        state = self.store.task(task).state
        if state not in (TaskState.FINISHED, TaskState.CANCELLED):
            raise NotReady(f"task is {state}: claims are paid after its end and before their deadline")

    def _paid(self, task: str, who: str, claim: bytes) -> int | None:
        """What this very claim was paid before, for a participant whose answer was lost; another claim is refused."""
        paid = self.ledger(task).paid()
        if who not in paid:
            return None
        if not self.blobs.has(_claim_name(task, who, claim)):
            raise AlreadyPaid(f"{who} was paid for this task already")
        return paid[who]

    # What anyone with a right may see.

    def definition(self, task: str) -> Definition:
        """What the task is."""
        return self.sides.definition(task)

    def participant(self, task: str, who: str) -> StoredParticipant:
        """An enrolled participant."""
        return self.store.participant(task, who)

    def ledger(self, task: str) -> Ledger:
        """The task's books."""
        return Ledger(self.store.movements(task))

    def statement(self, task: str) -> Ledger:
        """The task's books as its requester sees them."""
        return self.ledger(task).for_requester(settled=self.store.task(task).state == TaskState.SETTLED)

    def status(self, task: str) -> dict[str, Any]:
        """Where the task stands."""
        stored, settings = self.store.task(task), self.definition(task).settings
        rounds = self.store.rounds(task)
        return {
            "task": task,
            "state": stored.state,
            "key": settings.key,
            "enrolled": self._active(task),
            "rounds": [
                {
                    "number": r.number,
                    "state": str(r.state),
                    "deadline": r.deadline(settings),  # as if it were resumed when it was paused
                    "last_call": r.last_call(settings),
                    "uploads": self.store.turnout(task, r.number)[0],
                }
                for r in rounds
            ],
            "balances": self.ledger(task).balances(),
        }

    # The platform's own part.

    def tick(self) -> bool:
        """One step of every task that has one to take and that nobody else works on; True if any was taken."""
        moved = False
        trouble: Exception | None = None
        for stored in self.store.tasks():
            if (
                stored.state == TaskState.PAUSED
                or self._nothing_left(stored)
                or self.failures.is_backing_off(stored.task)
            ):
                continue
            if self.store.lease(stored.task, self.owner, self.clock.now(), self.lease_seconds):
                try:
                    try:
                        moved |= self._step(stored.task)
                    finally:  # what is paid is paid, whatever else goes wrong
                        self._tell_paid(stored.task)
                    self.failures.record_success(stored.task)
                except (CrowdFLError, OSError) as failure:  # does not keep the other tasks waiting
                    trouble = trouble or self.failures.record_failure(stored.task, failure)
                finally:
                    self.store.release(stored.task, self.owner)
        if trouble is not None and not moved:  # while others move, the caller comes back at once
            raise trouble
        return moved

    def _nothing_left(self, stored: StoredTask) -> bool:
        return stored.state == TaskState.SETTLED and (self.on_paid is None or stored.task in self._all_told)

    def _tell_paid(self, task: str) -> None:
        """Run the hook for every payment it was not run for; a crash between the hook and the note of it runs it again."""
        if self.on_paid is None or self.store.task(task).state not in _ENDED:
            return
        settled = self.store.task(task).state == TaskState.SETTLED  # before the movements: none comes after it
        trouble: Exception | None = None
        for who, amount in self.ledger(task).paid().items():
            if amount and not self.blobs.has(f"{task}/claims/{who}-told"):
                try:
                    self.on_paid(task, who, amount)
                    self.blobs.put(f"{task}/claims/{who}-told", b"")
                except (CrowdFLError, OSError) as failure:  # does not keep the others from their money
                    trouble = trouble or failure
        if trouble is not None:
            raise trouble
        if settled:
            self._all_told.add(task)

    def _step(self, task: str) -> bool:
        stored, last = self.store.task(task), self._last_round(task)
        if last is not None and last.state is RoundState.OPEN:
            return self._decide(task, last.number) or self._count(task, last.number)
        if last is not None and last.state in _UNDER_WAY:
            return self._carry_on(task, last)
        if stored.state == TaskState.RUNNING:
            return self._open_next(task, last)
        if stored.state in (TaskState.FINISHED, TaskState.CANCELLED):
            return self._settle(task, stored)
        return False

    def _count(self, task: str, number: int) -> bool:
        """A head start, while no uploads come: receiving them matters more, and what is left is counted at the close."""
        uploaded, before = self.store.turnout(task, number)[0], self._last_look.get(task)
        self._last_look[task] = number, uploaded
        return before == (number, uploaded) and self.sides.count(task, number, _PIECE) > 0

    def _carry_on(self, task: str, current: Round) -> bool:
        """With CSP; one that stays away, or cannot compute it, longer than anyone can wait costs the round, and no money."""
        try:
            step = self._reward if current.state is RoundState.PUBLISHED else self._publish
            return step(task, current)
        except (CrowdFLError, ConnectionError):
            if not self._out_of_patience(task, current):
                raise
            with self.store.transaction():
                if self._still(task, current):
                    self._abort(task, current)
            return True

    def _open_next(self, task: str, last: Round | None) -> bool:
        settings = self.definition(task).settings
        number = 1 if last is None else last.number + 1
        if number > settings.rounds:
            return self._finish(task, last)
        payment = to_millionths(settings.budget) if settings.budget is not None else 0
        with self.store.transaction():  # what was true a moment ago may not be any more: an order may have come
            ready = self.store.task(task).state == TaskState.RUNNING and self._last_round(task) == last
            enough = self._active(task) >= settings.min_participants
            ledger = self.ledger(task)
            if not ready or not enough or ledger.balance(ESCROW) < payment:  # prepaid before a round opens
                return False
            self.store.post(task, ledger.fund_round(number, payment))
            self.store.put_round(task, Round(number, self.clock.now()))
        return True

    def _decide(self, task: str, number: int) -> bool:
        with self.store.transaction():
            current = self.store.round(task, number)
            decided = self._as_of_now(task, current)
            if decided == current or self.store.task(task).state == TaskState.PAUSED:
                return False
            if decided.state is RoundState.ABORTED:
                self._abort(task, current)
            else:
                self.store.put_round(task, decided)
        return True

    def _as_of_now(self, task: str, current: Round) -> Round:
        """What the clock and the uploads make of a round, whether anyone has looked since or not."""
        uploaded, missing = self.store.turnout(task, current.number)  # who left is not waited for
        return current.decide(self.definition(task).settings, self.clock.now(), uploaded, uploaded + missing)

    def _abort(self, task: str, current: Round) -> None:
        self.store.post(task, self.ledger(task).abort_round(current.number))
        self.store.put_round(task, replace(current, state=RoundState.ABORTED))
        self.sides.forget(task, current.number)

    def _publish(self, task: str, current: Round) -> bool:
        settings = self.definition(task).settings
        final = current.number == settings.rounds
        self._open_to(task, current.number, final=final)
        with self.store.transaction():
            if self._still(task, current):
                self.store.put_round(task, replace(current, state=RoundState.PUBLISHED))
        return True

    def _open_to(self, task: str, number: int, *, final: bool) -> None:
        name = f"{task}/rounds/{number}/{'requester' if final else 'participants'}"
        if not self.blobs.has(name):
            side = self.sides.counted(task, number)
            self._exchange(task, number, side.publish(final=final))
            self.blobs.put(name, side.publication())

    def _reward(self, task: str, current: Round) -> bool:
        settings, number = self.definition(task).settings, current.number
        name = f"{task}/rounds/{number}/rewards"
        if settings.budget is not None and to_millionths(settings.budget) > 0 and not self.blobs.has(name):
            side = self.sides.counted(task, number)
            self._tell_csp(task, number)
            # Rewards are for the very set that was averaged: the same requests as before, which CSP has answered.
            self._exchange(task, number, side.publish(final=number == settings.rounds))
            self._exchange(task, number, side.reward(to_millionths(settings.budget)))
            envelopes = {who: envelope.hex() for who, envelope in side.envelopes().items()}
            self.blobs.put(name, json.dumps(envelopes).encode())
        with self.store.transaction():
            if self._still(task, current):
                self.store.post(task, self.ledger(task).reward_round(number))
                self.store.put_round(task, replace(current, state=RoundState.REWARDED))
        self.sides.forget(task, number)
        self.blobs.clear(_replies(task, number))  # a crash before this leaves them until the task is scrubbed
        return True

    def _finish(self, task: str, last: Round | None) -> bool:
        """All rounds are done."""
        try:
            self._deliver(task)
        except (CrowdFLError, ConnectionError):
            if last is None or not self._out_of_patience(task, last):
                raise
        with self.store.transaction():
            if self.store.task(task).state == TaskState.RUNNING:
                self.store.set_state(task, TaskState.FINISHED, self.clock.now())
        return True

    def _deliver(self, task: str) -> bool:
        """The requester gets the last average that was paid for, even if later rounds were given up or cancelled."""
        paid = [r.number for r in self.store.rounds(task) if r.state is RoundState.REWARDED]
        if not paid or self.blobs.has(f"{task}/rounds/{paid[-1]}/requester"):
            return False
        self._open_to(task, paid[-1], final=True)
        self.sides.forget(task, paid[-1])
        return True

    def _settle(self, task: str, stored: StoredTask) -> bool:
        """Escrow returns at once; after the claim deadline uploads are scrubbed, ids stay, and the unclaimed returns."""
        ended = stored.ended_at if stored.ended_at is not None else self.clock.now()
        deadline = ended + self.definition(task).claim_window
        ledger = self.ledger(task)
        if ledger.balance(ESCROW) > 0:
            return self.store.post(task, ledger.refund(f"escrow {len(ledger.movements)}"))
        if self.clock.now() < deadline:
            return self._deliver(task)
        self._scrub(task)  # first: a crash after the last step would leave it undone
        with self.store.transaction():
            ledger = self.ledger(task)
            if ledger.balance(REWARDS) > 0:
                ledger.post(ledger.expire_claims())
                self.store.post(task, ledger.movements[-1])
                self.store.post(task, ledger.refund("unclaimed"))
            self.store.set_state(task, TaskState.SETTLED, ended)
        return True

    def _scrub(self, task: str) -> None:
        """Remove every upload, those that were refused after they were written included, and what is left of CSP's replies."""
        for round_ in self.store.rounds(task):
            self.blobs.clear(_replies(task, round_.number))
            self.blobs.clear(f"{task}/rounds/{round_.number}/uploads")

    # Tools.

    def _require_running(self, task: str) -> None:
        require_running(self.store.task(task).state)

    def _last_round(self, task: str) -> Round | None:
        rounds = self.store.rounds(task)
        return rounds[-1] if rounds else None

    def _active(self, task: str) -> int:
        """Participants who have not left."""
        return self.store.turnout(task, 0)[1]  # no upload is of round 0

    def _still(self, task: str, expected: Round) -> bool:
        """Whether a round is as it was when this step began: another process may have carried it on meanwhile."""
        return self.store.round(task, expected.number) == expected

    def _out_of_patience(self, task: str, current: Round) -> bool:
        return self.clock.now() > current.last_call(self.definition(task).settings) + self.csp_patience

    def _tell_csp(self, task: str, number: int) -> None:
        """Whoever uploaded, CSP must know: the message of an enrolment may have been lost."""
        for upload in self.store.uploads(task, number):
            self.csp.enrol(task, self.store.participant(task, upload.who).certificate)

    def _exchange(self, task: str, number: int, step: Exchange) -> None:
        try:
            request = next(step)
            while True:
                self._renew(task)
                request = step.send(self._ask(task, number, request))
        except StopIteration:
            return

    def _ask(self, task: str, number: int, request: bytes) -> Reply:
        """CSP's reply, durable before it is used: after a crash SP goes on from what CSP said then, whatever it says now."""
        name = f"{_replies(task, number)}/{hashlib.sha256(request).hexdigest()}"
        if self.blobs.has(name):
            return partial(self.blobs.get, name)
        if self.ahead is None:
            return partial(bytes, self._keep(name, self.csp.answer(task, request)))
        future = self.ahead.submit(self.csp.answer, task, request)

        def reply() -> bytes:
            while not wait([future], self.lease_seconds / 3).done:
                self._renew(task)
            return self._keep(name, future.result())

        return reply

    def _keep(self, name: str, reply: bytes) -> bytes:
        try:
            self.blobs.put(name, reply)
        except Conflict:  # another process has kept one: that one counts
            return self.blobs.get(name)
        return reply

    def _renew(self, task: str) -> None:
        """Long steps keep their lease; one that was lost meanwhile must not go on."""
        if not self.store.lease(task, self.owner, self.clock.now(), self.lease_seconds):
            raise Forbidden("another process has taken this task over")


def _moment(order: Mapping[str, Any]) -> float:
    at = order.get("at")
    if isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at):
        raise DocumentError("an order says when it was given")
    return float(at)


def _claim_name(task: str, who: str, claim: bytes) -> str:
    return f"{task}/claims/{who}-{hashlib.sha256(claim).hexdigest()}"


def _replies(task: str, number: int) -> str:
    return f"{task}/rounds/{number}/replies"
