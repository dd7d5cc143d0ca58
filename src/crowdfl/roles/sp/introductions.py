"""CSP is told of everyone who joins, by the worker: who joins waits for SP alone.

How far CSP was told is durable, in the order in which people joined. A process that dies in between tells some of them again,
which changes nothing at CSP.
"""

from collections.abc import Callable

from crowdfl.errors import TaskEnded
from crowdfl.roles.ports import StoredTask
from crowdfl.roles.sp.core import SpCore
from crowdfl.roles.sp.csp_link import REFUSALS
from crowdfl.roles.sp.rounds import TaskState

_TOLD = "told csp"
_AT_ONCE = 20


class Introductions:
    """One step tells CSP of a few people. `end` hears, with the reason, of a task that CSP answers no more."""

    def __init__(self, core: SpCore, end: Callable[[str, str], None]) -> None:
        self._core, self._ports, self._end = core, core.ports, end
        self._told: dict[str, int] = {}  # by task, as far as this process knows: a look costs one read

    def due(self, stored: StoredTask) -> bool:
        if stored.state != TaskState.RUNNING:
            return False
        if stored.task not in self._told:
            self._told[stored.task] = self._durable(stored.task)
        return bool(self._ports.store.participants(stored.task, self._told[stored.task]))

    def step(self, task: str) -> bool:
        before = told = self._durable(task)  # another process may have told some
        waiting = self._ports.store.participants(task, told)[:_AT_ONCE]
        try:
            for participant in waiting:
                self._tell(task, participant.certificate)
                told += 1
        except TaskEnded as refusal:
            self._end(task, str(refusal))
            return True
        finally:
            self._told[task] = told
            if told > before:
                self._ports.store.memory(task)[_TOLD] = str(told).encode()
        return told > before

    def _tell(self, task: str, certificate: str) -> None:
        """One whom CSP refuses must not keep the others waiting; if it uploads, its round is void at once."""
        try:
            self._ports.csp.enrol(task, certificate)
        except REFUSALS as refusal:
            self._core.options.events("participant refused by CSP", task=task, error=type(refusal).__name__)

    def _durable(self, task: str) -> int:
        return int(self._ports.store.memory(task).get(_TOLD, b"0"))
