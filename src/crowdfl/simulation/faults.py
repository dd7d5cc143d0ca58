"""The points at which a process of a host may die: before and after each durable write and each message of its own."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, BinaryIO

from crowdfl.roles.ports import Blobs

BEFORE, AFTER = "before", "after"


class Crash(BaseException):
    """A process is gone; nothing in it may catch this and go on. A plan raises it, and the host says whose it is."""

    def __init__(self, process: str = "") -> None:
        super().__init__(process)
        self.process = process


@dataclass(frozen=True)
class Point:
    """A place in a run that has the same name in every run of the same seed."""

    process: str  # "sp", "sp2", "csp", "kgc", "requester", "people/ada"
    name: str  # what is written, such as "store.put_round" or "keys.put"; or what is asked for, such as "csp.answer"
    count: int  # the first of its name in this process is 1, over all its lives
    moment: str  # before, or after: of a message, delivered and answered
    about: str = field(default="", compare=False)  # the blob, or the task

    @property
    def is_write(self) -> bool:
        """Or a message."""
        return self.name.startswith(("store.", "blobs.", "keys.", "guard."))

    def __str__(self) -> str:
        return f"{self.process} {self.name} {self.count} {self.moment}"


Plan = Callable[[Point], None]
"""Called at each point. `Crash` ends the process whose point it is; at a message, any other error is that of the wire."""


def nothing_happens(point: Point) -> None:
    """The usual plan."""


class Life:
    """A process from its start to its end. Once it has ended, it neither writes nor sends."""

    def __init__(self, process: str, plan: Callable[[], Plan], counts: Counter[tuple[str, str]]) -> None:
        self.process, self.is_over = process, False
        self._plan, self._counts = plan, counts

    def check(self) -> None:
        if self.is_over:
            raise Crash(self.process)

    @contextmanager
    def passing(self, name: str, about: str = "") -> Iterator[None]:
        """Something with a point before and one after it; a refusal is an answer too."""
        count = self._begin(name, about)
        try:
            yield
        except Exception:
            self._meet(Point(self.process, name, count, AFTER, about))
            raise
        self._meet(Point(self.process, name, count, AFTER, about))

    def commit(self, moment: str) -> None:
        """A store's transaction is about to be durable, or is."""
        if self._plan() is nothing_happens:
            self.check()
            return
        name = f"store.{_writer(inspect.currentframe())}"
        if moment == BEFORE:
            self._begin(name)
        else:
            self._meet(Point(self.process, name, self._counts[self.process, name], AFTER))

    def _begin(self, name: str, about: str = "") -> int:
        self._counts[self.process, name] += 1
        count = self._counts[self.process, name]
        self._meet(Point(self.process, name, count, BEFORE, about))
        return count

    def _meet(self, point: Point) -> None:
        self.check()
        try:
            self._plan()(point)
        except Crash:
            self.is_over = True
        self.check()


_BETWEEN = ("contextlib", "crowdfl.storage.database", __name__)  # a commit, and whose it is


def _writer(frame: FrameType | None) -> str:
    """The store's method that writes; of several in one transaction, whoever has opened it."""
    while frame is not None and frame.f_globals["__name__"] in _BETWEEN:
        frame = frame.f_back
    if frame is None:
        return "transaction"
    own = frame.f_globals["__name__"].startswith("crowdfl.storage")
    return frame.f_code.co_name if own else frame.f_code.co_qualname


class LivedBlobs:
    """Blobs in the hands of a process; what changes nothing is no point."""

    def __init__(self, blobs: Blobs, life: Life, name: str) -> None:
        self._blobs, self._life, self._name = blobs, life, name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- what a folder has besides
        return getattr(self._blobs, name)

    def get(self, name: str) -> bytes:
        return self._blobs.get(name)

    def open(self, name: str) -> BinaryIO:
        return self._blobs.open(name)

    def has(self, name: str) -> bool:
        return self._blobs.has(name)

    def listing(self, inside: str = "") -> dict[str, float]:
        return self._blobs.listing(inside)

    def put(self, name: str, data: bytes) -> None:
        self.put_all({name: data})

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        """One after the other: a crash may leave some of them."""
        for name, data in blobs.items():
            if self._blobs.has(name):
                self._life.check()
                self._blobs.put(name, data)  # or a Conflict
            else:
                with self._life.passing(f"{self._name}.put", name):
                    self._blobs.put(name, data)

    def delete(self, name: str) -> None:
        if self._blobs.has(name):
            with self._life.passing(f"{self._name}.delete", name):
                self._blobs.delete(name)

    def clear(self, folder: str) -> None:
        with self._life.passing(f"{self._name}.clear", folder):
            self._blobs.clear(folder)

    def remove_unfinished(self, before: float) -> int:
        with self._life.passing(f"{self._name}.remove_unfinished"):
            return self._blobs.remove_unfinished(before)
