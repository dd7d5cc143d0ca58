"""A server whose records or whose notes were set back: what was dealt serves one content, and what was earned is paid."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crowdfl.errors import (
    Conflict,
    CrowdFLError,
    EnrolmentOver,
    GuardMissing,
    Overtaken,
    RolledBack,
    RoundEnded,
    SettingsError,
    StoreUnavailable,
)
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.records import Look
from crowdfl.protocols.shares.round.csp import SharesCsp
from crowdfl.protocols.shares.round.ends import EndRequest
from crowdfl.protocols.shares.round.manifest import StepRequest
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.guard import Guard
from crowdfl.roles.records import EndedBy, Tombstone
from crowdfl.roles.restored import end_doubtful_csp, end_doubtful_sp
from crowdfl.simulation.faults import BEFORE, Crash, Plan, Point, nothing_happens
from crowdfl.simulation.host import Call, Deliver, Host
from tests.hosts import Desk, FileDisk, raising
from tests.shares.crowd import BUDGET, Crowd, along

SAMPLES = {"0": 3, "1": 4, "2": 5, "3": 6}
FAR = [0.5, 0.25, 0.75, 0.5]
STEPS = 6  # of a round of this task
EACH_STEP = pytest.mark.parametrize("step", range(1, STEPS + 1))
EACH_SERVER = pytest.mark.parametrize("role", ["sp", "csp"])


@dataclass
class Wire:
    """What passes between SP and CSP: it copies all disks before each step, and its owner may close it."""

    folder: Path
    copies: Path
    requests: list[bytes] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)

    def __call__(self, call: Call, deliver: Deliver) -> Any:
        if call.name != "answer" or Message.kind_of(call.arguments[1]) != StepRequest.kind:
            return deliver()
        if not (self.copies / str(len(self.requests) + 1)).exists():
            shutil.copytree(self.folder, self.copies / str(len(self.requests) + 1))
        self.requests.append(call.arguments[1])
        reply = bytes(deliver())
        self.replies.append(reply)
        return reply


class Played(Crowd):
    """A task whose first round is through, with its disks as they were before each of SP's requests reached CSP."""

    def __init__(self, folder: Path, *, faults: Plan = nothing_happens, **settings: Any) -> None:
        self.wire = Wire(folder / "now", folder)
        host = {"disk": FileDisk(folder / "now", durable=False), "wire": self.wire, "faults": faults}
        super().__init__(4, host=host, **{"rounds": 3, "window": 1e6} | settings)

    def play(self, number: int = 1) -> None:
        self.train(number, along(number, FAR), SAMPLES)
        if number == 1:
            shutil.copytree(self.wire.folder, self.wire.copies / "0")
        self.run()

    def set_back(self, role: str, step: int, *, records: bool = True, guard: bool = False) -> None:
        """To before this step: all but the guard, or the guard alone, or both."""
        assert isinstance(self.disk, FileDisk)
        self.disk.close()
        copied = step if role == "csp" else step - 1  # SP has counted a step when its request is on the wire
        before, now = self.wire.copies / str(copied) / role, self.wire.folder / role
        for path in list(now.iterdir()):
            if (path.name == "guard" and guard) or (path.name != "guard" and records):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in before.iterdir() if before.exists() else ():
            if not (now / path.name).exists() and not path.name.endswith("-shm"):
                (shutil.copytree if path.is_dir() else shutil.copy)(path, now / path.name)
        self.restart()

    def guard(self, role: str) -> Guard:
        return Guard(self.disk.blobs(f"{role}/guard"), self.disk.store(role), role)

    def told(self) -> str:
        end = self.sp.store.task(self.task).end
        return "" if end is None else end.words()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Played once: each test sets disks as it needs them."""
    played = Played(tmp_path_factory.mktemp("guard"))
    played.play()
    assert (played.states[0], len(played.wire.requests)) == ("rewarded", STEPS)
    shutil.copytree(played.wire.folder, played.wire.copies / "end")
    return played


@pytest.fixture
def played(recorded: Played) -> Iterator[Played]:
    yield recorded
    assert isinstance(recorded.disk, FileDisk)
    recorded.disk.close()
    recorded.clock.time = 1000.0
    del recorded.wire.requests[STEPS:], recorded.wire.replies[STEPS:]
    shutil.rmtree(recorded.wire.folder)
    shutil.copytree(recorded.wire.copies / "end", recorded.wire.folder)
    for copy in recorded.wire.copies.iterdir():
        if copy.name.isdecimal() and int(copy.name) > STEPS:
            shutil.rmtree(copy)
    recorded.restart()
    for name in recorded.people:
        Host.start(recorded, f"people/{name}")


def other(request: bytes) -> bytes:
    """The same step, with contents of SP's choice."""
    message = StepRequest.from_bytes(request, Limits.plain(len(request)))
    payload = bytearray(message.payload)
    payload[-1] ^= 1
    return StepRequest(message.round_number, message.step, message.transcript, bytes(payload)).to_bytes()


