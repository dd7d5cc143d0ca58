"""A round of `paper` that late uploads are averaged into, cut at every write of SP's and every message: nothing changes."""

import contextlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from crowdfl.errors import CrowdFLError
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.sp.ledger import earned_account, round_account
from crowdfl.settings import UNTIL_PUBLISHED, TaskSettings
from crowdfl.simulation.faults import Plan, Point, nothing_happens
from crowdfl.simulation.host import SP, Host
from tests.cut.forks import Forks
from tests.hosts import BUDGET, INITIAL_MODEL, SMALL_TASK, moved_by, small_definition, test_tools

PATIENCE = 61.0  # longer than the lease of a process that has died
LONG = 10.0**5  # of a window and of what comes late: no start-up passes them
PAPER = {"profile": "paper", "key_bits": 512, "mask_bits": 45, "rounds": 2}
SETTINGS = SMALL_TASK | PAPER | {"window": LONG, "late": UNTIL_PUBLISHED}
MOVES, SAMPLES = (0.1, 0.2, 0.3, -0.4), (1, 2, 3, 2)
EXPECTED = float(np.average(MOVES, weights=SAMPLES))


class Late:
    """Three people send in time, the fourth once the first average is held; from the deadline on, SP and CSP may die."""

    def __init__(self, plan: Plan) -> None:
        self.clock, self.plan = ManualClock(1000.0), plan
        self.host = Host(test_tools(), clock=self.clock)
        definition = small_definition(TaskSettings.of(**SETTINGS))
        self.task = self.host.create(definition, INITIAL_MODEL)
        for place in range(4):
            self.host.join(self.task, str(place))
        self.host.requester.fund(self.task, 2 * BUDGET, "all")
        self.host.run()

    @property
    def round_(self):
        return self.host.sp.store.round(self.task, 1)

    def play(self) -> None:
        for place in range(3):
            self._send(place)
        start = self.clock.time
        self.host.faults = lambda point: self.plan(point) if point.process in ("sp", "csp") else None
        self.clock.time = start + LONG
        self._until(lambda: self.round_.state == "held")
        self._until(self._is_fourth_in)
        self.clock.time = max(self.clock.time, start + 2 * LONG)
        self._until(lambda: self.round_.is_over)
        self.host.faults = nothing_happens
        self._revive()

    def _send(self, place: int) -> None:
        self.host.people[str(place)].step(moved_by(MOVES[place], SAMPLES[place]))

    def _is_fourth_in(self) -> bool:
        with contextlib.suppress(CrowdFLError):
            self._send(3)
        self._revive()
        return len(self.host.sp.store.uploads(self.task, 1)) == 4

    def _until(self, reached: Callable[[], bool]) -> None:
        for _ in range(40):
            if reached():
                return
            with contextlib.suppress(CrowdFLError, ConnectionError):
                self.host.act(SP, lambda sp: sp.tick())
            self._revive()
        raise AssertionError(f"still {self.round_}")

    def _revive(self) -> None:
        for name in self.host.dead():
            self.host.start(name)
            self.clock.time += PATIENCE

    def check(self) -> None:
        """One average is published, of all four; it is paid once; nothing that was held or answered is left."""
        self.host.run()
        sp, task = self.host.sp, self.task
        assert self.round_.state == "rewarded"
        for person in self.host.people.values():
            person.step(moved_by(0.0, 1))
        read = np.asarray(self.host.people["0"].read(1).model).reshape(-1)
        moved = read - np.concatenate([part.reshape(-1) for part in INITIAL_MODEL])
        assert np.abs(moved - EXPECTED).max() < 2e-3
        balances = sp.core.ledger(task).balances()
        assert (balances.get(round_account(1), 0), balances[earned_account(1)]) == (0, BUDGET)
        earned = [person.rewards()[1] for person in self.host.people.values()]
        assert BUDGET - 2e5 < sum(earned) <= BUDGET
        assert len(set(earned)) == 4
        left = [name for name in sp.blobs.listing() if "/rounds/1/held/" in name or "/rounds/1/replies/" in name]
        assert left == []
        assert not sp.store.replies(task, 1)


def playing(plan: Plan) -> None:
    late = Late(plan)
    late.play()
    late.check()


def points() -> list[Point]:
    met: list[Point] = []
    playing(met.append)
    return met


def survive(chosen: Sequence[Point]) -> None:
    """Points are told apart by how many came before: masks, and so names of files, are new in each run."""
    wanted = {str(point) for point in chosen}
    forks = Forks(lambda point: str(point) in wanted)
    forks.run(playing)
    assert not forks.failures, "\n".join(forks.failures)
    assert len(forks.cut) == len(chosen)


def test_the_first_average_is_gone_before_the_second_is_begun():
    """In the order of its writes: what is held, then that it is not, then its file, then the second."""
    held = [point for point in points() if "/held" in point.about and point.moment == "after"]
    assert [point.name for point in held] == [
        "blobs.clear",  # before the first: nothing
        "blobs.put",
        "blobs.clear",
        "blobs.put",
        "blobs.clear",
    ]


@pytest.mark.second
@pytest.mark.parametrize("half", [0, 1])
def test_a_server_that_dies_at_any_write_or_message_changes_nothing(half: int):
    every = points()
    assert len(every) >= 60
    survive(every[half::2])
