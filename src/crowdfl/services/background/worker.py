"""Threads that work as long as a service does, and how they and their waits end."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from structlog.types import FilteringBoundLogger

from crowdfl.errors import Cancelled, CrowdFLError, ServiceUnavailable
from crowdfl.services.http import logs
from crowdfl.services.http.app_factory import Background


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
            name, where = type(death).__name__, [] if death is None else logs.where(death)
            self.log.error("a worker has died", worker=self.name, error=name, where=where)
            self.on_death()


def log_failure(log: FilteringBoundLogger, what: str, failure: Exception, **fields: object) -> None:
    """One event: the name and the place, and the message of an error of this project's own. What nobody foresaw is an error."""
    tell = log.warning if isinstance(failure, CrowdFLError | OSError) else log.error
    tell(what, **logs.described(failure), where=logs.where(failure), **fields)


class Waits:
    """The waits of background work, which all end at once when the service stops."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def sleep(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise Cancelled("this service is being stopped")

    def begin(self) -> None:
        self._over.clear()

    def end(self) -> None:
        self._over.set()
