"""Bugs that the simulation, or thinking about it, found in the roles: each as small as it gets."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crowdfl.errors import CrowdFLError, TaskNotRunning
from crowdfl.protocols.shares.profile import SharesProfile
from crowdfl.protocols.shares.round.csp import SharesCsp
from crowdfl.roles.kgc import Kgc
from crowdfl.roles.sp.ledger import ESCROW, REQUESTER, participant_account
from crowdfl.roles.sp.platform import TaskState
from tests.campaigns.faults import Between
from tests.campaigns.world import World, closing
from tests.hosts import BUDGET, Desk

DAY = 24 * 3600.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Four people, money for everything, round one about to open."""
    with closing(World(tmp_path)) as world:
        yield world


def everyone(world: World, *people: int) -> None:
    for person in people or world.people:
        world.upload(person)


def between(world: World, name: str, act: Any) -> None:
    """The first SP is interrupted after its next call of this name."""
    world.sps[0].ports.store = Between(world.sps[0].store, name, act)  # type: ignore[assignment]


def test_repro_a_process_that_lost_its_lease_brings_an_ended_round_back(world: World):
    """Its last request took so long that another SP finished the round; it must not mark it as merely published."""
    world.run()
    everyone(world)
    world.tick()

    def another_takes_over() -> None:
        world.clock.time += 61
        for _ in range(2):
            world.tick(1)

    world.wire.fates = ["well", another_takes_over]
    while world.wire.fates:
        world.tick()
    world.check()
    assert world.states() == ["rewarded"]
    world.finish()


def test_repro_a_cancelled_round_is_closed_by_a_tick_that_was_under_way(world: World):
    """The requester's order came after the tick had counted the uploads: the refund stands, and so must the abort."""
    world.run()
    everyone(world)
    between(world, "rounds", lambda: world.order("cancel", which=1))
    world.tick()
    assert world.states() == ["aborted"]
    world.finish()


def test_repro_a_round_opens_on_a_task_cancelled_this_moment(world: World):
    """Nobody would ever close it: a cancelled task's money must come back at once."""
    between(world, "rounds", lambda: world.order("cancel", which=1))
    world.tick()
    assert world.states() == []
    world.run()
    assert world.ledger().balance(REQUESTER) == 0


def test_repro_a_task_paused_this_moment_loses_its_escrow(world: World):
    """Paused is not ended: nothing is refunded."""
    between(world, "lease", lambda: world.order("pause", which=1))
    world.tick()
    assert world.ledger().balance(ESCROW) == 10**9


def test_repro_a_crash_after_settling_leaves_the_uploads_on_disk(world: World):
    """Whatever step SP dies at, the next life scrubs them."""
    world.run()
    everyone(world)
    world.order("cancel")
    world.run()
    world.clock.time += 6000
    for step in range(1, 30):
        world.sp_lives[0].left = step
        world.tick()
        world.clock.time += 61
    world.finish()
    assert world.uploads_on_disk(1) == []


def test_repro_an_upload_that_was_not_counted_is_never_scrubbed(world: World):
    """Other bytes of the same participant's were written before they were refused."""
    world.run()
    everyone(world)
    world.upload(0, other=True)
    world.finish()
    assert world.uploads_on_disk(1) == []


def test_repro_a_task_that_cannot_go_on_stops_all_others_or_slows_them_down(tmp_path: Path):
    """CSP is away: a round that waits for it must not keep another task's from opening, whichever comes first."""
    with closing(World(tmp_path)) as one, closing(World(tmp_path, rounds=3)) as two:
        stuck, other = sorted((one, two), key=lambda world: world.task)
        other.order("pause")
        stuck.run()
        everyone(stuck)
        stuck.tick()
        stuck.wire.away = other.wire.away = True
        other.order("resume")
        assert stuck.sps[0].tick(), "while others move its caller does not wait"
        with pytest.raises((CrowdFLError, ConnectionError)):
            stuck.sps[0].tick()
        assert stuck.states() == ["closed"]
        assert other.states() == ["open"]


def test_repro_who_uploaded_and_left_stands_for_someone_who_has_not_come(world: World):
    """Three of four have uploaded, one of them left: the fourth still has time."""
    world.run()
    everyone(world, 0, 1, 2)
    world.leave(0)
    world.run()
    assert world.states() == ["open"]
    world.upload(3)
    world.run()
    assert world.states()[0] == "rewarded"


def test_repro_an_upload_is_too_late_for_a_round_that_is_about_to_be_extended(world: World):
    """Below the quorum the window doubles, whether SP has looked at its clock since or not."""
    world.run()
    everyone(world, 0, 1)
    world.clock.time += 101
    world.upload(2)
    assert len(world.acknowledged) == 3
    world.clock.time += 99
    world.run()
    assert world.states()[0] == "rewarded"