# The records are set back.


@EACH_STEP
@pytest.mark.parametrize("manifest", ["the same", "another"])
def test_a_csp_whose_records_were_set_back_answers_no_step(played: Played, step: int, manifest: str):
    """Its guard knows what has left: neither the same request nor another is answered, nor an earlier one again."""
    played.set_back("csp", step)
    request = played.wire.requests[step - 1]
    for asked in (request if manifest == "the same" else other(request), *played.wire.requests):
        with pytest.raises(RolledBack, match="CSP was set back"):
            played.csp.answer(played.task, asked)
    played.play(2)
    assert played.states == ["rewarded", "aborted"]
    assert played.told().startswith("cancelled by CSP: CSP was set back")
    for person in played.people.values():
        assert person.claim() == BUDGET // 4  # by CSP's own signature, which it has forgotten


@EACH_STEP
@pytest.mark.parametrize("manifest", ["the same", "another"])
def test_an_sp_whose_records_were_set_back_sends_nothing(played: Played, step: int, manifest: str):
    played.set_back("sp", step)
    if manifest == "another":
        uploads = played.sp.store.uploads(played.task, 1)
        played.sp.store.drop_uploads(played.task, 1, uploads[:1])
        played.sp.store.erase_seeds(played.task, 1)
        played.clock.time += 10**7  # whoever was dropped does not come back
    played.run()
    assert len(played.wire.requests) == STEPS
    assert played.told().startswith("cancelled by SP: SP was set back")
    assert played.states == ["aborted"]


def test_a_set_back_before_the_first_round_is_found(played: Played):
    """The records know of no step at all, nor of the guard."""
    played.set_back("csp", 1)
    with played.csp.store._write() as connection:
        connection.exec_driver_sql("DELETE FROM identity")
    with pytest.raises(RolledBack):
        played.csp.answer(played.task, played.wire.requests[0])


def test_an_sp_that_was_set_back_sends_no_second_sum_of_a_task_without_checks(tmp_path: Path):
    """Nothing is dealt for its rounds, and a CSP that answers again, with a reader, would have the sums of both sets of people:
    here without somebody who has withdrawn since."""
    played = Played(tmp_path, check="none", budget=None)
    played.play()
    shutil.copytree(played.wire.folder, played.wire.copies / "end")
    asked = len(played.wire.requests)
    played.set_back("csp", 1, guard=True)  # it deviates
    played.set_back("sp", 1)
    played.sp.store.drop_uploads(played.task, 1, played.sp.store.uploads(played.task, 1)[:1])
    played.sp.store.erase_seeds(played.task, 1)
    played.clock.time += 10**7
    with contextlib.suppress(CrowdFLError, ConnectionError):
        played.run()
    assert len(played.wire.requests) == asked
    assert played.told().startswith("cancelled by SP: SP was set back")


