"""Deposits and payments.

A requester announces a deposit, and it counts once whoever runs SP has seen the money and confirms it. Until then it funds no
round and is never refunded. Every step can be repeated.

A payment is made once, by the operator's own program, beside the rounds. It is a row, made with the movements of its claim. A
process takes it (pending -> running) before it runs the program, keeps its lease while the program runs, and finishes it after.
A program that says no is run again later. Where nobody knows whether it paid, because it ran too long or its process died, the
payment is `unknown`: it waits for the operator, who asks the bank.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from crowdfl.errors import (
    Conflict,
    CrowdFLError,
    DepositRefused,
    PaymentFailed,
    PaymentUnknown,
    SettingsError,
    StoreUnavailable,
    UnknownDeposit,
    UnknownPayment,
)
from crowdfl.retry import Backoff, no_jitter, retry
from crowdfl.roles.records import ASKED, DepositState, PaymentState, StoredDeposit, StoredPayment, TaskState
from crowdfl.roles.sp.core import LedgerPorts, SpOptions, require_running
from crowdfl.roles.sp.ledger import Ledger


class Deposits:
    """`announce` is the requester's; `confirm` and `reject` are the operator's, and nobody else's."""

    def __init__(self, ports: LedgerPorts) -> None:
        self._ports = ports

    def announce(self, task: str, name: str, amount: int) -> None:
        with self._ports.store.transaction():  # or the task could end in between
            state = self._ports.store.task(task).state
            try:
                known = self._ports.store.deposit(task, name)
            except UnknownDeposit:
                require_running(state)
                now = self._ports.clock.now()
                self._ports.store.add_deposit(StoredDeposit(task, name, amount, DepositState.PENDING, now))
                return
            if known.amount != amount:
                raise Conflict(f"deposit {name!r} was announced with another amount: choose another name")
            if known.state is DepositState.REJECTED:
                raise DepositRefused(f"deposit {name!r} was rejected by the platform: ask its operator why")

    def confirm(self, task: str, name: str, amount: int) -> None:
        """The money is there. The amount is the one that came in: another than was announced is refused."""
        with self._ports.store.transaction():
            known = self._ports.store.deposit(task, name)
            if known.amount != amount:
                raise DepositRefused(
                    f"deposit {name!r} was announced as {known.amount} millionths, and {amount} are confirmed: "
                    "reject it, and let the requester announce what it paid under another name"
                )
            if self._decide(known, DepositState.CONFIRMED):
                self._credit(task, name, amount)

    def reject(self, task: str, name: str) -> None:
        """No such money came in."""
        with self._ports.store.transaction():
            self._decide(self._ports.store.deposit(task, name), DepositState.REJECTED)

    def _decide(self, known: StoredDeposit, state: DepositState) -> bool:
        """False if this was decided before."""
        if known.state is state:
            return False
        if known.state is not DepositState.PENDING:
            raise DepositRefused(f"deposit {known.name!r} was {known.state} before, and that is final")
        self._ports.store.decide_deposit(replace(known, state=state, decided_at=self._ports.clock.now()))
        return True

    def _credit(self, task: str, name: str, amount: int) -> None:
        """Into escrow; of a task whose books are closed, back to the requester at once."""
        ledger = Ledger(self._ports.store.movements(task))
        ledger.post(deposit := ledger.deposit(name, amount))
        self._ports.store.post(task, deposit)
        if self._ports.store.task(task).state == TaskState.SETTLED:
            self._ports.store.post(task, ledger.refund(f"deposit {name}"))


_RESTS = Backoff(first=60.0, longest=6 * 3600.0, jitter=no_jitter)
_OPEN = (PaymentState.PENDING, PaymentState.RUNNING)
_RESOLVED = {
    "paid": (PaymentState.PAID, (PaymentState.UNKNOWN, PaymentState.PENDING)),
    "again": (PaymentState.PENDING, (PaymentState.UNKNOWN,)),
}
_DIED = "the process that ran it has ended; check with your bank"
_STOPPED = "SP was stopped while it ran; check with your bank"
_FAULT = "the payout program could not be followed; check with your bank"
_LONGEST_ERROR = 200


def resolve_payment(ports: LedgerPorts, task: str, who: str, how: str) -> None:
    """What the operator found out: `paid`, or `again` where the bank knows nothing of it. Safe to repeat."""
    if how not in _RESOLVED:
        raise SettingsError(f"a payment is resolved as {' or '.join(_RESOLVED)}, not {how!r}")
    payment, (state, allowed) = ports.store.payment(task, who), _RESOLVED[how]
    if payment is None:
        raise UnknownPayment(f"{who} has claimed nothing in task {task}")
    now = ports.clock.now()
    if payment.state is state:
        return
    kept = None if state is PaymentState.PAID else payment.destination
    resolved = replace(payment, state=state, since=now, until=None, error=None, destination=kept)
    if payment.state_at(now) not in allowed or not ports.store.change_payment(payment, resolved):
        raise Conflict(f"this payment is {payment.state}: {how!r} is for one that is {' or '.join(allowed)}")


