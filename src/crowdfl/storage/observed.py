"""A store that tells what became durable: one event for each change of state, after its commit, in one place for every role."""

import contextlib
import threading
from collections.abc import Iterator

from crowdfl.errors import NotReady, UnknownParticipant, UnknownTask
from crowdfl.roles.ports import Events, StoredDeposit, StoredParticipant, StoredPayment, StoredTask
from crowdfl.roles.sp.rounds import Round
from crowdfl.storage.sql import SqlStore

_Event = tuple[str, dict[str, object]]


class ObservedStore(SqlStore):
    """Amounts that participants earn are not told: nobody but they and the bank need to know."""

    def __init__(self, url: str, events: Events) -> None:
        super().__init__(url)
        self._events, self._held = events, threading.local()
        self.listeners: list[Events] = []  # who is told besides, such as a console; none of them raises

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Events wait for the commit; what is rolled back was never there."""
        outer: list[_Event] | None = getattr(self._held, "events", None)
        mine: list[_Event] = []
        self._held.events = mine
        try:
            with super().transaction():
                yield
        finally:
            self._held.events = outer
        for event, fields in mine:
            self._tell(event, **fields)

    def _tell(self, event: str, **fields: object) -> None:
        held: list[_Event] | None = getattr(self._held, "events", None)
        if held is not None:
            held.append((event, fields))
            return
        for told in (self._events, *self.listeners):
            told(event, **fields)

    def add_task(self, task: StoredTask) -> None:
        with self.transaction():
            known = self._state(task.task)
            super().add_task(task)
            if known is None:
                self._tell("task added", task=task.task)

    def set_state(self, task: str, state: str, ended_at: float | None = None) -> None:
        with self.transaction():
            before = self._state(task)
            super().set_state(task, state, ended_at)
            if before != state:
                self._tell(f"task {state}", task=task, before=before)

    def _state(self, task: str) -> str | None:
        with contextlib.suppress(UnknownTask):
            return self.task(task).state
        return None

    def add_participant(self, task: str, participant: StoredParticipant, limit: int) -> None:
        who = participant.identity.who
        with self.transaction():
            known: StoredParticipant | None = None
            with contextlib.suppress(UnknownParticipant):
                known = self.participant(task, who)
            super().add_participant(task, participant, limit)
            if known is None or known.left:
                self._tell("participant joined", task=task, who=who)

    def leave(self, task: str, who: str) -> None:
        super().leave(task, who)
        self._tell("participant left", task=task, who=who)

    def put_round(self, task: str, round_: Round) -> None:
        with self.transaction():
            before: Round | None = None
            with contextlib.suppress(NotReady):
                before = self.round(task, round_.number)
            super().put_round(task, round_)
            if before is None or before.state is not round_.state:
                self._tell(f"round {round_.state}", task=task, number=round_.number)
            elif round_.extended and not before.extended:
                self._tell("round extended", task=task, number=round_.number)

    def add_deposit(self, deposit: StoredDeposit) -> None:
        super().add_deposit(deposit)
        self._tell("deposit announced", task=deposit.task, name=deposit.name, amount=deposit.amount)

    def decide_deposit(self, deposit: StoredDeposit) -> None:
        super().decide_deposit(deposit)
        self._tell(f"deposit {deposit.state}", task=deposit.task, name=deposit.name, amount=deposit.amount)

    def add_payment(self, payment: StoredPayment) -> None:
        super().add_payment(payment)
        self._tell(f"payment {payment.state}", task=payment.task, who=payment.who)

    def change_payment(self, known: StoredPayment, changed: StoredPayment) -> bool:
        done = super().change_payment(known, changed)
        if done and known.state is not changed.state:
            why = {} if changed.error is None else {"reason": changed.error}
            self._tell(f"payment {changed.state}", task=changed.task, who=changed.who, **why)
        return done

    def use_invitation(self, task: str, number: str, who: str) -> None:
        super().use_invitation(task, number, who)
        self._tell("participant certified", task=task, who=who)

    def put_answer(self, task: str, request: str, blob: str) -> None:
        super().put_answer(task, request, blob)
        self._tell("request answered", task=task, digest=request[:16])
