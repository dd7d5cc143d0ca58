"""Work that takes longer than a page should wait for: started, looked at, and kept until there are many."""

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from crowdfl.errors import CrowdFLError, NotReady, QuotaExceeded

_log = logging.getLogger(__name__)
_KEPT = 100
_AT_ONCE = 8

Progress = Callable[[int, int, str], None]
"""How much is done, of how much, and what is being done."""
Work = Callable[[Progress], Any]


@dataclass
class Job:
    """One piece of work, as the page sees it."""

    name: str = field(default_factory=lambda: secrets.token_hex(8))
    state: Literal["running", "done", "failed"] = "running"
    done: int = 0
    of: int = 0
    words: str = ""
    result: Any = None
    error: BaseException | None = field(default=None, repr=False)

    def progress(self, done: int, of: int, words: str) -> None:
        self.done, self.of, self.words = done, of, words


class Jobs:
    """Each in a thread of its own, which does not keep the program from ending: what is cut off can be asked for again."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, work: Work) -> Job:
        job = Job()
        with self._lock:
            if sum(one.state == "running" for one in self._jobs.values()) >= _AT_ONCE:
                raise QuotaExceeded(f"{_AT_ONCE} actions are going on: wait until one of them has ended")
            self._jobs[job.name] = job
            ended = [name for name, one in self._jobs.items() if one.state != "running"]
            for name in ended[: max(0, len(self._jobs) - _KEPT)]:
                del self._jobs[name]
        threading.Thread(target=_run, args=(job, work), name=f"job {job.name}", daemon=True).start()
        return job

    def get(self, name: str) -> Job:
        job = self._jobs.get(name)
        if job is None:
            raise NotReady("this action is not known any more: start it again")
        return job


def _run(job: Job, work: Work) -> None:
    try:
        job.result = work(job.progress)
        job.state = "done"
    except (CrowdFLError, OSError) as error:
        job.error, job.state = error, "failed"
    except Exception as error:  # noqa: BLE001 -- a fault of this program: the page says that there is one, the terminal shows where
        job.error, job.state = error, "failed"
        _log.exception("an action of the console failed")
