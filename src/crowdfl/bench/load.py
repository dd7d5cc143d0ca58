"""`crowdfl bench load`: many participants' uploads against one SP process, beside a route that only writes and fsyncs.

Rewards are off. The bare route takes its turn before and after SP, so that a disturbance falls on both.
"""

import http.client
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from crowdfl.bench.load_platform import FULL, SMOKE, LoadSetting, Platform, platform, wait_until
from crowdfl.bench.rows import Figure, Peer, Report, Row, Target
from crowdfl.bench.timing import machine
from crowdfl.crypto.compute import Threads
from crowdfl.crypto.vector import RunningProduct, Unchecked
from crowdfl.errors import ProtocolError, ServiceUnavailable
from crowdfl.services.signatures import Signer

__all__ = ["FULL", "SMOKE", "LoadSetting", "bench_load"]

_OCTETS = {"Content-Type": "application/octet-stream"}
_PATIENCE = 600.0
_UPLOAD_WORKERS = 16  # SP's own default for small uploads
_PROGRAM = 48 * 2**20  # what the interpreter, SQLite and threads take once they work, whatever the uploads

_Job = tuple[str, bytes, dict[str, str]]


@dataclass
class _Found:
    """What was measured."""

    upload_bytes: int
    bare: list[float] = field(default_factory=list)  # acknowledged per second, before and after SP's turn
    bare_cpu: float = 0.0  # processor seconds of the server per upload
    sp: float = 0.0
    sp_cpu: float = 0.0
    memory: tuple[int, ...] = ()  # SP's resident bytes before, and its peak after each half of the uploads
    until_published: float = 0.0
    validate: float = 0.0
    count: float = 0.0
    error: float = 0.0

    @property
    def growth(self) -> list[int]:
        """Of SP's memory, by halves."""
        return [peak - self.memory[0] for peak in self.memory[1:]]


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
    found, half = _Found(len(ready.uploads[0])), setting.participants // 2
    wait_until(lambda: ready.round_state() == "open", "the round to open")
    before = _processor_seconds(ready.pids["bare"])
    say("the bare route, first half")
    found.bare.append(_bare(ready, setting, range(half)))
    say("SP, every upload")
    _load_sp(ready, setting, found)
    acknowledged = time.monotonic()
    say("waiting for the average")
    wait_until(lambda: ready.round_state() in ("published", "rewarded"), "the round's average")
    found.until_published = time.monotonic() - acknowledged
    found.error = float(np.abs(ready.requester.model(ready.task)[0] - ready.weights).max())
    say("the bare route, second half")
    found.bare.append(_bare(ready, setting, range(half, setting.participants)))
    found.bare_cpu = (_processor_seconds(ready.pids["bare"]) - before) / setting.participants
    say("validation and counting, one core")
    found.validate, found.count = _alone(ready, setting)
    return found


def _load_sp(ready: Platform, setting: LoadSetting, found: _Found) -> None:
    pid, seconds, half = ready.pids["sp"], 0.0, setting.participants // 2
    before, memory = _processor_seconds(pid), [_memory(pid, "VmRSS")]
    for numbers in (range(half), range(half, setting.participants)):
        seconds += _send(ready, "sp", setting.connections, [_signed(ready, number) for number in numbers])
        memory.append(_memory(pid, "VmHWM"))
    found.sp, found.memory = setting.participants / seconds, tuple(memory)
    found.sp_cpu = (_processor_seconds(pid) - before) / setting.participants


def _signed(ready: Platform, number: int) -> _Job:
    keys, upload = ready.people[number], ready.uploads[number]
    target = f"/v1/tasks/{ready.task}/rounds/1/uploads/{keys.who}"
    return target, upload, Signer(keys.who, keys.signing).headers("PUT", target, upload, time.time()) | _OCTETS


def _bare(ready: Platform, setting: LoadSetting, numbers: range) -> float:
    jobs = [(f"/bodies/{number}", ready.uploads[number], _OCTETS) for number in numbers]
    return len(jobs) / _send(ready, "bare", setting.connections, jobs)


def _send(ready: Platform, server: str, connections: int, jobs: Sequence[_Job]) -> float:
    """Every body, over as many connections at once; seconds. Every one must be acknowledged."""
    context = ssl.create_default_context(cafile=str(ready.ca))
    waiting, lock = iter(jobs), threading.Lock()
    failures: list[str] = []

    def work() -> None:
        wire = http.client.HTTPSConnection("127.0.0.1", ready.ports[server], context=context, timeout=_PATIENCE)
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
        wire.close()

    threads = [threading.Thread(target=work) for _ in range(connections)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise ServiceUnavailable(f"an upload was not acknowledged: {failures[0]}")
    return time.perf_counter() - start


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
    """User and system time of a process, by Linux's accounts."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024


def _bound(found: _Found, setting: LoadSetting) -> int:
    """A body for each connection, twice while it is received; four for each worker that checks and writes one; a running
    product, the side that checks, and an opening: eight. Nothing grows with the participants."""
    bodies = 2 * setting.connections + 4 * _UPLOAD_WORKERS + 8
    return _PROGRAM + bodies * found.upload_bytes


def _rows(found: _Found, setting: LoadSetting, *, judged: bool) -> tuple[Row, ...]:
    bare, bound = sum(found.bare) / len(found.bare), _bound(found, setting)
    everything = Figure(found.upload_bytes * setting.participants, "B")
    mean = f"mean of {setting.checked}, off the clock"
    return (
        Row(
            "acknowledged",
            "acknowledged uploads per second",
            Figure(found.sp, ""),
            Target("at least half", "ratio", at_least=0.5),
            (Peer("bare FastAPI route, TLS, write, fsync", Figure(bare, "")),),
            found.sp / bare,
            "SP / bare",
            judged,
            f"{setting.connections} connections; the bare route before and after: {found.bare[0]:.0f} and {found.bare[1]:.0f}",
        ),
        Row(
            "processor",
            "server's processor time an upload",
            Figure(found.sp_cpu, "s"),
            None,
            (Peer("bare route", Figure(found.bare_cpu, "s")),),
            found.bare_cpu / found.sp_cpu,
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
