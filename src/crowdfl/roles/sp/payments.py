"""Payments, each made once.

A payment is made by the operator's own program, beside the rounds. It is an instalment: a row, made with the movements of
the claim that adds it. Where to pay is kept by person, with CSP's newest statement, and the payer checks both.

A process takes a payment (pending -> running) before it runs the program, keeps its lease while the program runs, and finishes
it after. A program that says no is run again later. Where nobody knows whether it paid, because it ran too long or its process
died, the payment is `unknown`: it waits for the operator, who asks the bank.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from crowdfl.documents.payment_batch import Result
from crowdfl.errors import (
    Conflict,
    CrowdFLError,
    NoDestination,
    PaymentFailed,
    PaymentUnknown,
    SettingsError,
    StoreUnavailable,
    UnknownPayment,
)
from crowdfl.retry import Backoff, no_jitter, retry
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import (
    PaymentState,
    PayState,
    PayWord,
    StoredPayment,
)
from crowdfl.roles.sp.core import LedgerPorts, SpOptions
from crowdfl.roles.sp.ledger import Ledger
from crowdfl.roles.sp.payees import erase_destination, waits_for_destination

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


def resolve_payment(ports: LedgerPorts, task: str, named: str, how: str, note: str = "") -> None:
    """What the operator found out: `paid`, or `again` where the bank knows nothing of it. Safe to repeat.

    A payment is named by its key, or by its participant, who may have one that is not paid. A payer pays with one instalment
    all that came before it, so that those are paid too. What neither a program nor a payer could pay is paid with a `note`
    that says how.
    """
    if how not in _RESOLVED:
        raise SettingsError(f"a payment is resolved as {' or '.join(_RESOLVED)}, not {how!r}")
    note = " ".join(note.split())
    if len(note) > _LONGEST_ERROR or not note.isprintable():
        raise SettingsError(f"a note is a line of at most {_LONGEST_ERROR} printable characters")
    store = ports.store
    with store.transaction():
        resolve_in(store, _named(store, task, named), how, ports.clock.now(), note)


def resolve_in(store: SpStore, payment: StoredPayment, how: str, now: float, note: str) -> None:
    """The caller holds a transaction."""
    (state, allowed) = _RESOLVED[how]
    if payment.state is state:
        return
    is_open = payment.state_at(now) in allowed
    if is_open and state is PaymentState.PAID and not (note or payment.attempts or _has_place(store, payment)):
        raise NoDestination(
            f'nobody knows where {payment.who} wants to be paid: say in a note how it was paid, as in "cash"'
        )
    resolved = replace(payment, state=state, since=now, until=None, error=None, note=note)
    if not is_open or not store.change_payment(payment, resolved):
        raise Conflict(f"this payment is {payment.state}: {how!r} is for one that is {' or '.join(allowed)}")
    if state is PaymentState.PAID:
        _pay_earlier(store, payment, now, note)
        erase_destination(store, payment.task, payment.who)


def fail_payment(ports: LedgerPorts, task: str, key: str, why: str) -> None:
    """A payer's word that a payment was not made, and why, for the person: it waits for another destination, or another try."""
    store, now = ports.store, ports.clock.now()
    with store.transaction():
        payment = _named(store, task, key)
        failed = replace(payment, state=PaymentState.PENDING, since=now, until=None, error=why[:_LONGEST_ERROR])
        if payment.state_at(now) not in (PaymentState.PENDING, PaymentState.UNKNOWN):
            raise Conflict(f"this payment is {payment.state}, and cannot have failed")
        store.change_payment(payment, failed)


def take_results(ports: LedgerPorts, results: Sequence[Result]) -> Counter[str]:
    """All that a payer's file says, or nothing; how many of each. Safe to repeat."""
    store = ports.store
    with store.transaction():
        for one in results:
            if one.state == "paid":
                resolve_payment(ports, one.task, one.key, "paid")
            else:
                fail_payment(ports, one.task, one.key, one.why)
    return Counter(one.state for one in results)


