"""Threads that work as long as a service does, and how they and their waits end."""

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeVar

from structlog.types import FilteringBoundLogger

from crowdfl.errors import Cancelled, CrowdFLError, PaymentFailed, PaymentUnknown, ServiceUnavailable, StorageFull
from crowdfl.retry import Attempts, Backoff, no_jitter
from crowdfl.roles.ports import SpStore
from crowdfl.roles.records import StoredPayment, Trouble
from crowdfl.roles.sp.core import Failures, StepRunner, done
from crowdfl.services.http import logs
from crowdfl.services.http.app_factory import Background
from crowdfl.services.http.problems import is_full


@dataclass
class Worker(Background):
    """A thread that works until it is told to stop. One that ends before is an error, and `on_death` hears of it: a service
    that looks well and stands still helps nobody."""

    name: ClassVar[str] = "worker"  # of the thread, and in the log
    without: ClassVar[str] = "background work is not done"  # what its absence means

    log: FilteringBoundLogger
    patience: float = field(default=2.0, kw_only=True)  # seconds that `stop` waits for the work at hand
    on_death: Callable[[], object] = field(default=lambda: None, kw_only=True, repr=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    _thread: threading.Thread | None = field(default=None, init=False, repr=False)

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the work at hand, but not for long: what is not done is done again after the next start."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self.patience)

    def check(self) -> None:
        """Raise if the thread has ended."""
        if not self._is_alive:
            raise ServiceUnavailable(f"{self.without}: restart this service and look into its log")

    @property
    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self) -> None:
        """Until `_stop` is set."""
        raise NotImplementedError

    def _live(self) -> None:
        death: BaseException | None = None
        try:
            self._work()
        except BaseException as failure:  # noqa: BLE001 -- whatever it is, the process must not live on without this
            death = failure
        if not self._stop.is_set():
            name = type(death).__name__
            where = [] if death is None else logs.where(death)
            self.log.error("a worker has died", worker=self.name, error=name, where=where)
            self.on_death()


def log_failure(log: FilteringBoundLogger, what: str, failure: Exception, **fields: object) -> None:
    """One event: the name and the place, and the message of an error of this project's own. What nobody foresaw is an error."""
    tell = log.warning if isinstance(failure, CrowdFLError | OSError) else log.error
    tell(what, **logs.described(failure), where=logs.where(failure), **fields)


LONGEST_PAUSE = 30.0
_AT_ONCE = 4  # steps that are computed
_Result = TypeVar("_Result")


class StepThreads(StepRunner, Background):
    """A thread for each task that has a step to take. A few compute; the others wait for their turn, or for a peer.

    They end with the process: what is not done is done again after the next start.
    """

    def __init__(self, patience: float, longest_stop: float = 2.0) -> None:
        self.patience, self._longest_stop = patience, longest_stop
        self._places = threading.Semaphore(_AT_ONCE)
        self._own = threading.local()
        self._over = threading.Event()
        self._running = set[Future[Any]]()

    def begin(self, work: Callable[[], _Result]) -> "Future[_Result]":
        return self._start("sp-step", partial(self._placed, work))

    def beside(self, work: Callable[[], _Result]) -> "Future[_Result]":
        return self._start("sp-asks-csp", partial(copy_context().run, work))

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Without a place; threads that have none wait as they are."""
        if self._over.is_set():
            raise Cancelled("this service is being stopped")
        if not getattr(self._own, "placed", False):
            yield
            return
        self._own.placed = False
        self._places.release()
        try:
            yield
        finally:
            self._places.acquire()
            self._own.placed = True

    def start(self) -> None:
        self._over.clear()

    def stop(self) -> None:
        self._over.set()
        wait(list(self._running), self._longest_stop)

    def _placed(self, work: Callable[[], _Result]) -> _Result:
        with self._places:
            self._own.placed = True
            return work()

    def _start(self, name: str, work: Callable[[], _Result]) -> "Future[_Result]":
        future: Future[_Result] = Future()
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        threading.Thread(target=done, args=(work, future), name=name, daemon=True).start()
        return future


@dataclass
class FailureBackoff(Failures):
    """Lets a task whose steps fail rest, longer each time, while the others go on. What fails is noted for `sp task why`."""

    log: FilteringBoundLogger
    interval: float = 1.0
    store: SpStore | None = None
    clock: Callable[[], float] = time.monotonic
    _attempts: dict[str, Attempts] = field(default_factory=dict, repr=False)
    _noted: set[tuple[str, str]] = field(default_factory=set, repr=False)  # by this process, or before it

    def __post_init__(self) -> None:
        if self.store is not None:
            self._noted = {(one.task, one.work) for one in self.store.troubles()}

    def is_backing_off(self, task: str) -> bool:
        return task in self._attempts and self._attempts[task].is_resting

    def record_failure(self, task: str, failure: Exception) -> None:
        """The log gets the name of what was wrong, and the message of an error of this project's own."""
        backoff = Backoff(first=2 * self.interval, longest=LONGEST_PAUSE, jitter=no_jitter, clock=self.clock)
        attempts = self._attempts.setdefault(task, backoff.start())
        rests = attempts.fail()
        name, _, work = task.partition(" ")  # a task's own steps, or a chore beside them
        fields = {"task": name, "failures": attempts.failures, "rests": rests} | ({"work": work} if work else {})
        log_failure(self.log, "a task's step failed", failure, **fields)
        self._note(name, work, failure)

    def record_success(self, task: str) -> None:
        self._attempts.pop(task, None)
        name, _, work = task.partition(" ")
        if self.store is not None and (name, work) in self._noted:
            with contextlib.suppress(CrowdFLError, OSError):  # it is tried again with the next success
                self.store.forget_trouble(name, work)
                self._noted.discard((name, work))

    def _note(self, task: str, work: str, failure: Exception) -> None:
        """Where the store itself is what fails, the log alone has it."""
        if self.store is None:
            return
        now = time.time()
        said = logs.described(failure)
        error = StorageFull.__name__ if is_full(failure) else said["error"]
        with contextlib.suppress(CrowdFLError, OSError):
            self.store.note_trouble(Trouble(task, work, now, now, 1, error, said.get("reason", "")))
            self._noted.add((task, work))

    def count(self) -> int:
        return len(self._attempts)


