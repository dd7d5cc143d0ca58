"""Group commit: what several threads ask for at the same moment is done in one transaction, with one wait for the disk.

A database makes one commit at a time, and each waits for the disk. Whoever comes first works for all who came meanwhile.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Grouped"]

_Item = TypeVar("_Item")
_Outcome = TypeVar("_Outcome")
_MOST = 64  # of one transaction, so that nobody waits long for the rest of it


@dataclass
class _Wish(Generic[_Item, _Outcome]):
    """What one thread wants done, and what became of it."""

    item: _Item
    outcome: list[_Outcome | Exception] = field(default_factory=list)


class Grouped(Generic[_Item, _Outcome]):
    """Hands items to `work` in groups. It is given some items and returns, for each, an outcome or why it is refused; what it
    returns is durable. If it raises, nothing of the group was kept."""

    def __init__(self, work: Callable[[Sequence[_Item]], Sequence[_Outcome | Exception]]) -> None:
        self._do = work
        self._working, self._queue = threading.Lock(), threading.Lock()
        self._waiting: list[_Wish[_Item, _Outcome]] = []

    def run(self, item: _Item) -> _Outcome:
        """The outcome of one item."""
        wish: _Wish[_Item, _Outcome] = _Wish(item)
        with self._queue:
            self._waiting.append(wish)
        while not wish.outcome:
            with self._working:
                if not wish.outcome:
                    self._work()
        outcome = wish.outcome[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _work(self) -> None:
        with self._queue:
            wishes, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        try:
            outcomes = self._do([wish.item for wish in wishes])
        except Exception as failure:  # noqa: BLE001 -- raised in every thread that asked
            outcomes = [failure] * len(wishes)
        for wish, outcome in zip(wishes, outcomes, strict=True):
            wish.outcome.append(outcome)