def _named(store: SpStore, task: str, named: str) -> StoredPayment:
    found = [one for one in store.payments(task) if named in (one.key, one.who)]
    if not found:
        raise UnknownPayment(f"task {task} has no payment of {named}")
    unpaid = [one for one in found if one.state is not PaymentState.PAID]
    if len(unpaid) > 1:
        keys = ", ".join(one.key for one in unpaid)
        raise Conflict(
            f"{named} has {len(unpaid)} payments that are not paid: name the one that is meant by its key, {keys}"
        )
    return unpaid[0] if unpaid else found[-1]


def _has_place(store: SpStore, payment: StoredPayment) -> bool:
    return bool(store.payee(payment.task, payment.who).destination)


def _pay_earlier(store: SpStore, payment: StoredPayment, now: float, note: str) -> None:
    if not store.task(payment.task).opened.payer:
        return
    for one in store.instalments(payment.task, payment.who):
        is_open = one.state_at(now) in (PaymentState.PENDING, PaymentState.UNKNOWN)
        if one.sequence < payment.sequence and is_open:
            paid = replace(one, state=PaymentState.PAID, since=now, until=None, error=None, note=note)
            store.change_payment(one, paid)


def pay_words(store: SpStore, task: str, who: str, now: float) -> dict[int, PayWord]:
    """By round, of all that is booked for somebody: instalments pay rounds by what they come to, in the order in which they
    were booked."""
    lacks = waits_for_destination(store, task)(who)
    found, rows, end = dict[int, PayWord](), list[tuple[int, int, StoredPayment]](), 0
    for one in store.instalments(task, who):
        rows.append((end, end + one.amount, one))
        end += one.amount
    begin = 0
    for number, amount in Ledger(store.movements(task)).booked(who):
        its = [one for first, last, one in rows if first < begin + max(amount, 1) and last > begin]
        its = its or [one for _, _, one in rows[-1:] if not amount]  # nothing is paid with what came before it
        begin += amount
        if not its:  # less than a millionth was owed, or it is booked at this very moment
            found[number] = PayWord(amount, PayState.WAITING, "", now)
            continue
        # A round that several pay is paid when all of them are.
        state, one = max(((one.pay_state(now, has_place=not lacks), one) for one in its), key=lambda of: _LATEST[of[0]])
        note = one.note if state is PayState.PAID else (one.error or "") if state is PayState.FAILED else ""
        found[number] = PayWord(amount, state, note, one.since)
    return found


_LATEST = {PayState.PAID: 0, PayState.WAITING: 1, PayState.NO_DESTINATION: 2, PayState.FAILED: 3}


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
        store = self._ports.store
        waits: dict[str, Callable[[str], bool]] = {}  # by task
        for payment in store.payments(states=_OPEN):
            if payment.state_at(now) is PaymentState.UNKNOWN:
                self._change(payment, PaymentState.UNKNOWN, error=_DIED)
            elif can_pay and self._is_due(payment, now):
                if payment.task not in waits:
                    waits[payment.task] = waits_for_destination(store, payment.task)
                if waits[payment.task](payment.who):
                    continue
                taken = self._take(payment, now)
                if taken is not None:
                    return taken
        return None

    def _is_due(self, payment: StoredPayment, now: float) -> bool:
        rests = payment.until is not None and payment.until > now
        return payment.state is PaymentState.PENDING and not rests

    def _now(self) -> float:
        """A clock that is wrong for a while must not date a lease or a rest years ahead."""
        watch = self._options.watch
        return self._ports.clock.now() if watch is None else watch.estimate()

    def _take(self, payment: StoredPayment, now: float) -> StoredPayment | None:
        """Durably, before the program is run: of several processes one gets it."""
        options = self._options
        until = now + options.lease_seconds
        attempts = payment.attempts + 1
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
        now = self._ports.store.payment(payment.task, payment.who, payment.sequence)
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
        store = self._ports.store
        with store.transaction():
            done = store.change_payment(known, changed)
            if done and state is PaymentState.PAID:
                erase_destination(store, known.task, known.who)
        return done

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
