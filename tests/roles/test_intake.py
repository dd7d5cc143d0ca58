"""Uploads that arrive together: each is judged by itself, the store is asked once."""

from dataclasses import replace

import numpy as np
import pytest

from crowdfl.errors import (
    AlreadyCounted,
    BadSignature,
    Conflict,
    NotReady,
    RoundNotOpen,
    TaskNotRunning,
    Truncated,
    UnknownParticipant,
    UnknownTask,
)
from crowdfl.roles.records import RoundState, TaskState
from crowdfl.roles.sp.aggregators import upload_name
from crowdfl.roles.sp.uploads import PendingUpload
from tests.hosts import HARDENED, Desk


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk.funded(tmp_path, 5)


def arrivals(desk: Desk) -> list[PendingUpload]:
    return [PendingUpload.of(person.keys.who, person.side.encrypt_update(np.zeros(8), 5, 1)) for person in desk.crowd]


def close(desk: Desk) -> None:
    opened = desk.sp.store.round(desk.task, 1)
    desk.sp.store.set_round(desk.task, opened, replace(opened, state=RoundState.CLOSED))


@pytest.mark.parametrize(
    ("settings", "last", "of_another", "altered"),
    [({}, 32, BadSignature, BadSignature), (HARDENED, 240, BadSignature, BadSignature)],
    ids=["shares", "hardened"],
)
def test_one_group_of_every_kind(tmp_path, settings, last, of_another, altered):
    """New ones, the same again, other ones, another's bytes, bad bytes, a stranger: each has its own outcome, in order.

    The last bytes of an upload are of its shares, or a ciphertext.
    """
    desk = Desk.funded(tmp_path, 5, **settings)
    a, b, c, d, e = arrivals(desk)
    sp, task = desk.sp, desk.task
    before = sp.uploads.one(task, 1, e.who, e.upload)
    cut, zero = PendingUpload.of(c.who, c.upload[:-1]), PendingUpload.of(d.who, d.upload[:-last] + bytes(last))
    stranger, copied, other = PendingUpload.of("0" * 20, a.upload), PendingUpload.of(c.who, b.upload), arrivals(desk)[0]
    outcomes = sp.uploads.receive(task, 1, [a, e, cut, stranger, b, copied, zero, a, other])
    assert outcomes[1] == (before, "again")
    assert outcomes[7] == (outcomes[0][0], "again")
    assert [outcomes[place][1] for place in (0, 4)] == ["new", "new"]
    refused = [type(outcomes[place]) for place in (2, 3, 5, 6, 8)]
    assert refused == [Truncated, UnknownParticipant, of_another, altered, AlreadyCounted]
    assert sorted(u.who for u in sp.store.uploads(task, 1)) == sorted([a.who, b.who, e.who])
    assert all(sp.blobs.get(upload_name(task, 1, kept.digest)) == kept.upload for kept in (a, b, e))
    assert not any(sp.blobs.has(upload_name(task, 1, bad.digest)) for bad in (cut, zero))


def test_a_group_costs_one_look_one_write_and_one_commit(desk, monkeypatch):
    calls = []
    sp = desk.sp
    for target, name in ((sp.store, "upload_context"), (sp.blobs, "put_all"), (sp.store, "acknowledge")):
        whole = getattr(target, name)
        monkeypatch.setattr(target, name, lambda *a, _whole=whole, _name=name: calls.append(_name) or _whole(*a))
    assert all(new for _, new in sp.uploads.receive(desk.task, 1, arrivals(desk)))
    assert calls == ["upload_context", "put_all", "acknowledge"]


def test_a_group_of_repeats_writes_nothing(desk, monkeypatch):
    """Everyone has the receipt again, even after the round has closed."""
    everyone, sp = arrivals(desk), desk.sp
    sp.uploads.receive(desk.task, 1, everyone)
    close(desk)
    monkeypatch.setattr(sp.store, "acknowledge", None)
    assert [became for _, became in sp.uploads.receive(desk.task, 1, everyone)] == ["again"] * 5


def test_what_holds_for_all_is_told_to_all(desk):
    """A round that is not there or closed, a task that was cancelled; an unknown task is nobody's."""
    everyone, sp = arrivals(desk), desk.sp
    assert {type(outcome) for outcome in sp.uploads.receive(desk.task, 2, everyone)} == {NotReady}
    close(desk)
    assert {type(outcome) for outcome in sp.uploads.receive(desk.task, 1, everyone)} == {RoundNotOpen}
    sp.store.change_task(desk.task, state=TaskState.CANCELLED)
    assert {type(outcome) for outcome in sp.uploads.receive(desk.task, 1, everyone)} == {TaskNotRunning}
    assert sp.store.uploads(desk.task, 1) == []
    with pytest.raises(UnknownTask):
        sp.uploads.receive("0" * 64, 1, everyone)


def test_a_round_that_closes_while_the_bytes_are_checked_takes_none(desk, monkeypatch):
    sp = desk.sp
    whole = sp.blobs.put_all

    def closing(blobs):
        whole(blobs)
        close(desk)

    monkeypatch.setattr(sp.blobs, "put_all", closing)
    assert {type(outcome) for outcome in sp.uploads.receive(desk.task, 1, arrivals(desk))} == {RoundNotOpen}
    assert sp.store.uploads(desk.task, 1) == []


def test_a_damaged_file_hinders_no_other_upload(desk):
    everyone, sp = arrivals(desk), desk.sp
    sp.blobs.put(upload_name(desk.task, 1, everyone[2].digest), b"damaged")
    outcomes = sp.uploads.receive(desk.task, 1, everyone)
    assert isinstance(outcomes[2], Conflict)
    assert [outcome[1] for place, outcome in enumerate(outcomes) if place != 2] == ["new"] * 4
    assert len(sp.store.uploads(desk.task, 1)) == 4
