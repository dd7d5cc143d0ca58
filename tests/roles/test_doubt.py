"""While SP's clock is in doubt nothing is dated that cannot be undone, and nobody is sent away for it."""

from pathlib import Path

import pytest

from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import ClockInDoubt, NotAuthenticated, NotReady, UnknownParticipant
from crowdfl.roles.participant.claims import ClaimTime
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import Tombstone
from crowdfl.roles.sp.core import TrustedLedgerPorts
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.roles.sp.rounds import rewards_name
from crowdfl.roles.sp.tasks import cancel_task
from crowdfl.roles.sp.time import OperatorClock, confirm_clock
from crowdfl.services.apps.sp_uploads import UnfinishedUploads
from tests.roles.test_clock import BOUND, WatchingDesk
from tests.roles.test_clock import desk as desk  # noqa: PLC0414 -- a fixture

JUMPS = [2 * 86400.0, -2 * 86400.0]
TO_THE_HOUR = 3600.0


def train(arrays, _settings, _round=0):
    return arrays, 5


def beside(desk: WatchingDesk) -> TrustedLedgerPorts:
    """As an operator's command opens the store, in a process of its own."""
    return TrustedLedgerPorts(desk.sp.store, OperatorClock(desk.clock, ManualClock(99.0).now, desk.sp.store, BOUND))


def cancel(desk: WatchingDesk) -> None:
    cancel_task(beside(desk), desk.task, Tombstone("cancelled", "the operator of SP", "x"))


@pytest.mark.parametrize("jump", JUMPS)
def test_an_operators_cancel_waits_for_the_clock(desk, jump):
    """Also when the wrong clock comes by the time that SP noted last; the operator's word ends it."""
    desk.clock.time += jump
    desk.run()
    with pytest.raises(ClockInDoubt, match="clock confirm"):
        cancel(desk)
    desk.clock.time -= jump
    with pytest.raises(ClockInDoubt):  # SP has not looked again
        cancel(desk)
    desk.run()
    cancel(desk)
    assert desk.sp.store.task(desk.task).ended_at == desk.clock.now()


def test_an_operators_cancel_goes_by_a_clock_that_is_confirmed_or_was_noted(desk):
    """An SP with nothing to do notes the time as well: a quiet night makes no doubt."""
    for _ in range(20):
        desk.clock.time += BOUND / 2
        desk.steady.time += BOUND / 2
        desk.run()
    assert beside(desk).clock.now() == desk.clock.now()
    desk.clock.time += 10**6
    with pytest.raises(ClockInDoubt):
        beside(desk).clock.now()
    confirm_clock(desk.sp.store, desk.clock)
    assert beside(desk).clock.now() == desk.clock.now()


def test_a_sweep_in_doubt_finds_nothing_too_old(desk, tmp_path: Path):
    """A day of sightings of a clock that nobody believes ends no task; of one that is right, it does."""
    parts, ports = UnfinishedUploads(tmp_path / "incoming"), desk.sp.ports
    own = ports.store, ports.bundles, desk.clock, ports.blobs, parts
    retention = SpRetention(*own, signing=SigningKey.fresh(), is_sure=desk.sp.clock_is_sure)
    retention.sweep(desk.clock.now(), counting=True)

    def day() -> str:
        for _ in range(26):
            desk.clock.time += TO_THE_HOUR
            desk.steady.time += TO_THE_HOUR
            retention.sweep(desk.clock.now(), counting=True)
        return desk.sp.store.task(desk.task).state

    desk.clock.time += 365 * 86400.0
    assert day() == "running"
    confirm_clock(desk.sp.store, desk.clock)
    assert desk.sp.clock_is_sure()
    assert day() == "cancelled"


def end_without_a_reward(desk: WatchingDesk) -> Participant:
    """Somebody whose second reward SP cannot show, of a task that has ended."""
    for _ in range(2):
        desk.upload(desk.crowd)
        desk.run()
    desk.sp.blobs.delete(rewards_name(desk.task, 2))
    person = desk.crowd[0]
    person.step(train)
    assert desk.sp.status(desk.task)["claim_seconds_left"] == 500.0
    return person


