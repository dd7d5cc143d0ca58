"""What a role may no longer believe when its store was restored from a backup: what happened since, nobody knows.

SP: a payment that waits may have been made, and so may a refund. A task that pays therefore stands still, and no payment of it
runs, until its operator has compared both with the bank (`reconcile`); claims are taken meanwhile. Phones are told to look for
their uploads, and open rounds give them a whole window for it. A round that CSP may have been asked about with the seeds in the
backup is given up: a CSP that deviates could answer the same requests otherwise, and see two sets of numbers under one set of
masks. Which steps have left since the backup, the guards of SP and CSP say (`guard`). Where one is lost too, nobody knows: SP
cancels tasks whose masks KGC has dealt, and CSP answers no step of any task. What both have kept stays claimable.
"""

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import SettingsError, TaskUnreadable
from crowdfl.protocols.capabilities import DealsFiles
from crowdfl.protocols.registry import profile_named
from crowdfl.reasons import Void
from crowdfl.roles.ports import CspStore, ManualClock, SpStore
from crowdfl.roles.records import (
    EndedBy,
    PaymentState,
    RoundState,
    StoredPayment,
    StoredTask,
    TaskState,
    Tombstone,
)
from crowdfl.roles.sp.core import ENDED, UNDER_WAY, LedgerPorts
from crowdfl.roles.sp.instalments import RESTORED, take_off
from crowdfl.roles.sp.ledger import ESCROW, Ledger
from crowdfl.roles.sp.tasks import cancel_task, give_up_round

_OPEN = (PaymentState.PENDING, PaymentState.RUNNING)
_RETURNED = "SP was restored from a backup, and this task's money was returned since"
_MASKS_IN_DOUBT = "SP was set back: its notes are lost, and the masks of this task's rounds may have been used"


def mark_restored_sp(store: SpStore, now: float) -> None:
    """Mark SP's store, which nobody serves yet."""
    with store.transaction():
        found = set[str]()
        for stored in store.tasks():
            try:
                with store.transaction():
                    _question_task(store, stored, now)
            except TaskUnreadable:  # rounds or books, which nothing has read before
                found.add(stored.task)
        found |= {one.task for one in store.unreadable()}
        for task in found:  # some version may read it one day, and would make its payments
            _question_unread(store, task)
            with contextlib.suppress(TaskUnreadable):
                _question_payments(store, store.payments(task, _OPEN), now)
        _question_payments(store, store.payments(states=_OPEN), now)


def _question_payments(store: SpStore, waiting: Iterable[StoredPayment], now: float) -> None:
    for payment in waiting:
        unknown = replace(payment, state=PaymentState.UNKNOWN, since=now, until=None, error=RESTORED)
        store.change_payment(payment, unknown)


def _question_task(store: SpStore, stored: StoredTask, now: float) -> None:
    pays = stored.opened.settings.budget is not None
    unreconciled = stored.unreconciled or (pays and stored.state != TaskState.SETTLED)
    store.change_task(stored.task, epoch=secret_hex(8), unreconciled=unreconciled)
    _give_up_asked(store, stored.task)
    if stored.state not in ENDED:
        _open_anew(store, stored.task, now)


def _question_unread(store: SpStore, task: str) -> None:
    store.change_task(task, epoch=secret_hex(8), unreconciled=True)
    with contextlib.suppress(TaskUnreadable):  # rounds or books that nobody can read: nothing of it moves
        _give_up_asked(store, task)


def _give_up_asked(store: SpStore, task: str) -> None:
    for round_ in store.rounds(task):
        if round_.state in UNDER_WAY or (not round_.is_over and store.sp_record(task, round_.number).round):
            give_up_round(store, task, round_, Void.RESTORED)


def _open_anew(store: SpStore, task: str, now: float) -> None:
    for round_ in store.rounds(task):
        if round_.state is RoundState.OPEN:
            store.set_round(task, round_, replace(round_, opened_at=max(now, round_.opened_at)))


def reconcile(ports: LedgerPorts, task: str, *, returned: int, paid: Mapping[str, int] | None = None) -> None:
    """The operator has compared this task's money with the bank: it goes on, and claims are paid by themselves again.

    `returned` is what the bank has handed back to its requester since the task began, in millionths; `paid` are the payments
    that it has made, by key, whatever the books say: none of them runs. What is claimed beyond them is paid. Safe to repeat.
    """
    store = ports.store
    paid = paid or {}
    for key in paid:
        _require_key(key)
    if paid and store.task(task).opened.payer:  # a key that it has paid under may be of other rounds here
        raise SettingsError("this task's payer knows itself what it has paid in all: reconcile without naming payments")
    with store.transaction():
        waited = store.task(task).unreconciled
        take_off(store, store.task(task), paid, ports.clock.now())
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
    store.post(task, replace(ledger.refund(f"before the restore, {returned} in all"), amount=missing))


def _require_key(named: str) -> None:
    if not re.fullmatch("[0-9a-f]{32}", named):
        raise SettingsError(
            f"{named!r} is no payment's key: 32 hexadecimal digits, as the bank was given and `crowdfl sp payouts` shows"
        )


def end_doubtful_sp(store: SpStore, now: float) -> None:
    """Nobody knows which masks SP has used: tasks whose masks were dealt are cancelled."""
    books = LedgerPorts(store, ManualClock(now))
    with store.transaction():
        for stored in store.tasks():
            if stored.state in ENDED or not isinstance(profile_named(stored.opened.settings.profile), DealsFiles):
                continue
            try:
                with store.transaction():
                    for round_ in store.rounds(stored.task):
                        if round_.state in UNDER_WAY:
                            give_up_round(store, stored.task, round_, Void.RESTORED)
                    cancel_task(books, stored.task, Tombstone("cancelled", EndedBy.SP, _MASKS_IN_DOUBT))
            except TaskUnreadable:
                _end_unread(store, stored.task, now)
        for unread in store.unreadable():
            if unread.state not in ENDED:
                _end_unread(store, unread.task, now)


def _end_unread(store: SpStore, task: str, now: float) -> None:
    _question_unread(store, task)
    ending = Tombstone("cancelled", EndedBy.SP, _MASKS_IN_DOUBT)
    store.change_task(task, state=TaskState.CANCELLED, ended_at=now, end=ending)


def end_doubtful_csp(store: CspStore) -> None:
    """Nobody knows what CSP has answered: no task that is here has another step answered."""
    for stored in store.all_tasks():
        store.change_task(stored.task, rolled_back=True)
