"""SP or CSP of a `shares` task comes back from a backup: nothing is opened a second time, no money is lost."""

import shutil
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdfl.errors import RolledBack
from crowdfl.protocols.messages import Message
from crowdfl.protocols.shares.round.manifest import StepRequest
from crowdfl.roles.guard import Guard
from crowdfl.roles.restored import end_doubtful_csp, end_doubtful_sp, mark_restored_sp, reconcile
from crowdfl.simulation.host import Call, Deliver
from crowdfl.storage import migrations
from crowdfl.storage.backup import BackupSource, restoring, write_backup
from tests.hosts import FileDisk
from tests.shares.crowd import BUDGET, Crowd, along, next_model

SAMPLES = {"0": 3, "1": 4, "2": 5}
pytestmark = pytest.mark.second


class Wire:
    """With what has passed between SP and CSP of each step of a round."""

    def __init__(self) -> None:
        self.host: Any = None
        self.requests: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.replies: dict[tuple[int, int], set[bytes]] = defaultdict(set)

    def __call__(self, call: Call, deliver: Deliver) -> Any:
        if call.name != "answer" or Message.kind_of(call.arguments[1]) != StepRequest.kind:
            return deliver()
        request = call.arguments[1]
        message = StepRequest.from_bytes(request, self.host.shape.limits(10**7))
        step = message.round_number, message.step
        self.requests[step].add(request)
        reply = bytes(deliver())
        self.replies[step].add(reply)
        return reply


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def crowd(tmp_path: Path, wire: Wire) -> Crowd:
    """Three people; two rounds of four are through."""
    for role in ("sp", "csp"):
        (tmp_path / role).mkdir()
        migrations.upgrade(f"sqlite:///{tmp_path}/{role}/state.db")
        (tmp_path / role / "settings.toml").write_text("")
    crowd = Crowd(3, rounds=4, window=1e6, host={"disk": FileDisk(tmp_path, durable=False), "wire": wire})
    wire.host = crowd
    for number in (1, 2):
        play(crowd, number)
    return crowd


def play(crowd: Crowd, number: int) -> None:
    crowd.train(number, along(number, [0.5, 0.25, 0.75]), SAMPLES)
    crowd.run()


def back_up(crowd: Crowd, role: str) -> Path:
    folder = crowd.disk.folder / role  # type: ignore[attr-defined]
    archive = folder.parent / f"{role}.tar"
    write_backup(BackupSource(role, folder, "settings.toml", f"sqlite:///{folder}/state.db"), archive)
    return archive


def restore(crowd: Crowd, role: str, archive: Path, *, unchanged: bool = False) -> None:
    """As `crowdfl restore` does, with `--unchanged` or without."""
    disk = crowd.disk
    assert isinstance(disk, FileDisk)
    disk.close()
    shutil.rmtree(disk.folder / role)
    with restoring(archive, disk.folder / role) as (_, place, put):
        put(f"sqlite:///{place}/state.db")
    store = disk.store(role)
    if role == "sp" and not unchanged:
        mark_restored_sp(store, crowd.clock.now())
    if not unchanged:
        end = partial(end_doubtful_sp, store, crowd.clock.now()) if role == "sp" else partial(end_doubtful_csp, store)
        Guard(disk.blobs(f"{role}/guard"), store, role).renew(end)
    crowd.restart()


def test_a_restored_csp_answers_no_step_and_sp_gives_up(crowd: Crowd, wire: Wire):
    """Though it has the dealt files of two rounds: they serve no one. Earlier rewards are paid, the rest is returned."""
    archive = back_up(crowd, "csp")
    play(crowd, 3)
    model = crowd.units(3)
    earned = [[person.open_reward(number) for number in (1, 2, 3)] for person in crowd.people.values()]
    restore(crowd, "csp", archive)
    with pytest.raises(RolledBack):
        crowd.csp.answer(crowd.task, next(iter(wire.requests[3, 1])))  # which it has forgotten
    play(crowd, 4)
    assert crowd.states == ["rewarded"] * 3 + ["aborted"]
    assert crowd.units(3) == model  # of SP's files, which lost nothing
    assert len(wire.requests[4, 1]) == 1
    assert not wire.replies[4, 1]
    for person, amounts in zip(crowd.people.values(), earned, strict=True):
        assert person.claim() == sum(amounts)  # what CSP has forgotten, its signature says


@pytest.mark.parametrize("moment", ["before a round", "amid a round"])
def test_a_restored_sp_that_has_lost_a_round_opens_nothing_again(crowd: Crowd, wire: Wire, moment: str):
    """The masks of round 3 were used once: SP cannot know that, asks for nothing any more, and the task is cancelled."""
    if moment == "amid a round":
        crowd.train(3, along(3, [0.5, 0.25]), SAMPLES)
    archive = back_up(crowd, "sp")
    rest = {"2": np.eye(8)[3] * 0.75} if moment == "amid a round" else along(3, [0.5, 0.25, 0.75])
    crowd.train(3, rest, SAMPLES)
    crowd.run()
    assert crowd.states[2] == "rewarded"
    base = next_model(crowd.start(), along(1, [0.5, 0.25, 0.75]), SAMPLES)
    base = next_model(base, along(2, [0.5, 0.25, 0.75]), SAMPLES)
    before = {step: set(said) for step, said in wire.requests.items()}
    restore(crowd, "sp", archive)
    reconcile(crowd.sp.ports, crowd.task, returned=0)
    for _ in range(4):
        for person in crowd.people.values():
            person.step(lambda model, _training, number: ([model[0] + np.eye(8)[number]], 5))
        crowd.run()
    assert crowd.states[2:] == ["aborted"]
    assert crowd.sp.tasks.status(crowd.task)["state"] == "cancelled"
    assert wire.requests == before  # other lanes behind the same masks would show their difference to CSP
    assert crowd.sp.core.ledger(crowd.task).balance("requester") == -2 * BUDGET  # of two rounds; the rest is back
    assert crowd.units(2) == base
    paid = [person.claim() for person in crowd.people.values()]
    assert 2 * BUDGET - 12 <= sum(paid) <= 2 * BUDGET  # what was earned before the backup


def test_an_sp_that_has_moved_goes_on(crowd: Crowd):
    """Nothing happened since the backup, says its operator: the next round starts from the last model."""
    archive = back_up(crowd, "sp")
    model = crowd.units(2)
    restore(crowd, "sp", archive, unchanged=True)
    play(crowd, 3)
    assert crowd.states[2] == "rewarded"
    assert crowd.units(3) == next_model(model, along(3, [0.5, 0.25, 0.75]), SAMPLES)
