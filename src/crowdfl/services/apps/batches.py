"""Requests that wait for the same thing are worked on together: a thread takes all that came while it was busy.

A thread per request would cost more than the work, and would slow the event loop down.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context
from functools import partial
from typing import Generic, TypeVar

from anyio import to_thread

from crowdfl.errors import ServiceUnavailable

_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")
_Outcome = TypeVar("_Outcome")
_Place = tuple[asyncio.AbstractEventLoop, _Key]
_MOST = 16  # of one batch, so that nobody waits long for the rest of it
_AT_ONCE = 2  # batches of a key: while one waits for the disk, another computes
IN_WORK = _AT_ONCE * _MOST  # items of a key


class Batches(Generic[_Key, _Item, _Outcome]):
    """Hands items of one key to `work` in batches, a few batches at a time.

    `work` returns, for each item, an outcome or the error of its refusal; if it raises, everyone in the batch gets that error.
    """

    def __init__(self, work: Callable[[_Key, Sequence[_Item]], Sequence[_Outcome | Exception]]) -> None:
        self._work = work
        self._waiting: dict[_Place[_Key], list[tuple[_Item, asyncio.Future[_Outcome]]]] = {}
        self._tasks: dict[_Place[_Key], set[asyncio.Task[None]]] = {}

    async def run(self, key: _Key, item: _Item) -> _Outcome:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Outcome] = loop.create_future()
        place = loop, key  # an app may be served by two loops at once: neither wakes the other's
        self._waiting.setdefault(place, []).append((item, future))
        self._start(place)
        return await future

    def _start(self, place: _Place[_Key]) -> None:
        tasks = self._tasks.setdefault(place, set())
        if sum(not task.done() for task in tasks) < _AT_ONCE:  # one that has ended stays until the loop comes round
            # In no request's context: a batch is the work of many.
            task = place[0].create_task(self._serve(place), context=Context())
            tasks.add(task)
            task.add_done_callback(partial(self._ended, place))

    def _ended(self, place: _Place[_Key], task: asyncio.Task[None]) -> None:
        tasks = self._tasks[place]
        tasks.discard(task)
        if place in self._waiting:  # it ended by an unexpected error
            self._start(place)
        elif not tasks:
            del self._tasks[place]

    async def _serve(self, place: _Place[_Key]) -> None:
        while waiting := self._waiting.pop(place, []):
            batch, rest = waiting[:_MOST], waiting[_MOST:]
            if rest:
                self._waiting[place] = rest
            try:
                outcomes = await self._outcomes(place[1], [item for item, _ in batch])
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    _settle(future, outcome)
            finally:  # whatever happened, nobody waits forever
                for _, future in batch:
                    _settle(future, ServiceUnavailable("the work on this request was interrupted: send it again"))

    async def _outcomes(self, key: _Key, items: Sequence[_Item]) -> Sequence[_Outcome | Exception]:
        try:
            return await to_thread.run_sync(self._work, key, items)
        except Exception as failure:  # noqa: BLE001 -- raised in every request that asked
            return [failure] * len(items)


def _settle(future: asyncio.Future[_Outcome], outcome: _Outcome | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
