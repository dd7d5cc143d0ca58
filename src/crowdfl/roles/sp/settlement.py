"""After the last round: the requester's model, money that returns, the scrubbing."""

import contextlib
from collections.abc import Collection, Iterator

from crowdfl.crypto.long_bytes import whole
from crowdfl.errors import CrowdFLError, OutOfTurn, RolledBack, RoundEnded, TaskEnded, UploadDamaged
from crowdfl.protocols.capabilities import PaysBonus
from crowdfl.protocols.claims import BONUS
from crowdfl.roles.records import DepositState, Round, RoundState, StoredTask, TaskState
from crowdfl.roles.sp.aggregators import RoundAggregators
from crowdfl.roles.sp.closing import Closing
from crowdfl.roles.sp.core import SpCore
from crowdfl.roles.sp.csp_link import forget_replies
from crowdfl.roles.sp.extension import Extension
from crowdfl.roles.sp.ledger import BONUSES, ESCROW, Ledger, earned_account
from crowdfl.roles.sp.payees import erase_destination, waits_for_destination
from crowdfl.roles.sp.results import has_publication, read_result
from crowdfl.roles.sp.rounds import RoundSteps, rewarded_people


class Settlement:
    """Each method returns True if a step was taken."""

    def __init__(
        self, core: SpCore, aggregators: RoundAggregators, steps: RoundSteps, closing: Closing, extension: Extension
    ) -> None:
        self._core = core
        self._ports = core.ports
        self._aggregators = aggregators
        self._steps = steps
        self._closing, self._extension = closing, extension
        self._owed: dict[str, tuple[int, bool]] = {}  # by task, after so many movements

    def finish(self, task: str, last: Round | None) -> bool:
        try:
            self.deliver(task)
        except (CrowdFLError, ConnectionError):
            if last is None or not self._steps.out_of_patience(task, last):
                raise
        self._steps.burn(task)  # after a crash right before it was done
        with self._ports.store.transaction():
            if self._ports.store.task(task).state == TaskState.RUNNING:
                self._ports.store.change_task(task, state=TaskState.FINISHED, ended_at=self._core.now())
        return True

    def deliver(self, task: str) -> bool:
        """The requester gets the last average that was paid for, even if later rounds were given up or cancelled."""
        last = self._undelivered(task)
        if last is None:
            return False
        try:
            self._steps.publish(task, self._ports.store.task(task).state, last, final=True)
        except (RoundEnded, OutOfTurn, TaskEnded, UploadDamaged) as lost:  # for good: there is no model to wait for
            self._ports.store.change_task(task, without_model=True)
            self._core.options.events("model lost", task=task, number=last.number, error=type(lost).__name__)
            self._aggregators.forget(task, last.number)
        return True

    def _undelivered(self, task: str) -> Round | None:
        """The round whose average the requester is to get, and has not got."""
        paid = [r for r in self._ports.store.rounds(task) if r.state is RoundState.REWARDED]
        if not paid or has_publication(paid[-1], self._core.audience(task, final=True)):
            return None
        return None if self._ports.store.task(task).without_model else paid[-1]

    def due(self, task: str, stored: StoredTask) -> bool:
        """Whether `settle` has something to do, by reading alone."""
        ledger = self._core.ledger(task)
        if stored.ended_at is None or self._core.now() >= stored.attests_until or ledger.balance(ESCROW) > 0:
            return True
        if self._owes_bonuses(ledger):
            return True
        return self._undelivered(task) is not None or not self.is_owed(stored, ledger)

    def settle(self, task: str, stored: StoredTask) -> bool:
        """Of a task whose last round is over: escrow returns at once.

        Once CSP attests no claim any more, or nobody is owed anything, uploads are scrubbed and what is left returns.
        """
        store = self._ports.store
        now = self._core.now()
        ledger = self._core.ledger(task)
        if stored.ended_at is None:
            store.change_task(task, ended_at=now)
            return True
        if self._owes_bonuses(ledger) and now < stored.attests_until:
            return self._reward_bonuses(task)
        if ledger.balance(ESCROW) > 0:
            return store.post(task, ledger.refund(f"escrow {len(ledger.movements)}"))
        if now < stored.attests_until and (self._undelivered(task) is not None or self.is_owed(stored, ledger)):
            return self.deliver(task)
        if now >= stored.attests_until and self._extension.may_come(stored):
            return self._extension.step(task)
        return self._close(task, stored, ledger)

    def _close(self, task: str, stored: StoredTask, ledger: Ledger) -> bool:
        """Nobody is owed anything any more, or can claim it."""
        store = self._ports.store
        self._scrub(task)  # first: a crash after the last step would leave it undone
        with store.transaction():
            if (store.task(task), self._core.ledger(task).movements) != (stored, ledger.movements):  # meanwhile
                return True
            self._return_unclaimed(task)
            store.change_task(task, state=TaskState.SETTLED)
            for who in store.payees(task):
                erase_destination(store, task, who)
        return True

    @staticmethod
    def _owes_bonuses(ledger: Ledger) -> bool:
        return ledger.balance(BONUSES) > 0

    def _reward_bonuses(self, task: str) -> bool:
        """CSP says who gets one; what its word leaves is free again. A task that CSP has ended pays none."""
        sp, store = self._aggregators.checking(task), self._ports.store
        names: Collection[str] = ()
        word = b""
        if isinstance(sp, PaysBonus):
            with contextlib.suppress(TaskEnded, RolledBack):
                word = whole(self._ports.csp.answer(task, *sp.ask_bonus()))
                names = sp.bonus_people(word)
        each = self._core.definition(task).settings.bonus_each
        with store.transaction():
            if store.task(task).bonus is None:
                store.change_task(task, bonus=word.hex())
            store.post(task, *self._core.ledger(task).reward_bonuses(each * len(names)))
        return True

    def is_owed(self, stored: StoredTask, ledger: Ledger) -> bool:
        """Whether somebody can still claim something, or CSP's word about the last round is still to come.

        Of a round that everyone was paid for, what division has left is nobody's.
        """
        task, made = stored.task, len(ledger.movements)
        if self._owed.get(task, (-1, True))[0] != made:
            self._owed[task] = made, ledger.owes_unused() or any(self._unpaid(task, ledger))
        if self._owed[task][1]:  # first: while people may claim, a look reads nothing more
            return True
        if self._steps.end_due(stored) or self._closing.due(stored):
            return True
        if any(one.state is DepositState.PENDING for one in self._ports.store.deposits(task)):
            return True  # it may be confirmed, and then returns
        # A claim says where to be paid, and none is taken once the books are closed.
        return any(map(waits_for_destination(self._ports.store, task), ledger.paid()))

    def _unpaid(self, task: str, ledger: Ledger) -> Iterator[str]:
        """People who have earned something and have not claimed it."""
        store, paid = self._ports.store, ledger.paid()
        for number in ledger.budgets():
            if number == BONUS and ledger.balance(earned_account(BONUS)):
                yield from (who for who in self._with_bonus(task) if BONUS not in paid.get(who, {}))
            elif ledger.balance(earned_account(number)):
                people = [one.who for one in store.uploads(task, number)]
                with contextlib.suppress(CrowdFLError, OSError):  # who cannot be told apart is owed something
                    people = (
                        rewarded_people(read_result(self._ports.blobs, task, store.round(task, number), "rewards"))
                        or people
                    )
                yield from (who for who in people if number not in paid.get(who, {}))

    def _with_bonus(self, task: str) -> Collection[str]:
        word, sp = self._ports.store.task(task).bonus, self._aggregators.checking(task)
        return sp.bonus_people(bytes.fromhex(word)) if word and isinstance(sp, PaysBonus) else ()

    def _return_unclaimed(self, task: str) -> None:
        ledger = self._core.ledger(task)
        expired = ledger.expire_claims()
        for movement in expired:
            ledger.post(movement)
        if expired:
            self._ports.store.post(task, *expired, ledger.refund("unclaimed"))

    def _scrub(self, task: str) -> None:
        """Remove every upload, those that were refused after they were written included, and what is left of CSP's replies.

        So is what was dealt for rounds that a cancelled task never came to, and where people took reminders.
        """
        self._core.dealt.erase(task)
        self._ports.store.delete_subscription(task)
        for round_ in self._ports.store.rounds(task):
            forget_replies(self._ports.store, self._ports.blobs, task, round_.number)
            self._ports.blobs.clear(f"{task}/rounds/{round_.number}/uploads")
