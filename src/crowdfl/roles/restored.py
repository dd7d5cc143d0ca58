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
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError, SettingsError
from crowdfl.protocols.profile import RESTORED as CSP_RESTORED
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.ends import Tombstone
from crowdfl.roles.ports import PaymentState, SpStore, StoredTask, payment_key
from crowdfl.roles.sp.cancel import cancel_task, give_up_round
from crowdfl.roles.sp.core import ENDED, EPOCH, UNDER_WAY, UNRECONCILED, MoneyPorts, TrustedLedgerPorts
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.roles.sp.rounds import RoundState, TaskState
from crowdfl.roles.sp.settlement import RESTORED, paid_before

_OPEN = (PaymentState.PENDING, PaymentState.RUNNING)
_MASKS_IN_DOUBT = "SP was restored from a backup, and the masks of this task's rounds may have been used since"


class _CspState(Protocol):
    def tasks(self) -> Sequence[StoredTask]: ...
    def memory(self, task: str) -> MutableMapping[str, bytes]: ...


def mark_restored_sp(store: SpStore, now: float) -> None:
    """Mark SP's store, which nobody serves yet."""
    with store.transaction():
        for stored in store.tasks():
            _question_task(store, stored, now)
        for payment in store.payments(states=_OPEN):
            unknown = replace(payment, state=PaymentState.UNKNOWN, since=now, until=None, error=RESTORED)
            store.change_payment(payment, unknown)


def _question_task(store: SpStore, stored: StoredTask, now: float) -> None:
    memory = store.memory(stored.task)
    memory[EPOCH] = secrets.token_hex(8).encode()
    if stored.state != TaskState.SETTLED:
        memory[UNRECONCILED] = b""
    for round_ in store.rounds(stored.task):
        if round_.state in UNDER_WAY or (not round_.is_over and store.seeds(stored.task, round_.number)):
            give_up_round(store, stored.task, round_)
        elif round_.state is RoundState.OPEN and stored.state not in ENDED:
            store.put_round(stored.task, replace(round_, opened_at=max(now, round_.opened_at)))
    if stored.state not in ENDED and _is_chained(stored):
        cancel_task(TrustedLedgerPorts(store, _At(now)), stored.task, Tombstone("cancelled", "SP", _MASKS_IN_DOUBT))


def _is_chained(stored: StoredTask) -> bool:
    """A definition that this program cannot read has no rounds to come either: it keeps no other task from being restored."""
    try:
        return profile_named(Definition.open(stored.definition).settings.profile).chained
    except CrowdFLError:
        return False


@dataclass(frozen=True)
class _At:
    """A clock that stands still."""

    time: float

    def now(self) -> float:
        return self.time


def reconcile(ports: MoneyPorts, task: str, paid: Sequence[str] = ()) -> None:
    """The operator has compared this task's payments with the bank: from now on claims are paid by themselves again.

    `paid` are those that the bank has made, participants or keys, whatever the books say: none of them runs. Safe to repeat.
    """
    store, keys = ports.store, [_key(task, one) for one in paid]
    with store.transaction():
        store.task(task)
        for key in keys:
            store.memory(task)[paid_before(key)] = b""
        for payment in store.payments(task):
            if payment.key in keys:
                resolve_payment(ports, task, payment.who, "paid")
        store.memory(task).pop(UNRECONCILED, None)


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
    memory, booked = store.memory(task), {payment.key for payment in store.payments(task)}
    enrolled = {payment_key(task, one.identity.who): one.identity.who for one in store.participants(task)}
    marked = [name.removeprefix(paid_before("")) for name in memory if name.startswith(paid_before(""))]
    return {key: enrolled.get(key) for key in sorted(marked) if key not in booked}


def mark_restored_csp(store: _CspState) -> None:
    """Mark CSP's store: no task that is in it has another step answered."""
    for stored in store.tasks():
        store.memory(stored.task)[CSP_RESTORED] = b""
