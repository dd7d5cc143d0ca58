"""`crowdfl bench load`: many participants' uploads against one SP process, beside a route that only writes and fsyncs.

Rewards are off. Half of the participants come over a connection of their own, as phones do; the others share connections that
are kept open. The bare route and SP take turns, so that a disturbance falls on both.
"""

import ssl
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.vector import RunningProduct, Unchecked
from crowdfl.errors import ProtocolError, ServiceUnavailable
from crowdfl.lab.bench.load.platform import FULL, PATIENCE, SMOKE, LoadSettings, Platform, platform, wait_until
from crowdfl.lab.bench.workload import Say
from crowdfl.lab.process import family_bytes, processor_seconds
from crowdfl.lab.report.results import Figure, Reference, Result, Row, Target
from crowdfl.lab.timing import machine, timed, timed_call
from crowdfl.services.apps.batches import IN_WORK
from crowdfl.services.client.transport import Signer

__all__ = ["FULL", "SMOKE", "LoadSettings", "bench_load"]

_OCTETS = {"Content-Type": "application/octet-stream"}
_TURNS = 4
_PROGRAM = 48 * 2**20  # what the interpreters, SQLite and threads take once they work, whatever the uploads

_Job = tuple[str, bytes, dict[str, str]]


@dataclass
class _Found:
    seconds: dict[tuple[str, bool], list[float]]  # by server, and by whether connections were kept: each turn's
    uploads: dict[bool, int]  # by whether connections were kept: how many in all
    cpu: dict[str, float]  # processor seconds an upload, by server
    growth: list[int]  # of SP's resident bytes, at their peak after each half of the uploads
    until_published: float = 0.0
    error: float = 0.0

    def rate(self, server: str, *, kept: bool) -> Figure:
        """Uploads acknowledged a second."""
        return Figure(self.uploads[kept] / sum(self.seconds[server, kept]), "")


def bench_load(settings: LoadSettings = FULL, *, say: Say = lambda _: None) -> Result:
    """Acknowledged uploads per second, memory, validation, counting; every upload must be in the average."""
    where = machine()
    with tempfile.TemporaryDirectory(prefix="crowdfl-load-") as name, platform(Path(name), settings, say) as ready:
        wait_until(lambda: ready.round_state() == "open", "the round to open")
        found = _turns(ready, settings, say)
        say("waiting for the average")
        published = ("published", "rewarded")
        found.until_published = timed(lambda: wait_until(lambda: ready.round_state() in published, "the average"))
        found.error = float(np.abs(ready.requester.model(ready.task)[0] - ready.weights).max())
        say("validation and counting, one core")
        alone = _alone(ready, settings.checked)
    if found.error > 1e-4:
        raise ProtocolError(f"the average is off by {found.error}: an upload was lost or counted twice")
    return settings.result("load", where, _rows(found, settings, len(ready.uploads[0]), alone))


