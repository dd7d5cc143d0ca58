"""What a role may no longer believe when its store was restored from a backup: what happened since, nobody knows.

SP: a payment that waits may have been made, and so may a refund. A task that pays therefore stands still, and no payment of it
runs, until its operator has compared both with the bank (`reconcile`); claims are taken meanwhile. Phones are told to look for
their uploads, and open rounds give them a whole window for it. A round that CSP may have been asked about with the seeds in the
backup is given up: a CSP that deviates could answer the same requests otherwise, and see two sets of numbers under one set of
masks. A task whose masks KGC has dealt by round, or whose averages follow from each other, is cancelled: which rounds have used
theirs since the backup, nobody but CSP could say, and one that deviates would not. CSP: any step of any round of its tasks may
have been answered, so that none is answered again: rounds that need one are void. What both have kept stays claimable.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.ports import CspStore, ManualClock, SpStore
from crowdfl.roles.records import EndedBy, PaymentState, RoundState, StoredTask, TaskState, Tombstone, payment_key
from crowdfl.roles.sp.core import ENDED, UNDER_WAY, LedgerPorts
from crowdfl.roles.sp.ledger import ESCROW, Ledger
from crowdfl.roles.sp.money import resolve_payment
from crowdfl.roles.sp.settlement import RESTORED
from crowdfl.roles.sp.tasks import cancel_task, give_up_round

_OPEN = (PaymentState.PENDING, PaymentState.RUNNING)
_RETURNED = "SP was restored from a backup, and this task's money was returned since"
_MASKS_IN_DOUBT = "SP was restored from a backup, and the masks of this task's rounds may have been used since"


def mark_restored_sp(store: SpStore, now: float) -> None:
    """Mark SP's store, which nobody serves yet."""
    with store.transaction():
        for stored in store.tasks():
            _question_task(store, stored, now)
        for payment in store.payments(states=_OPEN):
            unknown = replace(payment, state=PaymentState.UNKNOWN, since=now, until=None, error=RESTORED)
            store.change_payment(payment, unknown)


def _question_task(store: SpStore, stored: StoredTask, now: float) -> None:
    goes_on, pays = _kind(stored)
    unreconciled = stored.unreconciled or (pays and stored.state != TaskState.SETTLED)
    store.change_task(stored.task, epoch=secret_hex(8), unreconciled=unreconciled)
    for round_ in store.rounds(stored.task):
        if round_.state in UNDER_WAY or (not round_.is_over and store.sp_record(stored.task, round_.number).round):
            give_up_round(store, stored.task, round_)
    if stored.state not in ENDED:
        _open_anew(store, stored.task, now)
    if stored.state not in ENDED and not goes_on:
        still = LedgerPorts(store, ManualClock(now))
        cancel_task(still, stored.task, Tombstone("cancelled", EndedBy.SP, _MASKS_IN_DOUBT))


def _open_anew(store: SpStore, task: str, now: float) -> None:
    for round_ in store.rounds(task):
        if round_.state is RoundState.OPEN:
            store.set_round(task, round_, replace(round_, opened_at=max(now, round_.opened_at)))


def _kind(stored: StoredTask) -> tuple[bool, bool]:
    """Whether it can go on, and whether it pays.

    A definition that this program cannot read has no rounds to come: it keeps no other task from being restored.
    """
    try:
        settings = stored.opened.settings
        return profile_named(settings.profile).goes_on_restored, settings.budget is not None
    except CrowdFLError:
        return True, True


def reconcile(ports: LedgerPorts, task: str, *, returned: int, paid: Sequence[str] = ()) -> None:
    """The operator has compared this task's money with the bank: it goes on, and claims are paid by themselves again.

    `returned` is what the bank has handed back to its requester since the task began, in millionths; `paid` are the payments
    that it has made, participants or keys, whatever the books say: none of them runs. Safe to repeat.
    """
    store, keys = ports.store, [_key(task, one) for one in paid]
    with store.transaction():
        waited = store.task(task).unreconciled
        store.mark_paid_before(task, keys)
        for payment in store.payments(task):
            if payment.key in keys:
                resolve_payment(ports, task, payment.who, "paid")
        _book_returned(ports, task, returned)
        store.change_task(task, unreconciled=False)
        if waited and store.task(task).state not in ENDED:
            _open_anew(store, task, ports.clock.now())


def _book_returned(ports: LedgerPorts, task: str, returned: int) -> None:
    """Money goes back after the end alone, and more than the escrow after the time to claim alone: the books follow."""
    store = ports.store
    missing = returned - Ledger(store.movements(task)).returned()
    if missing <= 0:
        return
    if store.task(task).state not in ENDED:
        cancel_task(ports, task, Tombstone("cancelled", EndedBy.SP, _RETURNED))
    ledger = Ledger(store.movements(task))
    if missing > ledger.balance(ESCROW):
        expired = ledger.expire_claims()
        for movement in expired:
            ledger.post(movement)
        store.post(task, *expired)
        store.change_task(task, state=TaskState.SETTLED)
    store.post(task, replace(ledger.refund("before the restore"), amount=missing))


def _key(task: str, named: str) -> str:
    """A participant that joined after the backup is unknown here, and its payment has a key all the same."""
    if re.fullmatch("[0-9a-f]{32}", named):
        return named
    if re.fullmatch("[0-9a-f]{20}", named):
        return payment_key(task, named)
    raise SettingsError(
        f"{named!r} is neither a participant (20 hexadecimal digits) nor a payment's key (32), as `crowdfl sp payouts` shows"
    )


def forgotten_payments(store: SpStore, task: str) -> dict[str, str | None]:
    """Payments that the bank has made and the books lack, by key; the participant, where it is enrolled."""
    booked = {payment.key for payment in store.payments(task)}
    enrolled = {payment_key(task, one.identity.who): one.identity.who for one in store.participants(task)}
    return {key: enrolled.get(key) for key in sorted(store.paid_before(task) - booked)}


def mark_restored_csp(store: CspStore) -> None:
    """Mark CSP's store: no task that is in it has another step answered."""
    for stored in store.tasks():
        store.change_task(stored.task, restored=True)
