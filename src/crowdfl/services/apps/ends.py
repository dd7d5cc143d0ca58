"""The end of a task over HTTP: SP's word to KGC and CSP, and what a service still holds, for its operator's metrics."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, FastAPI
from fastapi.params import Depends as DependsOn

from crowdfl.roles.ends import Held, TaskEnds
from crowdfl.services.http.app_factory import ServiceMetrics
from crowdfl.services.http.bodies import Form, TaskId, json_body, takes_json

_LONGEST_BODY = 8192
_FRESH_SECONDS = 60.0  # counting files takes time: a scrape does it once a minute at most


class TaskEndForm(Form):
    """SP's signed word that a task is over."""

    document: str


def add_end_route(
    app: FastAPI, ends: TaskEnds, for_sp: Sequence[DependsOn], after: Callable[[str], None] = lambda _task: None
) -> None:
    """`for_sp` lets SP alone in; `after` is called with each task that has ended."""
    body = Annotated[TaskEndForm, Depends(json_body(TaskEndForm, _LONGEST_BODY))]

    @app.post("/v1/tasks/{task}/end", status_code=204, dependencies=list(for_sp), openapi_extra=takes_json(TaskEndForm))
    def end(task: TaskId, body: body) -> None:
        """The task is over: what it needed is erased when this is answered. Final, and safe to repeat."""
        ends.end(task, body.document)
        after(task)


@dataclass
class Survey:
    """What is held and why, looked up when asked for, but not more often than once a minute."""

    held: Callable[[], Held]
    why_held: Callable[[str, Counter[str]], str]
    clock: Callable[[], float] = time.monotonic
    _found: tuple[float, Counter[str], Counter[str]] | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def by_kind(self) -> Counter[str]:
        return self._fresh()[1]

    def by_reason(self) -> Counter[str]:
        return self._fresh()[2]

    def _fresh(self) -> tuple[float, Counter[str], Counter[str]]:
        with self._lock:
            if self._found is None or self.clock() - self._found[0] > _FRESH_SECONDS:
                held = self.held()
                kinds: Counter[str] = sum(held.values(), Counter())
                self._found = self.clock(), kinds, Counter(self.why_held(task, counts) for task, counts in held.items())
            return self._found


def add_held_metrics(metrics: ServiceMetrics, survey: Survey) -> None:
    metrics.gauge("crowdfl_held", "Things held of tasks by kind, counted once a minute", "kind", survey.by_kind)
    metrics.gauge("crowdfl_tasks_held", "Tasks of which something is held, by reason", "why", survey.by_reason)
