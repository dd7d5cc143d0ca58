"""After the last round: claims that CSP attests and SP pays once, the requester's model, money that returns, the scrubbing."""

import hashlib

from crowdfl.errors import AlreadyPaid, CrowdFLError, NotReady
from crowdfl.roles.ports import StoredTask
from crowdfl.roles.sp.aggregators import RoundAggregators
from crowdfl.roles.sp.core import ENDED, UNDER_WAY, SpCore
from crowdfl.roles.sp.ledger import ESCROW, REWARDS
from crowdfl.roles.sp.rounds import Round, RoundState, TaskState
from crowdfl.roles.sp.steps import RoundSteps, publication_name, replies_folder


class Claims:
    """A claim is paid once per task, after its end and before its deadline."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators) -> None:
        self._core, self._ports, self._aggregators = core, core.ports, aggregators
        self._all_told: set[str] = set()

    def pay(self, task: str, claim: bytes) -> int:
        """Pay a claim that CSP attests; millionths. The same claim again is the same payment."""
        self._require_open(task)
        last = self._core.last_round(task)
        if last is not None and last.state in UNDER_WAY:
            raise NotReady(f"round {last.number} is not rewarded yet, and claims are paid once: ask again later")
        sp = self._aggregators.claiming(task, claim)
        who = sp.check_claim(claim)
        before = self._paid_before(task, who, claim)
        if before is not None:
            return before
        amount = sum(sp.pay(claim, self._ports.csp.answer(task, claim)).values())
        self._ports.blobs.put(_claim_name(task, who, claim), b"")
        with self._ports.store.transaction():
            self._require_open(task)  # the deadline may have passed while CSP looked
            self._ports.store.post(task, self._core.ledger(task).pay(who, amount))
        return amount

    def _require_open(self, task: str) -> None:
        state = self._ports.store.task(task).state
        if state not in (TaskState.FINISHED, TaskState.CANCELLED):
            raise NotReady(f"task is {state}: claims are paid after its end and before their deadline")

    def _paid_before(self, task: str, who: str, claim: bytes) -> int | None:
        """What this very claim was paid before, for a participant whose answer was lost; another claim is refused."""
        paid = self._core.ledger(task).paid()
        if who not in paid:
            return None
        if not self._ports.blobs.has(_claim_name(task, who, claim)):
            raise AlreadyPaid(f"{who} was paid for this task already")
        return paid[who]

    def nothing_left_to_tell(self, task: str) -> bool:
        """Whether the payout hook has heard of every payment that a settled task can have."""
        return self._core.options.on_paid is None or task in self._all_told

    def tell_paid(self, task: str) -> None:
        """Run the hook for every payment it was not run for; a crash between the hook and the note of it runs it again."""
        hook, state = self._core.options.on_paid, self._ports.store.task(task).state
        if hook is None or state not in ENDED:
            return
        trouble: Exception | None = None
        for who, amount in self._core.ledger(task).paid().items():
            told = f"{task}/claims/{who}-told"
            if amount and not self._ports.blobs.has(told):
                try:
                    hook(task, who, amount)
                    self._ports.blobs.put(told, b"")
                except (CrowdFLError, OSError) as failure:  # does not keep the others from their money
                    trouble = trouble or failure
        if trouble is not None:
            raise trouble
        if state == TaskState.SETTLED:  # it was before the payments were read: none comes after it
            self._all_told.add(task)


class Settlement:
    """Each method returns True if a step was taken."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators, steps: RoundSteps) -> None:
        self._core, self._ports, self._aggregators, self._steps = core, core.ports, aggregators, steps

    def finish(self, task: str, last: Round | None) -> bool:
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


def _claim_name(task: str, who: str, claim: bytes) -> str:
    return f"{task}/claims/{who}-{hashlib.sha256(claim).hexdigest()}"
