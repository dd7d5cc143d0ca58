"""Deposits: announced by the requester, counted once the operator has seen the money."""

from pathlib import Path

import pytest

from crowdfl.errors import (
    Conflict,
    DepositRefused,
    SettingsError,
    TaskNotRunning,
    UnknownDeposit,
    UnknownTask,
    WrongCurrency,
)
from crowdfl.roles.records import DepositState
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER
from tests.hosts import BUDGET, Desk, small_definition


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Three people in a task without money."""
    desk = Desk(tmp_path)
    desk.invite(3)
    return desk


def states(desk: Desk) -> dict[str, str]:
    return {deposit["name"]: deposit["state"] for deposit in desk.sp.tasks.deposits(desk.task)}


def test_money_that_nobody_has_seen_funds_no_round(desk: Desk):
    """It is pending, for the requester too; once it is confirmed the round opens."""
    desk.sp.deposits.announce(desk.task, "all", 2 * BUDGET)
    desk.run()
    assert desk.sp.tasks.status(desk.task)["rounds"] == []
    report = desk.requester.report(desk.task)
    assert (report["pending"], report["paid_in"], report["movements"]) == (2 * BUDGET, 0, [])
    desk.sp.deposits.confirm(desk.task, "all", 2 * BUDGET, "EUR")
    desk.run()
    assert desk.states() == ["open"]
    report = desk.requester.report(desk.task)
    assert (report["pending"], report["paid_in"]) == (0, 2 * BUDGET)


def test_money_that_nobody_has_seen_is_never_refunded(desk: Desk):
    """A requester that announces any amount and cancels gets back what came in, and nothing else."""
    desk.sp.deposits.announce(desk.task, "mine", 5)
    desk.sp.deposits.confirm(desk.task, "mine", 5, "EUR")
    desk.sp.deposits.announce(desk.task, "riches", 10**12)
    desk.requester.order(desk.task, "cancel")
    desk.after_claims()
    report = desk.requester.report(desk.task)
    assert (report["paid_in"], report["returned"], report["pending"]) == (5, 5, 10**12)
    assert desk.state == "settled"


@pytest.mark.parametrize("ends", ["cancelled", "settled"])
def test_money_that_is_seen_after_the_end_goes_back(desk: Desk, ends: str):
    desk.sp.deposits.announce(desk.task, "late", 7)
    desk.requester.order(desk.task, "cancel")
    desk.run()
    if ends == "settled":
        desk.after_claims()
    assert desk.state == ends
    for _ in range(2):
        desk.sp.deposits.confirm(desk.task, "late", 7, "EUR")
        desk.run()
    report = desk.requester.report(desk.task)
    assert (report["paid_in"], report["returned"]) == (7, 7)
    assert desk.ledger.balance(ESCROW) == 0


def test_another_amount_than_was_announced_is_not_confirmed(desk: Desk):
    desk.sp.deposits.announce(desk.task, "all", 100)
    with pytest.raises(DepositRefused, match=r"'all'.*100 millionths, and 99"):
        desk.sp.deposits.confirm(desk.task, "all", 99, "EUR")
    assert states(desk) == {"all": "pending"}
    assert desk.ledger.balance(REQUESTER) == 0


def test_a_decision_is_final_and_can_be_repeated(desk: Desk):
    for name in ("good", "bad"):
        desk.sp.deposits.announce(desk.task, name, 100)
    for _ in range(2):
        desk.sp.deposits.confirm(desk.task, "good", 100, "EUR")
        desk.sp.deposits.reject(desk.task, "bad")
    with pytest.raises(DepositRefused, match="confirmed before"):
        desk.sp.deposits.reject(desk.task, "good")
    with pytest.raises(DepositRefused, match="rejected before"):
        desk.sp.deposits.confirm(desk.task, "bad", 100, "EUR")
    assert states(desk) == {"good": "confirmed", "bad": "rejected"}
    assert desk.ledger.balance(ESCROW) == 100


def test_an_announcement_can_be_repeated(desk: Desk):
    """The same is the same, after it was decided too; another amount, or one that was rejected, is told."""
    for _ in range(2):
        desk.sp.deposits.announce(desk.task, "all", 100)
    with pytest.raises(Conflict, match="another amount"):
        desk.sp.deposits.announce(desk.task, "all", 101)
    desk.sp.deposits.confirm(desk.task, "all", 100, "EUR")
    desk.sp.deposits.announce(desk.task, "all", 100)
    desk.sp.deposits.announce(desk.task, "other", 5)
    desk.sp.deposits.reject(desk.task, "other")
    with pytest.raises(DepositRefused, match="rejected"):
        desk.sp.deposits.announce(desk.task, "other", 5)
    assert desk.ledger.balance(ESCROW) == 100


def test_what_is_not_there_is_not_decided(desk: Desk):
    with pytest.raises(UnknownDeposit, match="'none'"):
        desk.sp.deposits.confirm(desk.task, "none", 1, "EUR")
    with pytest.raises(UnknownDeposit):
        desk.sp.deposits.reject(desk.task, "none")
    with pytest.raises(UnknownTask):
        desk.sp.deposits.announce("0" * 64, "all", 1)
    desk.requester.order(desk.task, "cancel")
    with pytest.raises(TaskNotRunning):
        desk.sp.deposits.announce(desk.task, "more", 1)
    assert desk.sp.store.deposits() == []


def test_a_host_of_everyone_is_its_own_operator(desk: Desk):
    """In one process, what the requester announces is there."""
    assert desk.requester.fund(desk.task, 5, "all") == "all"
    assert [deposit.state for deposit in desk.sp.store.deposits(desk.task)] == [DepositState.CONFIRMED]


def test_people_have_a_least_time_to_claim_in(desk: Desk):
    """SP refuses a task that pays and gives less, in words; one that pays nothing, or is there already, it takes."""
    desk.sp.options.min_claim_window = 86400.0
    with pytest.raises(SettingsError, match=r"`claim_window` is 86399 s.* at least 1 day .*more time"):
        desk.create(small_definition(desk.settings, claim_window=86399.0), desk.initial)
    assert desk.create(small_definition(desk.settings, claim_window=86400.0), desk.initial)
    free = desk.settings.model_copy(update={"budget": None})
    assert desk.create(small_definition(free, claim_window=5.0), desk.initial)
    assert desk.create(small_definition(desk.settings), desk.initial) == desk.task


def test_money_in_another_currency_is_refused_by_name(desk: Desk):
    desk.sp.deposits.announce(desk.task, "all", 100)
    with pytest.raises(WrongCurrency, match=r"paid in EUR, and USD is confirmed for deposit 'all'"):
        desk.sp.deposits.confirm(desk.task, "all", 100, "USD")
    assert states(desk) == {"all": "pending"}
    assert desk.ledger.balance(REQUESTER) == 0
    desk.sp.deposits.confirm(desk.task, "all", 100, "EUR")
    assert desk.ledger.balance(ESCROW) == 100
