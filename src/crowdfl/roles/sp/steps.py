"""A round's steps on SP: open, decide, add up, average, reward, abort. Every step is durable and can be repeated.

A process that dies inside a step leaves a state from which the next `tick`, here or in another process, takes the same step
with the same masks.
"""

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import replace
from functools import partial

from crowdfl.errors import Conflict, CrowdFLError, OutOfTurn, RoundEnded, RoundsExhausted, TaskNotRunning
from crowdfl.protocols.exchange import Ask, Reply
from crowdfl.protocols.round import AggregationRound
from crowdfl.roles.sp.aggregators import RoundAggregators
from crowdfl.roles.sp.core import UNDER_WAY, SpCore
from crowdfl.roles.sp.ledger import ESCROW, round_account
from crowdfl.roles.sp.rounds import Round, RoundState, TaskState
from crowdfl.settings import to_millionths

_PIECE = 100  # uploads added up at a look, so that other tasks and uploads have their turn


def publication_name(task: str, number: int, *, final: bool) -> str:
    return f"{task}/rounds/{number}/{'requester' if final else 'participants'}"


def rewards_name(task: str, number: int) -> str:
    return f"{task}/rounds/{number}/rewards"


def replies_folder(task: str, number: int) -> str:
    return f"{task}/rounds/{number}/replies"