def test_a_set_back_csp_is_told_again_of_whoever_came_in_time(played: Played):
    """Enrolment is over meanwhile: they claim, and take no step. A CSP that knows all it has answered takes nobody."""
    certificate = played.csp.store.participants(played.task)[0].certificate
    played.clock.time = played.csp.store.task(played.task).opened.plan.enrolment_end + 1
    _forget_people(played)
    with pytest.raises(EnrolmentOver):
        played.csp.enrol(played.task, certificate)
    played.set_back("csp", 3)
    _forget_people(played)
    played.csp.enrol(played.task, certificate)
    assert [one.certificate for one in played.csp.store.participants(played.task)] == [certificate]
    assert played.csp.store.task(played.task).rolled_back


def _forget_people(played: Played) -> None:
    with played.csp.store._write() as connection:
        connection.exec_driver_sql("DELETE FROM participants")


# The guard is set back.


@EACH_SERVER
@EACH_STEP
def test_a_guard_that_was_set_back_stops_every_step_until_it_is_put_back(played: Played, role: str, step: int):
    """Of the last step alone a note may be missing, as after a crash: it is written again."""
    played.set_back(role, step, records=False, guard=True)
    played.train(2, along(2, FAR), SAMPLES)
    if step == STEPS:
        played.run()
        assert played.states[:2] == ["rewarded"] * 2
        return
    with contextlib.suppress(CrowdFLError, ConnectionError):
        played.run()
    assert len(played.wire.replies) == STEPS
    assert played.states == ["rewarded", "closed"]
    shutil.rmtree(played.wire.folder / role / "guard")
    shutil.copytree(played.wire.copies / "end" / role / "guard", played.wire.folder / role / "guard")
    played.run()
    assert played.states[:2] == ["rewarded"] * 2


@EACH_SERVER
def test_a_folder_that_is_not_mounted_does_not_look_new(played: Played, role: str):
    shutil.rmtree(played.wire.folder / role / "guard")
    played.train(2, along(2, FAR), SAMPLES)
    with contextlib.suppress(CrowdFLError, ConnectionError):
        played.run()
    assert len(played.wire.replies) == STEPS
    with pytest.raises(GuardMissing, match=f"crowdfl {role} guard new"):
        played.guard(role).look(played.task)
    assert not (played.wire.folder / role / "guard").joinpath(played.task).exists()


def test_a_folder_that_goes_after_the_look_gets_no_note_and_no_end(played: Played):
    """It would be beside the guard: whoever mounts that one again has a note less."""
    guard, folder, aside = played.guard("csp"), played.wire.folder / "csp/guard", played.wire.folder / "csp/aside"
    notes = guard.look(played.task)
    folder.rename(aside)
    with pytest.raises(GuardMissing):
        guard.note(played.task, STEPS + 1, "0" * 64)
    guard.finish(played.task)
    assert not [path for path in folder.rglob("*") if path.is_file()]
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    assert guard.look(played.task) == notes


@EACH_SERVER
@pytest.mark.parametrize("unchanged", [True, False])
def test_the_operator_gives_a_guard_up(played: Played, role: str, unchanged: bool):
    """With its word that the records were not set back the task goes on; else it ends, and what was earned is paid."""
    shutil.rmtree(played.wire.folder / role / "guard")
    guard = played.guard(role)
    store = guard.store
    end = partial(end_doubtful_sp, store, played.clock.now()) if role == "sp" else partial(end_doubtful_csp, store)
    guard.renew(None if unchanged else end)
    guard.renew(None)  # repeated, after a crash perhaps
    with contextlib.suppress(AssertionError if unchanged else CrowdFLError):
        played.play(2)
    assert played.states[:2] == (["rewarded"] * 2 if unchanged else ["rewarded", "aborted"])
    assert ("set back" in played.told()) is not unchanged
    if not unchanged:
        assert all(person.claim() > 0 for person in played.people.values())