def test_nobody_claims_without_a_reward_because_of_the_clock(desk):
    """SP does not say how much time is left while it does not know."""
    person = end_without_a_reward(desk)
    desk.clock.time += 10**6
    assert desk.sp.status(desk.task)["claim_seconds_left"] is None
    for _ in range(30):
        with pytest.raises(NotReady):
            person.claim()
    assert not person.blobs.has("claim")


def test_a_phone_does_not_believe_at_once_that_its_time_is_over(desk):
    """By its own clock the task has just ended. It looks a few times more, and then believes what it is told."""
    person = end_without_a_reward(desk)
    person.claim_time.now = ManualClock(5.0).now
    person.claim_time.saw_running(500.0)
    desk.clock.time += 490.0
    desk.steady.time += 490.0
    for _ in range(10):
        with pytest.raises(NotReady):
            person.claim()
    assert person.claim() > 0


def test_whoever_comes_late_believes_what_is_left():
    """It has seen nothing that says otherwise; and time that passed is no contradiction."""
    clock = ManualClock(5.0)
    assert ClaimTime(clock.now).believed(3.0, 500.0) == 3.0
    follows = ClaimTime(clock.now)
    follows.saw_running(500.0)
    clock.time += 480.0
    assert follows.believed(20.0, 500.0) == 20.0


@pytest.mark.parametrize("jump", JUMPS)
def test_a_signed_request_is_in_time_by_the_clock_or_by_the_seconds_that_passed(desk, jump):
    """What is of neither time is told to wait; with a clock that is right it is refused."""
    right, sp = desk.clock.now(), desk.sp
    assert sp.is_about_now(right, 300.0)
    assert not sp.is_about_now(right + 301.0, 300.0)
    desk.clock.time += jump
    assert sp.is_about_now(right, 300.0)
    assert sp.is_about_now(desk.clock.now(), 300.0)
    with pytest.raises(ClockInDoubt):
        sp.is_about_now(right + 3600.0, 300.0)


def test_a_payment_in_doubt_is_not_dated_ahead(desk):
    """One that fails is tried again soon after, by the clock as it is when it is right again."""
    person = end_without_a_reward(desk)
    assert person.claim(without_missing=True) > 0
    right = desk.clock.now()
    desk.clock.time += 10**6
    desk.options.on_paid = lambda _payment: None
    assert desk.sp.payments.run_one()
    (payment,) = desk.sp.store.payments(desk.task)
    assert payment.since == right


@pytest.mark.parametrize("refusal", [NotAuthenticated, UnknownParticipant])
def test_an_sp_that_was_restored_during_the_training_gets_the_upload(desk, refusal, monkeypatch):
    """It knows nobody who enrolled since its backup: such a one enrols again, and sends once more."""
    person, known = desk.crowd[0], []
    enrol, send = desk.sp_link.enrol, desk.sp_link.send

    def sending(*args):
        if not known:
            raise refusal("no participant of this task")
        return send(*args)

    monkeypatch.setattr(desk.sp_link, "enrol", lambda *args: known.append(1) or enrol(*args), raising=False)
    monkeypatch.setattr(desk.sp_link, "send", sending, raising=False)

    def training(arrays, _settings, _round=0):
        desk.sp.store.change_task(desk.task, epoch="another")
        return arrays, 5

    assert person.step(training) is True
    assert (known, person.blobs.has("rounds/1/receipt")) == ([1], True)


def test_a_refusal_that_no_restore_explains_is_raised(desk, monkeypatch):
    sent = []

    def sending(*args):
        sent.append(args)
        raise NotAuthenticated("no")

    monkeypatch.setattr(desk.sp_link, "send", sending, raising=False)
    with pytest.raises(NotAuthenticated):
        desk.crowd[0].step(train)
    assert len(sent) == 1
