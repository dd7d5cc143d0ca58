"""Group commit: threads share transactions, and nothing else."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from crowdfl.errors import AlreadyCounted, RoundNotOpen, StoreUnavailable
from crowdfl.roles.ports import Upload
from crowdfl.roles.rounds import Round, RoundState
from crowdfl.storage.grouped import Grouped
from crowdfl.storage.sql import SqlStore


class Work:
    """Doubles numbers, slowly at first; notes the groups it was given."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.failing = False
        self.gate = threading.Event()

    def __call__(self, items):
        """Odd numbers are refused."""
        self.gate.wait(5)
        self.groups.append(len(items))
        if self.failing:
            raise StoreUnavailable("the disk is gone")
        return [ValueError("odd") if item % 2 else 2 * item for item in items]


def test_threads_that_wait_share_the_next_group():
    """The first works alone; everyone who came meanwhile goes together, and each gets its own outcome."""
    work = Work()
    groups = Grouped(work)
    with ThreadPoolExecutor(20) as pool:
        futures = [pool.submit(groups.run, number) for number in range(0, 40, 2)]
        threading.Timer(0.3, work.gate.set).start()
        assert [future.result() for future in futures] == [2 * number for number in range(0, 40, 2)]
    assert sum(work.groups) == 20
    assert len(work.groups) <= 3


def test_what_is_refused_is_told_to_whoever_asked():
    """And to nobody else."""
    work = Work()
    work.gate.set()
    groups = Grouped(work)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(groups.run, number) for number in range(8)]
    for number, future in enumerate(futures):
        if number % 2:
            assert isinstance(future.exception(), ValueError)
        else:
            assert future.result() == 2 * number


def test_a_commit_that_fails_is_told_to_everyone_in_it():
    """Nobody is told that something is durable which is not."""
    work = Work()
    work.failing = True
    work.gate.set()
    groups = Grouped(work)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(groups.run, 2) for _ in range(8)]
        assert all(isinstance(future.exception(), StoreUnavailable) for future in futures)
    work.failing = False
    assert groups.run(4) == 8


def upload(number: int, who: str | None = None) -> Upload:
    """Someone's, of bytes of its own."""
    return Upload(who or f"p{number}", f"{number:064x}", late=False)


def test_acknowledged_side_by_side_each_is_judged_by_itself(store: SqlStore):
    """A replay, a second upload, the same again and new ones at once, on a real database."""
    store.put_round("t", Round(1, 0.0, RoundState.REWARDED))
    store.put_round("t", Round(2, 0.0))
    store.add_upload("t", 1, upload(0))
    store.add_upload("t", 2, upload(1))
    store.add_upload("t", 2, upload(2))

    def acknowledge(one: Upload) -> bool:
        return store.acknowledge("t", 2, one)

    new = [upload(number) for number in range(10, 20)]
    with ThreadPoolExecutor(13) as pool:
        replay, other, again = (pool.submit(acknowledge, one) for one in (upload(0, "p9"), upload(99, "p1"), upload(2)))
        futures = [pool.submit(acknowledge, one) for one in new]
    assert isinstance(replay.exception(), AlreadyCounted)
    assert isinstance(other.exception(), AlreadyCounted)
    assert again.result() is False
    assert all(future.result() is True for future in futures)
    assert sorted(u.who for u in store.uploads("t", 2)) == sorted(["p1", "p2", *(u.who for u in new)])


def test_the_same_bytes_at_once_are_new_once(store: SqlStore):
    """Also within one group, whoever brings them."""
    store.put_round("t", Round(1, 0.0))
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(store.acknowledge, "t", 1, upload(7, f"p{n}")) for n in range(8)]
    assert sum(future.exception() is None for future in futures) == 1
    assert len(store.uploads("t", 1)) == 1


def test_a_round_that_is_not_open_takes_nothing(store: SqlStore):
    """Closed meanwhile, or never opened."""
    store.put_round("t", Round(1, 0.0, RoundState.CLOSED))
    for number in (1, 2):
        with pytest.raises(RoundNotOpen):
            store.acknowledge("t", number, upload(5))
    assert store.uploads("t", 1) == store.uploads("t", 2) == []


def test_inside_a_transaction_it_is_a_part_of_it(store: SqlStore):
    """It goes with the transaction that it is in."""
    store.put_round("t", Round(1, 0.0))

    def all_of_it() -> None:
        with store.together():
            assert store.acknowledge("t", 1, upload(1))
            raise ValueError("all of it")

    with pytest.raises(ValueError, match="all of it"):
        all_of_it()
    assert store.uploads("t", 1) == []
