"""The process beside SP that looks at received numbers: the same verdicts, and no upload waits for one that is dead."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gmpy2 import mpz

from crowdfl.crypto.blocks import from_ints
from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier.kernels import CheckUnits, MulMod
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.retry import Backoff
from crowdfl.services.background.checker import Checker
from tests import subprocesses
from tests.hosts import raising

P, Q = 2**127 - 1, 2**107 - 1


@pytest.fixture(scope="module")
def public() -> PublicKey:
    return PublicKey(mpz(P * Q), mpz(4), insecure_test_key=True)


@pytest.fixture(scope="module")
def now() -> list[float]:
    return [0.0]


@pytest.fixture(scope="module")
def shared(now: list[float]) -> Iterator[Checker]:
    checker = Checker(Threads(1), replace(Backoff.steady(30.0), clock=lambda: now[0]))
    checker.start()
    yield checker
    checker.close()


@pytest.fixture
def checker(shared: Checker, now: list[float], public: PublicKey, numbers: np.ndarray) -> Checker:
    """Its process runs, though the test before may have ended it."""
    now[0] += 60.0
    shared.map(CheckUnits(public.n), numbers[:1])
    assert shared._process is not None
    return shared


@pytest.fixture(scope="module")
def numbers(public) -> np.ndarray:
    n = public.n
    good = [pow(7, k + 1, n * n) for k in range(400)]
    return from_ints([*good, 0, n, n * n, n * n + 1, P, 3 * Q, *good], public.ciphertext_bytes)


def child(checker: Checker) -> int:
    assert checker._process is not None
    return checker._process.pid


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_the_verdicts_are_those_of_this_process(checker, public, numbers):
    """Of good and of bad numbers, batch after batch, in whatever layout they lie."""
    kernel = CheckUnits(public.n)
    expected = Threads(1).map(kernel, numbers)
    assert 0 < np.count_nonzero(expected) < len(numbers)
    pid = child(checker)
    for _ in range(3):
        assert np.array_equal(checker.map(kernel, numbers), expected)
    assert np.array_equal(checker.map(kernel, numbers[::2]), expected[::2])
    assert child(checker) == pid


def test_other_work_is_left_to_the_other_backend(checker, public, numbers):
    kernel = MulMod(public.n_squared)
    assert np.array_equal(checker.map(kernel, numbers, numbers), Threads(1).map(kernel, numbers, numbers))
    assert checker.map(CheckUnits(public.n), numbers[:0]).shape == (0, 1)


def test_a_dead_process_is_missed_by_nobody(checker, public, numbers, now, logged):
    """The batch that finds it dead is looked at here, as all are for a while; then another is started."""
    kernel = CheckUnits(public.n)
    expected = Threads(1).map(kernel, numbers)
    first = child(checker)
    os.kill(first, signal.SIGKILL)
    subprocesses.until(lambda: gone(first))
    for _ in range(2):
        assert np.array_equal(checker.map(kernel, numbers), expected)
        assert checker._process is None
    assert [entry["event"] for entry in logged] == ["checker failed"]
    now[0] += 30.0
    assert np.array_equal(checker.map(kernel, numbers), expected)
    assert child(checker) != first


def test_one_that_is_stopped_keeps_nobody_waiting(checker, public, numbers, monkeypatch):
    """It is not dead, and answers nothing either: after a while it is killed."""
    kernel, pid = CheckUnits(public.n), child(checker)
    monkeypatch.setattr("crowdfl.services.background.checker._PATIENCE", 0.3)
    os.kill(pid, signal.SIGSTOP)
    assert np.array_equal(checker.map(kernel, numbers), Threads(1).map(kernel, numbers))
    assert gone(pid)


def test_what_is_left_of_a_broken_exchange_is_nobody_elses(checker, public, numbers, monkeypatch):
    """Whatever breaks it off, the next batch does not read the verdicts of the last."""
    kernel, pid = CheckUnits(public.n), child(checker)
    with monkeypatch.context() as patched:
        patched.setattr("crowdfl.services.background.checker._exactly", raising(MemoryError()))
        with pytest.raises(MemoryError):
            checker.map(kernel, numbers)
    assert gone(pid)
    assert np.array_equal(checker.map(kernel, numbers[::-1]), Threads(1).map(kernel, numbers[::-1]))


def test_many_numbers_go_in_pieces(checker, public, numbers, monkeypatch):
    monkeypatch.setattr("crowdfl.services.background.checker._PIECE", 100)
    kernel = CheckUnits(public.n)
    assert np.array_equal(checker.map(kernel, numbers), Threads(1).map(kernel, numbers))


def test_a_process_that_cannot_be_started_is_done_without(public, numbers, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    checker, kernel = Checker(Threads(1)), CheckUnits(public.n)
    checker.start()
    assert np.array_equal(checker.map(kernel, numbers), Threads(1).map(kernel, numbers))
    checker.close()


def test_it_imports_nothing_from_the_working_directory_and_is_gone_when_closed(public, numbers, monkeypatch, tmp_path):
    """A file that lies where SP was started is not run. A request under way when the service ends has its verdict."""
    (tmp_path / "gmpy2.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    checker, kernel = Checker(Threads(1)), CheckUnits(public.n)
    checker.start()
    checker.map(kernel, numbers)
    pid = child(checker)
    checker.close()
    assert gone(pid)
    assert np.array_equal(checker.map(kernel, numbers), Threads(1).map(kernel, numbers))
    assert checker._process is None


@pytest.mark.second
def test_it_does_not_outlive_a_killed_service():
    """Its input ends with the process that holds the other end."""
    script = (
        "import time\n"
        "from crowdfl.crypto.compute import Threads\n"
        "from crowdfl.services.background.checker import Checker\n"
        "checker = Checker(Threads(1)); checker.start()\n"
        "print(checker._process.pid, flush=True); time.sleep(60)\n"
    )
    with subprocesses.running([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as service:
        pid = int(service.stdout.readline())
        assert not gone(pid)
        service.kill()
        service.communicate(timeout=60)
        subprocesses.until(lambda: gone(pid))
