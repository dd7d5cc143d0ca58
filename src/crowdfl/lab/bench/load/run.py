"""`crowdfl bench load`: many participants' uploads against one SP process, beside a route that only writes and fsyncs.

Rewards are off. Half of the participants come over a connection of their own, as phones do; the others share connections that
are kept open. The bare route and SP take turns, so that a disturbance falls on both.
"""

import http.client
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.vector import RunningProduct, Unchecked
from crowdfl.errors import ProtocolError, ServiceUnavailable
from crowdfl.lab.bench.load.platform import FULL, SMOKE, LoadSetting, Platform, platform, wait_until
from crowdfl.lab.bench.rows import Figure, Peer, Report, Row, Target
from crowdfl.lab.timing import machine
from crowdfl.services.apps.batches import IN_WORK
from crowdfl.services.client.transport import Signer

__all__ = ["FULL", "SMOKE", "LoadSetting", "bench_load"]

_OCTETS = {"Content-Type": "application/octet-stream"}
_PATIENCE = 600.0
_TURNS = 4
_PROGRAM = 48 * 2**20  # what the interpreters, SQLite and threads take once they work, whatever the uploads

_Job = tuple[str, bytes, dict[str, str]]


@dataclass
class _Found:
    """What was measured."""

    upload_bytes: int
    seconds: dict[tuple[str, bool], list[float]]  # by server, and by whether connections were kept: each turn's
    uploads: dict[bool, int]  # by whether connections were kept: how many in all
    cpu: dict[str, float]  # processor seconds an upload, by server
    memory: tuple[int, ...] = ()  # SP's resident bytes before, and its peak after each half of the uploads
    until_published: float = 0.0
    validate: float = 0.0
    count: float = 0.0
    error: float = 0.0

    @property
    def growth(self) -> list[int]:
        """Of SP's memory, by halves."""
        return [peak - self.memory[0] for peak in self.memory[1:]]

    def rate(self, server: str, *, kept: bool) -> float:
        """Acknowledged a second."""
        return self.uploads[kept] / sum(self.seconds[server, kept])


def bench_load(setting: LoadSetting = FULL, *, say: Callable[[str], None] = lambda _: None) -> Report:
    """Acknowledged uploads per second, memory, validation, counting; every upload must be in the average."""
    where = machine()
    with tempfile.TemporaryDirectory(prefix="crowdfl-load-") as name, platform(Path(name), setting, say) as ready:
        found = _measure(ready, setting, say)
    if found.error > 1e-4:
        raise ProtocolError(f"the average is off by {found.error}: an upload was lost or counted twice")
    judged = setting == FULL
    return Report(setting.title, where, asdict(setting), {}, _rows(found, setting, judged=judged))


def _measure(ready: Platform, setting: LoadSetting, say: Callable[[str], None]) -> _Found:
    wait_until(lambda: ready.round_state() == "open", "the round to open")
    found = _turns(ready, setting, say)
    acknowledged = time.monotonic()
    say("waiting for the average")
    wait_until(lambda: ready.round_state() in ("published", "rewarded"), "the round's average")
    found.until_published = time.monotonic() - acknowledged
    found.error = float(np.abs(ready.requester.model(ready.task)[0] - ready.weights).max())
    say("validation and counting, one core")
    found.validate, found.count = _alone(ready, setting)
    return found


