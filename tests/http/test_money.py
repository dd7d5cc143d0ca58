"""The money over HTTP: who may say that a deposit came in, and payments that are made beside the rounds."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from crowdfl.crypto.signing import SigningKey
from crowdfl.crypto.webpush import PushKey
from crowdfl.documents.destination import SEALED_BYTES
from crowdfl.documents.envelope import to_base64url
from crowdfl.errors import (
    Conflict,
    Forbidden,
    FormatError,
    InvalidKey,
    NotAuthenticated,
    ServiceUnavailable,
    StoreUnavailable,
    UnknownTask,
)
from crowdfl.protocols.registry import profile_named
from crowdfl.roles.records import PaymentState, StoredPayment
from crowdfl.services.background.workers import Payouts
from crowdfl.services.client.transport import Signer
from tests.hosts import Desk
from tests.http.test_bodies import Endless
from tests.http.world import World, task_definition
from tests.subprocesses import until

PATIENCE = 300.0
BUDGET = 36_000_000


def test_metrics_count_deposits_and_payments_by_state(world: World):
    world.post()
    payment = StoredPayment("t", "who", 1, 1, 0, PaymentState.UNKNOWN, 0.0)
    world.sp.store.add_payment(payment)
    headers = {"Authorization": f"Bearer {world.token('sp', 'operator').token}"}
    text = world.http("sp").get("/metrics", headers=headers).text
    assert 'crowdfl_deposits{state="confirmed"} 1.0' in text
    assert 'crowdfl_payments{state="unknown"} 1.0' in text


def test_a_participant_says_where_to_be_reminded_and_paid_for_itself_alone(world: World):
    task, (ann, bob, _) = world.open_round()
    world.options.push_hosts = ("fcm.googleapis.com",)
    place, key = f"/v1/tasks/{task}/participants/{ann.who}", PushKey.fresh().public
    wanted = {"endpoint": "https://fcm.googleapis.com/x", "p256dh": to_base64url(key), "auth": to_base64url(bytes(16))}
    ann.sp.service.send_json("PUT", f"{place}/push", wanted)
    stored = world.sp.store.take_subscriptions(task, 2, "opened", 9)
    assert [(one.who, one.endpoint, one.key) for one in stored] == [(ann.who, wanted["endpoint"], key)]
    for wrong in ({"endpoint": "https://127.0.0.1/x"}, {"p256dh": "AAAA"}, {"auth": "A"}, {"more": "x"}):
        with pytest.raises((Forbidden, InvalidKey, FormatError)):
            ann.sp.service.send_json("PUT", f"{place}/push", wanted | wrong)
    for sender, error in ((bob, Forbidden), (None, NotAuthenticated)):
        service = world.service("sp") if sender is None else sender.sp.service
        for call in (
            lambda service=service: service.send_json("PUT", f"{place}/push", wanted),
            lambda service=service: service.call("DELETE", f"{place}/push"),
            lambda service=service: service.call("DELETE", place),
            lambda service=service: service.call("PUT", f"{place}/destination", bytes(SEALED_BYTES)),
        ):
            with pytest.raises(error):
                call()
    with pytest.raises(Conflict, match="asks nobody"):
        ann.sp.pay_to(task, bytes(SEALED_BYTES))
    ann.sp.service.call("DELETE", f"{place}/push")
    assert world.sp.store.take_subscriptions(task, 3, "opened", 9) == []


class Slow:
    """A payout program that ends when it is let go."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()

    def __call__(self, payment: StoredPayment) -> None:
        self.begun.set()
        assert self.release.wait(PATIENCE)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """One round rewarded, the task cancelled, one participant's claim in."""
    desk = Desk(tmp_path)
    desk.invite(3)
    desk.requester.fund(desk.task, 2 * BUDGET, "all")
    desk.run()
    for person in desk.crowd:
        person.step(lambda arrays, _settings, _round=0: (arrays, 5))
    desk.run()
    desk.requester.order(desk.task, "cancel")
    desk.run()
    assert desk.crowd[0].claim() > 0
    return desk


def test_a_slow_program_delays_no_round_and_ends_with_the_service(desk: Desk):
    """Meanwhile SP goes on; a service that must end waits so long and no longer, and then nobody knows."""
    slow, payments = Slow(), desk.sp.payments
    desk.sp.options.on_paid = slow
    payouts = Payouts(structlog.get_logger(), payments.run_one, 0.01, payments.abandon, patience=0.05)
    payouts.start()
    try:
        assert slow.begun.wait(PATIENCE)
        payouts.check()
        assert desk.crowd[1].claim() > 0
        desk.after_claims()
        assert desk.sp.tasks.status(desk.task)["state"] == "settled"
        (first, second) = desk.sp.store.payments(desk.task)
        assert (first.state, second.state) == (PaymentState.RUNNING, PaymentState.PENDING)
        payouts.stop()
        (first, second) = desk.sp.store.payments(desk.task)
        assert (first.state, second.state) == (PaymentState.UNKNOWN, PaymentState.PENDING)
        assert "stopped" in str(first.error)
    finally:
        slow.release.set()


