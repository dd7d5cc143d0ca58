"""What the databases are asked to do: a task that waits is only read, and a round takes few statements."""

import contextlib
from collections import Counter

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.hosts import Desk

READS = 6  # statements of one task at one look, beginnings and ends of transactions apart
MOST = 350  # statements of a rewarded round of three people, on all roles' databases


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    desk.invite(4)
    return desk


@contextlib.contextmanager
def counted(engine):
    """What a database is asked to do, or all of them."""
    counts = Counter()

    def note(_connection, _cursor, statement, _parameters, _context, _many):
        counts[statement.split()[0].upper()] += 1

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield counts
    finally:
        event.remove(engine, "before_cursor_execute", note)


def to_state(desk, state):
    """A task that waits in this state."""
    if state != "without money":
        desk.requester.fund(desk.task, 72_000_000, "all")
    desk.run()
    if state == "uploads come":
        desk.upload(desk.crowd[:2])
        desk.run()
    if state in ("claims", "cancelled"):
        for _ in range(2 if state == "claims" else 1):
            desk.play()
        if state == "cancelled":
            desk.requester.order(desk.task, "cancel")
            desk.run()
    desk.run()


@pytest.mark.parametrize("state", ["without money", "round open", "uploads come", "claims", "cancelled"])
def test_a_task_that_waits_is_only_read(desk, state):
    """Ten looks: no lease, no write, not even a transaction that could write; and few reads."""
    to_state(desk, state)
    before = desk.sp.store.engine.connect().connection.dbapi_connection
    version = before.execute("PRAGMA data_version").fetchone()
    with counted(desk.sp.store.engine) as counts:
        for _ in range(10):
            assert desk.sp.tick() is False
    written = {verb: count for verb, count in counts.items() if verb not in ("SELECT", "BEGIN")}
    assert written == {}
    assert counts["SELECT"] <= 10 * READS
    assert before.execute("PRAGMA data_version").fetchone() == version


def test_a_look_finds_what_there_is_to_do(desk):
    """So that the test above can fail: the same task, once it has money, takes its lease and moves."""
    to_state(desk, "without money")
    desk.requester.fund(desk.task, 72_000_000, "all")
    with counted(desk.sp.store.engine) as counts:
        assert desk.sp.tick() is True
    assert counts["INSERT"] >= 2


def test_a_round_takes_few_statements(tmp_path):
    """From its opening, with everyone's enrolment at CSP, until everyone has read its average and its reward."""
    desk = Desk(tmp_path, lanes=256, max_norm=2.0)
    desk.invite(3)
    desk.requester.fund(desk.task, 72_000_000)
    with counted(Engine) as counts:
        desk.run()
        for _ in range(2):
            for person in desk.crowd:
                person.step(lambda arrays, _settings, _round=0: ([array + 0.1 for array in arrays], 5))
            desk.sp.options.opens_rounds = False
            desk.run()
    assert desk.sp.store.round(desk.task, 1).state == "rewarded"
    assert all(person.blobs.has("rounds/1/reward") for person in desk.crowd)
    assert counts.total() - counts["BEGIN"] - counts["PRAGMA"] <= MOST
