"""Retention in a service: SP's word that a task is over, what is still held for the operator's metrics, and when it sweeps."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI
from fastapi.params import Depends as DependsOn

from crowdfl.roles.retention import PeerRetention, Retention
from crowdfl.services.background.workers import Ticker
from crowdfl.services.http.app_factory import ServiceMetrics
from crowdfl.services.http.bodies import Form, TaskId, json_body, takes_json

_LONGEST_BODY = 8192
HOUR = 3600.0
_FRESH_SECONDS = 60.0  # counting files takes time: a scrape does it once a minute at most


class TaskEndForm(Form):
    """SP's signed word that a task is over."""

    document: str


def add_end_route(
    app: FastAPI,
    retention: PeerRetention[Any],
    for_sp: Sequence[DependsOn],
    after: Callable[[str], None] = lambda _task: None,
) -> None:
    """`for_sp` lets SP alone in; `after` is called with each task that has ended."""
    body = Annotated[TaskEndForm, Depends(json_body(TaskEndForm, _LONGEST_BODY))]

    @app.post("/v1/tasks/{task}/end", status_code=204, dependencies=list(for_sp), openapi_extra=takes_json(TaskEndForm))
    def end(task: TaskId, body: body) -> None:
        """The task is over: what it needed is erased when this is answered. Final, and safe to repeat."""
        retention.end(task, body.document)
        after(task)


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


class Sweep(Protocol):
    """`machine_time` is that of the file system; `counting` says that an hour has passed since the last one."""

    def __call__(self, machine_time: float, *, counting: bool) -> None: ...


@dataclass
class Sweeper:
    """Sweeps at the start, and then every hour, by the time that passes and not by what the clock says.

    `tick` is called often by a `Ticker`; `often` is what is done each time.
    """

    sweep: Sweep
    often: Callable[[], bool] = lambda: False
    every: float = HOUR
    elapsed: Callable[[], float] = time.monotonic
    machine_time: Callable[[], float] = time.time
    _last: float | None = field(default=None, init=False, repr=False)  # that went well
    _counted: float | None = field(
        default=None, init=False, repr=False
    )  # well or not: what failed counts nothing twice

    def tick(self) -> bool:
        more, now = self.often(), self.elapsed()
        if self._last is None or now - self._last >= self.every:
            counting = self._counted is not None and now - self._counted >= self.every
            if counting or self._counted is None:
                self._counted = now
            self.sweep(self.machine_time(), counting=counting)
            self._last = now
        return more


class SweepTicker(Ticker):
    """The thread that looks whether a sweep is due."""

    name = "sweeper"
    without = "what ended tasks held is not erased"
