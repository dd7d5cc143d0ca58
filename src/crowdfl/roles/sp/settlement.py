"""The end of a task: the requester's model, money that returns, uploads that are scrubbed."""

from crowdfl.errors import CrowdFLError
from crowdfl.roles.ports import StoredTask
from crowdfl.roles.sp.aggregators import RoundAggregators
from crowdfl.roles.sp.core import SpCore
from crowdfl.roles.sp.csp_link import replies_folder
from crowdfl.roles.sp.ledger import ESCROW, REWARDS
from crowdfl.roles.sp.rounds import Round, RoundState, TaskState
from crowdfl.roles.sp.steps import RoundSteps, publication_name

__all__ = ["Settlement"]


class Settlement:
    """Each method returns True if a step was taken."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators, steps: RoundSteps) -> None:
        self._core, self._ports, self._aggregators, self._steps = core, core.ports, aggregators, steps

    def finish(self, task: str, last: Round | None) -> bool:
        """All rounds are done."""
        try:
            self.deliver(task)
        except (CrowdFLError, ConnectionError):
            if last is None or not self._steps.out_of_patience(task, last):
                raise
        with self._ports.store.transaction():
            if self._ports.store.task(task).state == TaskState.RUNNING:
                self._ports.store.set_state(task, TaskState.FINISHED, self._ports.clock.now())
        return True

    def deliver(self, task: str) -> bool:
        """The requester gets the last average that was paid for, even if later rounds were given up or cancelled."""
        paid = [r.number for r in self._ports.store.rounds(task) if r.state is RoundState.REWARDED]
        if not paid or self._ports.blobs.has(publication_name(task, paid[-1], final=True)):
            return False
        self._steps.publish(task, paid[-1], final=True)
        self._aggregators.forget(task, paid[-1])
        return True

    def settle(self, task: str, stored: StoredTask) -> bool:
        """Escrow returns at once; after the claim deadline uploads are scrubbed, ids stay, and the unclaimed returns."""
        store, now = self._ports.store, self._ports.clock.now()
        ended = stored.ended_at if stored.ended_at is not None else now
        ledger = self._core.ledger(task)
        if ledger.balance(ESCROW) > 0:
            return store.post(task, ledger.refund(f"escrow {len(ledger.movements)}"))
        if now < ended + self._core.definition(task).claim_window:
            return self.deliver(task)
        self._scrub(task)  # first: a crash after the last step would leave it undone
        with store.transaction():
            ledger = self._core.ledger(task)
            if ledger.balance(REWARDS) > 0:
                ledger.post(ledger.expire_claims())
                store.post(task, ledger.movements[-1])
                store.post(task, ledger.refund("unclaimed"))
            store.set_state(task, TaskState.SETTLED, ended)
        return True

    def _scrub(self, task: str) -> None:
        """Remove every upload, those that were refused after they were written included, and what is left of CSP's replies."""
        for round_ in self._ports.store.rounds(task):
            self._ports.blobs.clear(replies_folder(task, round_.number))
            self._ports.blobs.clear(f"{task}/rounds/{round_.number}/uploads")