class RoundSteps:
    """`step` takes the next one of a task's last round, if there is one to take."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators) -> None:
        self._core, self._ports, self._aggregators = core, core.ports, aggregators
        self._csp = _CspLink(core)
        self._last_look: dict[str, tuple[int, int]] = {}  # by task: round, uploads in it

    def step(self, task: str) -> bool:
        last = self._core.last_round(task)
        if last is not None and last.state is RoundState.OPEN:
            return self._decide(task, last.number) or self._head_start(task, last.number)
        if last is not None and last.state in UNDER_WAY:
            return self._with_csp(task, last)
        return False

    def open_next(self, task: str) -> bool:
        """The next round, once there are enough people and enough money; False also when there is none left."""
        settings, last = self._core.definition(task).settings, self._core.last_round(task)
        number = 1 if last is None else last.number + 1
        if number > settings.rounds or not self._core.options.opens_rounds:
            return False
        payment = to_millionths(settings.budget) if settings.budget is not None else 0
        with self._ports.store.transaction():  # what was true a moment ago may not be any more: an order may have come
            ready = self._ports.store.task(task).state == TaskState.RUNNING and self._core.last_round(task) == last
            enough = self._core.active(task) >= settings.min_participants
            if not ready or not enough or self._core.ledger(task).balance(ESCROW) < payment:
                return False
            self._open(task, number, payment)
        return True

    def open(self, task: str, payment: int, *, final: bool = False) -> int:
        """Open the next round at once, for a caller that opens rounds itself; its number."""
        with self._ports.store.transaction():
            last = self._core.last_round(task)
            number = 1 if last is None else last.number + 1
            rounds = self._core.definition(task).settings.rounds
            if number > rounds:
                raise RoundsExhausted(f"round {number} of {rounds}: the masks were sized for those")
            if self._ports.store.task(task).state != TaskState.RUNNING:
                raise TaskNotRunning("the task is not running: no further round can be opened")
            if final:
                self._core.mark_final(task, number)
            self._open(task, number, payment)
        return number

    def _open(self, task: str, number: int, payment: int) -> None:
        """Prepaid before it opens."""
        self._ports.store.post(task, self._core.ledger(task).fund_round(number, payment))
        self._ports.store.put_round(task, Round(number, self._ports.clock.now()))

    def abort(self, task: str, current: Round) -> None:
        """Give a round up: its money returns to escrow. The caller holds a transaction."""
        self._ports.store.post(task, self._core.ledger(task).abort_round(current.number))
        self._ports.store.put_round(task, replace(current, state=RoundState.ABORTED))
        self._aggregators.forget(task, current.number)

    def out_of_patience(self, task: str, current: Round) -> bool:
        """Whether CSP has stayed away longer than anyone can wait."""
        last_call = current.last_call(self._core.definition(task).settings)
        return self._ports.clock.now() > last_call + self._core.options.csp_patience

    def _decide(self, task: str, number: int) -> bool:
        store = self._ports.store
        with store.transaction():
            current = store.round(task, number)
            decided = self._core.as_of_now(task, current)
            if decided == current or store.task(task).state == TaskState.PAUSED:
                return False
            if decided.state is RoundState.ABORTED:
                self.abort(task, current)
            else:
                store.put_round(task, decided)
        return True

    def _head_start(self, task: str, number: int) -> bool:
        """Add up while no uploads come: receiving them matters more, and what is left is added up at the close."""
        uploaded, before = self._ports.store.turnout(task, number)[0], self._last_look.get(task)
        self._last_look[task] = number, uploaded
        return before == (number, uploaded) and self._aggregators.add_new(task, number, _PIECE) > 0

    def _with_csp(self, task: str, current: Round) -> bool:
        """A CSP that has ended a round, or stays away longer than anyone can wait, costs the round, and no money.

        So does one that was asked for this step with other contents before: SP was restored from a backup to before that.
        """
        try:
            return self._weigh_or_publish(task, current)
        except (CrowdFLError, ConnectionError) as failure:
            if not isinstance(failure, RoundEnded | OutOfTurn) and not self.out_of_patience(task, current):
                raise
            with self._ports.store.transaction():
                if self._still(task, current):
                    self.abort(task, current)
            return True

    def _weigh_or_publish(self, task: str, current: Round) -> bool:
        payment = self._core.ledger(task).balance(round_account(current.number))
        if current.state is RoundState.CLOSED and payment > 0:
            return self._weigh(task, current, payment)
        return self._publish(task, current)

    def _weigh(self, task: str, current: Round, payment: int) -> bool:
        """Rewards first: of a round that cannot be rewarded nobody gets the average either."""
        name = rewards_name(task, current.number)
        if not self._ports.blobs.has(name):
            self._csp.enrol_everyone(task, current.number)
            envelopes = self._round(task, current.number).reward(payment)
            self._ports.blobs.put(name, json.dumps({who: one.hex() for who, one in envelopes.items()}).encode())
        with self._ports.store.transaction():
            if self._still(task, current):
                self._ports.store.put_round(task, replace(current, state=RoundState.WEIGHED))
        return True

    def _publish(self, task: str, current: Round) -> bool:
        number = current.number
        self.publish(task, number, final=self._core.is_final(task, number))
        with self._ports.store.transaction():
            if self._still(task, current):
                self._ports.store.post(task, self._core.ledger(task).reward_round(number))
                self._ports.store.put_round(task, replace(current, state=RoundState.REWARDED))
        self._aggregators.forget(task, number)
        # A crash before this leaves them until the task is scrubbed.
        self._ports.blobs.clear(replies_folder(task, number))
        return True

    def publish(self, task: str, number: int, *, final: bool) -> None:
        """Average to an audience, once."""
        name = publication_name(task, number, final=final)
        if not self._ports.blobs.has(name):
            self._ports.blobs.put(name, self._round(task, number).average(final=final))
            self._core.options.events("average published", task=task, number=number, final=final)

    def _round(self, task: str, number: int) -> AggregationRound:
        sp, observer = self._aggregators.complete(task, number), self._core.options.tools.observer
        return AggregationRound(sp, self._csp.ask(task, number), observer)

    def _still(self, task: str, expected: Round) -> bool:
        """Whether a round is as it was when this step began: another process may have gone on with it meanwhile."""
        return self._ports.store.round(task, expected.number) == expected


class _CspLink:
    """Every reply of CSP is durable before it is used: after a crash SP goes on from what CSP said then."""

    def __init__(self, core: SpCore) -> None:
        self._core = core

    def ask(self, task: str, number: int) -> Ask:
        def ask(request: bytes) -> Reply:
            self._core.renew_lease(task)
            return self._reply(task, f"{replies_folder(task, number)}/{hashlib.sha256(request).hexdigest()}", request)

        return ask

    def enrol_everyone(self, task: str, number: int) -> None:
        """Whoever uploaded, CSP must know: the message of an enrolment may have been lost."""
        ports = self._core.ports
        for upload in ports.store.uploads(task, number):
            ports.csp.enrol(task, ports.store.participant(task, upload.who).certificate)

    def _reply(self, task: str, name: str, request: bytes) -> Reply:
        ports, ahead = self._core.ports, self._core.options.ahead
        if ports.blobs.has(name):
            return partial(ports.blobs.get, name)
        if ahead is None:
            return partial(bytes, self._keep(name, ports.csp.answer(task, request)))
        return self._waiting(task, name, ahead.submit(copy_context().run, ports.csp.answer, task, request))

    def _waiting(self, task: str, name: str, future: "Future[bytes]") -> Callable[[], bytes]:
        def reply() -> bytes:
            while not wait([future], self._core.options.lease_seconds / 3).done:
                self._core.renew_lease(task)
            return self._keep(name, future.result())

        return reply

    def _keep(self, name: str, reply: bytes) -> bytes:
        blobs = self._core.ports.blobs
        try:
            blobs.put(name, reply)
        except Conflict:  # another process has kept one: that one counts
            return blobs.get(name)
        return reply
