"""What cannot be read of one task is that task's trouble: it stands still with its money, and every other goes on."""

import contextlib
import time
from dataclasses import replace

import pytest
from sqlalchemy import text

from crowdfl.errors import TaskUnreadable
from crowdfl.roles.records import PaymentState, RoundState, StoredPayment, TaskState
from crowdfl.roles.restored import end_doubtful_csp, end_doubtful_sp, mark_restored_sp
from crowdfl.roles.retention import WhyHeld
from crowdfl.roles.sp.core import SpOptions
from crowdfl.roles.sp.operator import held_rows
from crowdfl.roles.sp.payments import Payments
from crowdfl.settings import DAY
from crowdfl.storage.sql import SqlStore
from tests.hosts import BUDGET, Desk, moved_by, small_definition
from tests.roles.test_dealt import sp_retention

DAMAGES = {
    "its definition": """UPDATE tasks SET definition = '{"kind": "of a later version"}' WHERE task = :task""",
    "its row": "UPDATE tasks SET end_why = 'cancelled', end_by = 'nobody we know' WHERE task = :task",
    "round 1": "UPDATE rounds SET state = 'brand new' WHERE task = :task",
    "deposit other": "UPDATE deposits SET state = 'brand new' WHERE task = :task",
    "its books": "UPDATE movements SET target = source WHERE task = :task",
}


def damage(store: SqlStore, what: str, task: str) -> None:
    with store._write() as c:  # past all that the store promises, as a failing disk would
        assert c.execute(text(DAMAGES[what]), {"task": task}).rowcount > 0


@pytest.fixture
def desk(tmp_path):
    """Two funded tasks, whose first rounds are open: the desk's own, and `other`."""
    desk = Desk.funded(tmp_path / "desk", 3)
    desk.other = desk.create(replace(small_definition(desk.settings), purpose="another"), desk.initial)
    desk.requester.fund(desk.other, desk.settings.rounds * BUDGET, "other")
    for name in ("x", "y", "z"):
        desk.join(desk.other, name)
    desk.run()
    assert {desk.sp.store.round(task, 1).state for task in (desk.task, desk.other)} == {RoundState.OPEN}
    return desk


@pytest.mark.parametrize("what", DAMAGES)
def test_every_other_task_goes_on(desk, what):
    """Its rounds, its claims and its payments; what stands still is named, with what is wrong."""
    damage(desk.sp.store, what, desk.other)
    own = [desk.people[str(number)] for number in range(3)]
    for _ in range(desk.settings.rounds):
        for person in own:
            person.step(moved_by(0.5))
        for _ in range(4):  # a look finds the damage, and the next ones know of it
            with contextlib.suppress(TaskUnreadable):
                desk.sp.tick()
        desk.run()
    assert desk.states() == ["rewarded"] * desk.settings.rounds
    for person in own:
        person.claim()
    assert len(desk.sp.store.payments()) == 3
    if what in ("deposit other", "its books"):  # nothing of an open round looks at these
        look = desk.sp.store.deposits if what == "deposit other" else desk.sp.store.movements
        with pytest.raises(TaskUnreadable, match=what):
            look(desk.other)
    assert [one.task for one in desk.sp.store.deposits()] == [desk.task]
    unread = desk.sp.store.unreadable()
    assert [one.task for one in unread] == [desk.other]
    assert what in unread[0].why
    assert [one.task for one in desk.sp.store.tasks()] == [desk.task]


@pytest.mark.parametrize("what", ["its definition", "its row", "round 1"])
def test_its_files_are_no_orphans(desk, what):
    """A sweep that did not know it would erase what a later version needs."""
    held = sp_retention(desk).held()[desk.other]
    damage(desk.sp.store, what, desk.other)
    retention = sp_retention(desk)
    for _ in range(30):
        retention.sweep(desk.clock.now() + 30 * DAY, counting=True)
    assert sp_retention(desk).held()[desk.other] == held
    assert sp_retention(desk).why_held(desk.other, held) is WhyHeld.UNREADABLE


def test_its_payments_are_held_and_shown(desk):
    store = desk.sp.store
    payment = StoredPayment(desk.other, "x", 1, 7_200_000, 0, PaymentState.PENDING, 0.0)
    store.add_payment(payment)
    paid = []
    payments = Payments(desk.sp.ports, SpOptions(on_paid=paid.append))
    damage(store, "its definition", desk.other)
    assert not payments.run_one()
    (row,) = held_rows(store, store.unreadable()[0])
    assert (row["participant"], row["amount"], row["state"], row["key"]) == ("x", "7.20", "waiting", payment.key)
    assert row["note"].startswith("held: its definition")
    assert paid == []


def waiting(desk):
    """A payment of each task; a program would make it."""
    for task in (desk.task, desk.other):
        desk.sp.store.add_payment(StoredPayment(task, "x", 1, 7_200_000, 0, PaymentState.PENDING, 0.0))


def require_marked(desk):
    found = desk.sp.store.all_tasks()
    assert {one.task: one.state for one in found} == dict.fromkeys((desk.task, desk.other), TaskState.CANCELLED)
    with desk.sp.store._read() as c:
        assert c.execute(text("SELECT count(*) FROM tasks WHERE unreconciled"), {}).scalar() == 2
        assert c.execute(text("SELECT state FROM payments"), {}).scalars().all() == ["unknown"] * 2


def test_a_restore_marks_it_too(desk):
    """Whichever version reads it one day: no step of it, and no payment, is believed."""
    waiting(desk)
    for store in (desk.sp.store, desk.csp.store):
        damage(store, "its definition", desk.other)
    mark_restored_sp(desk.sp.store, desk.clock.now())
    end_doubtful_sp(desk.sp.store, desk.clock.now())
    end_doubtful_csp(desk.csp.store)
    require_marked(desk)
    with desk.csp.store._read() as c:
        assert c.execute(text("SELECT count(*) FROM tasks WHERE rolled_back"), {}).scalar() == 2


@pytest.mark.parametrize("what", ["round 1", "its books"])
def test_a_restore_that_finds_it_only_now_goes_on(desk, what):
    """Rows beside the task's own: nothing has read them before."""
    waiting(desk)
    damage(desk.sp.store, what, desk.other)
    mark_restored_sp(desk.sp.store, desk.clock.now())
    end_doubtful_sp(desk.sp.store, desk.clock.now())
    require_marked(desk)


def test_one_row_that_was_mended_is_believed_again(desk, monkeypatch):
    damage(desk.sp.store, "its row", desk.other)
    assert len(desk.sp.store.unreadable()) == 1
    desk.sp.store.change_task(desk.other, end=None)
    later = time.monotonic() + 61.0
    monkeypatch.setattr("crowdfl.storage.sql_tasks.time.monotonic", lambda: later)
    assert desk.sp.store.unreadable() == []
