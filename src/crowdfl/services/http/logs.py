"""Logs as lines of JSON: names, numbers and request ids; no message of an unforeseen error, which could hold anything."""

import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from structlog.types import EventDict, FilteringBoundLogger, Processor

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import CrowdFLError
from crowdfl.roles.ports import Events
from crowdfl.services.http.wire import request_id
from crowdfl.text import printable

_LONGEST_REASON = 300
_MOST_FRAMES = 40  # of each error of a chain
_MOST_CAUSES = 5
_WARNINGS = frozenset({"model lost", "participant refused by CSP", "payment unknown", "round void", "uploads damaged"})


def configure(level: int = logging.INFO) -> None:
    """For a process that serves: structlog's and the standard library's lines alike, those of dying threads included."""
    structlog.configure(
        processors=[*_SHARED, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,  # configured once, before anything is served
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _log_what_nobody_caught()


def get(service: str) -> FilteringBoundLogger:
    logger: FilteringBoundLogger = structlog.get_logger(service=service)
    return logger


def events(service: str) -> Events:
    """Whoever is told what a role did, as lines of its log."""
    log = get(service)

    def tell(event: str, /, **fields: object) -> None:
        with contextlib.suppress(OSError, ValueError):  # what happened stays so if the line cannot be written
            (log.warning if event in _WARNINGS else log.info)(event, **fields)

    return tell


@contextlib.contextmanager
def working_under(identity: str | None = None) -> Iterator[str]:
    """One piece of work: its lines, and the calls it makes to other services, carry this id or a new one."""
    name = identity or secret_hex(12)
    token = request_id.set(name)
    try:
        with structlog.contextvars.bound_contextvars(request=name):
            yield name
    finally:
        request_id.reset(token)


def described(error: BaseException) -> dict[str, str]:
    """An error by its name; one of this project's own with its message, which is made to be shown."""
    if not isinstance(error, CrowdFLError):
        return {"error": type(error).__name__}
    return {"error": type(error).__name__, "reason": printable(str(error), _LONGEST_REASON)}


def where(error: BaseException) -> list[str]:
    """An error with what caused it, one line per place, the innermost last. Messages and values could hold anything: none."""
    lines: list[str] = []
    for place, one in enumerate(_chain(error)):
        lines.append(("" if place == 0 else "after ") + type(one).__name__)
        frames = traceback.extract_tb(one.__traceback__)
        if len(frames) > _MOST_FRAMES:
            lines.append(f"  ({len(frames) - _MOST_FRAMES} more)")
        lines += [f"  {_place(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames[-_MOST_FRAMES:]]
    return lines


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from or met while handling, as Python itself would show it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and len(seen) < _MOST_CAUSES and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _place(filename: str) -> str:
    """From the package on: what lies above says where this machine keeps its files."""
    parts = Path(filename).parts
    for name in ("site-packages", "src"):
        if name in parts:
            return "/".join(parts[len(parts) - parts[::-1].index(name) :])
    return "/".join(parts[-2:])


def _without_messages(_logger: object, _method: str, fields: EventDict) -> EventDict:
    """A library's traceback in our form: its own would show the message, and the source lines."""
    given: Any = fields.pop("exc_info", None)
    fields.pop("exc_text", None)
    if given is True:
        given = sys.exc_info()
    error = given[1] if isinstance(given, tuple) else given
    if isinstance(error, BaseException):
        fields.update(described(error), where=where(error))
    record = fields.get("_record")
    if record is not None:
        record.exc_info = record.exc_text = None
    return fields


def _log_what_nobody_caught() -> None:
    def fatal(error: BaseException | None, thread: str) -> None:
        if error is not None and not isinstance(error, KeyboardInterrupt):
            get("process").critical("died", thread=thread, **described(error), where=where(error))

    def in_thread(given: threading.ExceptHookArgs) -> None:
        fatal(given.exc_value, given.thread.name if given.thread is not None else "unknown")

    sys.excepthook = lambda _kind, error, _trace: fatal(error, "main")
    threading.excepthook = in_thread


_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    _without_messages,
)


_SECONDS = 60.0
_MOST_KINDS = 100
_LIBRARIES = ("asyncio", "uvicorn.error")


@dataclass
class Ration:
    """So many lines of a kind in a minute: who can cause them must not fill the disk."""

    most: int = 60
    now: Callable[[], float] = time.monotonic
    _kinds: dict[str, tuple[float, int]] = field(default_factory=dict)  # when its minute began, and lines since

    def take(self, kind: str) -> int | None:
        """None: this line is left out. Else how many were, in the last minute of this kind."""
        now = self.now()
        began, lines = self._kinds.get(kind, (-_SECONDS, 0))
        if now - began < _SECONDS:
            self._kinds[kind] = began, lines + 1
            return 0 if lines < self.most else None
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[kind] = now, 1
        return max(0, lines - self.most)


class Seldom:
    """A filter for a logger: one line of a kind in a minute, and none once the service is being stopped."""

    def __init__(self, now: Callable[[], float] = time.monotonic, stopping: Callable[[], bool] = lambda: False) -> None:
        self._ration = Ration(1, now)
        self._stopping = stopping

    def filter(self, record: logging.LogRecord) -> bool:
        """Lines are alike if they begin alike: what follows names the connection."""
        kind = (str(record.msg).splitlines() or [""])[0][:80]
        return not self._stopping() and self._ration.take(kind) is not None


def rate_limit_library_logs(stopping: Callable[[], bool]) -> None:
    """A library calls what is cut off at the end an error; what of it matters is done again."""
    for name in _LIBRARIES:
        logging.getLogger(name).addFilter(Seldom(stopping=stopping))