@dataclass
class Ticker(Worker):
    """A thread that ticks. What fails is logged by name and tried again later, the later the more often it failed."""

    tick: Callable[[], bool]
    interval: float = 1.0

    name = "sp-ticker"
    without = "the rounds do not move"
    failed: ClassVar[str] = "tick failed"

    def _work(self) -> None:
        backoff = Backoff(first=self.interval, longest=LONGEST_PAUSE, jitter=no_jitter)
        failures = 0
        while not self._stop.wait(backoff.delay(failures)):
            try:
                while not self._stop.is_set() and self.tick():
                    pass
                failures = 0
            except Exception as failure:  # noqa: BLE001 -- the next look may find it mended
                if self._stop.is_set():
                    return
                failures += 1
                log_failure(self.log, self.failed, failure, failures=failures)


@dataclass(frozen=True)
class PayoutCommand:
    """Runs a program with task, participant, millionths and the payment's key as its last arguments, and with all that
    `crowdfl sp payouts --json` shows of the payment on its standard input: the sealed destination is there.

    Status 0 says that it paid, another status that it did not: it is run again later. Where it says neither, nobody knows.
    """

    command: tuple[str, ...]
    seconds: float = 60.0
    described: Callable[[StoredPayment], Mapping[str, object]] = lambda _payment: {}

    def __call__(self, payment: StoredPayment) -> None:
        arguments = [*self.command, payment.task, payment.who, str(payment.amount), payment.key]
        try:
            # The operator's own settings name the program; no shell reads its arguments.
            program = subprocess.Popen(arguments, stdin=subprocess.PIPE)  # noqa: S603
        except OSError as problem:
            raise PaymentFailed(f"the payout program could not be started: {type(problem).__name__}") from None
        with program:
            self._wait(program, json.dumps(self.described(payment)).encode())

    def _wait(self, program: "subprocess.Popen[bytes]", told: bytes) -> None:
        try:
            program.communicate(told, self.seconds)  # also with one that does not read it
            status = program.returncode
        except subprocess.TimeoutExpired:
            program.kill()
            raise PaymentUnknown(f"the payout program took longer than {self.seconds:g} s and was ended") from None
        if status < 0:
            raise PaymentUnknown(f"the payout program was ended by signal {-status}")
        if status:
            raise PaymentFailed(f"the payout program ended with status {status}; it will be run again later")


@dataclass
class Payouts(Ticker):
    """The thread that makes payments. What fails is logged by name; the payment itself says what became of it."""

    abandon: Callable[[], object] = lambda: None

    name = "sp-payouts"
    without = "payments are not made"
    failed = "payments failed"

    def stop(self) -> None:
        """A program that has not ended by then goes on by itself, and its payment is unknown."""
        super().stop()
        if self._is_alive:
            self.abandon()
