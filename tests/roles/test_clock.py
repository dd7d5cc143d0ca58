"""A clock that jumps closes no round and ends no time to claim, until a peer, its owner or the operator says it is right."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from crowdfl.errors import ClockInDoubt, CrowdFLError, NotAuthenticated, UnknownParticipant
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.records import EndedBy, PaymentState, Tombstone
from crowdfl.roles.sp.core import LedgerPorts
from crowdfl.roles.sp.deposits import Deposits
from crowdfl.roles.sp.payments import resolve_payment
from crowdfl.roles.sp.retention import SpRetention
from crowdfl.roles.sp.tasks import cancel_task
from crowdfl.roles.sp.time import ClockWatch, OperatorClock, confirm_clock
from crowdfl.services.apps.sp_uploads import UnfinishedUploads
from crowdfl.storage.sql import SqlStore
from tests.hosts import Desk, unchanged

BOUND = 300.0
JUMPS = [10**6, -(10**6), BOUND + 1, -(BOUND + 1)]


@dataclass
class Machine:
    """A machine's two clocks: both count, and one can be set."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(10.0**9))
    steady: ManualClock = field(default_factory=lambda: ManualClock(17.0))
    store: SqlStore = field(default_factory=SqlStore.in_memory)
    told: list[bool] = field(default_factory=list)
    peers: dict[str, float] = field(default_factory=dict)  # what time each says that it is, when it is asked
    running: list[ClockWatch] = field(default_factory=list)

    def boot(self) -> ClockWatch:
        """A new process; the steady clock starts anywhere."""
        self.steady.time = 5.0
        return self.watch()

    def watch(self) -> ClockWatch:
        watch = ClockWatch(self.clock, self.steady.now, self.store, BOUND, self.told.append, self._ask)
        self.running.append(watch)
        return watch

    def _ask(self) -> None:
        for peer, date in self.peers.items():
            self.running[-1].heard(peer, date)

    def looks(self) -> bool:
        """Whether the clock is believed, as the platform asks: peers are asked when in doubt."""
        watch = self.running[-1]
        if not watch.is_sure():
            watch.ask()
        return watch.is_sure()

    def wait(self, seconds: float) -> None:
        self.clock.time += seconds
        self.steady.time += seconds


def test_time_that_passes_is_not_a_jump():
    """Nor is a small step, as a time server makes it."""
    machine = Machine()
    watch = machine.watch()
    for _ in range(5):
        assert watch.is_sure()
        machine.wait(10**6)
    machine.clock.time += BOUND
    assert watch.is_sure()
    assert machine.told == []


@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_is_in_doubt_until_the_clock_is_set_right(jump):
    """Forward or back; whoever runs the platform hears of both changes, once."""
    machine = Machine()
    watch = machine.watch()
    assert watch.is_sure()
    machine.clock.time += jump
    machine.wait(10)
    assert not watch.is_sure()
    assert not watch.is_sure()
    machine.clock.time -= jump
    assert watch.is_sure()
    assert machine.told == [False, True]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_peer_that_agrees_ends_the_doubt(jump):
    """As after a night in which the machine slept: the steady clock stood still, and the peer's did not."""
    machine = Machine()
    watch = machine.watch()
    watch.heard("CSP", machine.clock.now())
    assert watch.is_sure()
    machine.clock.time += jump
    assert not watch.is_sure()
    machine.peers["CSP"] = machine.clock.now() + BOUND / 2
    assert machine.looks()


def test_a_peer_that_disagrees_raises_doubt_whatever_another_says():
    """Until it agrees, or cannot be reached any more."""
    machine = Machine()
    watch = machine.watch()
    watch.heard("KGC", machine.clock.now())
    assert watch.is_sure()
    machine.wait(10**6)  # what it said holds for later too
    assert watch.is_sure()
    machine.peers = {"CSP": machine.clock.now() - 2 * BOUND, "KGC": machine.clock.now()}
    watch.heard("CSP", machine.peers["CSP"])
    assert not machine.looks()
    machine.peers["CSP"] = machine.clock.now()
    assert machine.looks()
    watch.heard("CSP", machine.clock.now() + 2 * BOUND)
    assert not watch.is_sure()
    del machine.peers["CSP"]
    assert machine.looks()


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("liar", ["CSP", "KGC"])
def test_a_peer_that_agrees_with_a_wrong_clock_hastens_nothing(jump, liar):
    """While the other one can be reached: whoever speaks first, after a jump or after a start."""
    machine = Machine()
    for start in (machine.watch, machine.boot):
        watch, right = start(), machine.clock.time
        assert machine.looks()
        watch.note()
        machine.clock.time += jump
        machine.peers = {"KGC": right, "CSP": right, liar: machine.clock.time}
        watch.heard(liar, machine.clock.time)
        assert not watch.is_sure()
        assert not machine.looks()
        if start == machine.watch:
            watch = machine.boot()
            watch.heard(liar, machine.clock.time)
            assert not watch.is_sure()
            assert not machine.looks()
        machine.clock.time, machine.peers = right, {}