@pytest.mark.parametrize("answers", [0, 3], ids=["before its first answer", "between two answers"])
def test_repro_a_csp_that_is_gone_for_good_holds_the_money(world: World, answers: int):
    """The round is aborted after a day, its budget is back in escrow, and the task can end."""
    world.run()
    everyone(world)
    world.tick()
    world.wire.fates = ["well"] * answers + [goes_away(world)]
    while world.wire.fates:
        world.tick()
    world.clock.time += DAY - 3600
    world.run()
    assert world.states() == ["closed"]
    world.clock.time += 3 * 3600
    world.tick()
    assert world.states() == ["aborted"]
    assert world.ledger().balance(ESCROW) == 10**9
    world.finish(csp_is_gone=True)


def goes_away(world: World) -> Callable[[], None]:
    """CSP, for good, before it has heard what it is asked."""

    def gone() -> None:
        world.wire.away = True
        raise ConnectionError("nobody answers")

    return gone


def test_a_round_that_csp_has_answered_to_its_end_needs_no_csp_any_more(world: World):
    """SP has the sum with the last answer about the rewards; only claims wait."""
    world.run()
    everyone(world)
    while world.states() != ["weighed"]:
        world.tick()
    world.wire.away = True
    world.run()
    assert world.states() == ["rewarded", "open"]
    world.finish(csp_is_gone=True)


def test_repro_a_round_to_which_nobody_contributed_a_sample_holds_the_money(world: World):
    """Both servers leave everybody out: it is void at once, and the next round opens."""
    world.run()
    for person in world.people:
        world.upload(person, samples=0)
    world.run()
    assert world.states() == ["aborted", "open"]
    world.finish()


def test_repro_an_upload_cut_short_by_a_crash_is_never_scrubbed(world: World):
    """What a dying process had written of it lies there under a hidden name."""
    world.run()
    everyone(world)
    folder = world.blobs.folder / world.task / "rounds/1/uploads"
    (folder / ".0123456789abcdef.part").write_bytes(b"half an upload")
    world.finish()
    assert world.uploads_on_disk(1) == []


def test_repro_a_task_cannot_finish_without_csp(world: World):
    """The last round was aborted, and the requester's copy of the one before cannot be opened: it ends all the same."""
    world.run()
    everyone(world)
    world.run()
    world.wire.away = True
    for _ in range(3):
        world.clock.time += 2 * DAY
        world.run()
    assert world.task_state() != TaskState.RUNNING


def test_repro_a_claim_right_after_cancelling_leaves_the_last_round_out(world: World):
    """The round is closed and will be rewarded: it is claimed then, beside what was claimed before."""
    world.run()
    everyone(world)
    world.run()
    everyone(world)
    world.wire.away = True
    world.run()
    world.order("cancel")
    world.wire.away = False
    world.claim(0)
    who = world.people[0].who
    assert world.ledger().paid()[who].keys() == {1}
    world.run()
    world.claim(0)
    assert world.ledger().paid()[who].keys() == {1, 2}
    world.finish()


def test_repro_the_payout_hook_runs_twice_for_a_claim_that_came_twice_at_once(world: World):
    """A retry arrives while CSP is still asked about the first."""
    world.run()
    everyone(world)
    world.run()
    world.order("cancel")
    world.wire.fates = [lambda: world.claim(0, which=1)]
    world.claim(0)
    world.run()
    assert len(world.hooked) == 1


def test_repro_someone_csp_was_not_told_of_stops_the_rewards(tmp_path: Path):
    """The message about an enrolment was lost and the participant never came back to repeat it, but uploads."""
    with closing(World(tmp_path, people=4)) as world:
        world.wire.fates = ["lost"]
        world.join(4)
        world.run()
        everyone(world, 0, 1, 2, 3, 4)
        world.clock.time += 101
        world.run()
        assert world.states()[0] == "rewarded"
        world.finish()


def test_repro_two_requests_at_once_remember_into_each_others_draft(world: World, monkeypatch: pytest.MonkeyPatch):
    """What CSP must remember of an answer is kept with that answer: here a claim comes while a step is computed."""
    world.run()
    everyone(world)
    world.run()
    everyone(world)
    world.wire.fates = ["late"]
    world.run()
    (late,) = world.wire.late
    world.wire.late.clear()
    csp, inside, go_on = world.host.csp, threading.Event(), threading.Event()
    plain = SharesCsp._answered

    def slow(side: SharesCsp, *message: Any) -> bytes:
        inside.set()
        go_on.wait(0.5)
        return plain(side, *message)

    monkeypatch.setattr(SharesCsp, "_answered", slow)
    first = threading.Thread(target=csp.answer, args=late.arguments)
    first.start()
    inside.wait(5)
    csp.answer(world.task, world.claim_of(0))
    go_on.set()
    first.join(5)
    monkeypatch.undo()
    world.host.start("csp")
    world.clock.time += 61
    world.run()
    assert world.states() == ["rewarded", "rewarded"]
    world.check()


