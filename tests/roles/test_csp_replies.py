"""No request is ever computed on with two replies of CSP: the same masks never meet other numbers."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from crowdfl.errors import RoundEnded, TaskEnded
from crowdfl.protocols.common.smul import PolynomialsRequest
from crowdfl.protocols.exchange import ReplyForm
from crowdfl.protocols.hardened.closing import CancelRequest
from crowdfl.protocols.hardened.opening import OpenRequest
from crowdfl.protocols.hardened.prirwd import DISTANCES
from crowdfl.protocols.hardened.record import RecordRequest
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import SpRecord
from crowdfl.roles.sp.csp_link import replies_folder
from tests.hosts import HARDENED, Desk, raising


class Away:
    """CSP that notes what it is asked, and is away when the distances are asked for, as often as the test says."""

    def __init__(self, desk: Desk, times: int = 1) -> None:
        self._csp, self.times, self.asked = desk.csp, times, []
        desk.csp = self

    def __getattr__(self, name):
        return getattr(self._csp, name)

    def answer(self, task, request, _longest=0):
        """As CSP does, or not at all."""
        self.asked.append(request)
        if self.times and is_about_distances(request):
            self.times -= 1
            raise ConnectionError("away for a moment")
        return self._csp.answer(task, request)


def is_about_distances(request: bytes) -> bool:
    return Message.kind_of(request) == PolynomialsRequest.kind and DISTANCES.encode() in request


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A round whose distances were asked for once, without an answer; SP's alerts are seen."""
    desk = Desk(tmp_path, **HARDENED)
    desk.alerts = []
    desk.options.events = lambda event, **fields: desk.alerts.append((event, fields.get("error")))
    desk.invite(3)
    desk.requester.fund(desk.task, 72_000_000, "all")
    desk.run()
    desk.away = Away(desk)
    desk.upload()
    with pytest.raises(ConnectionError):
        desk.run()
    return desk


def kept(desk: Desk) -> list[Path]:
    return [file for file in (desk.folder / "sp/blobs" / replies_folder(desk.task, 1)).glob("*") if file.is_file()]


def test_a_request_that_nothing_was_computed_with_is_repeated(desk):
    """The same bytes; what was answered before is not asked for again."""
    desk.sp = desk.new_sp()
    desk.run()
    assert desk.sp.store.round(desk.task, 1).state == "rewarded"
    twice = {request for request in desk.away.asked if desk.away.asked.count(request) > 1}
    assert len(twice) == 1
    assert is_about_distances(twice.pop())
    assert desk.sp.store.replies(desk.task, 1) == {}


def test_a_reply_that_was_kept_and_not_used_is_used(desk):
    desk.sp.store.forget_replies(desk.task, 1)
    before = len(desk.away.asked)
    desk.sp = desk.new_sp()
    desk.run()
    assert desk.sp.store.round(desk.task, 1).state == "rewarded"
    assert is_about_distances(desk.away.asked[before])


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_a_reply_that_was_used_and_is_gone_voids_the_round(desk, damage):
    """CSP may answer otherwise this time, and is not asked. The money returns, the seeds are erased, the next round opens."""
    for file in kept(desk):
        file.unlink()
        if damage == "altered":
            file.write_bytes(b"something else")
    before = len(desk.away.asked)
    desk.sp = desk.new_sp()
    desk.run()
    assert desk.away.asked[before:] == [RecordRequest(1).to_bytes()]  # but for its word that the round is void
    assert desk.states() == ["aborted", "open"]
    assert desk.alerts[-1] == ("round void", "ReplyLost")
    assert desk.sp.store.seed_counts() == {}
    assert desk.ledger.balance("round 1") == 0


def test_another_reply_of_a_second_process_is_not_used(desk):
    """The file was lost after this process had looked for it; what is recorded counts."""
    link, request = desk.sp.steps._csp, b"a request"
    side = SimpleNamespace(record=SpRecord(), reply_form=lambda _: ReplyForm(10, bytes))
    current = desk.sp.store.round(desk.task, 1)
    desk.away.answer = lambda *_: b"one"
    assert link.ask(desk.task, current, side)(request)() == b"one"
    place = next(file for file in kept(desk) if file.read_bytes() == b"one")
    late = desk.sp.ports.blobs.has
    desk.sp.ports.blobs.has = lambda _name: False
    place.unlink()
    desk.away.answer = lambda *_: b"other"
    with pytest.raises(RoundEnded):
        link.ask(desk.task, current, side)(request)()
    desk.sp.ports.blobs.has = late


def test_a_hidden_total_is_scaled_once_though_the_average_is_opened_twice(tmp_path):
    """To the participants, and in the end to the requester: CSP is asked for the second opening, and for no scaling."""
    desk = Desk.funded(tmp_path, 3, **HARDENED, budget=None, lanes=0, total="hidden", rounds=3)
    for _ in range(2):
        desk.play()
    assert kept(desk) == []
    away = Away(desk, times=0)
    desk.sp = desk.new_sp()
    desk.requester.order(desk.task, "cancel")
    desk.run()
    assert {Message.kind_of(request) for request in away.asked} == {
        OpenRequest.kind,
        CancelRequest.kind,
        RecordRequest.kind,
    }
    assert desk.requester.model(desk.task) is not None


def test_what_csp_says_of_an_end_steers_no_terminal(tmp_path):
    desk = Desk.funded(tmp_path, 3)
    desk.csp.answer = raising(TaskEnded("\x1b]0;owned\x07\x1b[2J gone\nforged" + 10_000 * "x"))
    desk.play()
    said = desk.sp.tasks.status(desk.task)["ended"]
    assert (said["why"], said["by"]) == ("cancelled", "csp")
    assert said["reason"].startswith("?]0;owned??[2J gone forged")
    assert said["reason"].isprintable()
    assert len(said["reason"]) < 600
