"""`make soak`: campaigns begin and end for an hour, or as long as asked, while things go wrong; then nothing may be left over.

KGC, CSP and SP are processes over TLS. Of five people in a campaign one vanishes after its first round and one comes late.
Meanwhile a process is killed and started again, SP's clock jumps, and no file can be written for a while. In the end the books
of every campaign balance, no role holds a secret of one that has ended, and memory, descriptors, databases and the times of
rounds are as they were.

`python -m crowdfl_lab.soak --serve ROLE SETTINGS TROUBLE` is one server whose clock and disk a folder puts out of order.
"""

import argparse
import errno
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crowdfl.documents.signed import Definition
from crowdfl.errors import CrowdFLError, ServiceUnavailable
from crowdfl.learning.models.shape import ModelShape, Weights
from crowdfl.protocols.profile import Tools
from crowdfl.retry import Backoff
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.requester import Requester
from crowdfl.roles.retention import secrets_of
from crowdfl.services.client import transport
from crowdfl.services.client.opening import RequesterFile, open_requester
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Bearer
from crowdfl.services.http.auth import Tokens
from crowdfl.services.run import open_retention
from crowdfl.settings import ServiceSettings, TaskSettings
from crowdfl.storage import atomic, blobs
from crowdfl.storage.memory_blobs import MemoryBlobs
from crowdfl.storage.settings_file import SERVICES, read_service
from crowdfl_lab.demo.processes import port_options, set_up
from crowdfl_lab.report.output import deliver, progress_to_stderr
from crowdfl_lab.report.results import Figure, Result, ResultTable
from crowdfl_lab.timing import family_bytes, machine

ROLES = ("kgc", "csp", "sp")
_PARAMETERS, _PEOPLE, _ROUNDS = 200, 5, 3
_BUDGET = 9_000_000  # of a round, in millionths
_AT_ONCE = 2  # campaigns
_WINDOW = 40.0
_TO_CLAIM = 90  # a server may be starting again
_LONGEST = 1200.0  # seconds of one campaign, whatever happens
_SAMPLE_SECONDS = 5.0
_PARTS = 3  # of the run, which are compared
_MAY_GROW = 1.25
_FINE = "nothing was wrong"
_LOAD = "the machine's load, for the reader"
_ROUND, _START = "from a round's end to its average", "a bare interpreter's start, for comparison"
_ROOM = {"B": 16e6, "": 8.0, "s": 2.0}  # besides: an interpreter's own moods


def serve(role: str, settings: str, trouble: Path) -> None:
    """As `crowdfl ROLE serve`, with a clock and a disk that can be put out of order."""
    from crowdfl.cli.main import run

    write = atomic.write_private

    def writing(*given: Any, **named: Any) -> None:  # noqa: ANN401 -- as it is
        if (trouble / "full").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(*given, **named)

    def now(_clock: object) -> float:
        jump = trouble / "clock"
        return time.time() + (float(jump.read_text()) if role == "sp" and jump.exists() else 0.0)

    blobs.write_private = writing  # type: ignore[attr-defined]
    transport.SystemClock.now = now  # type: ignore[method-assign, assignment]
    sys.argv = ["crowdfl", role, "serve", settings]
    run()