def test_repro_keys_are_dealt_twice_when_a_retry_comes_while_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The requester's client gave up waiting and asked again: all bundles are of one dealing."""
    started, dealt, made = threading.Event(), [], []
    plain = SharesProfile.deal

    def slow(self: SharesProfile, about: Any, *, insecure_test_key: bool) -> Any:
        dealt.append(about.name)
        started.set()
        threading.Event().wait(0.3)
        return plain(self, about, insecure_test_key=insecure_test_key)

    with closing(World(tmp_path)) as world:
        text, disk = world.kgc.store.task(world.task).definition, world.disk
        other = Kgc(disk.store("another"), disk.blobs("another/keys"), world.clock, world.kgc.signing, True)
        monkeypatch.setattr(SharesProfile, "deal", slow)
        threads = [threading.Thread(target=lambda: made.append(other.create_task(text))) for _ in range(2)]
        threads[0].start()
        started.wait(5)
        threads[1].start()
        for thread in threads:
            thread.join(10)
    assert len(dealt) == 1
    assert made[0] == made[1]


def test_repro_a_claim_made_too_early_is_kept_and_leaves_later_rewards_out(tmp_path: Path):
    """A participant claimed before the end; what it claims after the end is everything."""
    desk = Desk.funded(tmp_path, 3)
    for _ in range(2):
        desk.upload()
        desk.run()
        if desk.sp.tasks.status(desk.task)["state"] == TaskState.RUNNING:
            desk.upload()
            assert desk.crowd[0].claim() == desk.crowd[0].rewards()[1]
    desk.upload()
    assert len(desk.crowd[0].rewards()) == 2
    assert desk.crowd[0].claim() == sum(desk.crowd[0].rewards().values())


def test_repro_a_participant_whose_payment_notice_was_lost_never_learns_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It claims again with the same bytes, and is told what it was paid."""
    desk = Desk.funded(tmp_path, 3, rounds=1)
    desk.play()
    desk.upload()
    person, pay = desk.crowd[0], desk.sp.claims.pay

    def lost(task: str, claim: bytes) -> int:
        pay(task, claim)
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(desk.sp.claims, "pay", lost)
    with pytest.raises(ConnectionError):
        person.claim()
    monkeypatch.undo()
    assert person.claim() == desk.sp.core.ledger(desk.task).balance(participant_account(person.keys.who)) > 0


def test_repro_a_claim_leaves_out_a_reward_that_was_not_read_yet(tmp_path: Path):
    """The task ended between two looks at it, or this is the first look for days: the claim is of everything earned."""
    desk = Desk.funded(tmp_path, 3, rounds=1)
    desk.upload()
    desk.run()
    assert [person.claim() for person in desk.crowd] == [12_000_000] * 3


@pytest.mark.parametrize("later", ["closed", "weighed", "rewarded", "finished"])
def test_repro_a_participant_that_lost_its_receipt_is_not_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str
):
    """Killed before it kept the answer, it comes back when the round is over: its upload was counted, it must learn so."""
    desk = Desk.funded(tmp_path, 3, rounds=1)
    send, person = desk.sp_link.send, desk.crowd[0]

    def lost(*upload: Any) -> str:
        send(*upload)
        raise ConnectionError("the answer was lost")

    monkeypatch.setattr(desk.sp_link, "send", lost)
    with pytest.raises(ConnectionError):
        person.step(lambda arrays, *_settings: (arrays, 3))
    monkeypatch.undo()
    for other in desk.crowd[1:]:
        other.step(lambda arrays, *_settings: (arrays, 3))
    for _ in range(1 + ["closed", "weighed", "rewarded", "finished"].index(later)):
        desk.sp.tick()
    person.step(lambda _arrays, *_settings: pytest.fail("it trained again"))
    assert person.blobs.has("rounds/1/receipt")
    desk.run()
    assert person.claim() == 12_000_000


def test_repro_whoever_comes_back_after_the_end_is_turned_away(tmp_path: Path):
    """Started again, a participant joins again and claims, and a requester pays in again: neither is new."""
    desk = Desk.funded(tmp_path, 3, rounds=1)
    desk.upload()
    desk.run()
    for person in desk.crowd:
        assert person.join("") == person.keys.who
        assert person.claim() == 12_000_000
    desk.requester.fund(desk.task, BUDGET, "all")
    with pytest.raises(TaskNotRunning):
        desk.requester.fund(desk.task, 10**9, "more")
    with pytest.raises(TaskNotRunning):
        desk.invite(1)
