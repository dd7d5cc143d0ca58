"""Group commit: threads share transactions, and nothing else."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from crowdfl.errors import AlreadyCounted, StoreUnavailable
from crowdfl.roles.ports import Upload
from crowdfl.storage.grouped import Grouped
from crowdfl.storage.sql import SqlStore


class Transactions:
    """Counts what a store would commit; the outermost may be told to fail."""

    def __init__(self) -> None:
        self.committed = 0
        self.failing = False
        self.slow = threading.Event()
        self._local = threading.local()

    @contextmanager
    def together(self):
        """One, or a part of one."""
        if getattr(self._local, "inside", False):
            yield
            return
        self._local.inside = True
        try:
            self.slow.wait(5)
            yield
            if self.failing:
                raise StoreUnavailable("the disk is gone")
            self.committed += 1
        finally:
            self._local.inside = False


def test_threads_that_wait_share_the_next_transaction():
    """The first works alone; everyone who came meanwhile goes together."""
    transactions = Transactions()
    groups = Grouped(transactions.together)
    with ThreadPoolExecutor(20) as pool:
        futures = [pool.submit(groups.run, lambda n=n: n) for n in range(20)]
        threading.Timer(0.3, transactions.slow.set).start()
        assert [future.result() for future in futures] == list(range(20))
    assert transactions.committed <= 3


def test_a_commit_that_fails_is_told_to_everyone_in_it():
    """Nobody is told that something is durable which is not."""
    transactions = Transactions()
    transactions.failing = True
    transactions.slow.set()
    groups = Grouped(transactions.together)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(groups.run, lambda: 1) for _ in range(8)]
        assert all(isinstance(future.exception(), StoreUnavailable) for future in futures)
    transactions.failing = False
    assert groups.run(lambda: 2) == 2


def test_one_that_is_refused_costs_the_others_nothing(store: SqlStore):
    """Each act stands or falls by itself, on a real database."""
    store.add_upload("t", 1, Upload("p0", "0" * 64, late=False))

    def upload(number: int) -> bool:
        digest = f"{number:064x}"  # number 0 is a replay
        return store.grouped(lambda: store.add_upload("t", 2, Upload(f"p{number}", digest, late=False)))

    with ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(upload, number) for number in range(12)]
    assert isinstance(futures[0].exception(), AlreadyCounted)
    assert all(future.result() for future in futures[1:])
    assert sorted(u.who for u in store.uploads("t", 2)) == sorted(f"p{n}" for n in range(1, 12))


def test_what_raised_is_undone(store: SqlStore):
    """Also what an act did before it raised."""

    def half() -> None:
        store.add_upload("t", 1, Upload("p", "1" * 64, late=False))
        raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        store.grouped(half)
    assert store.uploads("t", 1) == []


def test_inside_a_transaction_it_is_a_part_of_it(store: SqlStore):
    """It goes with the transaction that it is in."""

    def all_of_it() -> None:
        with store.together():
            store.grouped(lambda: store.add_upload("t", 1, Upload("p", "1" * 64, late=False)))
            raise ValueError("all of it")

    with pytest.raises(ValueError, match="all of it"):
        all_of_it()
    assert store.uploads("t", 1) == []
