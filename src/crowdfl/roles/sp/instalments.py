"""What somebody is owed, as payments: each claim adds one, and what a bank has paid before a restore is taken off.

A bank knows a payment by its key, which counts the rounds that are paid with it. A claim that comes again after a restore may
put its rounds together otherwise, and so has another key: what the operator names is a person's, not a key's.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count

from crowdfl.errors import Conflict
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import PaymentState, StoredPayment, StoredTask, payment_key
from crowdfl.roles.sp.payees import erase_destination
from crowdfl.settings import handed_over, whole_cents

RESTORED = "SP was restored from a backup and may have paid this before; check with your bank"
PAID_BEFORE = "paid before SP was restored from a backup, as its operator says"
BANK = "the bank"
"""Who has made a payment, or a part of it, before a restore: the operator has named it, and no program ever runs for it."""
_WAITS = (PaymentState.PENDING, PaymentState.UNKNOWN)


def book_instalment(
    store: SpStore, stored: StoredTask, who: str, sequence: int, attested: int, word: int, now: float
) -> None:
    """What a claim adds to what somebody is owed, once its movements are posted: attested millionths, and those on SP's word.

    `sequence` is how many rounds of theirs are paid by now, attested or for unused uploads. What the bank has paid them before
    a restore, and no claim has come to since, is taken off, however a claim puts its rounds together. The caller holds a
    transaction.
    """
    owed = attested + word
    if owed <= 0:
        return
    new = StoredPayment(stored.task, who, sequence, owed, word, PaymentState.PENDING, now)
    if stored.unreconciled:
        new = replace(new, state=PaymentState.UNKNOWN, error=RESTORED)
    named = store.paid_before(stored.task)
    if not named:
        store.add_payment(new)
        return
    rows = store.instalments(stored.task, who)
    for part in _parts(stored, new, named, rows):
        store.add_payment(part)


def take_off(store: SpStore, stored: StoredTask, paid: Mapping[str, int], now: float) -> None:
    """What the bank has paid before a restore, by key: what waits here is paid as far as that goes, and the rest waits on.
    Another amount of the same key corrects it. The caller holds a transaction."""
    task = stored.task
    store.mark_paid_before(task, paid)
    named = store.paid_before(task)
    if not named:
        return
    people = defaultdict[str, list[StoredPayment]](list)
    for one in store.payments(task):
        if one.key in paid and one.state_at(now) is PaymentState.RUNNING:  # whether it pays, nobody knows yet
            raise Conflict(f"payment {one.key} runs at this moment: reconcile once more when it has ended")
        if one.owner == BANK or one.state_at(now) in _WAITS:
            people[one.who].append(one)
    for who, theirs in people.items():
        for one in sorted(theirs, key=lambda payment: payment.sequence):
            rows = store.instalments(task, who)
            others = [row for row in rows if row.sequence != one.sequence]
            first, *rest = _parts(stored, _waiting(one, now), named, others)
            if first.owner == BANK:
                first = replace(first, since=one.since if one.owner == BANK else now, until=None)
            # Where it stays as it is, the bank has made all of it, or none, and does not know its key.
            if first != one and not store.change_payment(one, first):
                raise Conflict("a payment has begun at this very moment: reconcile once more")
            for part in rest:
                store.add_payment(part)
        erase_destination(store, task, who)


def _waiting(payment: StoredPayment, now: float) -> StoredPayment:
    """As it would be if the bank had made nothing of it: an amount that was named may have been too much."""
    if payment.owner != BANK:
        return payment
    return replace(payment, state=PaymentState.UNKNOWN, since=now, owner=None, error=RESTORED)


def _parts(
    stored: StoredTask, new: StoredPayment, named: Mapping[str, int], rows: Sequence[StoredPayment]
) -> list[StoredPayment]:
    """A payment beside those that are there: what the bank has made of it, and what is still to be paid, under a key that the
    bank does not know."""
    left = sum(_left_of(stored, new.who, named, rows).values())
    taken = {one.sequence for one in rows}
    known = {n for n in _sequences(stored, rows) if payment_key(stored.task, new.who, n) in named}
    by_bank = replace(new, state=PaymentState.PAID, owner=BANK, error=PAID_BEFORE)
    start = new.sequence if new.sequence not in taken else max(taken) + 1
    by_bank = replace(by_bank, sequence=start)
    before = sum(one.amount for one in rows if one.sequence < by_bank.sequence)
    if left and handed_over(before, new.amount) <= left:
        return [by_bank]
    if not left:
        return [replace(new, sequence=_free(start, taken | known))]
    rest = new.amount - left
    word = min(new.word, rest)
    part = replace(by_bank, amount=left, word=new.word - word)
    sequence = _free(start, taken | known | {part.sequence})
    return [part, replace(new, sequence=sequence, amount=rest, word=word)]


def _free(sequence: int, taken: Collection[int]) -> int:
    """The first from here on that no other payment has."""
    return next(n for n in count(sequence) if n not in taken)


def _sequences(stored: StoredTask, rows: Sequence[StoredPayment]) -> range:
    """That a payment of somebody's may have had: of rounds, unused uploads, the bonus, and those that gave way to others."""
    items = 2 * stored.opened.settings.rounds + 2
    return range(1, 2 * items + max((one.sequence for one in rows), default=0))


def _left_of(stored: StoredTask, who: str, named: Mapping[str, int], rows: Sequence[StoredPayment]) -> dict[int, int]:
    """What the bank has paid somebody before a restore and no claim has come to since, in whole cents, by the payment's
    sequence."""
    made_here = {one.sequence for one in rows if one.owner != BANK and one.state is PaymentState.PAID}
    keys = {n: payment_key(stored.task, who, n) for n in _sequences(stored, rows) if n not in made_here}
    left = {n: whole_cents(named[key]) for n, key in keys.items() if key in named}
    before = used = 0
    for one in rows:
        used += handed_over(before, one.amount) if one.owner == BANK else 0
        before += one.amount
    free = {}
    for n, amount in left.items():
        free[n] = amount - min(amount, used)
        used -= min(amount, used)
    return free


def forgotten_payments(store: SpStore, task: str) -> dict[str, int]:
    """What the bank has paid before a restore and nobody has claimed since, by the payment's key."""
    named, stored = store.paid_before(task), store.task(task)
    if not named:
        return {}
    left, of_nobody = dict(named), set(named)
    people = dict.fromkeys(one.who for one in store.payments(task))
    for who in people | dict.fromkeys(one.identity.who for one in store.participants(task)):
        if not of_nobody:
            break
        keys = {payment_key(task, who, n) for n in _sequences(stored, ())} & of_nobody
        if keys:
            of_nobody -= keys
            left |= dict.fromkeys(keys, 0)
            found = _left_of(stored, who, named, store.instalments(task, who))
            left |= {payment_key(task, who, n): amount for n, amount in found.items()}
    return {key: amount for key, amount in sorted(left.items()) if amount}
