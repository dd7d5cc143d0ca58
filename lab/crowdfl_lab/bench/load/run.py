"""`crowdfl bench load`: many participants' uploads against one SP process, beside a route that only writes and fsyncs.

Rewards are off. Half of the participants come over a connection of their own, as phones do; the others share connections that
are kept open. The bare route and SP take turns, so that a disturbance falls on both.
"""

import ssl
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from crowdfl.crypto.compute import Threads
from crowdfl.crypto.paillier.vector import RunningProduct, Unchecked
from crowdfl.errors import ProtocolError, ServiceUnavailable
from crowdfl.services.apps.sp_uploads import IN_WORK
from crowdfl.services.client.transport import Signer
from crowdfl_lab.bench.load.platform import PATIENCE, LoadSettings, Platform, wait_until
from crowdfl_lab.bench.workload import Say, made_up_weights
from crowdfl_lab.observe import RoundRecorder
from crowdfl_lab.process import family_bytes, processor_seconds
from crowdfl_lab.report.results import Figure, Reference, Result, Row, Target
from crowdfl_lab.timing import machine, timed, timed_call

_OCTETS = {"Content-Type": "application/octet-stream"}
_TURNS = 4
_PROGRAM = 48 * 2**20  # what the interpreters, SQLite and threads take once they work, whatever the uploads
_SERVERS = ("bare", "sp")

_Job = tuple[str, bytes, dict[str, str]]
_Seconds = dict[tuple[str, bool], list[float]]  # of each turn, by server and by whether connections were kept


def bench_load(settings: LoadSettings, *, say: Say = lambda _: None) -> Result:
    """Acknowledged uploads per second, memory, validation, counting; every upload must be in the average."""
    where = machine()
    with tempfile.TemporaryDirectory(prefix="crowdfl-load-") as folder, ExitStack() as stack:
        ready = Platform(Path(folder), settings, stack, say)
        wait_until(lambda: ready.round_state() == "open", "the round to open")
        rows = _turns(ready, settings, say)
        say("waiting for the average")
        done = ("published", "rewarded")
        waited = timed(lambda: wait_until(lambda: ready.round_state() in done, "the average"))
        error = float(np.abs(ready.requester.model(ready.task)[0] - ready.weights).max())
        say("validation and counting, one core")
        rows += _alone(ready, settings)
    if error > 1e-4:
        raise ProtocolError(f"the average is off by {error}: an upload was lost or counted twice")
    note = f"every upload counted: the average is off by {error:.1e} at most"
    published = Row("published", "from the last receipt to the published average", Figure(waited, "s"), note=note)
    name = "load" if settings.profile == "hardened" else f"load-{settings.profile}"
    result = settings.result(name, where, [*rows, published])
    return replace(result, command=f"crowdfl bench load --profile {settings.profile}")