class Servers:
    """The three processes, started again whenever one ends."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.trouble = folder / "trouble"
        self.kills = Counter[str]()
        set_up(folder / "roles", *port_options())
        self.trouble.mkdir()
        self._running = {role: self._start(role) for role in ROLES}
        stack.callback(self._end)

    def settings(self, role: str) -> Path:
        return self.folder / "roles" / role / "settings.toml"

    def read(self, role: str) -> ServiceSettings:
        return read_service(SERVICES[role], self.settings(role))

    def pid(self, role: str) -> int:
        return self._running[role].pid

    def kill(self, role: str) -> None:
        self._running[role].kill()
        self._running[role].wait()
        self.kills[role] += 1
        self._running[role] = self._start(role)

    def require_alive(self) -> None:
        for role, process in self._running.items():
            if process.poll() is not None:
                raise ServiceUnavailable(f"{role} has ended by itself: see {self.folder / role}.log")

    def _start(self, role: str) -> "subprocess.Popen[bytes]":
        own = [str(self.settings(role)), str(self.trouble)]
        with (self.folder / f"{role}.log").open("a") as log:
            command = [sys.executable, "-m", "crowdfl_lab.soak", "--serve", role, *own]
            return subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 -- this very program

    def _end(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait()


@dataclass
class Seen:
    """What the run has come across; several threads tell it."""

    started: float = field(default_factory=time.monotonic)
    campaigns: Counter[str] = field(default_factory=Counter)  # by how they ended
    rounds: Counter[str] = field(default_factory=Counter)
    passing: Counter[str] = field(default_factory=Counter)  # errors that a phone tries again after
    wrong: list[str] = field(default_factory=list)
    troubles: Counter[str] = field(default_factory=Counter)
    samples: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)

    def sample(self, what: str, unit: str, value: float) -> None:
        """Once the servers are warm: a round was rewarded."""
        if not self.rounds["rewarded"]:
            return
        self.samples.setdefault((what, unit), []).append((time.monotonic() - self.started, value))


@contextmanager
def campaign(own: RequesterFile, bank: str, seen: Seen, number: int) -> Iterator["Campaign"]:
    with open_requester(own, Backoff(deadline=_LONGEST)) as requester, ExitStack() as stack:
        kgc = KgcClient(own.link(own.settings.kgc).open())
        sp = SpClient(own.link(own.settings.sp).open())
        cashier = SpClient(own.link(own.settings.sp).open(Bearer(bank), Backoff(deadline=_LONGEST)))
        for client in (kgc, sp, cashier):
            stack.enter_context(closing(client))
        yield Campaign(requester, cashier, kgc, sp, own.settings.kgc_key, seen, number)


@dataclass
class Campaign:
    """One task from its definition to its settlement."""

    requester: Requester
    cashier: SpClient
    kgc: KgcClient
    sp: SpClient
    kgc_key: bytes
    seen: Seen
    number: int
    closed: dict[int, float] = field(default_factory=dict)  # when a round was first seen to be no longer open

    def play(self) -> None:
        until, zeros = time.monotonic() + _LONGEST, [np.zeros(_PARAMETERS)]
        task = self._patiently(until, lambda: self.requester.create(self._definition(), zeros))
        name = self._patiently(until, lambda: self.requester.fund(task, _ROUNDS * _BUDGET, "all"))
        self._patiently(until, lambda: self.cashier.confirm_deposit(task, name, _ROUNDS * _BUDGET, "EUR"))
        invitations = self._patiently(until, lambda: self.requester.invite(task, _PEOPLE, 86400.0))
        tools = Tools.unwatched()
        people = [
            Participant(task, MemoryBlobs(), self.kgc, self.sp, self.kgc_key, tools, least_participants=1)
            for _ in invitations
        ]
        for person, invitation in zip(people, invitations, strict=True):
            self._patiently(until, partial(person.join, invitation))
        self._rounds(task, people, until)
        for person in people:
            self._patiently(until, person.claim)
        while self._status(task, until)["state"] != "settled":
            time.sleep(1.0)
        self._check(task, people, until)
        self.seen.campaigns["settled, and the books balance"] += 1

    def _definition(self) -> Definition:
        sizes = {"max_participants": _PEOPLE, "min_participants": 3, "max_samples": 20, "decimals": 3, "clip": 2.0}
        times = {"rounds": _ROUNDS, "window": _WINDOW, "late": 10.0}
        settings = TaskSettings.of(profile="shares", lanes=256, budget=str(_BUDGET // 10**6), **sizes | times)
        shape = ModelShape.of({"w": np.zeros(_PARAMETERS)})
        return Definition(f"soak {self.number}", "none", "nobody", shape, settings, _TO_CLAIM, {})

    def _rounds(self, task: str, people: list[Participant], until: float) -> None:
        """The first is gone after its first upload, the last comes when the first round is over."""
        while (status := self._status(task, until))["state"] == "running":
            self._note(status)
            done = sum(one["state"] in ("rewarded", "aborted") for one in status["rounds"])
            for person in people[1 if done else 0 : None if done else -1]:
                try:
                    person.step(partial(_trained, self.number))
                except CrowdFLError as refusal:  # a server is being started again, or has no disk: phones come back
                    self.seen.passing[type(refusal).__name__] += 1
            time.sleep(0.5)
        self._note(status)

    def _note(self, status: Mapping[str, Any]) -> None:
        for one in status["rounds"]:
            if one["state"] != "open" and one["number"] not in self.closed:
                self.closed[one["number"]] = time.monotonic()
                self.seen.rounds["closed"] += 1
            if one["state"] in ("rewarded", "aborted") and self.closed[one["number"]] > 0:
                took, self.closed[one["number"]] = time.monotonic() - self.closed[one["number"]], 0.0
                self.seen.rounds[one["state"]] += 1
                self.seen.sample(_ROUND, "s", took)

    def _check(self, task: str, people: list[Participant], until: float) -> None:
        """What went in has come back, or was paid to those who earned it."""
        moves = self._patiently(until, lambda: self.requester.sp.movements(task))
        given = sum(one["amount"] for one in moves if one["source"] == "requester")
        back = sum(one["amount"] for one in moves if one["target"] == "requester")
        paid = sum(person.claimed.booked or 0 for person in people)
        if given != _ROUNDS * _BUDGET or given - back != paid:
            raise ServiceUnavailable(f"campaign {self.number}: {given} went in, {back} came back, {paid} was paid")

    def _status(self, task: str, until: float) -> dict[str, Any]:
        return self._patiently(until, lambda: self.sp.status(task))  # type: ignore[no-any-return]

    def _patiently(self, until: float, act: Callable[[], Any]) -> Any:  # noqa: ANN401 -- whatever it returns
        while True:
            try:
                return act()
            except (CrowdFLError, OSError) as refusal:
                if time.monotonic() > until:
                    raise
                self.seen.passing[type(refusal).__name__] += 1
                time.sleep(1.0)


def _trained(number: int, model: Weights, _training: Mapping[str, Any], round_number: int) -> tuple[Weights, int]:
    draw = np.random.default_rng([number, round_number])
    return [array + draw.integers(-9, 10, array.shape) / 1000 for array in model], int(draw.integers(1, 20))


def _campaigns(servers: Servers, bank: str, seen: Seen, over: threading.Event, first: int) -> None:
    own, number = RequesterFile.read(servers.settings("requester")), first
    while not over.is_set():
        try:
            with campaign(own, bank, seen, number) as made:
                made.play()
        except Exception as wrong:  # noqa: BLE001 -- the report says so
            seen.campaigns["failed"] += 1
            seen.wrong.append(f"campaign {number}: {type(wrong).__name__} {wrong}")
        number += _AT_ONCE


def _disturb(servers: Servers, seen: Seen, over: threading.Event, seed: int) -> None:
    """One thing after the other, with rests between them; the last is over before the campaigns are."""
    draw = random.Random(seed)  # noqa: S311
    full = servers.trouble / "full"
    clock = servers.trouble / "clock"
    while not over.wait(draw.uniform(5.0, 20.0)):
        what = draw.choice(["kill", "kill", "kill", "clock", "disk"])
        seen.troubles[{"kill": "processes killed", "clock": "jumps of the clock", "disk": "full disks"}[what]] += 1
        if what == "kill":
            servers.kill(draw.choice(ROLES))
        elif what == "disk":
            full.touch()
            over.wait(draw.uniform(2.0, 6.0))
            full.unlink()
        else:
            clock.write_text(str(draw.choice([-7200.0, -30.0, 30.0, 7200.0])))
            over.wait(draw.uniform(2.0, 6.0))
            clock.unlink()


def _watch(servers: Servers, seen: Seen, over: threading.Event) -> None:
    while not over.wait(_SAMPLE_SECONDS):
        seen.sample(_LOAD, "", os.getloadavg()[0])
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import ssl"], check=True)
        seen.sample(_START, "s", time.monotonic() - began)
        for role in ROLES:
            folder, pid = servers.folder / "roles" / role, servers.pid(role)
            seen.sample(f"{role}: memory", "B", family_bytes("VmRSS", pid))
            if Path(f"/proc/{pid}/fd").exists():
                seen.sample(f"{role}: descriptors", "", len(os.listdir(f"/proc/{pid}/fd")))
            files = [path.stat().st_size for path in folder.glob("state.db*") if path.exists()]
            seen.sample(f"{role}: database, for a campaign", "B", sum(files) / max(1, seen.campaigns.total()))


def _held(servers: Servers) -> dict[str, int]:
    """Secrets of tasks that a role still holds."""
    found = {}
    for role in ROLES:
        with open_retention(
            servers.read(role),
        ) as retention:
            found[role] = sum(secrets_of(counts).total() for counts in retention.held().values())
    return found


def soak(minutes: float, seed: int, say: Callable[[str], None]) -> Result:
    where, seen, over = machine(), Seen(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="crowdfl-soak-") as folder, ExitStack() as stack:
        servers = Servers(Path(folder), stack)
        with open_requester(RequesterFile.read(servers.settings("requester"))):
            pass  # its key is made, once
        bank = Tokens(servers.folder / "roles/sp/tokens.json").add("bank", "bank")
        threads = [
            threading.Thread(target=_campaigns, args=(servers, bank, seen, over, first)) for first in range(_AT_ONCE)
        ]
        beside = [threading.Thread(target=_disturb, args=(servers, seen, over, seed))]
        watching = threading.Event()
        watcher = threading.Thread(target=_watch, args=(servers, seen, watching))
        for thread in (*threads, *beside, watcher):
            thread.start()
        while time.monotonic() - seen.started < minutes * 60:
            time.sleep(min(30.0, minutes * 60))
            say(
                f"{seen.campaigns.total()} campaigns, {seen.rounds['rewarded']} rounds, {seen.troubles.total()} troubles"
            )
        over.set()
        for thread in (*beside, *threads):
            thread.join()
        watching.set()
        watcher.join()
        servers.require_alive()
        looks = Backoff.steady(1.0, deadline=180.0).start()
        while any((held := _held(servers)).values()) and looks.wait():
            pass
    return _result(seen, held, where, minutes)


def _thirds(samples: list[tuple[float, float]], begin: float, length: float) -> list[float]:
    parts = [[value for at, value in samples if (at - begin) // length == part] for part in range(_PARTS)]
    return [statistics.median(part) if part else 0.0 for part in parts]


def _result(seen: Seen, held: Mapping[str, int], where: Mapping[str, str | int], minutes: float) -> Result:
    ran = time.monotonic() - seen.started
    rows, grown = [], []
    begin = min((samples[0][0] for samples in seen.samples.values()), default=0.0)
    thirds = {key: _thirds(samples, begin, (ran - begin) / _PARTS) for key, samples in seen.samples.items()}
    start = thirds.get((_START, "s"), [1.0])
    for (what, unit), middles in thirds.items():
        # A machine that other programs make slower slows rounds as it slows a bare start: that is not ours.
        machine_slower = max(1.0, start[-1] / start[0]) if what == _ROUND and start[0] else 1.0
        flat = middles[-1] <= middles[0] * _MAY_GROW * machine_slower + _ROOM[unit]
        grown += [] if flat or not middles[0] or what in (_LOAD, _START) else [what]
        rows.append((what, *(Figure(middle, unit) for middle in middles), "yes" if flat else "NO"))  # type: ignore[arg-type]
    counts = [("campaigns", seen.campaigns), ("rounds", seen.rounds), ("troubles", seen.troubles)]
    counts += [("errors that clients tried again after", seen.passing)]
    happened = [(kind, what, count) for kind, counted in counts for what, count in sorted(counted.items())]
    happened += [("secrets of ended tasks", role, count) for role, count in held.items()]
    tables = (
        ResultTable("What happened", ("kind", "what", "how many"), tuple(happened)),
        ResultTable("Medians of the first, second and last third", ("what", "1", "2", "3", "flat"), tuple(rows)),
    )
    wrong = [*seen.wrong, *(f"{what} has grown" for what in grown)]
    wrong += [f"{role} holds {count} secrets of ended tasks" for role, count in held.items() if count]
    notes = (
        f"{ran / 60:.1f} minutes, of which {minutes:g} with troubles; medians from minute {begin / 60:.1f} on",
        *(wrong or (_FINE,)),
    )
    return Result(
        "soak", "A soak", dict(where), {}, (), tables=tables, notes=notes, command=f"make soak MINUTES={minutes:g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("crowdfl-soak"))
    parser.add_argument("--serve", nargs=3, metavar=("ROLE", "SETTINGS", "TROUBLE"))
    given = parser.parse_args()
    if given.serve:
        serve(given.serve[0], given.serve[1], Path(given.serve[2]))
        return
    result = soak(given.minutes, given.seed, progress_to_stderr())
    deliver(result, out=given.out)
    sys.exit(0 if result.notes[-1] == _FINE else 1)


if __name__ == "__main__":
    main()