def test_payments_are_made_whatever_state_their_task_is_in(desk: Desk):
    """One that was not made before its task was settled is made after."""
    told: list[str] = []
    desk.after_claims()
    assert desk.sp.tasks.status(desk.task)["state"] == "settled"
    desk.sp.options.on_paid = lambda payment: told.append(payment.who)
    payouts = Payouts(structlog.get_logger(), desk.sp.payments.run_one, 0.01)
    payouts.start()
    until(lambda: told)
    payouts.stop()
    assert told == [desk.crowd[0].keys.who]
    with pytest.raises(ServiceUnavailable, match="payments are not made"):
        payouts.check()


def test_payments_back_off_while_the_store_is_away(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """A minute without a database is a handful of events, not one for each look."""

    def away() -> bool:
        raise StoreUnavailable("gone")

    waits: list[float] = []
    monkeypatch.setattr(desk.sp.payments, "run_one", away)
    payouts = Payouts(structlog.get_logger(), desk.sp.payments.run_one, 0.5)
    monkeypatch.setattr(payouts._stop, "wait", lambda seconds: waits.append(seconds) or len(waits) > 9)
    payouts._work()
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]


@pytest.fixture(scope="module")
def platform(tmp_path_factory, portal) -> Iterator[World]:
    """One for all: each test has a claimant of its own."""
    platform = World(tmp_path_factory.mktemp("platform"), portal)
    yield platform
    platform.close()


@pytest.fixture(scope="module")
def earned(platform):
    """A task that has ended, and those who earned something in it."""
    task, people = platform.open_round(people=4)
    for person in people:
        person.sp.upload(task, 1, person.update())
    platform.run()
    for person in people:
        person.side.open_reward(person.sp.reward(task, 1), 1)
    return task, people


def place(task):
    return f"/v1/tasks/{task}/claims"


def test_a_signed_claim_is_paid(platform, earned):
    """Also to somebody who has left since; and again, when its answer was lost."""
    task, people = earned
    people[0].sp.leave(task)
    first, again = (people[0].sp.claim(task, people[0].side.claim()) for _ in range(2))
    assert (first.amount > 0, again) == (True, first)


def test_a_claim_must_be_signed(platform, earned):
    task, _ = earned
    unsigned = ({}, {"X-CrowdFL-Protocol": "3"}, {"X-CrowdFL-Protocol": "3", "Authorization": "Bearer x"})
    for headers in unsigned:
        body = Endless()
        answer = platform.http("sp").post(place(task), content=body, headers=headers)
        assert (answer.status_code, body.taken) == (401, 0)


def test_a_stranger_s_signature_is_refused_before_the_body(platform, earned):
    task, people = earned
    stranger = Signer(people[0].who, SigningKey.fresh())
    body = Endless()
    headers = stranger.headers("POST", place(task), b"", platform.clock.now())
    assert platform.http("sp").post(place(task), content=body, headers=headers).status_code == 401
    assert body.taken == 0
    claim = people[0].side.claim()
    headers = Signer(people[0].who, people[0].keys.signing).headers("POST", place(task), b"other", platform.clock.now())
    answer = platform.http("sp").post(place(task), content=claim, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:crowdfl:problem:bad-signature")
    with pytest.raises(NotAuthenticated):
        people[0].sp.claim(platform.post(window=7), claim)  # a task that it has no part in


def test_a_claim_of_an_unknown_task_is_refused_before_it_is_read(platform, earned):
    _, people = earned
    body = Endless()
    answer = platform.http("sp").post(place("0" * 64), content=body, headers={"X-CrowdFL-Protocol": "3"})
    assert (answer.status_code, body.taken) == (404, 0)
    with pytest.raises(UnknownTask):
        people[0].sp.claim("0" * 64, b"claim")


def test_the_limit_follows_from_the_task(platform, earned):
    """An honest claim fits, with little to spare: for a hidden reward, a bonus, a destination. A longer body is not read."""
    task, people = earned
    claim, limit = people[0].side.claim(), platform.sp.claims.limit(task)
    assert len(claim) <= limit <= len(claim) + 4096 + 400
    body = Endless(piece=1024)
    headers = Signer(people[0].who, people[0].keys.signing).headers("POST", place(task), b"", platform.clock.now())
    answer = platform.http("sp").post(place(task), content=body, headers=headers)
    assert (answer.status_code, body.taken <= limit + 2 * 1024) == (413, True)


def test_a_longer_campaign_has_longer_claims():
    """Each round adds a mask, a salt, an amount and its number."""
    settings = task_definition().settings
    sizes = [profile_named("hardened").claim_bytes(settings, rounds) for rounds in (0, 1, 2, 1000)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > settings.key_bits // 8
    assert sizes[3] == sizes[0] + 1000 * (sizes[1] - sizes[0])
