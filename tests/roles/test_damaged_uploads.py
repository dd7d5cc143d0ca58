"""An upload whose file is no longer what was acknowledged is not averaged: it is dropped, or its round is void."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from crowdfl.errors import ServiceUnavailable, UnknownParticipant
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.sp.aggregators import upload_name
from tests.attacks.cheating import honest_uploads
from tests.hosts import HARDENED, Desk

DAMAGES = ["altered", "cut", "missing"]


class Failing:
    """Blobs that break off when a name with this in it is to be written."""

    def __init__(self, inner, part: str) -> None:
        self._inner, self._part = inner, part

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        if any(self._part in name for name in blobs):
            raise ServiceUnavailable("SP died here")
        self._inner.put_all(blobs)

    def __getattr__(self, name: str):
        return getattr(self._inner, name)


class WatchedDesk(Desk):
    """A desk whose SP's alerts are seen."""

    def __init__(self, folder: Path, people: int = 4, **settings: object) -> None:
        self.alerts: list[tuple[str, dict]] = []
        super().__init__(folder, **settings)
        self.options.events = self._hear
        self.invite(people)
        self.requester.fund(self.task, 72_000_000, "all")
        self.run()

    def _hear(self, event: str, /, **fields: object) -> None:
        if event != "average published":
            self.alerts.append((event, fields))

    def damage(self, person: Participant, how: str) -> bytes:
        """What was in the file of its upload to round one."""
        entry = self.sp.store.upload(self.task, 1, person.keys.who)
        assert entry is not None
        file = self.folder / "sp/blobs" / upload_name(self.task, 1, entry.digest)
        whole = file.read_bytes()
        half = len(whole) // 2
        file.unlink()
        if how != "missing":
            file.write_bytes(
                whole[:half] + (bytes(len(whole) - half) if how == "altered" else b"")
            )  # zero is not a unit
        return whole


@pytest.mark.parametrize("how", DAMAGES)
def test_it_is_dropped_from_an_open_round_and_may_be_sent_again(tmp_path, how):
    """Its owner's phone sees it, and sends the same bytes; then it is averaged and rewarded as everyone else."""
    desk = WatchedDesk(tmp_path)
    desk.upload(desk.crowd[:3])
    owner = desk.crowd[0]
    whole = desk.damage(owner, how)
    desk.run()
    desk.run()  # at the second look nobody has uploaded since: it is added up ahead of time
    assert desk.alerts == [("uploads damaged", {"task": desk.task, "number": 1, "uploads": 1})]
    assert desk.sp.store.turnout(desk.task, 1) == (2, 2)
    assert desk.states() == ["open"]
    desk.upload(desk.crowd[3:])  # as many are in as before: a phone cannot tell by their number
    desk.upload([owner])
    file = desk.folder / "sp/blobs" / upload_name(desk.task, 1, upload_digest(whole))
    assert file.read_bytes() == whole
    desk.run()
    assert desk.states()[0] == "rewarded"
    assert desk.sp.envelope(desk.task, 1, owner.keys.who)


PAPER = {"profile": "paper", "mask_bits": 80, "key_bits": 1536}


@pytest.mark.parametrize(
    ("how", "added", "settings"),
    [
        ("altered", False, {}),
        ("cut", True, {}),
        ("missing", True, {}),
        pytest.param("altered", False, PAPER, marks=pytest.mark.second),
        pytest.param("altered", True, PAPER, marks=pytest.mark.second),
    ],
)
def test_a_closed_round_goes_on_without_it(tmp_path, how, added, settings):
    """Its owner gets no reward, and is told why; the others' average is theirs alone."""
    desk = WatchedDesk(tmp_path, **settings)
    desk.upload()
    if added:
        desk.sp.aggregators.add_new(desk.task, 1, 100)  # the sum is there: rewards would read each upload again
    owner, *others = desk.crowd
    desk.damage(owner, how)
    desk.run()
    assert desk.states()[0] == "rewarded"
    assert [event for event, _ in desk.alerts] == ["uploads damaged"]
    assert desk.sp.steps.dropped == 1
    assert others[0].read(1).total in (None, 15)  # as printed in the paper there is none
    for other in others:
        assert desk.sp.envelope(desk.task, 1, other.keys.who)
    with pytest.raises(UnknownParticipant, match="damaged here, or withdrawn: there is no reward"):
        desk.sp.envelope(desk.task, 1, owner.keys.who)


