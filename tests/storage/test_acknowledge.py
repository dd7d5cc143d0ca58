"""Uploads acknowledged together: each is judged by itself, all in one transaction."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from crowdfl.errors import AlreadyCounted, RoundNotOpen
from crowdfl.roles.records import Round, RoundState, StoredTask, Upload
from crowdfl.storage.sql import SqlStore
from crowdfl.storage.statements import alike


def upload(number: int, who: str | None = None) -> Upload:
    return Upload(who or f"p{number}", f"{number:064x}", late=False)


def test_each_of_a_group_is_judged_by_itself(store: SqlStore):
    """A replay, a second upload, the same again and new ones at once, on a real database."""
    store.set_round("t", None, Round(1, 0.0))
    store.set_round("t", None, Round(2, 0.0))
    store.acknowledge("t", 1, [upload(0)])
    store.set_round("t", Round(1, 0.0), Round(1, 0.0, RoundState.REWARDED))
    store.acknowledge("t", 2, [upload(1), upload(2)])
    new = [upload(number) for number in range(10, 20)]
    group = [upload(0, "p9"), *new[:5], upload(99, "p1"), upload(2), *new[5:]]
    outcomes = dict(zip(group, store.acknowledge("t", 2, group), strict=True))
    assert isinstance(outcomes[upload(0, "p9")], AlreadyCounted)
    assert isinstance(outcomes[upload(99, "p1")], AlreadyCounted)
    assert outcomes[upload(2)] is False
    assert all(outcomes[one] is True for one in new)
    assert [u.who for u in store.uploads("t", 2)] == ["p1", "p2", *(u.who for u in new)]


def test_the_same_bytes_at_once_are_new_once(store: SqlStore):
    """Within one group, and in groups side by side, whoever brings them."""
    store.set_round("t", None, Round(1, 0.0))
    within = store.acknowledge("t", 1, [upload(6, "p1"), upload(6, "p2"), upload(6, "p1")])
    assert within[0] is True
    assert isinstance(within[1], AlreadyCounted)
    assert within[2] is False
    with ThreadPoolExecutor(8) as pool:
        sides = pool.map(lambda n: store.acknowledge("t", 1, [upload(7, f"q{n}"), upload(100 + n)]), range(8))
        outcomes = [outcome for side in sides for outcome in side]
    assert sum(outcome is True for outcome in outcomes[::2]) == 1
    assert all(outcome is True for outcome in outcomes[1::2])
    assert len(store.uploads("t", 1)) == 10


def test_a_round_that_is_not_open_takes_nothing(store: SqlStore):
    store.set_round("t", None, Round(1, 0.0, RoundState.CLOSED))
    for number in (1, 2):
        outcomes = store.acknowledge("t", number, [upload(5), upload(6)])
        assert len(outcomes) == 2
        assert all(isinstance(outcome, RoundNotOpen) for outcome in outcomes)
    assert store.uploads("t", 1) == store.uploads("t", 2) == []


def test_bytes_that_a_closed_round_has_are_nobody_elses(store: SqlStore):
    """Whoever sends them is not told that the round has closed: then the file, which has their name, would go."""
    store.set_round("t", None, Round(1, 0.0))
    store.acknowledge("t", 1, [upload(1)])
    store.set_round("t", Round(1, 0.0), Round(1, 0.0, RoundState.CLOSED))
    same, again, other = store.acknowledge("t", 1, [upload(1, "p2"), upload(1), upload(3, "p1")])
    assert isinstance(same, AlreadyCounted)
    assert again is False
    assert isinstance(other, RoundNotOpen)


def test_what_could_be_confused_is_found_by_indexes(sql_store: SqlStore):
    """However many uploads a task has: no arm looks through all of them."""
    if sql_store.engine.dialect.name != "sqlite":
        pytest.skip("SQLite's plan")
    wanted = {"this_task": "t", "this_round": 1, "who_0": "p1", "who_1": "p2", "digest_0": "d1", "digest_1": "d2"}
    with sql_store.engine.connect() as c:
        text = alike(2).params(wanted).compile(sql_store.engine, compile_kwargs={"literal_binds": True})
        steps = [row[3] for row in c.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]
    searches = [step.partition("(")[2] for step in steps if step.startswith(("SEARCH", "SCAN"))]
    assert searches == ["task=? AND number=? AND who=?)", "task=? AND digest=?)", "task=? AND who=?)"]


def test_one_that_is_dropped_may_come_again_with_the_same_bytes(store: SqlStore):
    """As if it had never come; the others stay, and to drop it once more changes nothing."""
    store.add_task(StoredTask("t", "definition", "appointment", "running"))
    store.set_round("t", None, Round(1, 0.0))
    store.acknowledge("t", 1, [upload(1), upload(2)])
    for _ in range(2):
        store.drop_uploads("t", 1, [upload(1)])
    assert store.uploads("t", 1) == [upload(2)]
    assert (store.dropped_uploads("t"), store.task("t").dropped) == ({1: ["p1"]}, 1)
    assert store.acknowledge("t", 1, [upload(1), upload(2)]) == [True, False]


def test_a_lease_of_the_future_keeps_nobody_waiting(store: SqlStore):
    """Its owner died while the clock was a day ahead; since then it was set right."""
    assert store.lease("t", "dead", 87_400.0, 30.0)
    assert store.lease("t", "next", 1000.0, 30.0)
    assert not store.lease("t", "third", 1000.0, 30.0)


def test_the_last_uploads_and_their_counts_are_read_without_the_rest(store: SqlStore):
    """The newest first; a round without any is not counted."""
    for number in (1, 2, 3):
        store.set_round("t", None, Round(number, 0.0))
    store.acknowledge("t", 1, [upload(number) for number in range(5)])
    store.acknowledge("t", 2, [upload(9)])
    assert [one.who for one in store.last_uploads("t", 1, 3)] == ["p4", "p3", "p2"]
    assert [one.who for one in store.last_uploads("t", 2, 3)] == ["p9"]
    assert store.last_uploads("t", 3, 3) == []
    (first, _), (second, one) = store.uploads_after("t", 1, 0, 2)
    assert [found.who for _, found in store.uploads_after("t", 1, first, 2)] == [one.who, "p2"]
    assert store.uploads_after("t", 2, second, 9)[-1][1].who == "p9"
    assert store.upload_counts("t") == {1: 5, 2: 1}
    assert store.upload_counts("u") == {}