@pytest.mark.parametrize("jump", JUMPS)
def test_the_operators_word_ends_the_doubt_for_the_clock_as_it_is(jump):
    """A running process sees it; another jump is another doubt. Peers that disagree do not matter then."""
    machine = Machine()
    watch = machine.watch()
    watch.heard("CSP", machine.clock.now())
    assert watch.is_sure()
    machine.clock.time += jump
    assert not watch.is_sure()
    confirm_clock(machine.store, machine.clock)  # type: ignore[arg-type]
    assert watch.is_sure()
    machine.wait(10**6)
    assert watch.is_sure()
    machine.clock.time -= 10**7
    assert not watch.is_sure()


def test_an_old_word_of_the_operators_confirms_nothing_new():
    machine = Machine()
    watch = machine.watch()
    assert watch.is_sure()
    confirm_clock(machine.store, machine.clock)  # type: ignore[arg-type]
    machine.wait(2 * BOUND)
    machine.clock.time += 10**6
    assert not watch.is_sure()


@pytest.mark.parametrize("off", [7 * 86400.0, -86400.0])
def test_a_start_compares_with_what_the_store_saw_last(off):
    """A machine that was off for a week is believed once a peer agrees; one that wakes up in the past is not."""
    machine = Machine()
    before = machine.watch()
    assert before.is_sure()
    before.note()
    machine.clock.time += off
    watch = machine.boot()
    assert not watch.is_sure()
    machine.peers["KGC"] = machine.clock.now()
    assert machine.looks()
    watch.note()
    assert machine.boot().is_sure()


def test_a_short_stop_needs_nobodys_word():
    """A restart within the bound, and a first start."""
    machine = Machine()
    watch = machine.watch()
    watch.note()
    machine.clock.time += BOUND
    watch = machine.boot()
    assert watch.is_sure()
    machine.wait(10**6)
    assert watch.is_sure()


def test_the_time_is_noted_now_and_then():
    """Not with every step: a note is a durable write."""
    machine = Machine()
    watch, notes = machine.watch(), set()
    for _ in range(100):
        watch.note()
        notes.add(machine.store.clock_notes().seen)
        machine.wait(1.0)
    assert len(notes) == 2


class WatchingDesk(Desk):
    """A desk whose SP watches its clock; `peer` is what time a peer says it is, or None while all are away."""

    def __init__(self, folder, **settings):
        super().__init__(folder, **settings)
        self.steady, self.peer = ManualClock(), None
        self.options.watch = ClockWatch(self.clock, self.steady.now, self.sp.store, BOUND, ask_peers=self._ask)

    def _ask(self) -> None:
        if self.peer is not None:
            self.options.watch.heard("CSP", self.peer)


@pytest.fixture
def desk(tmp_path):
    return WatchingDesk.funded(tmp_path, 4, pay="samples")


def test_a_round_outlives_a_clock_that_jumps_forward(desk):
    """Uploads are taken meanwhile, and none is late; when the clock is right again, the round has its whole window."""
    desk.upload(desk.crowd[:2])
    desk.later(10**6)
    entry = desk.sp.store.round(desk.task, 1)
    assert (entry.state, entry.extended) == ("open", False)
    person = desk.crowd[2]
    upload = person.side.encrypt_update(person.definition.shape.flat(person.model()), 5, 1)
    assert desk.sp.uploads.one(desk.task, 1, person.keys.who, upload).late is False
    desk.run()
    assert desk.sp.store.round(desk.task, 1) == entry
    desk.clock.time -= 10**6
    desk.upload(desk.crowd[3:])
    desk.run()
    assert desk.states()[0] == "rewarded"


def test_a_round_closes_for_time_once_a_peer_agrees(desk):
    """The platform asks for the time by itself."""
    desk.upload(desk.crowd[:3])
    desk.later(10**6)
    assert desk.states()[0] == "open"
    desk.peer = desk.clock.now()
    desk.run()
    assert desk.states()[0] == "rewarded"