def _turns(ready: Platform, settings: LoadSettings, say: Say) -> _Found:
    """Every upload once to each server; even turns over connections of their own, odd ones over those that are kept."""
    parts = np.array_split(np.arange(settings.participants), _TURNS)
    uploads = {kept: sum(len(part) for part in parts[kept::2]) for kept in (False, True)}
    seconds: dict[tuple[str, bool], list[float]] = {(s, k): [] for s in _JOBS for k in (False, True)}
    before, memory = {s: processor_seconds(ready.pids[s]) for s in _JOBS}, family_bytes("VmRSS", ready.pids["sp"])
    growth = []
    for turn, part in enumerate(parts):
        say(f"turn {turn + 1} of {_TURNS}: {len(part)} uploads to the bare route, then to SP")
        kept = turn % 2 == 1
        for server, job in _JOBS.items():
            jobs = [job(ready, int(number)) for number in part]
            seconds[server, kept].append(_send(ready, server, settings.connections, jobs, kept=kept))
        if turn + 1 in (_TURNS // 2, _TURNS):
            growth.append(family_bytes("VmHWM", ready.pids["sp"]) - memory)
    cpu = {s: (processor_seconds(ready.pids[s]) - before[s]) / settings.participants for s in _JOBS}
    return _Found(seconds, uploads, cpu, growth)


def _signed(ready: Platform, number: int) -> _Job:
    keys, upload = ready.people[number], ready.uploads[number]
    target = f"/v1/tasks/{ready.task}/rounds/1/uploads/{keys.who}"
    return target, upload, Signer(keys.who, keys.signing).headers("PUT", target, upload, time.time()) | _OCTETS


def _plain(ready: Platform, number: int) -> _Job:
    return f"/bodies/{number}", ready.uploads[number], _OCTETS


_JOBS: dict[str, Callable[[Platform, int], _Job]] = {"bare": _plain, "sp": _signed}


def _send(ready: Platform, server: str, connections: int, jobs: Sequence[_Job], *, kept: bool) -> float:
    """Every body, so many at once; seconds. Every one must be acknowledged."""
    context = ssl.create_default_context(cafile=ready.ca)
    idle: SimpleQueue[HTTPSConnection] = SimpleQueue()
    for _ in range(connections):
        wire = HTTPSConnection("127.0.0.1", ready.ports[server], context=context, timeout=PATIENCE)
        if kept:
            wire.connect()
        idle.put(wire)

    def put(job: _Job) -> None:
        wire = idle.get()
        try:
            wire.request("PUT", *job)
            reply = wire.getresponse()
            said = reply.read()
        except OSError as problem:
            raise ServiceUnavailable(f"an upload was not acknowledged: {problem}") from problem
        finally:
            if not kept:
                wire.close()  # it connects again by itself
            idle.put(wire)
        if reply.status != 201:
            raise ServiceUnavailable(f"an upload was refused: {reply.status} {said[:300].decode(errors='replace')}")

    with ThreadPoolExecutor(connections) as pool:
        seconds = timed(lambda: list(pool.map(put, jobs)))
    while not idle.empty():
        idle.get().close()
    return seconds


def _alone(ready: Platform, count: int) -> dict[str, float]:
    """Seconds of one core to validate an upload, and to multiply it into the running product."""
    one = Threads(1)
    parsed = [Unchecked.parse(u, ready.public, max_count=10**6) for u in ready.uploads[:count]]
    validate, vectors = timed_call(lambda: [numbers.validate(backend=one) for numbers in parsed])
    product = RunningProduct(ready.public, len(vectors[0]), len(vectors), backend=one)
    counting = timed(lambda: list(map(product.add, vectors)))
    return {"validate": validate / len(vectors), "count": counting / len(vectors)}


def _rows(found: _Found, settings: LoadSettings, upload: int, alone: dict[str, float]) -> list[Row]:
    # A body for each connection, twice while it is received; a batch that is checked, here, joined, and beside; a running
    # product, the side that checks, and an opening: eight. Nothing grows with the participants.
    bound = _PROGRAM + (2 * settings.connections + 4 * IN_WORK + 8) * upload
    everything = Reference("all uploads together", Figure(upload * settings.participants, "B"))
    processor = Row(
        "processor",
        "server's processor time an upload",
        Figure(found.cpu["sp"], "s"),
        note="SP's validation included, and its counting as far as it went on meanwhile",
    )
    memory = Row(
        "memory",
        "SP's memory: growth over the round",
        Figure(found.growth[-1], "B"),
        Target("within the bound", "ratio", at_most=1.0),
        note="after each half of the uploads: " + ", ".join(str(Figure(value, "B")) for value in found.growth),
    )
    published = Row(
        "published",
        "from the last receipt to the published average",
        Figure(found.until_published, "s"),
        note=f"every upload counted: the average is off by {found.error:.1e} at most",
    )
    mean = f"mean of {settings.checked}, off the clock"
    return [
        _rate_row("acknowledged", "acknowledged uploads per second", found, settings, kept=False),
        _rate_row("kept", "the same over connections kept open", found, settings, kept=True),
        processor.under(Reference("bare route", Figure(found.cpu["bare"], "s")), "bare / SP"),
        memory.over(Reference("bound", Figure(bound, "B")), "growth / bound", everything),
        Row("upload", "an upload", Figure(upload, "B"), note="durable before its receipt is signed"),
        Row("validate", "validating an upload, one core", Figure(alone["validate"], "s"), note=mean),
        Row("count", "counting an upload, one core", Figure(alone["count"], "s"), note=mean),
        published,
    ]


def _rate_row(key: str, quantity: str, found: _Found, settings: LoadSettings, *, kept: bool) -> Row:
    ratios = [b / s for b, s in zip(found.seconds["bare", kept], found.seconds["sp", kept], strict=True)]
    how = "connections kept" if kept else "each over its own connection"
    note = f"{settings.connections} at once, {how}; by turns: {', '.join(f'{ratio:.2f}' for ratio in ratios)}"
    target = None if kept else Target("at least half", "ratio", at_least=0.5)  # a thousand phones share no connection
    row = Row(key, quantity, found.rate("sp", kept=kept), target, note=note)
    return row.over(Reference("bare FastAPI route, TLS, write, fsync", found.rate("bare", kept=kept)), "SP / bare")
