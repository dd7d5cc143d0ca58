"""Several processes on one database, asked at once: money moves once, and CSP answers one request for each step."""

import hashlib
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crowdfl.errors import Conflict, CrowdFLError, DepositRefused, PaymentFailed
from crowdfl.protocols.hardened.manifest import manifest_of, upload_statement
from crowdfl.protocols.hardened.prirwd import LanesRequest, rows_a_message
from crowdfl.roles.records import PaidClaim, PaymentState
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.payments import resolve_payment
from tests.attacks.cheating import BUDGET, WEIGHTS, honest_uploads, paid_desk, sp_side
from tests.hosts import Desk, test_tools

MODELS, COUNTS = (WEIGHTS, WEIGHTS * 0.5, -WEIGHTS), (5, 7, 3)


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each gives, or the name of its refusal."""
    gate = threading.Barrier(len(calls))

    def made(call: Callable[[], Any]) -> Any:
        gate.wait()
        try:
            return call()
        except CrowdFLError as refusal:
            return type(refusal).__name__

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(made, calls))


@pytest.mark.second
def test_a_deposit_a_claim_and_a_payment_count_once_however_often_they_come(tmp_path: Path) -> None:
    desk, paid = Desk(tmp_path, rounds=2, pay="samples"), []
    desk.invite(3)
    desk.sp.deposits.announce(desk.task, "one", 2 * BUDGET)
    both = desk.sp, desk.new_sp()
    at_once([lambda sp=sp: sp.deposits.confirm(desk.task, "one", 2 * BUDGET, "EUR") for sp in both * 4])
    assert desk.sp.core.ledger(desk.task).balance("escrow") == 2 * BUDGET
    for late in (
        lambda: desk.sp.deposits.confirm(desk.task, "one", 1, "EUR"),
        lambda: desk.sp.deposits.reject(desk.task, "one"),
    ):
        with pytest.raises(DepositRefused):
            late()
    desk.run()
    honest_uploads(desk, 1, MODELS, COUNTS)
    desk.run()
    desk.requester.order(desk.task, "cancel")
    desk.run()
    earned = {person.keys.who: person.open_reward(1) for person in desk.crowd}
    claims = [person.side.claim() for person in desk.crowd]

    attempts = itertools.count()

    def pay(claim: PaidClaim) -> None:
        paid.append((claim.who, claim.amount))
        if next(attempts) == 0:
            raise PaymentFailed("not today")

    tools = test_tools()
    options = SpOptions(tools, checker=tools.backend, min_claim_window=0.0, on_paid=pay, lease_seconds=30)
    payers = [desk.new_sp(options) for _ in range(3)]
    answers = at_once([lambda sp=sp, c=claim: sp.claims.pay(desk.task, c) for sp in payers for claim in claims * 2])
    assert len({str(answer) for answer in answers}) == 3
    for _ in range(8):  # the payment that failed rests in between
        at_once([payer.payments.run_one for payer in payers])
        desk.clock.time += 100
    assert len(paid) == 4  # one of them in vain
    assert set(paid) == set(earned.items())
    payments = desk.sp.store.payments(desk.task)
    assert {payment.state for payment in payments} == {PaymentState.PAID}
    with pytest.raises(Conflict):
        resolve_payment(desk.sp.ports, desk.task, paid[0][0], "again")
    desk.later(10_000)
    balances = desk.sp.core.ledger(desk.task).balances()
    assert sum(balances.values()) == 0
    assert balances["requester"] == -sum(earned.values())


def test_of_requests_for_one_step_at_once_csp_answers_one(tmp_path: Path) -> None:
    desk = paid_desk(tmp_path, 3, rounds=1, lanes=1024)
    side = sp_side(desk)
    party, budget = side.party, side.codec.budget
    rows = 3 * min(rows_a_message(3, side.codec.packing.slots), budget.buckets)
    processes = desk.csp, desk.new_csp()

    def lanes(first: int) -> bytes:
        asked = party.encrypt([first] * rows)
        return LanesRequest(1, 0, asked, party.partial_decrypt(asked)).to_bytes()

    digests, people = [hashlib.sha256(bytes([i])).digest() for i in range(4)], [person.keys for person in desk.crowd]
    signed = [
        {key.who: (d, key.signing.sign(upload_statement(desk.task, 1, key.who, d))) for key in people} for d in digests
    ]
    manifests = [manifest_of(1, BUDGET, one).to_bytes() for one in signed]
    for requests in (manifests, [lanes(i + 1) for i in range(4)]):
        calls = [
            lambda c=csp, r=request: c.answer(desk.task, r)
            for csp, request in zip(processes * 4, requests * 2, strict=True)
        ]
        answers = at_once(calls)
        assert answers.count("OutOfTurn") == 6
        assert len(set(answers)) == 2  # the same request twice: the same answer
