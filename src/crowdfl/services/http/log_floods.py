"""The lines that libraries log about connections: each kind at most once a minute, so that a stranger cannot fill the log."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_SECONDS = 60.0
_MOST_KINDS = 100
_LIBRARIES = ("asyncio", "uvicorn.error")


@dataclass
class Seldom:
    """A filter for a logger: a line like one that was let through less than a minute ago is dropped."""

    now: Callable[[], float] = time.monotonic
    _let_through: dict[str, float] = field(default_factory=dict)

    def filter(self, record: logging.LogRecord) -> bool:
        """Lines are alike if they begin alike: what follows names the connection."""
        lines, now = str(record.msg).splitlines(), self.now()
        kind = lines[0][:80] if lines else ""
        last = self._let_through.get(kind)
        if last is not None and now - last < _SECONDS:
            return False
        if len(self._let_through) >= _MOST_KINDS:
            self._let_through.clear()
        self._let_through[kind] = now
        return True


def rate_limit_library_logs() -> None:
    for name in _LIBRARIES:
        logging.getLogger(name).addFilter(Seldom())
