"""A task with a reference, by the real roles on disk: restarts, deadlines, pay, and what people are told."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdfl.cli.task.console import referring
from crowdfl.errors import BadSignature, Conflict, FormatError, NotReady, RoundNotOpen, ServiceError, SettingsError
from crowdfl.reasons import Reason
from crowdfl.roles.following import Following
from crowdfl.settings import from_millionths
from tests.hosts import BUDGET, HARDENED, Desk, heard, moved_by

SETTINGS = {
    "profile": "shares",
    "reference": True,
    "weighting": "equal",
    "lanes": 1024,
    "max_norm": 4.0,
    "rounds": 4,
    "max_participants": 6,
}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk.funded(tmp_path, 6, **SETTINGS)


def test_sums_over_rounds_outlive_every_process_and_pay_goes_to_those_who_are_in(desk: Desk) -> None:
    """The sixth is honest once, then opposed: in round 2 it is left out, and 3 finds what it had before that."""
    sleeper, flipper = desk.crowd[5], desk.crowd[4]
    told = heard(flipper)
    for number, distance in ((1, 0.5), (2, -0.5), (3, 0.1), (4, 0.5)):
        desk.restart()
        desk.requester = desk.new_requester()
        desk.run()
        desk.requester.refer(desk.task, number, moved_by(0.4))
        desk.upload(desk.crowd[:4], moved_by(0.5))
        flipper.step(moved_by(-0.5))
        sleeper.step(moved_by(distance))
        desk.restart()
        desk.run()
        rejected = desk.sp.rejected(desk.task, number)
        assert set(rejected) == {flipper.keys.who} | ({sleeper.keys.who} if number == 2 else set())
    assert desk.states() == ["rewarded"] * 4
    for person in desk.crowd:
        for _ in range(2):
            person.step(moved_by(0.0))
    assert not any(person.has_left for person in desk.crowd), "no server is blamed for it"
    assert [what for what, _ in told].count("upload rejected") == 4
    assert [what for what, _ in told].count("check data") == 1
    assert {event["why"] for what, event in told if what == "upload rejected"} == {Reason.NOT_IN_LINE}
    earned = [person.claim() for person in desk.crowd]
    assert earned[0] == 3 * (BUDGET // 5) + BUDGET // 4
    assert earned[4:] == [0, 3 * (BUDGET // 5)]
    assert sum(earned) > 4 * BUDGET - 24, from_millionths(sum(earned))


def test_a_round_waits_for_its_reference_and_is_given_up_at_its_end(desk: Desk) -> None:
    desk.upload(train=moved_by(0.5))
    desk.run()
    (entry,) = desk.sp.tasks.status(desk.task)["rounds"]
    assert (entry["state"], entry["uploads"], entry["reference"]) == ("open", 6, False)
    desk.clock.time += desk.settings.window + desk.settings.late + 1
    with pytest.raises(Exception, match="takes no more uploads"):
        desk.requester.refer(desk.task, 1, moved_by(0.4))
    desk.run()
    assert desk.states()[0] == "aborted"
    assert desk.sp.tasks.status(desk.task)["rounds"][0]["unused"]
    desk.requester.refer(desk.task, 2, moved_by(0.4))
    desk.play(2, moved_by(0.5))
    assert desk.states()[1] == "rewarded"


def test_the_first_reference_of_a_round_stands_and_others_are_refused(desk: Desk) -> None:
    requester, task = desk.requester, desk.task
    with pytest.raises(NotReady):
        requester.refer(task, 2, moved_by(0.4))
    requester.blobs.delete(f"{task}/rounds/2/reference")
    requester.refer(task, 1, moved_by(0.4))
    first = requester.blobs.get(f"{task}/rounds/1/reference")
    requester.refer(task, 1, moved_by(0.7))  # what was made before is sent again
    other = desk.crowd[0].side.encrypt_update(desk.sp.core.definition(task).shape.flat(desk.initial), 1, 1)
    requester.blobs.delete(f"{task}/rounds/1/reference")
    for wrong, error in ((other, BadSignature), (b"", FormatError)):
        with pytest.raises(error):
            desk.sp.uploads.reference(task, 1, wrong)
    with pytest.raises(Conflict):
        requester.refer(task, 1, moved_by(0.7))
    desk.play(1, moved_by(0.5))
    with pytest.raises(RoundNotOpen):
        desk.sp.uploads.reference(task, 1, first)


def test_a_reference_whose_file_is_altered_costs_its_round_alone(desk: Desk) -> None:
    desk.requester.refer(desk.task, 1, moved_by(0.4))
    name = f"{desk.task}/rounds/1/uploads/reference"
    stored = desk.sp.blobs.get(name)
    desk.sp.blobs.delete(name)
    desk.sp.blobs.put(name, stored[:-1] + bytes([stored[-1] ^ 1]))
    desk.play(1, moved_by(0.5))
    assert desk.states()[0] == "aborted"


def test_a_campaign_sends_a_reference_to_every_round(tmp_path: Path) -> None:
    desk = Desk(tmp_path, **SETTINGS)
    told: list[str] = []

    def wait(_seconds: float) -> None:
        desk.later(10.0)
        for person in desk.crowd:
            person.step(moved_by(0.5))
            if person.state == "finished":
                person.claim()

    def invite(_task: str, count: int) -> str:
        desk.invite(count)
        return "a folder"

    campaign = Following(desk.requester, wait, lambda what, _details: told.append(what))
    definition = desk.requester.definition(desk.task)
    with pytest.raises(SettingsError, match="--reference DATA"):
        campaign.run(definition, desk.initial, 4, invite=invite, save=lambda *_: "a file")
    campaign.reference = moved_by(0.4)
    campaign.run(definition, desk.initial, 4, invite=invite, save=lambda *_: "a file")
    assert told.count("reference") == 4
    assert desk.states() == ["rewarded"] * 4


def test_the_requesters_console_trains_for_every_round_that_waits(desk: Desk) -> None:
    """In its own process, while the page is served; what cannot be done is said, and tried again."""
    desk.run()
    sent, tries, platform = threading.Event(), [], desk.requester.sp

    class Listening:
        def __getattr__(self, name: str) -> Any:
            return getattr(platform, name)

        def reference(self, task: str, number: int, upload: bytes) -> None:
            tries.append(number)
            if len(tries) == 1:
                raise ServiceError("the platform is away")
            platform.reference(task, number, upload)
            sent.set()

    with referring(replace(desk.requester, sp=Listening()), lambda _definition: moved_by(0.4)):
        assert sent.wait(60)
    assert desk.requester.sp.status(desk.task)["rounds"][0]["reference"]
    assert tries == [1, 1]


def test_a_profile_that_compares_nothing_takes_no_reference(tmp_path: Path) -> None:
    """Neither made by the requester nor taken by SP, while the round is open."""
    desk = Desk.funded(tmp_path, 3, **HARDENED)
    desk.run()
    for step in (
        lambda: desk.requester.refer(desk.task, 1, moved_by(0.4)),
        lambda: desk.sp.uploads.reference(desk.task, 1, b""),
    ):
        with pytest.raises(FormatError, match="no reference"):
            step()
