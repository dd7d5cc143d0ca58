"""What this process of SP has seen happen, with times, and how browsers hear of it.

The store keeps states and few times; the console adds the times of what it saw since it began, and says so. Nothing here is
durable, and everything has a bound.
"""

import asyncio
import contextlib
import itertools
import json
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from crowdfl.errors import BadSignature, CrowdFLError, Forbidden, ServiceUnavailable
from crowdfl.services.http import logs
from crowdfl.services.http.connections import ON_STOP
from crowdfl.services.http.signatures import SIGNED

Row = dict[str, Any]
Sections = dict[str, dict[str, Row]]
"""What the overview shows: by section, rows by key."""
Place = tuple[str, int]  # task and round

_STEPS = {  # of a round, by the event that says so
    "round closed": "closed",
    "round weighed": "checked",
    "round held": "averaged",
    "round published": "published",
    "average published": "averaged",
    "round rewarded": "rewarded",
    "round aborted": "aborted",
}
_UPLOAD = re.compile(r"/v1/tasks/([0-9a-f]{64})/rounds/([1-9][0-9]{0,5})/uploads/([0-9a-f]{20})(/commit)?")
_NOT_OWN = (BadSignature, Forbidden)  # signed, but not this body, or for somebody else's upload
_MOST_ROUNDS, _MOST_ARRIVALS, _MOST_REFUSALS, _MOST_NEWS = 2000, 5000, 200, 200
_SHOWN = 50  # of arrivals, refusals and news, in the overview
_FIELDS = ("task", "number", "who", "name", "uploads", "error", "reason", "final", "before", "peer")