class Payments:
    """`run_one` is called by a thread of its own: a slow program keeps no round waiting."""

    def __init__(self, ports: LedgerPorts, options: SpOptions) -> None:
        self._ports, self._options = ports, options
        self._running: StoredPayment | None = None

    def run_one(self) -> bool:
        """Make the next payment that is due; False if there is none. Payments of processes that died become unknown."""
        pay = self._options.on_paid  # without one, the operator pays by hand
        payment = self._take_next(can_pay=pay is not None)
        if payment is None or pay is None:
            return False
        self._running = payment
        try:
            state, error = self._run(payment, pay)
            patience = Backoff(deadline=self._options.lease_seconds)
            retry(lambda: self._finish(payment, state, error), patience, StoreUnavailable)
        finally:
            self._running = None
        return True

    def abandon(self) -> None:
        """This process ends while a program still runs: nobody will hear how that went."""
        payment = self._running
        if payment is not None:
            self._finish(payment, PaymentState.UNKNOWN, _STOPPED)

    def _take_next(self, *, can_pay: bool) -> StoredPayment | None:
        now = self._now()
        for payment in self._ports.store.payments(states=_OPEN):
            if payment.state_at(now) is PaymentState.UNKNOWN:
                self._change(payment, PaymentState.UNKNOWN, error=_DIED)
            elif can_pay and self._is_due(payment, now):
                taken = self._take(payment, now)
                if taken is not None:
                    return taken
        return None

    def _is_due(self, payment: StoredPayment, now: float) -> bool:
        """Of a task that asks people where to be paid, once they have said so."""
        rests = payment.until is not None and payment.until > now
        return payment.state is PaymentState.PENDING and not rests and payment.destination != ASKED

    def _now(self) -> float:
        """A clock that is wrong for a while must not date a lease or a rest years ahead."""
        watch = self._options.watch
        return self._ports.clock.now() if watch is None else watch.estimate()

    def _take(self, payment: StoredPayment, now: float) -> StoredPayment | None:
        """Durably, before the program is run: of several processes one gets it."""
        options = self._options
        until, attempts = now + options.lease_seconds, payment.attempts + 1
        taken = replace(
            payment, state=PaymentState.RUNNING, since=now, until=until, owner=options.owner, attempts=attempts
        )
        return taken if self._ports.store.change_payment(payment, taken) else None

    def _run(self, payment: StoredPayment, pay: Callable[[StoredPayment], None]) -> tuple[PaymentState, str | None]:
        """What became of it. Whatever is not a clear yes or no is unknown."""
        try:
            with self._renewing(payment):
                pay(payment)
        except PaymentFailed as failure:
            return PaymentState.PENDING, str(failure)
        except PaymentUnknown as unknown:
            return PaymentState.UNKNOWN, str(unknown)
        except Exception:  # noqa: BLE001 -- whatever it was, the program may have run
            return PaymentState.UNKNOWN, _FAULT
        return PaymentState.PAID, None

    def _finish(self, payment: StoredPayment, state: PaymentState, error: str | None) -> None:
        """Also of a payment that was declared unknown meanwhile, unless somebody has dealt with it since."""
        rest = _RESTS.delay(payment.attempts - 1) if state is PaymentState.PENDING else None
        now = self._mine(payment)
        while now is not None and not self._change(now, state, error=error, rest=rest):
            now = self._mine(payment)  # it was declared unknown, or its lease renewed, at this very moment

    def _mine(self, payment: StoredPayment) -> StoredPayment | None:
        """The payment as it is now, if this attempt is still the last one."""
        now = self._ports.store.payment(payment.task, payment.who)
        if now is None or (now.owner, now.attempts) != (payment.owner, payment.attempts):
            return None
        return now if now.state in (PaymentState.RUNNING, PaymentState.UNKNOWN) else None

    def _change(
        self, known: StoredPayment, state: PaymentState, *, error: str | None = None, rest: float | None = None
    ) -> bool:
        now = self._now()
        until = None if rest is None else now + rest
        said = None if error is None else error[:_LONGEST_ERROR]
        changed = replace(known, state=state, since=now, until=until, error=said)
        if state is PaymentState.PAID:
            changed = replace(changed, destination=None)  # nobody needs it any more
        return self._ports.store.change_payment(known, changed)

    @contextlib.contextmanager
    def _renewing(self, payment: StoredPayment) -> Iterator[None]:
        """Keeps the lease while the program runs, from another thread."""
        ended = threading.Event()
        thread = threading.Thread(target=self._renew, args=(payment, ended), name="sp-renews-payment", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _renew(self, payment: StoredPayment, ended: threading.Event) -> None:
        """One that was declared unknown while this process was away stays so until its program has ended."""
        seconds = self._options.lease_seconds
        while not ended.wait(seconds / 3):
            with contextlib.suppress(CrowdFLError, OSError):  # a store that is away now may be back at the next beat
                now = self._mine(payment)
                if now is not None and now.state is PaymentState.RUNNING:
                    self._ports.store.change_payment(now, replace(now, until=self._now() + seconds))
