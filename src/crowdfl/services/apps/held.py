"""What is still held of tasks, as the operator's metrics have it."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crowdfl.roles.retention import Retention
from crowdfl.services.http.app_factory import ServiceMetrics

_FRESH_SECONDS = 60.0  # counting files takes time: a scrape does it once a minute at most


def add_held_metrics(
    metrics: ServiceMetrics, retention: Retention[Any], clock: Callable[[], float] = time.monotonic
) -> None:
    survey = _Survey(retention, clock)
    metrics.gauge("crowdfl_held", "Things held of tasks by kind, counted once a minute", "kind", survey.by_kind)
    metrics.gauge("crowdfl_tasks_held", "Tasks of which something is held, by reason", "why", survey.by_reason)


@dataclass
class _Survey:
    """What is held and why, looked up when asked for, but not more often than once a minute."""

    retention: Retention[Any]
    clock: Callable[[], float]
    _found: tuple[float, Counter[str], Counter[str]] | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def by_kind(self) -> Counter[str]:
        return self._fresh()[1]

    def by_reason(self) -> Counter[str]:
        return self._fresh()[2]

    def _fresh(self) -> tuple[float, Counter[str], Counter[str]]:
        with self._lock:
            if self._found is None or self.clock() - self._found[0] > _FRESH_SECONDS:
                held = self.retention.held()
                kinds: Counter[str] = sum(held.values(), Counter())
                reasons = Counter[str](self.retention.why_held(task, counts) for task, counts in held.items())
                self._found = self.clock(), kinds, reasons
            return self._found
