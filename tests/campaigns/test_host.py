"""The host: one seed is one run, and a process dies at any of its points and is started again."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfl.crypto.entropy import SOURCE
from crowdfl.crypto.randomness import secret_bytes
from crowdfl.errors import CrowdFLError, ServiceUnavailable
from crowdfl.roles.ports import ManualClock
from crowdfl.settings import TaskSettings
from crowdfl.simulation.disks import Disk, FileDisk, MemoryDisk
from crowdfl.simulation.faults import AFTER, BEFORE, Crash, Plan, Point, nothing_happens
from crowdfl.simulation.host import Call, Deliver, Host
from crowdfl.simulation.replayed import seeded
from tests import subprocesses
from tests.hosts import FEW_LANES, SMALL_TASK, small_definition, test_tools

SETTINGS = SMALL_TASK | FEW_LANES | {"max_participants": 4, "cohort": 2, "budget": "9.00", "pay": "equal"}
PEOPLE = ("ada", "bob", "cem", "dora")
SIZE, BUDGET = 4, 9_000_000


class Campaign(Host):
    """Four people in two cohorts, two rounds with checks and pay. `live` brings it to its end, whatever dies on the way."""

    clock: ManualClock

    def __init__(self, disk: Disk | None = None, faults: Plan = nothing_happens, **more: Any) -> None:
        clock = ManualClock(1000.0)
        super().__init__(test_tools(), disk=disk or MemoryDisk(clock.now), clock=clock, faults=faults, **more)
        definition = small_definition(TaskSettings.of(**SETTINGS), parameters=SIZE)
        self.task = self.create(definition, [np.zeros(SIZE)])
        for name in PEOPLE:
            self.join(self.task, name)
        self.requester.fund(self.task, 2 * BUDGET, "all")

    def live(self) -> None:
        for _ in range(60):
            for name in self.dead():
                self.start(name)
            self._try(self.run)
            for name in PEOPLE:
                self._try(lambda name=name: self.act(f"people/{name}", self._step))
            if self.is_running("sp") and self.sp.tasks.status(self.task)["state"] == "settled":
                return
            self.clock.time += 20.0
        raise AssertionError("the campaign hangs")

    @staticmethod
    def _try(what: Callable[[], Any]) -> None:
        with contextlib.suppress(CrowdFLError):
            what()

    @staticmethod
    def _step(person: Any) -> None:
        person.step(lambda arrays, _settings, number: ([array + 0.25 * number for array in arrays], 3))
        if person.has_claims:
            person.claim()

    def paid(self) -> int:
        return sum(sum(rounds.values()) for rounds in self.sp.core.ledger(self.task).paid().values())


def played(seed: bytes, disk: Disk | None = None, **more: Any) -> Any:
    with seeded(seed):
        campaign = Campaign(disk, **more)
        campaign.live()
    return campaign.disk.contents()  # type: ignore[attr-defined]


def test_one_seed_is_one_run():
    first, again, other = played(b"1"), played(b"1"), played(b"2")
    assert first == again
    assert {name for name in first if first[name] == other[name]} == set()


def test_one_seed_is_one_run_on_files(tmp_path: Path):
    first, again = (played(b"1", FileDisk(tmp_path / name, durable=False)) for name in ("a", "b"))
    assert len(first) > 50
    assert first == again


def test_two_processes_of_each_server_share_the_work():
    answered: list[str] = []

    def in_turn(call: Call, deliver: Deliver) -> Any:
        if (call.receiver, call.name) != ("csp", "answer"):
            return deliver()
        to = "csp2" if len(answered) % 2 == 0 else "csp"
        answered.append(to)
        return deliver(to)

    with seeded(b"1"):
        campaign = Campaign(wire=in_turn, sps=2, csps=2)
        campaign.live()
    assert set(answered) == {"csp", "csp2"}
    assert campaign.paid() == 2 * BUDGET


def test_every_party_reaches_others_over_the_wire_alone():
    seen: set[tuple[str, str, str]] = set()

    def watched(call: Call, deliver: Deliver) -> Any:
        seen.add((call.sender, call.receiver, call.name))
        return deliver()

    with seeded(b"1"):
        Campaign(wire=watched).live()
    assert {
        ("requester", "kgc", "create_task"),
        ("requester", "sp", "create_task"),
        ("people/ada", "kgc", "enrol"),
        ("people/ada", "sp", "send"),
        ("people/ada", "sp", "claim"),
        ("sp", "kgc", "bundle"),
        ("sp", "csp", "prepare"),
        ("sp", "csp", "answer"),
        ("csp", "kgc", "dealt"),
    } <= seen


def points() -> list[Point]:
    met: list[Point] = []
    with seeded(b"1"):
        campaign = Campaign()
        campaign.faults = met.append
        campaign.live()
    return met


def test_points_have_the_same_names_in_each_run():
    first = points()
    assert first == points()
    assert len({str(point) for point in first}) == len(first)
    assert {point.moment for point in first} == {BEFORE, AFTER}
    assert {point.process for point in first} == {"sp", "csp", *(f"people/{name}" for name in PEOPLE)}


def dying_at(chosen: Point, died: list[str]) -> Plan:
    def plan(point: Point) -> None:
        if point == chosen and not died:
            died.append(point.process)
            raise Crash

    return plan


def test_a_process_that_dies_at_a_point_is_started_again_and_everyone_is_paid():
    every = points()
    for chosen in every[7 :: len(every) // 4]:
        died: list[str] = []
        with seeded(b"1"):
            campaign = Campaign()
            campaign.faults = dying_at(chosen, died)
            campaign.live()
        assert died == [chosen.process], chosen
        assert campaign.paid() == 2 * BUDGET, chosen


def test_a_write_that_was_not_reached_is_not_there_and_one_that_was_is():
    for moment, kept in ((BEFORE, False), (AFTER, True)):
        campaign = Campaign()
        campaign.faults = dying_at(Point("sp", "store.lease", 1, moment), [])
        campaign.run()
        assert campaign.dead() == ["sp"]
        with pytest.raises(ServiceUnavailable, match="sp does not run"):
            campaign.people["ada"].sp.status(campaign.task)
        assert (campaign.disk.store("sp").lease(campaign.task, "another", 1000.0, 1.0) is False) == kept


def test_what_a_killed_process_still_does_reaches_nobody():
    """Its code may run on for a while, as that of a caller in the middle of a call does."""
    campaign = Campaign()
    campaign.run()
    sp, ada = campaign.sp, campaign.people["ada"]
    campaign.kill("sp")
    campaign.kill("people/ada")
    campaign.start("sp")
    before = campaign.disk.contents()
    with pytest.raises(Crash):
        sp.store.lease(campaign.task, "late", 2000.0, 1.0)
    with pytest.raises(Crash):
        sp.blobs.put("x", b"")
    with pytest.raises(Crash):
        sp.ports.csp.prepare(campaign.task)
    with pytest.raises(Crash):
        ada.leave()
    assert campaign.disk.contents() == before


def test_the_source_of_secrets_is_the_operating_system_but_in_a_replayed_run():
    with seeded(b"1"):
        first = secret_bytes(32)
    with seeded(b"1"):
        assert secret_bytes(32) == first
        with seeded(b"2"):
            assert secret_bytes(32) != first
    assert SOURCE.get() is os.urandom


KILLED = """
import os, signal, sys
from pathlib import Path
from crowdfl.simulation.disks import FileDisk
FileDisk(Path(sys.argv[1])).store("sp")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_nothing_in_the_temporary_folder(tmp_path: Path):
    (temporary := tmp_path / "temporary").mkdir()
    done = subprocesses.run([sys.executable, "-c", KILLED, tmp_path], env=os.environ | {"TMPDIR": str(temporary)})
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "sp/state.db").exists()
    assert list(temporary.iterdir()) == []