def test_a_guard_of_another_database_is_left_alone(played: Played):
    mine, folder = played.guard("csp"), played.wire.folder
    with pytest.raises(SettingsError, match="another database's"):
        Guard(played.disk.blobs("sp/guard"), played.disk.store("csp"), "csp").renew(None)
    assert len(list((folder / "sp/guard" / played.task).iterdir())) == STEPS
    mine.require_own()


# What leaves, and when.


@EACH_SERVER
@EACH_STEP
def test_nothing_leaves_before_its_note_is_durable(tmp_path: Path, role: str, step: int):
    """A disk that fails at a step's note: nothing of the step is heard, it is tried again, and the round ends as ever."""
    failed: list[Point] = []

    def failing(point: Point) -> None:
        note = point.process == role and point.name == "guard.put" and point.about.endswith(f"/{step:08d}")
        if note and point.moment == BEFORE and not failed:
            failed.append(point)
            raise OSError(5, "Input/output error")

    played = Played(tmp_path, faults=failing)
    played.train(1, along(1, FAR), SAMPLES)
    with pytest.raises(OSError, match="Input/output"):
        played.run()
    asked = step if role == "csp" else step - 1
    assert (len(played.wire.requests), len(played.wire.replies)) == (asked, step - 1)
    played.run()
    assert played.states[0] == "rewarded"
    assert len(set(played.wire.requests)) == STEPS


def test_a_repeated_answer_is_noted_again_before_it_leaves(played: Played):
    """Whoever was first may have failed after the note's name was there and before its folder was durable."""
    noted: list[Any] = []
    put = played.csp.guard.blobs.put
    played.csp.guard.blobs.put = lambda *blob: (noted.append(blob[0]), put(*blob))  # type: ignore[method-assign, assignment]
    for request, reply in zip(played.wire.requests, played.wire.replies, strict=True):
        assert played.csp.answer(played.task, request) == reply
    assert noted == [f"{played.task}/{STEPS:08d}"] * STEPS


def test_another_history_cannot_be_noted(played: Played):
    guard = played.guard("csp")
    with pytest.raises(RolledBack, match="other contents"):
        guard.note(played.task, STEPS, "0" * 64)


def test_a_note_of_something_else_ends_the_task(played: Played):
    """The records were set back, and another process has gone on from there before this one looked."""
    played.csp.store.change_task(played.task, said="0" * 64)
    with pytest.raises(RolledBack, match="other contents"):
        played.csp.answer(played.task, played.wire.requests[0])
    assert played.csp.store.task(played.task).rolled_back


def test_a_small_note_outlives_the_task(played: Played):
    """A database of before the end does not take the task up again. While claims are answered, every note stays."""
    csp = played.csp
    retention = CspRetention(csp.store, csp.bundles, played.clock, csp.blobs, csp.guard)
    end = Tombstone("cancelled", EndedBy.OPERATOR)
    retention.close(played.task, end)
    assert noted(played) == sorted(["guard-id", *(f"{step:08d}" for step in range(1, STEPS + 1))])
    played.clock.time = csp.store.task(played.task).attests_until + 1
    retention.close(played.task, end)
    assert noted(played) == sorted(["guard-id", played.task])
    shutil.rmtree(played.wire.copies / "1" / "csp" / "guard", ignore_errors=True)
    played.set_back("csp", 1)
    with pytest.raises(RolledBack, match="has ended"):
        played.csp.answer(played.task, played.wire.requests[0])


def noted(played: Played) -> list[str]:
    """What CSP's guard holds."""
    return sorted(path.name for path in (played.wire.folder / "csp/guard").rglob("*") if path.is_file())


