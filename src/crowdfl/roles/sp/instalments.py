"""What somebody is owed, as payments: each claim adds one, and what a bank has paid before a restore is taken off.

A bank knows a payment by its key, which counts the rounds that are paid with it. A claim that comes again after a restore may
put its rounds together otherwise, and so has another key: what the operator names is a person's, not a key's.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from crowdfl.errors import WrongAmount
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import PaymentState, StoredPayment, StoredTask, payment_key
from crowdfl.roles.sp.payees import erase_destination
from crowdfl.roles.sp.payments import resolve_in
from crowdfl.settings import handed_over, in_cents

RESTORED = "SP was restored from a backup and may have paid this before; check with your bank"


PAID_BEFORE = "paid before SP was restored from a backup, as its operator says"


BANK = "the bank"
"""Who has made a payment, or a part of it, before a restore: the operator has named it, and no program runs for it again."""


def book_instalment(
    store: SpStore, stored: StoredTask, who: str, sequence: int, attested: int, word: int, now: float
) -> None:
    """What a claim adds to what somebody is owed, once its movements are posted: attested millionths, and those on SP's word.

    `sequence` is how many rounds of theirs are paid by now, attested or for unused uploads. What the bank has paid them before
    a restore, and no claim has come to since, is taken off, however a claim puts its rounds together. The caller holds a
    transaction.
    """
    task, owed = stored.task, attested + word
    if owed <= 0:
        return
    named = store.paid_before(task)
    rows = store.instalments(task, who) if named else []
    left = sum(_left_of(stored, who, named, rows).values()) if named else 0
    new = StoredPayment(task, who, sequence, owed, word, PaymentState.PENDING, now)
    if stored.unreconciled:
        new = replace(new, state=PaymentState.UNKNOWN, error=RESTORED)
    by_bank = replace(new, state=PaymentState.PAID, owner=BANK, error=PAID_BEFORE)
    taken = {one.sequence for one in rows}
    if left and handed_over(sum(one.amount for one in rows), owed) <= left:
        store.add_payment(replace(by_bank, sequence=_free(sequence, taken)))
    elif stored.opened.payer:  # it pays what all comes to, less what it has paid
        store.add_payment(replace(new, owner=BANK) if left else new)
    else:
        if left:
            part = replace(by_bank, sequence=_free(sequence, taken), amount=left, word=max(0, word - (owed - left)))
            store.add_payment(part)
            taken.add(part.sequence)
        known = taken | {n for n in _sequences(stored, named) if payment_key(task, who, n) in named}  # to the bank
        rest = owed - left
        store.add_payment(replace(new, sequence=_free(sequence, known), amount=rest, word=min(word, rest)))


def _free(sequence: int, taken: Collection[int]) -> int:
    """The first from here on that no other payment has."""
    return next(n for n in count(sequence) if n not in taken)


def _sequences(stored: StoredTask, named: Collection[str]) -> range:
    """That a payment of this task may have: of rounds, unused uploads, the bonus, and those that gave way to others."""
    return range(1, 2 * stored.opened.settings.rounds + 2 + len(named)) if named else range(0)


def _left_of(stored: StoredTask, who: str, named: Mapping[str, int], rows: Sequence[StoredPayment]) -> dict[int, int]:
    """What the bank has paid somebody before a restore and no claim has come to since, by the payment's sequence."""
    keys = {n: payment_key(stored.task, who, n) for n in _sequences(stored, named)}
    own = {one.sequence for one in rows if one.owner != BANK}  # in the books: resolved there
    made = {n: named[key] for n, key in keys.items() if key in named and n not in own}
    before = used = 0
    for one in rows:
        used += handed_over(before, one.amount) if one.owner == BANK else 0
        before += one.amount
    left = {}
    for n, amount in made.items():
        left[n] = amount - min(amount, used)
        used -= min(amount, used)
    return left


def forgotten_payments(store: SpStore, task: str) -> dict[str, int]:
    """What the bank has paid before a restore and nobody has claimed since, by the payment's key."""
    named, stored = store.paid_before(task), store.task(task)
    booked = {one.key for one in store.payments(task) if one.owner != BANK}
    left = {key: amount for key, amount in named.items() if key not in booked}
    for one in store.participants(task) if left else ():
        who = one.identity.who
        for n, amount in _left_of(stored, who, named, store.instalments(task, who)).items():
            left[payment_key(task, who, n)] = amount
    return {key: amount for key, amount in sorted(left.items()) if in_cents(amount)}


def take_off(store: SpStore, stored: StoredTask, paid: Mapping[str, int], now: float) -> None:
    """What the bank has paid before a restore, by key, is paid: a payment that is here, and what was claimed again since under
    other keys. The caller holds a transaction."""
    task = stored.task
    for one in store.payments(task):
        if one.key in paid and one.owner != BANK:
            rows = store.instalments(task, one.who)
            _require_amount(one, _handed(rows, one), paid[one.key])
            as_it_is = next(
                row for row in rows if row.sequence == one.sequence
            )  # a later one may have paid it just now
            resolve_in(store, as_it_is, "paid", now, PAID_BEFORE)
    store.mark_paid_before(task, paid)
    named = store.paid_before(task)
    for one in store.payments(task):
        rows = store.instalments(task, one.who)
        left = sum(_left_of(stored, one.who, named, rows).values())
        if left and one.state_at(now) is PaymentState.UNKNOWN and _handed(rows, one) <= left:
            done = replace(one, state=PaymentState.PAID, since=now, until=None, owner=BANK, error=PAID_BEFORE)
            store.change_payment(one, done)
            erase_destination(store, task, one.who)


def _handed(rows: Iterable[StoredPayment], payment: StoredPayment) -> int:
    """What is handed over for one of these payments of a person."""
    return handed_over(sum(one.amount for one in rows if one.sequence < payment.sequence), payment.amount)


def _require_amount(payment: StoredPayment, handed: int, paid: int) -> None:
    """By the cents: a bank's statement has no smaller ones."""
    if in_cents(handed) != in_cents(paid):
        raise WrongAmount(
            f"payment {payment.key} is {in_cents(handed):f} here, and {in_cents(paid):f} are said to be paid: look again"
        )
