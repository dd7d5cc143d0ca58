"""What a role may no longer believe when its store was restored from a backup: what happened since, nobody knows.

SP: a payment that waits may have been made, so that none runs by itself; phones are told to look for their uploads, and open
rounds give them a whole window for it. A round that CSP may have been asked about with the seeds in the backup is given up: a
CSP that deviates could answer the same requests otherwise, and see two sets of numbers under one set of masks. A task whose
masks KGC has dealt by round, or whose averages follow from each other, is cancelled: which rounds have used theirs since the
backup, nobody but CSP could say, and one that deviates would not. CSP: any step of
any round of its tasks may have been answered, so that none is answered again: rounds that need one are void. What both have
kept stays claimable.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace

from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.ports import CspStore, ManualClock, SpStore
from crowdfl.roles.records import PaymentState, RoundState, StoredTask, TaskState, Tombstone, payment_key
from crowdfl.roles.sp.cancel import cancel_task, give_up_round
from crowdfl.roles.sp.core import ENDED, UNDER_WAY, MoneyPorts, TrustedLedgerPorts
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.roles.sp.settlement import RESTORED

_OPEN = (PaymentState.PENDING, PaymentState.RUNNING)
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
    unreconciled = stored.unreconciled or stored.state != TaskState.SETTLED
    store.change_task(stored.task, epoch=secrets.token_hex(8), unreconciled=unreconciled)
    for round_ in store.rounds(stored.task):
        if round_.state in UNDER_WAY or (not round_.is_over and store.seeds(stored.task, round_.number)):
            give_up_round(store, stored.task, round_)
        elif round_.state is RoundState.OPEN and stored.state not in ENDED:
            store.put_round(stored.task, replace(round_, opened_at=max(now, round_.opened_at)))
    if stored.state not in ENDED and _is_chained(stored):
        still = TrustedLedgerPorts(store, ManualClock(now))
        cancel_task(still, stored.task, Tombstone("cancelled", "SP", _MASKS_IN_DOUBT))


def _is_chained(stored: StoredTask) -> bool:
    """A definition that this program cannot read has no rounds to come either: it keeps no other task from being restored."""
    try:
        return profile_named(stored.opened.settings.profile).chained
    except CrowdFLError:
        return False


def reconcile(ports: MoneyPorts, task: str, paid: Sequence[str] = ()) -> None:
    """The operator has compared this task's payments with the bank: from now on claims are paid by themselves again.

    `paid` are those that the bank has made, participants or keys, whatever the books say: none of them runs. Safe to repeat.
    """
    store, keys = ports.store, [_key(task, one) for one in paid]
    with store.transaction():
        store.task(task)
        store.mark_paid_before(task, keys)
        for payment in store.payments(task):
            if payment.key in keys:
                resolve_payment(ports, task, payment.who, "paid")
        store.change_task(task, unreconciled=False)


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
