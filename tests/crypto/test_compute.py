import threading

import numpy as np
import pytest
from gmpy2 import mpz

from crowdfl.crypto import blocks
from crowdfl.crypto.compute import Progress, Threads, default_backend
from crowdfl.crypto.paillier.kernels import MulMod
from crowdfl.errors import Cancelled, LengthMismatch


class Doubling:
    """Twice each number, noting the size and the thread of every piece."""

    out_width = 4

    def __init__(self, chunk: int = 7) -> None:
        self.chunk = chunk
        self.sizes: list[int] = []
        self.threads: set[int] = set()

    def run(self, *given: blocks.Block) -> blocks.Block:
        self.sizes.append(len(given[0]))
        self.threads.add(threading.get_ident())
        return blocks.from_ints([2 * x for x in blocks.to_ints(given[0])], 4)


class Hooked(Doubling):
    """Doubling, one row at a time, that calls a hook with the number of the piece."""

    def __init__(self, hook) -> None:
        super().__init__(chunk=1)
        self.hook = hook
        self.calls = 0
        self._lock = threading.Lock()

    def run(self, *given: blocks.Block) -> blocks.Block:
        with self._lock:
            self.calls += 1
            call = self.calls
        self.hook(call)
        return super().run(*given)


def count_up(rows: int) -> blocks.Block:
    """0, 1, 2, ... as a block."""
    return blocks.from_ints(range(rows), 4)


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 6, 7, 8, 100])
def test_every_row_is_computed_once_and_in_place(backend, rows):
    """Whatever the number of rows, pieces and workers."""
    kernel, block = Doubling(), count_up(rows)
    result = backend.map(kernel, block)
    assert blocks.to_ints(block) == list(range(rows))
    assert result.shape == (rows, 4)
    assert blocks.to_ints(result) == [2 * x for x in range(rows)]
    assert sum(kernel.sizes) == rows


def test_pieces_are_no_larger_than_the_kernel_wants(backend):
    """A cancel waits for one chunk, not for a share of everything."""
    kernel = Doubling(chunk=7)
    backend.map(kernel, count_up(100))
    assert max(kernel.sizes) == 7


def test_few_rows_are_shared_among_the_workers():
    """Three rows on three workers are three pieces, though one chunk could hold them."""
    kernel = Doubling(chunk=1000)
    Threads(3).map(kernel, count_up(9))
    assert sorted(kernel.sizes) == [3, 3, 3]


def test_workers_run_side_by_side():
    """Three pieces meet at a barrier that only three threads at once can pass."""
    barrier = threading.Barrier(3)
    kernel = Hooked(lambda _call: barrier.wait(timeout=20))
    assert blocks.to_ints(Threads(3).map(kernel, count_up(3))) == [0, 2, 4]


def test_one_worker_stays_on_the_calling_thread():
    kernel = Doubling()
    Threads(1).map(kernel, count_up(50))
    assert kernel.threads == {threading.get_ident()}


def test_results_do_not_depend_on_the_number_of_workers():
    modulus = mpz(2**61 - 1) ** 2
    rng = np.random.default_rng(7)
    left, right = (blocks.from_ints([int(x) for x in rng.integers(1, 2**62, 5000)], 16) for _ in range(2))
    one, three = (Threads(workers).map(MulMod(modulus), left, right) for workers in (1, 3))
    assert np.array_equal(one, three)
    assert blocks.to_ints(one)[-1] == blocks.to_ints(left)[-1] * blocks.to_ints(right)[-1] % modulus


def test_result_may_replace_its_own_input(backend):
    """In place, as the running product works."""
    block = count_up(50).copy()
    assert backend.map(Doubling(), block, out=block) is block
    assert blocks.to_ints(block) == [2 * x for x in range(50)]


def test_blocks_of_unequal_length_are_refused(backend):
    kernel = Doubling()
    with pytest.raises(LengthMismatch, match="3, 4"):
        backend.map(kernel, count_up(3), count_up(4))
    assert kernel.sizes == []


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_progress_rises_from_nothing_to_the_total(backend, rows):
    """Reported from the thread that started the batch, never backwards."""
    seen, threads = [], set()

    def listen(done: int, total: int) -> None:
        seen.append((done, total))
        threads.add(threading.get_ident())

    backend.map(Doubling(chunk=5), count_up(rows), progress=Progress(listen))
    done = [d for d, _ in seen]
    assert len(set(done)) == 1 + -(-rows // 5), "as pieces finish"
    assert done == sorted(done)
    assert seen[0] == (0, rows)
    assert seen[-1] == (rows, rows)
    assert {total for _, total in seen} == {rows}
    assert threads == {threading.get_ident()}


def test_cancelling_from_another_thread_stops_the_batch(backend):
    """At most the pieces already handed out still run."""
    progress, at_cancel = Progress(), []

    def cancel_at_the_fifth(call: int) -> None:
        if call == 5:
            canceller = threading.Thread(target=progress.cancel)
            canceller.start()
            canceller.join()
            at_cancel.append(kernel.calls)

    kernel = Hooked(cancel_at_the_fifth)
    with pytest.raises(Cancelled):
        backend.map(kernel, count_up(100_000), progress=progress)
    after = kernel.calls
    assert after <= at_cancel[0] + 2 * (backend.workers + 1)
    backend.map(Doubling(), count_up(20))
    assert kernel.calls == after  # nothing was left running or queued


def test_a_cancelled_batch_does_not_start(backend):
    progress = Progress()
    progress.cancel()
    kernel = Doubling()
    with pytest.raises(Cancelled):
        backend.map(kernel, count_up(10), progress=progress)
    assert kernel.sizes == []


def test_an_error_in_a_kernel_reaches_the_caller(backend):
    """The very error, and the backend goes on working."""

    def fail_at_the_third(call: int) -> None:
        if call == 3:
            raise ArithmeticError("row 3")

    kernel = Hooked(fail_at_the_third)
    with pytest.raises(ArithmeticError, match="row 3"):
        backend.map(kernel, count_up(1000))
    after = kernel.calls
    assert blocks.to_ints(backend.map(Doubling(), count_up(20))) == [2 * x for x in range(20)]
    assert kernel.calls == after  # nothing was left running or queued


def test_an_error_in_the_listener_reaches_the_caller(backend):
    """A broken progress bar stops the batch and leaves the backend usable."""

    def listen(done: int, _total: int) -> None:
        if done:
            raise RuntimeError("no terminal")

    with pytest.raises(RuntimeError, match="no terminal"):
        backend.map(Doubling(), count_up(100), progress=Progress(listen))
    assert blocks.to_ints(backend.map(Doubling(), count_up(20))) == [2 * x for x in range(20)]


def test_two_batches_share_a_backend():
    """Two threads may map at once and do not mix their results."""
    backend, results = Threads(3), {}

    def work(offset: int) -> None:
        results[offset] = blocks.to_ints(
            backend.map(Doubling(chunk=3), blocks.from_ints(range(offset, offset + 90), 4))
        )

    threads = [threading.Thread(target=work, args=(offset,)) for offset in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {offset: [2 * x for x in range(offset, offset + 90)] for offset in (0, 1000)}


def test_the_default_backend_is_made_once():
    assert default_backend() is default_backend()
    assert default_backend().name == "threads"