def _turns(ready: Platform, settings: LoadSettings, say: Say) -> list[Row]:
    """Every upload once to each server; even turns over connections of their own, odd ones over those that are kept."""
    seconds: _Seconds = {(s, k): [] for s in _SERVERS for k in (False, True)}
    before, memory = {s: processor_seconds(ready.pids[s]) for s in _SERVERS}, family_bytes("VmRSS", ready.pids["sp"])
    growth = []
    for turn, part in enumerate(np.array_split(np.arange(settings.participants), _TURNS)):
        say(f"turn {turn + 1} of {_TURNS}: {len(part)} uploads to the bare route, then to SP")
        kept = turn % 2 == 1
        for server in _SERVERS:
            jobs = [_job(ready, server, int(number)) for number in part]
            seconds[server, kept].append(_send(ready, server, settings.connections, jobs, kept=kept))
        if turn + 1 in (_TURNS // 2, _TURNS):
            growth.append(Figure(family_bytes("VmHWM", ready.pids["sp"]) - memory, "B"))
    spent = {s: (processor_seconds(ready.pids[s]) - before[s]) / settings.participants for s in _SERVERS}
    cpu = {server: Figure(each, "s") for server, each in spent.items()}
    return _rows(seconds, cpu, growth, settings, len(ready.uploads[0]))


def _job(ready: Platform, server: str, number: int) -> _Job:
    keys, upload = ready.people[number], ready.uploads[number]
    if server == "bare":
        return f"/bodies/{number}", upload, _OCTETS
    target = f"/v1/tasks/{ready.task}/rounds/1/uploads/{keys.who}"
    return target, upload, Signer(keys.who, keys.signing).headers("PUT", target, upload, time.time()) | _OCTETS


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


def _alone(ready: Platform, settings: LoadSettings) -> tuple[Row, ...]:
    """Seconds of one core to validate an upload, and to count it."""
    alone = _keyed_alone(ready, settings.checked) if settings.profile == "hardened" else _side_alone(settings)
    mean, names = f"mean of {settings.checked}, off the clock", {"validate": "validating", "count": "counting"}
    each = {key: Figure(seconds / settings.checked, "s") for key, seconds in alone.items()}
    return tuple(Row(key, f"{names[key]} an upload, one core", figure, note=mean) for key, figure in each.items())


def _keyed_alone(ready: Platform, count: int) -> dict[str, float]:
    one = Threads(1)
    parsed = [Unchecked.parse(u, ready.public, max_count=10**6) for u in ready.uploads[:count]]
    validate, vectors = timed_call(lambda: [numbers.validate(backend=one) for numbers in parsed])
    product = RunningProduct(ready.public, len(vectors[0]), len(vectors), backend=one)
    counting = timed(lambda: list(map(product.add, vectors)))
    return {"validate": validate, "count": counting}


def _side_alone(settings: LoadSettings) -> dict[str, float]:
    """By SP's side of a task of the same sizes, with uploads of its own."""
    parties = settings.parties(settings.task(rounds=2), Threads(1), RoundRecorder())
    weights = made_up_weights(settings.parameters, 1)
    uploads = parties.encrypt({f"p{i:03}": (weights, 1) for i in range(settings.checked)})
    parties.sp.open_round(1)
    validate, refusals = timed_call(lambda: parties.sp.refusals(list(uploads.items())))
    if any(refusals):
        raise ProtocolError(f"SP refuses uploads of its own task: {refusals}")
    return {"validate": validate, "count": timed(lambda: parties.sp.add_all(uploads, validated=True))}


def _rows(
    seconds: _Seconds, cpu: dict[str, Figure], growth: list[Figure], settings: LoadSettings, upload: int
) -> list[Row]:
    """`cpu`: processor time an upload; `growth`: of SP's resident bytes, at their peak after each half of the uploads."""
    # A body for each connection, twice while it is received; a batch that is checked, here, joined, and beside; a running
    # product, the side that checks, and an opening: eight. Nothing grows with the participants.
    bound = Figure(_PROGRAM + (2 * settings.connections + 4 * IN_WORK + 8) * upload, "B")
    everything = Reference("all uploads together", Figure(upload * settings.participants, "B"))
    note = "SP's validation included, and its counting as far as it went on meanwhile"
    processor = Row("processor", "server's processor time an upload", cpu["sp"], note=note)
    within = Target("within the bound", "ratio", at_most=1.0)
    note = "after each half of the uploads: " + ", ".join(map(str, growth))
    memory = Row("memory", "SP's memory: growth over the round", growth[-1], within, note=note)
    return [
        _rate_row("acknowledged", "acknowledged uploads per second", seconds, settings, kept=False),
        _rate_row("kept", "the same over connections kept open", seconds, settings, kept=True),
        processor.under(Reference("bare route", cpu["bare"]), "bare / SP"),
        memory.over(Reference("bound", bound), "growth / bound", everything),
        Row("upload", "an upload", Figure(upload, "B"), note="durable before its receipt is signed"),
    ]


def _rate_row(key: str, quantity: str, seconds: _Seconds, settings: LoadSettings, *, kept: bool) -> Row:
    turns = np.array([seconds[server, kept] for server in _SERVERS])
    uploads = sum(map(len, np.array_split(np.arange(settings.participants), _TURNS)[kept::2]))
    bare, sp = (Figure(uploads / float(spent), "") for spent in turns.sum(axis=1))
    how = "connections kept" if kept else "each over its own connection"
    note = f"{settings.connections} at once, {how}; by turns: {', '.join(f'{r:.2f}' for r in turns[0] / turns[1])}"
    target = None if kept else Target("at least half", "ratio", at_least=0.5)  # a thousand phones share no connection
    row = Row(key, quantity, sp, target, note=note)
    return row.over(Reference("bare FastAPI route, TLS, write, fsync", bare), "SP / bare")
