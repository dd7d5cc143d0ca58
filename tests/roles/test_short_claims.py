"""A round pays at most its budget, in whatever order claims come: cheats are refused or cost their own round alone."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdfl.errors import WrongAmount
from crowdfl.roles.sp.ledger import earned_account
from tests.hosts import BUDGET, Desk, unchanged


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Two rounds rewarded, everyone's reward opened, nothing claimed."""
    desk = Desk.funded(tmp_path, 3)
    desk.play(2)
    assert desk.ledger.budgets() == {1: BUDGET, 2: BUDGET}
    return desk


def attest(desk: Desk, monkeypatch: pytest.MonkeyPatch, amounts: Mapping[int, int]) -> None:
    """CSP's word, however it came about: the next claims are attested with these amounts."""
    claiming = desk.sp.aggregators.claiming

    def lavish(task: str, claim: bytes) -> Any:
        side = claiming(task, claim)
        attested = side.attested
        side.attested = lambda *said: replace(attested(*said), amounts=dict(amounts))  # type: ignore[method-assign]
        return side

    monkeypatch.setattr(desk.sp.aggregators, "claiming", lavish)


def test_who_claims_too_much_of_a_round_takes_nothing_of_another(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """The others are short in that round alone; the phone tells its owner by how much, and the same claim is answered again."""
    cheat, *honest = desk.crowd
    rewards = []
    for person in honest:
        person.step(unchanged)
        rewards.append([person.open_reward(number) for number in (1, 2)])
    with monkeypatch.context() as patch:
        attest(desk, patch, {1: BUDGET, 2: 0})
        assert cheat.claim() == BUDGET
    events: list[tuple[str, Mapping[str, Any]]] = []
    for person, (first, second) in zip(honest, rewards, strict=True):
        person.on_event = lambda what, details: events.append((what, details))
        assert person.claim() == second
        assert events[-1] == ("claimed", {"millionths": second, "currency": "EUR", "missing": {1: first}})
        assert desk.sp.claims.pay(desk.task, person.blobs.get("claim")).paid == {1: 0, 2: second}
    ledger = desk.ledger
    assert ledger.balance(earned_account(1)) == 0
    assert ledger.balance(earned_account(2)) == BUDGET - sum(second for _, second in rewards)


@pytest.mark.parametrize(
    ("amounts", "error"),
    [
        ({1: BUDGET + 1}, WrongAmount),
        ({1: 5, 2: -1}, WrongAmount),
    ],
)
def test_an_attested_amount_that_a_round_cannot_owe_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, amounts: dict[int, int], error: type[Exception]
):
    """A CSP that says so deviates: nothing is moved, and the true claim is paid afterwards."""
    person, before = desk.crowd[0], desk.ledger.movements
    with monkeypatch.context() as patch:
        attest(desk, patch, amounts)
        with pytest.raises(error):
            person.claim()
    assert desk.ledger.movements == before
    assert desk.sp.store.payments(desk.task) == []
    assert person.claim() == sum(person.rewards().values()) > 0


def test_a_claim_is_movements_by_round_and_one_payment(desk: Desk):
    """Of the very amounts that its owner had read."""
    person = desk.crowd[0]
    paid = person.claim()
    assert desk.ledger.paid() == {person.keys.who: person.rewards()}
    (payment,) = desk.sp.store.payments(desk.task)
    assert (payment.who, payment.amount, payment.state) == (person.keys.who, paid, "pending")
