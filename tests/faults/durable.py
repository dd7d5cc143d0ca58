"""Where a process dies: the lowest durable primitives, counted, with death right before or right after one of them.

A step is known by who asked for it, read off the stack, and by how often that one has asked: so the same step is found again in
another run, in whatever order the people come. A commit that wrote no row is no step, nor is the removal of a
temporary file, which nobody reads: the state before and after it is that after and before its neighbours.
"""

import functools
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Pool, event
from sqlalchemy.engine.default import DefaultDialect

__all__ = ["ANY", "Kill", "Steps", "idle"]

ANY = "any"
_AS_TIME_GOES = (
    "sql.lease<platform._step_of",
    "sql.release<platform._step_of",
    "sql.note_clock<time.note",
    "sql.change_task<csp_link._tell_some",
)
_SKIPPED = ("crowdfl.storage.database", "crowdfl.storage.atomic", "crowdfl.crypto", "crowdfl.errors")


@dataclass(frozen=True)
class Kill:
    """Death before or after a step: the so-manieth of its name, or of all (`ANY`) in this life; with a `token`, once."""

    name: str
    time: int
    after: bool
    token: Path | None = None  # a file: whoever can remove it dies

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.name} #{self.time}"


def idle(name: str) -> bool:
    """Whether a step is taken more or less often as time goes: a lease, a note of the time, people told of together."""
    return name.startswith(_AS_TIME_GOES)


class Steps:
    """The durable steps of this process, written down once they are taken; `before` are those of its earlier lives."""

    def __init__(self, log: Path, kills: Sequence[Kill], before: Iterable[str] = ()) -> None:
        self._kills, self._times, self._lock = kills, Counter(before), threading.Lock()
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._changes: dict[int, int] = {}
        self._unlink = os.unlink

    def install(self) -> None:
        event.listen(Pool, "connect", lambda connection, _: self._changes.update({id(connection): 0}))
        DefaultDialect.do_commit = self._committing(DefaultDialect.do_commit)  # type: ignore[method-assign]
        for name in ("link", "replace", "rename"):
            setattr(os, name, self._naming(getattr(os, name)))
        for name in ("unlink", "remove", "rmdir"):
            setattr(os, name, self._removing(getattr(os, name)))

    def _committing(self, commit: Callable[..., None]) -> Callable[..., None]:
        def do_commit(dialect: DefaultDialect, connection: Any) -> None:
            raw = getattr(connection, "dbapi_connection", connection)
            if not hasattr(raw, "total_changes"):  # PostgreSQL's: processes are killed by the clock there
                return commit(dialect, connection)
            before, now = self._changes.get(id(raw), 0), raw.total_changes
            self._changes[id(raw)] = now
            act = functools.partial(commit, dialect, connection)
            return self._around(act) if now != before else act()

        return do_commit

    def _naming(self, act: Callable[..., None]) -> Callable[..., None]:
        return lambda *paths, **named: self._around(functools.partial(act, *paths, **named))

    def _removing(self, act: Callable[..., None]) -> Callable[..., None]:
        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            doing = functools.partial(act, path, dir_fd=dir_fd)
            hidden = os.path.basename(os.fspath(path)).startswith(".")
            return doing() if hidden or not _is_there(path, dir_fd) else self._around(doing)

        return remove

    def _around(self, act: Callable[[], None]) -> None:
        name = _who_asks()
        if not name:  # a library's own files
            return act()
        reached = self._count(name)
        early, late = (any(map(self._chosen, self._due(reached, after))) for after in (False, True))
        if early:
            _die()
        try:
            return act()
        finally:
            os.write(self._log, f"{name}\n".encode())
            if late:
                _die()

    def _due(self, reached: Sequence[tuple[str, int]], after: bool) -> list[Kill]:
        return [kill for kill in self._kills if (kill.name, kill.time) in reached and kill.after == after]

    def _chosen(self, kill: Kill) -> bool:
        try:
            if kill.token is not None:
                self._unlink(kill.token)
        except FileNotFoundError:
            return False
        return True

    def _count(self, name: str) -> list[tuple[str, int]]:
        with self._lock:
            self._times[name] += 1
            self._times[ANY] += not idle(name)
            return [(name, self._times[name])] + ([] if idle(name) else [(ANY, self._times[ANY])])


def _who_asks() -> str:
    """The functions of the package on the stack, innermost first."""
    names, frame = [], sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        module = frame.f_globals.get("__name__", "")
        if module.startswith("crowdfl.") and not module.startswith(_SKIPPED) and frame.f_code.co_name != "_write":
            names.append(f"{module.rpartition('.')[2]}.{frame.f_code.co_name}")
    return "<".join(dict.fromkeys(names))


def _is_there(path: Any, dir_fd: int | None) -> bool:
    try:
        os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
