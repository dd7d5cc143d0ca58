import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdfl.errors import LedgerConflict, NotEnoughMoney, SettingsError
from crowdfl.roles.records import Movement
from crowdfl.roles.sp.ledger import (
    ESCROW,
    REQUESTER,
    REWARDS,
    Ledger,
    earned_account,
    participant_account,
    round_account,
)


def funded(amount: int = 100) -> Ledger:
    """A ledger with some money in escrow."""
    ledger = Ledger()
    ledger.post(ledger.deposit("1", amount))
    return ledger


def test_a_campaign_from_deposit_to_refund():
    """Every step moves the money where it says."""
    ledger = funded(100)
    ledger.post(ledger.fund_round(1, 36))
    assert (ledger.balance(ESCROW), ledger.balance(round_account(1))) == (64, 36)
    ledger.post(ledger.reward_round(1))
    ledger.post(ledger.pay("ada", 1, 20))
    assert (ledger.balance(earned_account(1)), ledger.balance(participant_account("ada"))) == (16, 20)
    assert (ledger.budgets(), ledger.paid()) == ({1: 36}, {"ada": {1: 20}})
    ledger.post(ledger.fund_round(2, 36))
    ledger.post(ledger.abort_round(2))
    for movement in ledger.expire_claims():
        ledger.post(movement)
    ledger.post(ledger.refund("end"))
    assert ledger.balances() == {
        REQUESTER: -20,
        ESCROW: 0,
        round_account(1): 0,
        round_account(2): 0,
        earned_account(1): 0,
        participant_account("ada"): 20,
    }


def test_a_movement_repeated_is_one_movement():
    ledger = funded(100)
    assert ledger.post(ledger.fund_round(1, 36)) is True
    assert ledger.post(Movement("fund round 1", ESCROW, round_account(1), 36)) is False
    assert ledger.balance(ESCROW) == 64


def test_a_movement_under_a_used_name_is_refused():
    ledger = funded(100)
    with pytest.raises(LedgerConflict, match="deposit 1"):
        ledger.post(ledger.deposit("1", 99))
    assert ledger.balance(ESCROW) == 100


def test_nobody_pays_what_it_does_not_hold():
    """One millionth more than there is, is refused, without a word about how much there is."""
    ledger = funded(100)
    with pytest.raises(NotEnoughMoney, match="escrow") as refused:
        ledger.post(ledger.fund_round(1, 101))
    assert "100" not in str(refused.value)
    ledger.post(ledger.fund_round(1, 100))
    ledger.post(ledger.reward_round(1))
    ledger.post(ledger.pay("ada", 1, 60))
    with pytest.raises(NotEnoughMoney, match="earned 1 ") as refused:
        ledger.post(ledger.pay("bob", 1, 41))
    assert "40" not in str(refused.value)
    assert ledger.balance(participant_account("bob")) == 0


def test_a_round_pays_nothing_of_another():
    ledger = funded(100)
    for number in (1, 2):
        ledger.post(ledger.fund_round(number, 50))
        ledger.post(ledger.reward_round(number))
    ledger.post(ledger.pay("ada", 1, 50))
    with pytest.raises(NotEnoughMoney):
        ledger.post(ledger.pay("bob", 1, 1))
    assert ledger.balance(earned_account(2)) == 50


def test_the_requester_sees_sums_alone():
    """No round's payments, and none before the end; the books it sees balance as the true ones do."""
    ledger = funded(100)
    for number in (1, 2):
        ledger.post(ledger.fund_round(number, 50))
        ledger.post(ledger.reward_round(number))
    ledger.post(ledger.pay("ada", 1, 30))
    ledger.post(ledger.pay("ada", 2, 5))
    ledger.post(ledger.pay("bob", 2, 7))
    early = ledger.for_requester(settled=False)
    assert early.balance(REWARDS) == 100
    assert not [m for m in early.movements if m.name.startswith("pay")]
    for movement in ledger.expire_claims():
        ledger.post(movement)
    ledger.post(ledger.refund("end"))
    late = ledger.for_requester(settled=True)
    assert {m.name: m.amount for m in late.movements if m.name.startswith(("pay", "expire"))} == {
        "pay participants": 42,
        "expire claims": 58,
    }
    assert late.balance(REQUESTER) == ledger.balance(REQUESTER) == -42
    assert late.balance(REWARDS) == 0


@pytest.mark.parametrize("amount", [-1, 1.5, True])
def test_amounts_are_whole_millionths(amount):
    """A float or a negative amount never becomes a movement."""
    with pytest.raises(SettingsError):
        Movement("x", ESCROW, REWARDS, amount)


def test_a_movement_goes_somewhere_else():
    """From an account to itself is no movement."""
    with pytest.raises(SettingsError):
        Movement("x", ESCROW, ESCROW, 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["deposit", "fund", "abort", "reward", "pay", "expire", "refund"]),
            st.integers(0, 9),
            st.integers(0, 100),
        ),
        max_size=40,
    )
)
def test_money_is_conserved_whatever_happens(steps):
    """Balances sum to zero, none but the requester's is negative, and replaying the movements gives the same books."""
    ledger = Ledger()
    for what, number, amount in steps:
        movement = {
            "deposit": lambda n=number, a=amount: ledger.deposit(str(n), a),
            "fund": lambda n=number, a=amount: ledger.fund_round(n, a),
            "abort": lambda n=number: ledger.abort_round(n),
            "reward": lambda n=number: ledger.reward_round(n),
            "pay": lambda n=number, a=amount: ledger.pay(f"p{a % 3}", n, a),
            "expire": lambda n=number: next(iter(ledger.expire_claims()[n:]), ledger.refund("nothing")),
            "refund": lambda n=number: ledger.refund(str(n)),
        }[what]()
        try:
            ledger.post(movement)
        except (NotEnoughMoney, LedgerConflict):
            continue
    assert sum(ledger.balances().values()) == 0
    assert all(balance >= 0 for account, balance in ledger.balances().items() if account != REQUESTER)
    assert Ledger(ledger.movements).balances() == ledger.balances()