def _turns(ready: Platform, setting: LoadSetting, say: Callable[[str], None]) -> _Found:
    """Every upload once to each server; even turns over connections of their own, odd ones over those that are kept."""
    parts = np.array_split(np.arange(setting.participants), _TURNS)
    uploads = {kept: sum(len(part) for part in parts[kept::2]) for kept in (False, True)}
    found = _Found(len(ready.uploads[0]), {(s, k): [] for s in _JOBS for k in (False, True)}, uploads, {})
    before, memory = {s: _processor_seconds(ready.pids[s]) for s in _JOBS}, [_memory(ready.pids["sp"], "VmRSS")]
    for turn, part in enumerate(parts):
        say(f"turn {turn + 1} of {_TURNS}: {len(part)} uploads to the bare route, then to SP")
        for server, job in _JOBS.items():
            jobs = [job(ready, int(number)) for number in part]
            found.seconds[server, turn % 2 == 1].append(_send(ready, server, setting, jobs, kept=turn % 2 == 1))
        if turn + 1 in (_TURNS // 2, _TURNS):
            memory.append(_memory(ready.pids["sp"], "VmHWM"))
    found.memory = tuple(memory)
    found.cpu = {s: (_processor_seconds(ready.pids[s]) - before[s]) / setting.participants for s in _JOBS}
    return found


def _signed(ready: Platform, number: int) -> _Job:
    keys, upload = ready.people[number], ready.uploads[number]
    target = f"/v1/tasks/{ready.task}/rounds/1/uploads/{keys.who}"
    return target, upload, Signer(keys.who, keys.signing).headers("PUT", target, upload, time.time()) | _OCTETS


def _plain(ready: Platform, number: int) -> _Job:
    return f"/bodies/{number}", ready.uploads[number], _OCTETS


_JOBS: dict[str, Callable[[Platform, int], _Job]] = {"bare": _plain, "sp": _signed}


def _send(ready: Platform, server: str, setting: LoadSetting, jobs: Sequence[_Job], *, kept: bool) -> float:
    """Every body, so many at once; seconds. Every one must be acknowledged."""
    context = ssl.create_default_context(cafile=str(ready.ca))
    waiting, lock = iter(jobs), threading.Lock()
    failures: list[str] = []

    def connection() -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", ready.ports[server], context=context, timeout=_PATIENCE)

    def work(wire: http.client.HTTPSConnection) -> None:
        while not failures:
            with lock:
                job = next(waiting, None)
            if job is None:
                break
            try:
                wire.request("PUT", *job)
                reply = wire.getresponse()
                said = reply.read()
            except OSError as problem:
                failures.append(str(problem))
            else:
                if reply.status != 201:
                    failures.append(f"{reply.status} {said[:300].decode(errors='replace')}")
            if not kept:
                wire.close()  # it connects again by itself

    wires = [connection() for _ in range(setting.connections)]
    if kept:
        for wire in wires:
            wire.connect()
    threads = [threading.Thread(target=work, args=(wire,)) for wire in wires]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    for wire in wires:
        wire.close()
    if failures:
        raise ServiceUnavailable(f"an upload was not acknowledged: {failures[0]}")
    return seconds


def _alone(ready: Platform, setting: LoadSetting) -> tuple[float, float]:
    """Seconds of one core to validate an upload, and to multiply it into the running product."""
    one = Threads(1)
    parsed = [Unchecked.parse(u, ready.public, max_count=10**6) for u in ready.uploads[: setting.checked]]
    start = time.perf_counter()
    vectors = [numbers.validate(backend=one) for numbers in parsed]
    between = time.perf_counter()
    product = RunningProduct(ready.public, len(vectors[0]), len(vectors), backend=one)
    for vector in vectors:
        product.add(vector)
    end = time.perf_counter()
    return (between - start) / len(vectors), (end - between) / len(vectors)


def _processor_seconds(pid: int) -> float:
    """User and system time of a process and its children, by Linux's accounts."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(_processor_seconds, _children(pid)))


def _memory(pid: int, name: str) -> int:
    """Of a process and its children."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    own = int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024
    return own + sum(_memory(child, name) for child in _children(pid))


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # each under the thread that started it
    return [int(child) for listed in lists for child in listed.read_text().split()]


def _bound(found: _Found, setting: LoadSetting) -> int:
    """A body for each connection, twice while it is received; a batch that is checked, here, joined, and beside; a running
    product, the side that checks, and an opening: eight. Nothing grows with the participants."""
    bodies = 2 * setting.connections + 4 * IN_WORK + 8
    return _PROGRAM + bodies * found.upload_bytes


def _rows(found: _Found, setting: LoadSetting, *, judged: bool) -> tuple[Row, ...]:
    bound, everything = _bound(found, setting), Figure(found.upload_bytes * setting.participants, "B")
    mean = f"mean of {setting.checked}, off the clock"
    return (
        _rate_row("acknowledged", "acknowledged uploads per second", found, setting, kept=False, judged=judged),
        _rate_row("kept", "the same over connections kept open", found, setting, kept=True, judged=False),
        Row(
            "processor",
            "server's processor time an upload",
            Figure(found.cpu["sp"], "s"),
            None,
            (Peer("bare route", Figure(found.cpu["bare"], "s")),),
            found.cpu["bare"] / found.cpu["sp"],
            "bare / SP",
            note="SP's validation included, and its counting as far as it went on meanwhile",
        ),
        Row(
            "memory",
            "SP's memory: growth over the round",
            Figure(found.growth[-1], "B"),
            Target("within the bound", "ratio", at_most=1.0),
            (Peer("bound", Figure(bound, "B")), Peer("all uploads together", everything)),
            found.growth[-1] / bound,
            "growth / bound",
            judged,
            "after each half of the uploads: " + ", ".join(str(Figure(value, "B")) for value in found.growth),
        ),
        Row("upload", "an upload", Figure(found.upload_bytes, "B"), None, note="durable before its receipt is signed"),
        Row("validate", "validating an upload, one core", Figure(found.validate, "s"), None, note=mean),
        Row("count", "counting an upload, one core", Figure(found.count, "s"), None, note=mean),
        Row(
            "published",
            "from the last receipt to the published average",
            Figure(found.until_published, "s"),
            None,
            note=f"every upload counted: the average is off by {found.error:.1e} at most",
        ),
    )


def _rate_row(key: str, quantity: str, found: _Found, setting: LoadSetting, *, kept: bool, judged: bool) -> Row:
    ratios = [b / s for b, s in zip(found.seconds["bare", kept], found.seconds["sp", kept], strict=True)]
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return Row(
        key,
        quantity,
        Figure(found.rate("sp", kept=kept), ""),
        None if kept else Target("at least half", "ratio", at_least=0.5),  # a thousand phones share no connection
        (Peer("bare FastAPI route, TLS, write, fsync", Figure(found.rate("bare", kept=kept), "")),),
        found.rate("sp", kept=kept) / found.rate("bare", kept=kept),
        "SP / bare",
        judged,
        f"{setting.connections} at once, {'connections kept' if kept else 'each over its own connection'}; by turns: {each}",
    )