@dataclass
class EventHistory:
    """Times of what happened since this process began. Any thread tells it."""

    now: Callable[[], float]
    since: float = field(init=False)
    strangers: int = 0  # requests to upload that nobody enrolled has signed
    _rounds: OrderedDict[Place, dict[str, float]] = field(default_factory=OrderedDict, repr=False)
    _arrivals: OrderedDict[tuple[str, int, str], float] = field(default_factory=OrderedDict, repr=False)
    _refusals: OrderedDict[tuple[str, int, str, str], Row] = field(default_factory=OrderedDict, repr=False)
    _news: deque[Row] = field(default_factory=lambda: deque(maxlen=_MOST_NEWS), repr=False)
    _numbers: Any = field(default_factory=lambda: itertools.count(1), repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self.since = self.now()

    def hear(self, event: str, /, **fields: object) -> None:
        """An event of the store's or the role's; amounts that participants earn are in none."""
        at = self.now()
        known = {name: _plain(fields[name]) for name in _FIELDS if name in fields}
        with self._lock:
            self._news.append({"id": next(self._numbers), "at": at, "event": event, **known})
            step = _STEPS.get(event)
            task = fields.get("task")
            number = fields.get("number")
            if step is not None and isinstance(task, str) and isinstance(number, int):
                _keep(self._rounds, (task, number), self._rounds.get((task, number), {}) | {step: at}, _MOST_ROUNDS)

    def arrived(self, task: str, number: int, who: str) -> None:
        with self._lock:
            _keep(self._arrivals, (task, number, who), self.now(), _MOST_ARRIVALS)

    def refused(self, task: str, number: int, who: str, error: CrowdFLError) -> None:
        """The same again is counted: a phone may come back for a while."""
        key = (task, number, who, type(error).__name__)
        with self._lock:
            times = self._refusals.get(key, {"times": 0})["times"] + 1
            row = {
                "at": self.now(),
                "task": task,
                "number": number,
                "who": who,
                "times": times,
                **logs.described(error),
            }
            _keep(self._refusals, key, row, _MOST_REFUSALS)

    def steps(self, task: str, number: int) -> dict[str, float]:
        with self._lock:
            return dict(self._rounds.get((task, number), {}))

    def arrival(self, task: str, number: int, who: str) -> float | None:
        with self._lock:
            return self._arrivals.get((task, number, who))

    def refusals(self, task: str, most: int = _MOST_REFUSALS) -> list[Row]:
        """Of a task, the newest first."""
        with self._lock:
            return [row for row in reversed(self._refusals.values()) if row["task"] == task][:most]

    def sections(self) -> Sections:
        with self._lock:
            arrivals = list(itertools.islice(reversed(self._arrivals.items()), _SHOWN))
            refusals = list(itertools.islice(reversed(self._refusals.items()), _SHOWN))
            news = list(self._news)[-_SHOWN:]
        return {
            "arrivals": {
                f"{task} {number} {who}": {"at": at, "task": task, "number": number, "who": who}
                for (task, number, who), at in arrivals
            },
            "refusals": {" ".join(map(str, key)): row for key, row in refusals},
            "news": {str(row["id"]): row for row in news},
        }


def _plain(value: object) -> str | int | bool | None:
    return value if value is None or isinstance(value, str | int) else str(value)


def _keep(where: "OrderedDict[Any, Any]", key: object, value: object, most: int) -> None:
    where[key] = value
    where.move_to_end(key)
    while len(where) > most:
        where.popitem(last=False)


@dataclass
class UploadWatch:
    """ASGI middleware: tells which uploads came, and which were refused and why."""

    app: ASGIApp
    history: EventHistory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _UPLOAD.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if found is None or (scope["method"] == "PUT") == (found[4] is not None):
            await self.app(scope, receive, send)
            return
        status = 0

        async def sending(message: Any) -> None:  # noqa: ANN401 -- as ASGI has it
            nonlocal status
            status = message.get("status", status)
            await send(message)

        await self.app(scope, receive, sending)
        problem = scope.get("crowdfl.problem")
        place = (found[1], int(found[2]), found[3])
        if status == 201:
            self.history.arrived(*place)
        elif isinstance(problem, CrowdFLError):
            self._tell(problem, place, signed=SIGNED in scope)

    def _tell(self, problem: CrowdFLError, place: tuple[str, int, str], *, signed: bool) -> None:
        """Only what a participant has signed is shown by name: anyone can send the rest, in any number and any name."""
        if signed and not isinstance(problem, _NOT_OWN):
            self.history.refused(*place, problem)
        else:
            self.history.strangers += 1


@dataclass
class Snapshots:
    """The overview as it was at the last look. However many ask, looking takes a tenth of one thread's time at most."""

    look: Callable[[], Sections]
    least: float = 0.5  # seconds between two looks
    clock: Callable[[], float] = time.monotonic
    _found: Sections | None = None
    _next: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def rest(self) -> float:
        """Seconds until there can be another look."""
        return max(0.0, self._next - self.clock())

    def __call__(self) -> Sections:
        with self.lock:
            if self._found is None or self.rest() == 0.0:
                began = self.clock()
                try:
                    self._found = self.look()
                finally:
                    self._next = self.clock() + max(self.least, 10 * (self.clock() - began))
            return self._found


def difference(known: Sections, fresh: Sections) -> dict[str, Row]:
    """By section: rows that are new or have changed, and the keys of those that are gone."""
    found: dict[str, Row] = {}
    for name, rows in fresh.items():
        before = known.get(name, {})
        changed = {key: row for key, row in rows.items() if before.get(key) != row}
        gone = [key for key in before if key not in rows]
        if changed or gone:
            found[name] = {"changed": changed, "gone": gone}
    return found


def message(event: str, data: object) -> str:
    """One server-sent event; JSON has no bare line break."""
    return f"event: {event}\ndata: {json.dumps(data, allow_nan=False)}\n\n"


@dataclass
class Streams:
    """Browsers that watch. Between two looks a stream is a timer: it holds no thread and no connection to the store."""

    snapshots: Snapshots
    most: int = 16
    pulse: float = 1.0  # seconds between looks: other processes, and commands, change the store too
    quiet: float = 15.0  # seconds without a word, so that a proxy keeps the connection
    open: int = 0
    _limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1), repr=False)

    def answer(self, scope: Scope, is_alive: Callable[[], bool]) -> StreamingResponse:
        """A snapshot, then changes, for as long as `is_alive` says."""
        if self.open >= self.most:
            raise ServiceUnavailable(f"{self.most} consoles are open already: close one, or load this page again later")
        stopped = asyncio.Event()
        scope[ON_STOP] = stopped.set
        return StreamingResponse(
            self._events(stopped, is_alive), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    async def _events(self, stopped: asyncio.Event, is_alive: Callable[[], bool]) -> AsyncIterator[str]:
        if self.open >= self.most:  # others came between the answer's start and now
            return
        self.open += 1
        try:
            yield "retry: 3000\n\n"
            known: Sections | None = None
            spoken = time.monotonic()
            while not stopped.is_set():
                fresh = await self._look()
                text = _message_about(known, fresh)
                if text or time.monotonic() - spoken > self.quiet:
                    yield text or ": nothing new\n\n"
                    spoken = time.monotonic()
                known = fresh
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(self.pulse, self.snapshots.rest())):
                        await stopped.wait()
                if not stopped.is_set() and not await to_thread.run_sync(_holds, is_alive, limiter=self._limiter):
                    yield message("ended", {})
                    return
        finally:
            self.open -= 1

    async def _look(self) -> Sections | None:
        """In one thread at a time, whoever asks; the others wait without one. None while the store cannot be read."""
        try:
            return await to_thread.run_sync(self.snapshots, limiter=self._limiter)
        except (CrowdFLError, OSError):  # the log has it from those whose work it stops
            return None


def _message_about(known: Sections | None, fresh: Sections | None) -> str:
    """What a browser is to hear; after a time without, all of it."""
    if fresh is None:
        return message("trouble", {})
    if known is None:
        return message("snapshot", fresh)
    change = difference(known, fresh)
    return message("change", change) if change else ""


def _holds(is_alive: Callable[[], bool]) -> bool:
    """A token file or a store that cannot be read lets nobody in."""
    try:
        return is_alive()
    except (CrowdFLError, OSError):
        return False
