"""Deposits and payments as every store keeps them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from crowdfl.errors import CrowdFLError, NotEnoughMoney, UnknownDeposit
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import DepositState, Movement, PaymentState, StoredDeposit, StoredPayment
from crowdfl.roles.sp.ledger import earned_account

DEPOSIT = StoredDeposit("t", "a", 5, DepositState.PENDING, 1.5)
PAYMENT = StoredPayment("t", "ada", 7, "c" * 64, '{"1": 7}', PaymentState.PENDING, 1.5)


def test_a_deposit_is_kept_as_it_was_announced_and_decided(store: SpStore):
    store.add_deposit(DEPOSIT)
    store.add_deposit(replace(DEPOSIT, task="u"))
    store.add_deposit(replace(DEPOSIT, name="b"))
    assert store.deposit("t", "a") == DEPOSIT
    decided = replace(DEPOSIT, state=DepositState.CONFIRMED, decided_at=2.25)
    store.decide_deposit(decided)
    assert store.deposits("t") == [decided, replace(DEPOSIT, name="b")]
    assert len(store.deposits()) == 3
    with pytest.raises(UnknownDeposit, match="'c'"):
        store.deposit("t", "c")


def test_a_name_is_used_once(store: SpStore):
    """Of deposits and of payments; a transaction that tries it twice leaves nothing."""
    store.add_deposit(DEPOSIT)
    store.add_payment(PAYMENT)

    def twice(again: Callable[[], None]) -> None:
        with store.transaction():
            store.add_deposit(replace(DEPOSIT, name="other"))
            again()

    for again in (lambda: store.add_deposit(replace(DEPOSIT, amount=6)), lambda: store.add_payment(PAYMENT)):
        with pytest.raises(CrowdFLError):
            twice(again)
    assert store.deposits() == [DEPOSIT]
    assert store.payments() == [PAYMENT]


def test_a_payment_is_changed_by_whoever_knows_it_as_it_is(store: SpStore):
    """Of two who saw the same, one is second, whatever differs."""
    store.add_payment(PAYMENT)
    taken = replace(PAYMENT, state=PaymentState.RUNNING, owner="one", since=2.125, until=3.0625, attempts=1)
    assert store.change_payment(PAYMENT, taken) is True
    assert store.change_payment(PAYMENT, replace(taken, owner="two")) is False
    assert store.payment("t", "ada") == taken
    for other in (replace(taken, until=9.0), replace(taken, attempts=2), replace(taken, error="e")):
        assert store.change_payment(other, replace(taken, state=PaymentState.PAID)) is False
    assert store.change_payment(taken, replace(taken, state=PaymentState.UNKNOWN, until=None, error="why")) is True
    assert store.payments(states=[PaymentState.UNKNOWN]) == [store.payment("t", "ada")]
    assert store.payments(states=[PaymentState.PENDING, PaymentState.RUNNING]) == []
    assert store.payment("t", "bob") is None
    assert store.payments("u") == []


def test_a_change_that_is_undone_has_not_been_made(store: SpStore):
    """Payments stand or fall with the movements of their transaction."""

    def pay() -> None:
        with store.transaction():
            store.add_payment(PAYMENT)
            store.post("t", Movement("pay ada round 1", earned_account(1), "participant ada", 7))

    with pytest.raises(NotEnoughMoney):
        pay()
    assert store.payments() == []
