"""After the last round: claims that CSP attests and SP pays once, the requester's model, money that returns, the scrubbing."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from crowdfl.documents.destination import SEALED_BYTES
from crowdfl.errors import (
    AlreadyPaid,
    ClaimRefused,
    Conflict,
    CrowdFLError,
    FormatError,
    NotReady,
    OutOfTurn,
    RoundEnded,
    TaskEnded,
    UploadDamaged,
    WrongAmount,
)
from crowdfl.protocols.capabilities import NO_CLAIMS, SizesClaims
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.records import (
    ASKED,
    PaidClaim,
    PaymentState,
    Round,
    RoundState,
    StoredPayment,
    StoredTask,
    TaskState,
)
from crowdfl.roles.sp.core import UNDER_WAY, SpCore
from crowdfl.roles.sp.csp_link import forget_replies
from crowdfl.roles.sp.ledger import ESCROW, earned_account
from crowdfl.roles.sp.results import has_publication
from crowdfl.roles.sp.rounds import RoundSteps
from crowdfl.roles.sp.uploads import RoundAggregators

_ROOM = 4096
RESTORED = "SP was restored from a backup and may have paid this before; check with your bank"
PAID_BEFORE = "paid before SP was restored from a backup, as its operator says"


class Claims:
    """A claim is paid once per task, after its end and before its deadline."""

    def __init__(self, core: SpCore, aggregators: RoundAggregators) -> None:
        self._core, self._ports, self._aggregators = core, core.ports, aggregators

    def pay(self, task: str, claim: bytes) -> PaidClaim:
        """Pay a claim that CSP attests, each round from its own budget. The same claim again is the same payment."""
        found = self._ports.store.status(task)
        _require_open(found.state)
        last = found.rounds[-1][0] if found.rounds else None
        if last is not None and last.state in UNDER_WAY:
            raise NotReady(f"round {last.number} is not rewarded yet, and claims are paid once: ask again later")
        sp = self._aggregators.claiming(task, claim)
        who, digest = sp.check_claim(claim), hashlib.sha256(claim).hexdigest()
        before = self._paid_before(task, who, digest)
        if before is not None:
            return before
        attested = sp.pay(claim, self._ports.csp.answer(task, claim, len(claim) + _ROOM))
        with self._ports.store.transaction():
            stored = self._ports.store.task(task)
            _require_open(stored.state)  # the deadline may have passed while CSP looked
            return self._paid_before(task, who, digest) or self._book(stored, who, digest, attested)

    def pay_to(self, task: str, who: str, sealed: bytes) -> None:
        """Where a claim is to be paid, for the payer alone; another takes its place until it is paid."""
        if not self._core.definition(task).payer:
            raise Conflict("this task asks nobody where to be paid")
        if len(sealed) != SEALED_BYTES:
            raise FormatError(f"a sealed destination has {SEALED_BYTES} bytes, not {len(sealed)}")
        payment = self._ports.store.payment(task, who)
        if payment is None or payment.state is PaymentState.UNKNOWN:
            raise NotReady("there is no claim to pay, or nobody knows whether it was paid: send this again later")
        if payment.state is not PaymentState.PENDING:
            raise Conflict("this claim is paid, or being paid")
        if not self._ports.store.change_payment(payment, replace(payment, destination=sealed)):
            raise NotReady("this payment has just changed: send this again")

    def limit(self, task: str) -> int:
        """Bytes that are read of a claim: no honest one is longer, and one that is a little longer is told what is wrong."""
        settings, rounds = self._core.definition(task).settings, len(self._ports.store.rounds(task))
        profile = profile_named(settings.profile)
        if not isinstance(profile, SizesClaims):
            raise NO_CLAIMS
        return profile.claim_bytes(settings, rounds) + _ROOM

    def _paid_before(self, task: str, who: str, digest: str) -> PaidClaim | None:
        """What this very claim was paid before, for a participant whose answer was lost; another claim is refused."""
        payment = self._ports.store.payment(task, who)
        if payment is None:
            return None
        if payment.claim != digest:
            raise AlreadyPaid(f"{who} was paid for this task already")
        claimed = {int(number): int(amount) for number, amount in json.loads(payment.claimed).items()}
        paid = self._core.ledger(task).paid().get(who, {})
        return PaidClaim({number: paid.get(number, 0) for number in claimed}, claimed)

    def _book(self, stored: StoredTask, who: str, digest: str, attested: Mapping[int, int]) -> PaidClaim:
        """Movements and payment together. The caller holds a transaction."""
        task, store, now = stored.task, self._ports.store, self._core.probably_now()
        ledger = self._core.ledger(task)
        _require_within(attested, ledger.budgets(), restored=bool(stored.epoch))
        paid = {number: min(amount, ledger.balance(earned_account(number))) for number, amount in attested.items()}
        unused = ledger.unused(who)
        owed = [ledger.pay_unused(who, number, amount) for number, amount in unused.items()]
        store.post(task, *(ledger.pay(who, number, amount) for number, amount in paid.items()), *owed)
        outcome = PaidClaim(paid | unused, dict(attested) | unused)
        state = PaymentState.PENDING if outcome.amount else PaymentState.PAID  # there is nothing to hand over
        payment = StoredPayment(task, who, outcome.amount, digest, json.dumps(outcome.claimed), state, now)
        if outcome.amount:
            asked = ASKED if self._core.definition(task).payer else None
            payment = self._as_the_bank_knows(replace(payment, destination=asked), stored)
        store.add_payment(payment)
        return outcome

    def _as_the_bank_knows(self, payment: StoredPayment, stored: StoredTask) -> StoredPayment:
        """A new payment of an SP that was restored: made before, perhaps made before, or to be made."""
        if payment.key in self._ports.store.paid_before(stored.task):
            return replace(payment, state=PaymentState.PAID, error=PAID_BEFORE, destination=None)
        if stored.unreconciled:
            return replace(payment, state=PaymentState.UNKNOWN, error=RESTORED)
        return payment


def _require_open(state: str) -> None:
    if state not in (TaskState.FINISHED, TaskState.CANCELLED):
        raise NotReady(f"task is {state}: claims are paid after its end and before their deadline")


def _require_within(attested: Mapping[int, int], budgets: Mapping[int, int], *, restored: bool) -> None:
    """A reward is a part of its round's budget, whatever CSP signs.

    An SP that was restored from a backup may have lost a round that it had rewarded. Such a round has nothing left to pay: the
    rest of the claim is paid.
    """
    for number, amount in attested.items():
        if number not in budgets and not restored:
            raise ClaimRefused(f"round {number} was not rewarded: there is nothing to claim for it")
        if not 0 <= amount <= budgets.get(number, amount):
            raise WrongAmount(f"the claim for round {number} is outside what the round had to give")


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
        until = stored.claims_until
        if until is None or self._core.now() >= until or self._core.ledger(task).balance(ESCROW) > 0:
            return True
        return self._undelivered(task) is not None

    def settle(self, task: str, stored: StoredTask) -> bool:
        """Of a task whose last round is over: its time to claim begins, and escrow returns at once.

        After the claim deadline uploads are scrubbed, ids stay, and the unclaimed returns.
        """
        store, now, until = self._ports.store, self._core.now(), stored.claims_until
        if until is None:
            store.change_task(task, ended_at=now)
            return True
        ledger = self._core.ledger(task)
        if ledger.balance(ESCROW) > 0:
            return store.post(task, ledger.refund(f"escrow {len(ledger.movements)}"))
        if now < until:
            return self.deliver(task)
        self._scrub(task)  # first: a crash after the last step would leave it undone
        with store.transaction():
            self._return_unclaimed(task)
            store.change_task(task, state=TaskState.SETTLED)
        return True

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