@pytest.mark.parametrize("jump", [10**6, -(10**6)])
def test_what_counts_from_now_waits_for_the_clock(desk, jump):
    """No order, no new round, no end of a task; each would be dated wrong for good."""
    desk.upload(desk.crowd)
    desk.clock.time += jump
    for action in ("pause", "cancel"):
        with pytest.raises(ClockInDoubt):
            desk.requester.order(desk.task, action)
    desk.run()
    assert desk.states() == ["open"]
    confirm_clock(desk.sp.store, desk.clock)
    desk.run()
    assert desk.states() == ["rewarded", "open"]


def test_claims_outlive_a_clock_that_jumps_forward(desk):
    """What people have earned is not returned, and is paid meanwhile."""
    for _ in range(2):
        desk.upload(desk.crowd)
        desk.run()
    assert desk.state == "finished"
    desk.upload()
    desk.after_claims()
    assert desk.state == "finished"
    assert desk.crowd[0].claim() > 0
    confirm_clock(desk.sp.store, desk.clock)
    desk.run()
    assert desk.state == "settled"
    with pytest.raises(CrowdFLError):
        desk.crowd[1].claim()


TWO_DAYS = [2 * 86400.0, -2 * 86400.0]
TO_THE_HOUR = 3600.0


def beside(desk: WatchingDesk) -> LedgerPorts:
    """As an operator's command opens the store, in a process of its own."""
    return LedgerPorts(desk.sp.store, OperatorClock(desk.clock, ManualClock(99.0).now, desk.sp.store, BOUND))


def cancel(desk: WatchingDesk) -> None:
    cancel_task(beside(desk), desk.task, Tombstone("cancelled", EndedBy.SP_OPERATOR, "x"))


@pytest.mark.parametrize("jump", TWO_DAYS)
def test_an_operators_cancel_waits_for_the_clock(desk, jump):
    """Also when the wrong clock comes by the time that SP noted last; the operator's word ends it."""
    desk.later(jump)
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
    own = ports.store, ports.bundles, desk.clock, ports.blobs, ports.guard, parts
    retention = SpRetention(*own, is_sure=desk.sp.core.clock_is_sure)
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
    assert desk.sp.core.clock_is_sure()
    assert day() == "cancelled"


def end_without_a_reward(desk: WatchingDesk) -> Participant:
    """Somebody whose second reward SP cannot show, of a task that has ended."""
    for _ in range(2):
        desk.upload(desk.crowd)
        desk.run()
    desk.sp.blobs.delete(desk.result(2, "rewards"))
    person = desk.crowd[0]
    person.step(unchanged)
    before = desk.clock.time
    desk.leave_to_claim(500.0)
    desk.steady.time += desk.clock.time - before
    assert desk.sp.tasks.status(desk.task)["claim_seconds_left"] == 500.0
    return person


@pytest.mark.parametrize("jump", TWO_DAYS)
def test_a_signed_request_is_in_time_by_the_clock_or_by_the_seconds_that_passed(desk, jump):
    """What is of neither time is told to wait; with a clock that is right it is refused."""
    right, sp = desk.clock.now(), desk.sp
    assert sp.core.is_about_now(right, 300.0)
    assert not sp.core.is_about_now(right + 301.0, 300.0)
    desk.clock.time += jump
    assert sp.core.is_about_now(right, 300.0)
    assert sp.core.is_about_now(desk.clock.now(), 300.0)
    with pytest.raises(ClockInDoubt):
        sp.core.is_about_now(right + 3600.0, 300.0)


@pytest.mark.parametrize("jump", JUMPS)
def test_money_that_an_operator_decides_on_waits_for_the_clock(desk, jump):
    """By a clock that is far ahead, a payment that runs seems to be lost, and would be made again."""
    desk.sp.deposits.announce(desk.task, "late", 1)
    person = end_without_a_reward(desk)
    assert person.claim() > 0
    (payment,) = desk.sp.store.payments(desk.task)
    running = replace(payment, state=PaymentState.RUNNING, owner="x", until=desk.clock.now() + 30)
    assert desk.sp.store.change_payment(payment, running)
    desk.clock.time += jump
    for books in (beside(desk), desk.sp.core.sure_books):
        for how in ("again", "paid"):
            with pytest.raises(ClockInDoubt):
                resolve_payment(books, desk.task, payment.who, how, "by hand")
        with pytest.raises(ClockInDoubt):
            Deposits(books).confirm(desk.task, "late", 1, "EUR")
    assert desk.sp.store.payments(desk.task) == [running]


def test_a_payment_in_doubt_is_not_dated_ahead(desk):
    """One that fails is tried again soon after, by the clock as it is when it is right again."""
    person = end_without_a_reward(desk)
    assert person.claim() > 0
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
        desk.crowd[0].step(unchanged)
    assert len(sent) == 1