def test_a_closed_round_with_too_few_left_is_given_up(tmp_path):
    """An average of two would tell each of them about the other. The money returns, the next round opens."""
    desk = WatchedDesk(tmp_path, people=3)
    desk.upload()
    desk.damage(desk.crowd[0], "missing")
    desk.run()
    assert desk.states() == ["aborted", "open"]
    assert desk.ledger.balance("round 1") == 0


@pytest.mark.parametrize("again", [False, True])
def test_what_another_process_has_dropped_is_not_averaged(tmp_path, again):
    """This one had added it up ahead of time; its owner may even have sent other bytes since."""
    desk = Desk.funded(tmp_path, 5, budget=None)
    honest_uploads(desk, 1, [[0.1 * i] * 8 for i in range(1, 5)], [5] * 4)
    other, who = desk.new_sp(), desk.crowd[0].keys.who
    assert other.aggregators.add_new(desk.task, 1, 100) == 4
    (file,) = desk.folder.rglob(desk.sp.store.upload(desk.task, 1, who).digest)
    file.unlink()
    for _ in range(2):  # at the second look no more has come, and what is there is added up
        desk.run()
    assert desk.sp.steps.dropped == 1
    if again:
        desk.sp.uploads.one(desk.task, 1, who, desk.crowd[0].side.encrypt_update(np.full(8, 0.5), 5, 1))
    desk.clock.time = desk.sp.store.round(desk.task, 1).last_call(desk.settings) + 1
    while other.store.round(desk.task, 1).state != "rewarded":
        assert other.tick()
    read = desk.crowd[1].side.read(other.publication(desk.task, 1, desk.crowd[1].keys.who), 1)
    assert (read.total, round(float(read.weights[0]), 6)) == ((20, 0.35) if again else (15, 0.3))


def test_once_csp_was_asked_the_round_is_void(tmp_path):
    """CSP answers for one set of uploads: a second set would open the difference between two sums."""
    desk = WatchedDesk(tmp_path)
    desk.upload()
    whole = desk.sp.ports.blobs
    desk.sp.ports.blobs = Failing(whole, "/rewards/")
    with pytest.raises(ServiceUnavailable, match="died"):
        desk.run()
    desk.restart()
    desk.damage(desk.crowd[0], "altered")
    desk.run()
    assert desk.states() == ["aborted"]  # CSP has opened its sum: no model follows from it
    assert desk.sp.tasks.status(desk.task)["ended"]["why"] == "cancelled"
    assert desk.state == "settled"  # nothing is owed to anybody
    assert [event for event, _ in desk.alerts] == ["round void"]
    assert desk.ledger.balance("round 1") == 0


def test_a_model_that_cannot_be_made_again_is_told_once_and_keeps_no_task_from_ending(tmp_path):
    """The requester's copy of the last average is made from the uploads where rounds stand alone; rewards stay claimable."""
    desk = WatchedDesk(tmp_path, **HARDENED, rounds=3)
    desk.play()
    assert desk.states() == ["rewarded", "open"]
    desk.upload()
    desk.requester.order(desk.task, "cancel")
    desk.sp.aggregators.forget(desk.task, 1)
    desk.damage(desk.crowd[0], "missing")
    desk.run()
    desk.run()
    assert [event for event, _ in desk.alerts] == ["model lost"]
    assert desk.crowd[0].claim() > 0
    desk.after_claims()
    assert desk.state == "settled"
