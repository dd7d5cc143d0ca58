"""A clock that jumps closes no round and ends no time to claim, until a peer, its owner or the operator says it is right."""

from dataclasses import dataclass, field

import pytest

from crowdfl.errors import ClockInDoubt, CrowdFLError
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.sp.time import ClockWatch, confirm_clock
from crowdfl.storage.sql import SqlStore
from tests.hosts import Desk

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
    desk = WatchingDesk(tmp_path)
    desk.invite(4)
    desk.requester.fund(desk.task, 72_000_000, "all")
    desk.run()
    assert desk.states()[0] == "open"
    return desk


def test_a_round_outlives_a_clock_that_jumps_forward(desk):
    """Uploads are taken meanwhile, and none is late; when the clock is right again, the round has its whole window."""
    desk.upload(desk.crowd[:2])
    desk.clock.time += 10**6
    desk.run()
    entry = desk.sp.store.round(desk.task, 1)
    assert (entry.state, entry.extended) == ("open", False)
    person = desk.crowd[2]
    upload = person.side.encrypt_update(person._definition.shape.flat(person.model()), 5, 1)
    assert desk.sp.upload(desk.task, 1, person.keys.who, upload).late is False
    desk.run()
    assert desk.sp.store.round(desk.task, 1) == entry
    desk.clock.time -= 10**6
    desk.upload(desk.crowd[3:])
    desk.run()
    assert desk.states()[0] == "rewarded"


def test_a_round_closes_for_time_once_a_peer_agrees(desk):
    """The platform asks for the time by itself."""
    desk.upload(desk.crowd[:3])
    desk.clock.time += 10**6
    desk.run()
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
    desk.clock.time += 10**6
    desk.run()
    assert desk.state == "finished"
    assert desk.crowd[0].claim() > 0
    confirm_clock(desk.sp.store, desk.clock)
    desk.run()
    assert desk.state == "settled"
    with pytest.raises(CrowdFLError):
        desk.crowd[1].claim()
