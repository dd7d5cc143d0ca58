"""What a crowd costs: nothing that runs for each upload, enrolment or look of a phone reads more where more people are."""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import anyio
import sqlalchemy as sa
from sqlalchemy import event
from tests.hosts import Desk

from crowdfl.crypto.signing import SigningKey
from crowdfl.protocols.profile import Identity
from crowdfl.roles.records import Round, StoredParticipant, StoredTask, Upload
from crowdfl.services.http.signatures import ByParticipant
from crowdfl.storage import tables as t
from crowdfl.storage.sql import SqlStore

CROWDED = "participants|uploads|drawn|dropped_uploads|payments|invitations|memories|answers"
SHARES = {"lanes": 256, "max_norm": 2.0, "cohort": 2}


@contextmanager
def plans(store: SqlStore) -> Iterator[list[tuple[str, str]]]:
    """How SQLite goes about each statement, with the statement."""
    found: list[tuple[str, str]] = []

    def explain(_connection, cursor, statement, parameters, _context, many):
        if statement.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE"):
            one = parameters[0] if many else parameters
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", one).fetchall()
            found.extend((row[3], statement) for row in rows)

    event.listen(store.engine, "before_cursor_execute", explain)
    try:
        yield found
    finally:
        event.remove(store.engine, "before_cursor_execute", explain)


def is_slow(plan: str) -> bool:
    """Reads all rows of a crowded table, or all of a task or a round."""
    if re.match(rf"SCAN ({CROWDED})\b", plan):
        return True
    keyed = re.match(rf"SEARCH ({CROWDED}) .*\((.*)\)$", plan)
    return keyed is not None and keyed[2] in ("task=?", "task=? AND number=?") and "max" not in plan


def test_a_plan_that_reads_a_crowd_is_seen():
    """So that the tests below can fail."""
    store = SqlStore.in_memory()
    with plans(store) as found:
        store.uploads("t", 1)
        store.upload("t", 1, "p")
    assert [is_slow(plan) for plan, _ in found if "B-TREE" not in plan] == [True, False]


def test_a_phone_that_looks_costs_one_read_by_key(tmp_path):
    """What never changes was read before."""
    desk, statements = Desk.funded(tmp_path), []
    desk.sp.core.papers(desk.task)
    event.listen(desk.sp.store.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    with plans(desk.sp.store) as found:
        desk.sp.core.papers(desk.task)
        desk.sp.tasks.status(desk.task)
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "SELECT"]
    assert not [plan for plan, _ in found if is_slow(plan)]


def test_an_upload_an_enrolment_and_a_look_read_by_key(tmp_path):
    """Of a task that everyone is in and of one that draws people: what SP's process does for each of them."""
    for number, settings in enumerate([SHARES, SHARES | {"per_round": 3}]):
        desk = Desk(tmp_path / str(number), **settings)
        desk.invite(3)
        desk.requester.fund(desk.task, 72_000_000, "all")
        desk.run()
        guard = ByParticipant(desk.sp)
        with plans(desk.sp.store) as found:
            late = desk.invite(1)[-1]
            desk.sp.tasks.status(desk.task)
            desk.sp.store.task(desk.task)
            for person in desk.crowd[:3]:
                person.encrypt(1, desk.initial, 5)
                anyio.run(guard._key, desk.task, person.keys.who)
                person.send(1)
                desk.sp.uploads.is_drawn(desk.task, 1, person.keys.who)
                desk.sp.store.upload(desk.task, 1, person.keys.who)
            desk.sp.steps.due(desk.task, desk.sp.store.round(desk.task, 1))
        assert len(found) > 30
        assert [entry for entry in found if is_slow(entry[0])] == []
        with plans(desk.csp.store) as found:
            desk.csp.enrol(desk.task, desk.sp.store.participant(desk.task, late.keys.who).certificate)
            desk.csp.store.answer_context(desk.task, "0" * 64)
        assert found
        assert [entry for entry in found if is_slow(entry[0])] == []


def recount(store: SqlStore, rounds: int) -> tuple[object, ...]:
    """The counts as they stand, and as somebody finds them who counts."""
    with store.engine.connect() as c:
        people = {row.who: row for row in c.execute(sa.select(t.participants))}
        here = {who for who, row in people.items() if not row.left}
        task = c.execute(sa.select(t.tasks)).one()
        kept = [(task.active, task.taken, task.joined)]
        free = [who for who, row in people.items() if row.replaced_by is None]
        told = [(len(here), len(free), len(people))]
        for number in range(1, rounds + 1):
            row = c.execute(sa.select(t.rounds).where(t.rounds.c.number == number)).one()
            kept.append((row.uploads, row.present, row.drawn, row.members))
            sent = {one.who for one in c.execute(sa.select(t.uploads).where(t.uploads.c.number == number))}
            drawn = {one.who for one in c.execute(sa.select(t.drawn).where(t.drawn.c.number == number))}
            told.append((len(sent), len(sent & here), len(drawn), len(drawn & here)))
    return kept, told


def test_counts_follow_whatever_happens(sql_store: SqlStore):
    """People join, leave, come back, withdraw and are replaced, upload and lose uploads, in rounds that draw and others."""
    dice, store = random.Random(7), sql_store  # noqa: S311 -- the same each time
    store.add_task(StoredTask("t", "definition", "appointment", "running"))
    rounds = 3
    for number in range(1, rounds + 1):
        store.set_round("t", None, Round(number, 0.0))
    people: list[str] = []
    for step in range(400):
        number, what = dice.randint(1, rounds), dice.randrange(8)
        who = dice.choice(people) if people else ""
        known = store.participant("t", who) if who else None
        if what == 0 or known is None:
            people.append(f"p{step}")
            key = SigningKey.fresh().public
            old = known if known is not None and known.replaced_by is None and dice.random() < 0.3 else None
            place, device = (people[-1], 1) if old is None else (old.identity.place, old.device + 1)
            newcomer = StoredParticipant(Identity(people[-1], key, key, place), "certificate", device)
            store.add_participant("t", newcomer, 1000)
        elif what == 1:
            store.leave("t", who)
        elif what == 2 and known.state == "left":
            store.add_participant("t", replace(known, left=False), 1000)
        elif what == 3 and dice.random() < 0.3:
            store.withdraw("t", who, 1.0)
        elif what == 4 and not known.left and number > 1:
            store.draw("t", number, [who])
        elif what == 5:
            upload = store.upload("t", number, who)
            store.drop_uploads("t", number, [upload] if upload else [])
        else:
            store.acknowledge("t", number, [Upload(who, f"{step:064x}", late=False)])
    kept, told = recount(store, rounds)
    assert kept == told
    assert all(any(row) for row in kept)
