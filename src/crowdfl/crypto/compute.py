"""Where batches run.

A *kernel* (`crypto.paillier.kernels`) says what to do with each row of some blocks; a *backend* decides where and in what
pieces. Callers know the one method `map`, so a cluster or a GPU is one more backend and no caller changes. What is not a matter
of rows of numbers is *work* (`run_work`): done here, or in parts by a backend that can have others do them.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Generic, Protocol, Self, TypedDict, TypeVar, Unpack, runtime_checkable

import gmpy2

from crowdfl.crypto.blocks import Block, empty, require_rows
from crowdfl.errors import Cancelled


class Kernel(Protocol):
    """A row-wise function of one or more blocks: row i of the result depends on the rows i alone."""

    @property
    def out_width(self) -> int: ...  # bytes of a row of the result
    @property
    def chunk(self) -> int: ...  # rows that make a fair piece of work, about a quarter of a second of one core
    def run(self, *blocks: Block) -> Block: ...  # the result for these rows, computed here and now on one core


@dataclass
class Progress:
    """Follows a long batch, and stops it: pass one to a batch, call `cancel()` from anywhere."""

    on_progress: Callable[[int, int], None] | None = None
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)

    def cancel(self) -> None:
        self._stop.set()

    def check(self) -> None:
        if self._stop.is_set():
            raise Cancelled("the batch was cancelled; nothing it had computed is kept")

    def report(self, done: int, total: int) -> None:
        """Tell the listener how far the batch is; always called from the thread that started the batch."""
        if self.on_progress is not None:
            self.on_progress(done, total)


class Backend(Protocol):
    """Runs kernels over blocks."""

    @property
    def name(self) -> str: ...  # what the user chose it by

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        """Apply `kernel` to every row; into `out` if given, which may be one of `blocks`."""


_Row = TypeVar("_Row")
_Found = TypeVar("_Found")
Read = Callable[[str], bytes]
"""What lies in the role's store under a name."""


@dataclass(frozen=True)
class Work(Generic[_Row, _Found]):
    """Work on rows that have nothing to do with each other, so that it can be done in parts, by others too."""

    rows: Sequence[_Row]

    def weight(self) -> int:
        """About how many bytes it goes over."""
        raise NotImplementedError

    def run(self, read: Read) -> _Found:
        """Here and now, on one core."""
        raise NotImplementedError

    def merged(self, found: Iterable[_Found]) -> _Found:
        """What parts that follow each other have found."""
        raise NotImplementedError

    def part(self, rows: slice) -> Self:
        return replace(self, rows=self.rows[rows])


@runtime_checkable
class DividingBackend(Protocol):
    """A backend that lets others do parts of a work; what it reads, they read themselves."""

    def divide(self, work: Work[Any, _Found], read: Read) -> _Found: ...


def _reads_nothing(name: str) -> bytes:
    raise LookupError(name)


def run_work(backend: Backend, work: Work[Any, _Found], read: Read = _reads_nothing) -> _Found:
    """The same to the byte, wherever it is done."""
    return backend.divide(work, read) if isinstance(backend, DividingBackend) else work.run(read)


class Threads:
    """The default backend: chunks on threads of this process. gmpy2 lets go of the interpreter lock while it computes."""

    name = "threads"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.workers, "crowdfl-compute", initializer=release_lock_while_computing)

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        rows = require_rows(blocks)
        result = empty(rows, kernel.out_width) if out is None else out
        progress = progress or Progress()

        def work(piece: slice) -> int:
            result[piece] = kernel.run(*(block[piece] for block in blocks))
            return int(piece.stop) - int(piece.start)

        size = max(1, min(kernel.chunk, -(-rows // self.workers)))
        pieces = [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
        done = 0
        progress.report(done, rows)
        for count in self._each(work, pieces, progress):
            done += count
            progress.report(done, rows)
        return result

    def _each(self, work: Callable[[slice], int], pieces: list[slice], progress: Progress) -> Iterator[int]:
        if self.workers == 1 or len(pieces) == 1:
            for piece in pieces:
                progress.check()
                yield work(piece)
            return
        pending: set[Future[int]] = set()
        waiting = iter(pieces)
        try:
            while True:
                progress.check()
                # A short queue: enough to keep the workers busy, little to wait for after a cancel.
                for piece in waiting:
                    pending.add(self._pool.submit(work, piece))
                    if len(pending) > self.workers:
                        break
                if not pending:
                    return
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        finally:
            for future in pending:
                future.cancel()
            wait(pending)


def release_lock_while_computing() -> None:
    """Let other threads of this process run while the calling one is in gmpy2."""
    gmpy2.set_context(gmpy2.context(allow_release_gil=True))


@cache
def default_backend() -> Backend:
    """The threads backend with one worker per core, made once: one thread pool per process is the point."""
    return Threads()


class BatchOptions(TypedDict, total=False):
    """How a batch runs: on which backend (threads unless told), and who follows it or may cancel it."""

    backend: Backend | None
    progress: Progress | None


def run_batch(kernel: Kernel, *blocks: Block, **options: Unpack[BatchOptions]) -> Block:
    backend = options.get("backend") or default_backend()
    return backend.map(kernel, *blocks, progress=options.get("progress"))
