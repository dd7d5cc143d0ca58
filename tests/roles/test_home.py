"""Homes have a form: earlier ones are brought up, a later one is refused as it lies there."""

import pytest

from crowdfl.errors import StoreTooNew, StoreUnavailable
from crowdfl.roles import home
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.requester import own_key
from crowdfl.storage.blobs import FileBlobs
from tests.hosts import Desk


def test_a_new_home_says_its_form(tmp_path):
    desk = Desk.funded(tmp_path, 3)
    assert desk.crowd[0].blobs.has("form/1")
    blobs = FileBlobs(tmp_path / "of-a-requester")
    own_key(blobs)
    assert [*blobs.listing("form")] == ["form/1"]


def test_a_new_home_says_its_form_before_it_has_keys(tmp_path, monkeypatch):
    """Whatever cuts its beginning short, it is one that says its form."""
    usual, desk, fails = FileBlobs.put, Desk(tmp_path / "desk"), ("signing", "keys")

    def put(self, name, data):
        if name in fails:
            raise StoreUnavailable("the disk is full")
        usual(self, name, data)

    monkeypatch.setattr(FileBlobs, "put", put)
    blobs = FileBlobs(tmp_path / "of-a-requester")
    with pytest.raises(StoreUnavailable):
        own_key(blobs)
    assert [*blobs.listing()] == ["form/1"]
    with pytest.raises(StoreUnavailable):
        desk.invite(1)
    assert ["form"] in [[one.name for one in mark.parent.parent.iterdir()] for mark in desk.folder.rglob("form/1")]


def test_a_home_of_a_later_form_is_refused_and_stays_as_it_is(tmp_path):
    desk = Desk.funded(tmp_path, 3)
    blobs = desk.crowd[0].blobs
    blobs.put("form/7", b"")
    before = blobs.listing()
    with pytest.raises(StoreTooNew, match="of form 7, and this program reads forms up to 1: update it"):
        Participant(desk.task, blobs, desk.crowd[0].kgc, desk.crowd[0].sp, b"")
    with pytest.raises(StoreTooNew):
        own_key(blobs)
    assert blobs.listing() == before


@pytest.mark.parametrize("first", [None, 1, 2], ids=["without a number", "1", "2"])
def test_an_earlier_home_is_brought_up_step_by_step_and_once(tmp_path, monkeypatch, first):
    """A step that failed is taken again, and none that was done; the program of before then refuses it."""
    blobs, taken, fails = FileBlobs(tmp_path), [], [True]

    def second(_):
        if fails.pop():
            raise StoreUnavailable("the disk is full")
        taken.append(2)

    monkeypatch.setattr(home, "STEPS", (lambda _: taken.append(1), second))
    if first is not None:
        blobs.put(f"form/{first}", b"")
    with pytest.raises(StoreUnavailable):
        home.bring_up(blobs)
    fails.append(False)
    home.bring_up(blobs)
    home.bring_up(blobs)
    assert taken == ([2] if first == 2 else [1, 2])
    monkeypatch.undo()
    with pytest.raises(StoreTooNew):
        home.bring_up(blobs)