def test_records_come_first_then_the_note_then_the_reply_then_what_is_erased(tmp_path: Path):
    """Of the step that ends a round: its dealt file is there until the reply has left."""
    order: list[str] = []
    played = Played(tmp_path, faults=watching(order))
    played.play()
    last = len(order) - 1 - order[::-1].index("store")
    assert order[last:][:3] == ["store", "guard.put", "keys.delete"]


def watching(order: list[str]) -> Plan:
    def meet(point: Point) -> None:
        if point.process != "csp" or point.moment != BEFORE:
            return
        if point.name == "store.Csp._answered":
            order.append("store")
        elif point.name in ("guard.put", "keys.delete"):
            order.append(point.name)

    return meet


def test_a_csp_that_dies_before_it_has_erased_does_so_when_it_begins(tmp_path: Path):
    def dying(point: Point) -> None:
        if (point.process, point.name, point.moment) == ("csp", "keys.delete", BEFORE):
            raise Crash

    played = Played(tmp_path, faults=dying)
    played.play()
    assert played.states[0] == "rewarded"  # its reply had left
    assert played.dead() == ["csp"]
    played.faults = nothing_happens
    Host.start(played, "csp")
    assert played.disk.blobs("csp/keys").has(f"{played.task}.dealt.1")
    played.play(2)
    assert not played.disk.blobs("csp/keys").has(f"{played.task}.dealt.1")


def test_what_a_loser_wrote_after_its_round_was_erased_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another process has ended the round meanwhile, and another thread of this one has erased it."""
    played = Played(tmp_path)
    played.play()
    csp, folder = played.csp, f"{played.task}/rounds/1/heard"
    csp.tidy(played.task)

    def losing(_side: SharesCsp, look: Look, _request: bytes) -> bytes:
        look.keep(1, b"a payload")
        return b"an answer"

    with monkeypatch.context() as patch:
        patch.setattr(SharesCsp, "answer", losing)
        patch.setattr(csp.store, "set_records", raising(Overtaken("another process was first")))
        patch.setattr(csp, "_erase", lambda *_: None)
        with pytest.raises(StoreUnavailable):
            csp.answer(played.task, EndRequest(2).to_bytes())
    assert csp.blobs.listing(folder)
    csp.tidy(played.task)
    assert not csp.blobs.listing(folder)


def test_a_step_that_another_process_has_taken_meanwhile_is_counted_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It has read other records: its answer is the one after, and both have their note."""
    desk = Desk.funded(tmp_path, 4)
    answer, store = SharesCsp.answer, desk.csp.store

    def overtaken(side: SharesCsp, look: Look, request: bytes) -> Any:
        if not store.task(desk.task).steps:
            store.change_task(desk.task, steps=1, said="0" * 64)
        return answer(side, look, request)

    monkeypatch.setattr(SharesCsp, "answer", overtaken)
    desk.csp.answer(desk.task, EndRequest(1).to_bytes())
    assert store.task(desk.task).steps == 2
    assert sorted(desk.csp.guard.look(desk.task).steps) == [1, 2]


def test_of_two_processes_of_sp_one_counts_a_step(tmp_path: Path):
    desk = Desk.funded(tmp_path, 4)
    link, known = desk.sp.steps._csp, desk.sp.store.task(desk.task)
    link._count(known, "1" * 64)
    with pytest.raises(Conflict, match="another process"):
        link._count(known, "2" * 64)
    assert (desk.sp.store.task(desk.task).steps, desk.sp.store.task(desk.task).said) == (1, "1" * 64)


def test_a_refusal_that_is_kept_is_noted_before_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It tells something too: a server that was set back must not give it twice."""
    desk = Desk.funded(tmp_path, 4)
    monkeypatch.setattr(SharesCsp, "answer", lambda *_: RoundEnded("a lane is below zero"))
    with pytest.raises(RoundEnded):
        desk.csp.answer(desk.task, EndRequest(1).to_bytes())
    assert desk.csp.store.task(desk.task).steps == 1
    assert sorted(desk.csp.guard.look(desk.task).steps) == [1]
