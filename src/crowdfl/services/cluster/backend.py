"""The cluster backend: batches in pieces of hundreds of numbers on the role's own Dask cluster, with the same bytes as result.

A piece whose worker is lost is computed by another. Products of many factors are reduced as a tree that stays on the workers.
Powers and products are sent; what takes a multiplication or two a row costs as much to send as to do, and is done here, as is
a handful of rows. Of work on uploads their names are sent, or their seeds: workers read and expand them.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

from crowdfl.crypto.blocks import Block, empty, require_rows
from crowdfl.crypto.compute import Backend, Kernel, Progress, Read, Work, default_backend
from crowdfl.crypto.paillier.kernels import (
    BucketProduct,
    FixedBasePower,
    MulMod,
    MultiPow,
    PartialDecrypt,
    PowEach,
    PowMod,
)
from crowdfl.errors import (
    BackendUnavailable,
    ClusterTaken,
    ClusterUnprotected,
    KeyFilePermissions,
    SettingsError,
    UploadDamaged,
)
from crowdfl.retry import Backoff
from crowdfl.services.cluster.worker import (
    KernelRecipe,
    Piece,
    Rows,
    Store,
    WorkPart,
    recipe_of,
    run_part,
    run_piece,
    run_rows,
)
from crowdfl.services.http.tls import CertificateFiles, is_loopback, require_usable
from crowdfl.settings import ClusterSettings
from crowdfl.storage.atomic import require_owner_only

_POWERS = (PowMod, PartialDecrypt, PowEach, FixedBasePower, MultiPow)
_FEWEST_POWERS, _MOST_POWERS = 16, 512  # numbers that are worth sending, numbers of a piece
_FEWEST_FACTORS, _MOST_FACTORS = 1024, 2048  # the same for products, where a number costs one multiplication
_FACTORS = 8  # of a row that one piece multiplies; more of them are a tree
_LEAST_WEIGHT = 8 * 2**20  # bytes of a work that is worth sending
_LEAST_PART, _MOST_PART = 4 * 2**20, 64 * 2**20  # bytes of a part of it
_Found = TypeVar("_Found")
_POLL = 0.2  # seconds between looks at the progress


@dataclass
class Cluster:
    """One role's cluster. The first connection claims the scheduler for the role; the other role's is then refused."""

    role: str
    settings: ClusterSettings
    others: Backend = field(default_factory=default_backend)
    store: Store | None = None  # that its workers read from
    name: str = field(default="dask", init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _client: Any = field(default=None, init=False, repr=False)

    def connect(self) -> int:
        """Reach the scheduler and claim it; how many threads its workers have."""
        threads, _ = self._claimed()
        return threads

    def close(self) -> None:
        """Let go of the scheduler; the claim stays with it as long as it runs."""
        with self._lock:
            if self._client is not None:
                self._client.close()
            self._client = None

    def map(self, kernel: Kernel, *blocks: Block, out: Block | None = None, progress: Progress | None = None) -> Block:
        rows = require_rows(blocks)
        recipe = recipe_of(kernel)
        if recipe is None or not _worth_sending(kernel, rows):
            return self.others.map(kernel, *blocks, out=out, progress=progress)
        result = empty(rows, kernel.out_width) if out is None else out
        progress = progress or Progress()
        progress.report(0, rows)

        def submit(client: Any, piece: slice) -> Any:  # noqa: ANN401 -- Dask's client and future
            return self._submit(client, kernel, recipe, [block[piece] for block in blocks])

        for piece, wait in self._results(partial(_pieces, kernel, rows), submit, progress):
            result[piece] = wait().block
            progress.report(piece.stop, rows)
        return result

    def divide(self, work: Work[Any, _Found], read: Read) -> _Found:
        """Workers read what it names themselves. Where one finds an upload missing or altered, this side looks."""
        if work.weight() < _LEAST_WEIGHT:
            return work.run(read)

        def submit(client: Any, rows: slice) -> Any:  # noqa: ANN401 -- Dask's client and future
            with self._named_failures():
                return client.submit(run_part, WorkPart(work.part(rows), self.store), pure=False)

        def found() -> Iterator[_Found]:
            for rows, wait in self._results(partial(_parts, work), submit, Progress()):
                try:
                    part = wait()
                except UploadDamaged:
                    part = work.part(rows).run(read)
                yield part

        return work.merged(found())

    def _results(
        self, cut: Callable[[int], Iterator[slice]], submit: Callable[[Any, slice], Any], progress: Progress
    ) -> Iterator[tuple[slice, Callable[[], Any]]]:
        """The pieces in order, and what waits for each; a few more than the workers have threads are under way at a time."""
        progress.check()
        threads, client = self._ready(progress)
        waiting = cut(threads)
        pending = deque[tuple[slice, Any]]()
        try:
            while True:
                progress.check()
                for piece in islice(waiting, 2 * threads + 2 - len(pending)):
                    pending.append((piece, submit(client, piece)))
                if not pending:
                    return
                piece, future = pending[0]
                yield piece, partial(self._result, future, progress)
                pending.popleft()
        finally:
            with contextlib.suppress(OSError, RuntimeError):  # of a scheduler that is lost: nothing is left to cancel
                client.cancel([future for _, future in pending])

    def _result(self, future: Any, progress: Progress) -> Any:  # noqa: ANN401 -- Dask's future
        """What it found; if the worker that had it is lost, it is computed again, for which there must be another."""
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        while True:
            while not done.wait(_POLL):
                progress.check()
                self._ready(progress)
            with self._named_failures():
                try:
                    return future.result(timeout=self.settings.patience)
                except TimeoutError:
                    pass
            progress.check()
            self._ready(progress)

    def _submit(self, client: Any, kernel: Kernel, recipe: KernelRecipe, blocks: Sequence[Block]) -> Any:  # noqa: ANN401
        with self._named_failures():
            if not isinstance(kernel, BucketProduct | MultiPow) or kernel.size <= (
                most := _factors(kernel, len(blocks[0]))
            ):
                return client.submit(run_piece, Piece(recipe, tuple(map(Rows.of, blocks))), pure=False)
            leaves = [client.submit(run_piece, leaf, pure=False) for leaf in _leaves(kernel, blocks, most)]
            return _product(client, MulMod(kernel.modulus), leaves)

    def _ready(self, progress: Progress) -> tuple[int, Any]:
        """How many threads the workers have, once there is one, and the client."""
        looks = Backoff.steady(_POLL, deadline=self.settings.patience).start()
        while True:
            threads, client = self._claimed()
            if threads:
                return threads, client
            progress.check()
            if not looks.wait():
                raise BackendUnavailable(f"no worker at {self.settings.scheduler}: start `dask worker` there")

    def _claimed(self) -> tuple[int, Any]:
        """The claim is made each time: a scheduler that was restarted has forgotten it."""
        with self._named_failures():
            with self._lock:
                if self._client is None or self._client.status not in ("running", "connecting"):
                    self._client = _open(self.settings, self.role)
                client = self._client
            try:
                owner, threads = client.run_on_scheduler(_claim, self.role)
            except AttributeError:  # Dask's client has just given its scheduler up, and says it so
                raise ConnectionError from None
        if owner != self.role:
            self.close()
            raise ClusterTaken(
                f"{self.settings.scheduler} works for {owner}: give {self.role} a cluster of its own, since one that serves "
                "both could combine the two key shares"
            )
        return int(threads), client

    @contextlib.contextmanager
    def _named_failures(self) -> Iterator[None]:
        distributed = _distributed()
        where = self.settings.scheduler
        try:
            yield
        except distributed.KilledWorker:
            raise BackendUnavailable(f"one worker after another died at {where}: check their logs and memory") from None
        except (OSError, distributed.CancelledError) as lost:
            raise BackendUnavailable(
                f"the scheduler at {where} does not answer ({type(lost).__name__}): check that it runs, with this certificate"
            ) from None
        except (ImportError, RuntimeError) as wrong:
            raise BackendUnavailable(
                f"the cluster at {where} cannot run a piece ({wrong}): install this version of crowdfl on all of it"
            ) from None


def _claim(role: str, dask_scheduler: Any = None) -> tuple[str, int]:  # noqa: ANN401 -- Dask's scheduler
    """Runs on the scheduler, which is one thread: the first role to ask owns it."""
    owner = vars(dask_scheduler).setdefault("crowdfl_role", role)
    return str(owner), int(dask_scheduler.total_nthreads)


def _distributed() -> Any:  # noqa: ANN401 -- Dask's module, which not every install has
    try:
        import distributed
    except ImportError:
        raise BackendUnavailable("computing on a cluster needs the extra `dask`: pip install 'crowdfl[dask]'") from None
    return distributed


def _open(settings: ClusterSettings, role: str) -> Any:  # noqa: ANN401 -- Dask's client
    security = _security(settings)
    return _distributed().Client(
        settings.scheduler, security=security, name=f"crowdfl-{role}", timeout=settings.patience, set_as_default=False
    )


def _security(settings: ClusterSettings) -> Any:  # noqa: ANN401 -- Dask's security
    url = urlsplit(settings.scheduler)
    if url.scheme == "tcp":
        if not settings.plain_tcp or not is_loopback(url.hostname or ""):
            raise ClusterUnprotected(
                f"no TLS to {settings.scheduler}: use tls:// with certificates; tcp:// is for loopback only, when asked for"
            )
        return None
    if url.scheme != "tls" or settings.ca is None or settings.certificate is None or settings.key is None:
        raise SettingsError("a cluster needs a scheduler of the form tls://host:port, and its ca, certificate and key")
    require_usable(CertificateFiles(settings.certificate, settings.key))
    with open(settings.key, "rb") as file:  # whoever has it can run any code on the workers
        require_owner_only(file.fileno(), settings.key, KeyFilePermissions)
    return _distributed().Security(
        require_encryption=True,
        tls_ca_file=str(settings.ca),
        tls_client_cert=str(settings.certificate),
        tls_client_key=str(settings.key),
    )


def _worth_sending(kernel: Kernel, rows: int) -> bool:
    if isinstance(kernel, BucketProduct):
        return rows * kernel.size >= _FEWEST_FACTORS
    return isinstance(kernel, _POWERS) and rows * _size(kernel) >= _FEWEST_POWERS


def _size(kernel: Kernel) -> int:
    return kernel.size if isinstance(kernel, BucketProduct | MultiPow) else 1


def _most(kernel: Kernel) -> int:
    return _MOST_FACTORS if isinstance(kernel, BucketProduct) else _MOST_POWERS


def _pieces(kernel: Kernel, rows: int, threads: int) -> Iterator[slice]:
    """Several for each thread, so that all end together and a lost worker costs little; of hundreds of numbers at most."""
    most = max(1, _most(kernel) // min(_size(kernel), _factors(kernel, rows)))
    size = min(most, max(kernel.chunk, -(-rows // (3 * threads))))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _parts(work: Work[Any, Any], threads: int) -> Iterator[slice]:
    """The same of a work: of tens of megabytes at most."""
    count = len(work.rows)
    row = max(1, work.weight() // count)
    size = max(1, _LEAST_PART // row, min(_MOST_PART // row, -(-count // (3 * threads))))
    return (slice(start, start + size) for start in range(0, count, size))


def _factors(kernel: Kernel, rows: int) -> int:
    """Numbers of a row that one piece takes; powers are multiplied the faster the more of them there are."""
    return max(_FACTORS if isinstance(kernel, BucketProduct) else _MOST_POWERS, _most(kernel) // rows)


def _leaves(kernel: BucketProduct | MultiPow, blocks: Sequence[Block], most: int) -> Iterator[Piece]:
    parts = -(-kernel.size // most)
    for part in range(parts):
        start, stop = (kernel.size * place // parts for place in (part, part + 1))
        recipe = recipe_of(replace(kernel, size=stop - start))
        if recipe is not None:
            widths = [block.shape[1] // kernel.size for block in blocks]
            columns = [block[:, start * w : stop * w] for block, w in zip(blocks, widths, strict=True)]
            yield Piece(recipe, tuple(map(Rows.of, columns)))


def _product(client: Any, kernel: MulMod, factors: list[Any]) -> Any:  # noqa: ANN401 -- Dask's futures
    """Pairs, pairs of pairs and so on: the parts stay on the workers, and only the last product comes back."""
    times = recipe_of(kernel)
    while len(factors) > 1:
        pairs = zip(factors[::2], factors[1::2], strict=False)
        odd = factors[-1:] if len(factors) % 2 else []
        factors = [client.submit(run_rows, times, left, right, pure=False) for left, right in pairs] + odd
    return factors[0]
