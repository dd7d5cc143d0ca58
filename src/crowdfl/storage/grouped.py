"""Group commit: what several threads write at the same moment goes into one transaction, and one wait for the disk.

A database makes one commit at a time, and each waits for the disk. Whoever comes first works for all who came meanwhile.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Grouped"]

_T = TypeVar("_T")
_MOST = 64  # of one transaction, so that nobody waits long for the rest of it


@dataclass
class _Wish(Generic[_T]):
    """What one thread wants done, and what became of it."""

    act: Callable[[], _T]
    result: list[_T] = field(default_factory=list)
    failure: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def fulfil(self, part: AbstractContextManager[None]) -> None:
        """In a part of the transaction that stands or falls by itself."""
        try:
            with part:
                self.result.append(self.act())
        except Exception as failure:  # noqa: BLE001 -- it is raised in the thread that asked
            self.failure = failure

    def outcome(self) -> _T:
        if self.failure is not None:
            raise self.failure
        return self.result[0]


class Grouped:
    """Runs acts of several threads inside transactions of one; `together` begins one, or inside another a part of it."""

    def __init__(self, together: Callable[[], AbstractContextManager[None]]) -> None:
        self._together = together
        self._working = threading.Lock()
        self._waiting: list[_Wish[object]] = []
        self._queue = threading.Lock()

    def run(self, act: Callable[[], _T]) -> _T:
        """As if alone in a transaction: durable when this returns, undone when it raises."""
        wish: _Wish[_T] = _Wish(act)
        with self._queue:
            self._waiting.append(wish)  # type: ignore[arg-type]  # results go back to whoever asked
        while not wish.done.is_set():
            with self._working:
                if not wish.done.is_set():
                    self._work()
        return wish.outcome()

    def _work(self) -> None:
        with self._queue:
            wishes, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        try:
            with self._together():
                for wish in wishes:
                    wish.fulfil(self._together())
        except Exception as failure:  # noqa: BLE001 -- nothing was kept: everyone is told
            for wish in wishes:
                wish.failure = failure
        finally:
            for wish in wishes:
                wish.done.set()
