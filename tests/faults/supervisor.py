"""A campaign of real processes under a supervisor that starts each of them again when it dies."""

import json
import multiprocessing
import os
import secrets
import signal
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from crowdfl.roles.records import TaskState
from crowdfl.services.http.auth import Tokens
from crowdfl.storage.atomic import signing_key, write_private
from crowdfl.storage.sql import SqlStore
from tests.faults.child import CLAIM_WINDOW, PEOPLE, SHARES, Life, database_url, live
from tests.faults.durable import Kill
from tests.hosts import SMALL_TASK

__all__ = ["ROLES", "SERVERS", "Campaign"]

SERVERS = ("kgc", "csp", "sp")
CLIENTS = ("requester", *(f"person{number}" for number in range(PEOPLE)))
OPERATOR = "operator"  # of SP: works on SP's own files, to the end
ROLES = (*SERVERS, OPERATOR, *CLIENTS)
_LEASE = 31.0  # seconds until a dead SP's work is anyone's
_PATIENCE = 700.0  # seconds, on a busy machine: two campaigns in one test stay below its limit
_TOKENS = {"kgc": ("sp", "csp", "requester"), "sp": ("requester",), "csp": ("sp",)}  # who is let in where

_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["tests.faults.child"])


@dataclass
class Campaign:
    """Two rounds of three people; `kills` says how the processes of a role die, one life after the other.

    `armed` are deaths that await whichever life of a role gets there, once each.
    """

    folder: Path
    kills: Mapping[str, Sequence[Kill]] = field(default_factory=dict)
    armed: Mapping[str, Sequence[Kill]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=lambda: SHARES)
    servers: Sequence[str] = SERVERS  # "sp+2" is a second process of SP's on the same files and address
    restarts: bool = True
    in_pairs: bool = False  # the uploads of person1 and person2 arrive together, and share a commit
    elsewhere: Mapping[str, Any] = field(default_factory=dict)  # databases by role, and a bucket
    shots: int = 0  # servers that are killed, one after the other, wherever they are
    deaths: list[str] = field(default_factory=list)
    _next_shot: float = 0.0
    _tokens: dict[str, list[Kill]] = field(default_factory=dict)
    _lives: Counter[str] = field(default_factory=Counter)
    _processes: dict[str, BaseProcess] = field(default_factory=dict)
    _listeners: dict[str, socket.socket] = field(default_factory=dict)

    def run(self) -> None:
        """To the end: everyone has what is theirs, and the books are closed."""
        self._prepare()
        try:
            for role in (*self.servers, OPERATOR, *CLIENTS):
                self._start(role)
            self._watch(lambda: not any(role in self._processes for role in CLIENTS))
            self.put_clock_forward(2 * CLAIM_WINDOW + 61 * 86400.0)  # past the last day of claims
            store = SqlStore(database_url(self.folder, "sp"))
            self._watch(lambda: [task.state for task in store.tasks()] == [TaskState.SETTLED])
            self._watch(lambda: OPERATOR not in self._processes)  # every payment is made
            store.close()
            self._reap(0.2)  # one that died of the last step
        finally:
            self._end()

    def put_clock_forward(self, seconds: float) -> None:
        file = self.folder / "clock"
        write_private(file, str(float(file.read_text()) + seconds).encode(), overwrite=True)

    def steps(self, role: str, life: int = 0) -> list[str]:
        """What a process was about to make durable, in order."""
        return (self.folder / f"logs/{role}.{life}.steps").read_text().splitlines()

    def log(self) -> str:
        logs = sorted((self.folder / "logs").glob("*.[0-9]"))
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in logs)

    def _prepare(self) -> None:
        """As `crowdfl init` does."""
        (self.folder / "logs").mkdir(parents=True)
        (self.folder / "clock").write_text("0")
        (self.folder / "elsewhere.json").write_text(json.dumps(self.elsewhere))
        write_private(self.folder / "passphrase", b"of this campaign")
        (self.folder / "settings.json").write_text(json.dumps(SMALL_TASK | {"window": 1e4} | dict(self.settings)))
        for role in ROLES:
            (self.folder / role).mkdir(mode=0o700)
        for role, kills in self.armed.items():
            tokens = [self.folder / f"logs/{role}.{number}.token" for number in range(len(kills))]
            self._tokens[role] = [replace(kill, token=token) for kill, token in zip(kills, tokens, strict=True)]
            for token in tokens:
                token.touch()
        for service, callers in _TOKENS.items():
            self._listeners[service] = socket.create_server(("127.0.0.1", 0), backlog=100)
            tokens = Tokens(self.folder / service / "tokens.json")
            for caller in callers:
                write_private(self.folder / caller / f"{service}.token", tokens.add(caller, caller).encode())
        key = signing_key(self.folder / "kgc/signing.key")
        (self.folder / "kgc.pub").write_text(key.public.hex())

    def _start(self, role: str) -> None:
        life, deaths = self._lives[role], self.kills.get(role, ())
        kills = (*deaths[life : life + 1], *self._tokens.get(role, ()))
        urls = {name: f"http://127.0.0.1:{taken.getsockname()[1]}" for name, taken in self._listeners.items()}
        listener = self._listeners.get(role.partition("+")[0])
        self._lives[role] += 1
        process = _forking.Process(
            target=live, args=(Life(role, self.folder, life, urls, kills, listener, self.in_pairs),)
        )
        process.start()
        self._processes[role] = process

    def _watch(self, done: Any) -> None:
        until = time.monotonic() + _PATIENCE
        while not done():
            self._shoot()
            self._reap(0.05)
            assert time.monotonic() < until, f"the campaign hangs\n{self.log()}"

    def _shoot(self) -> None:
        """Once each has had time to be in the midst of something."""
        if self.shots and time.monotonic() > self._next_shot:
            shot = self._processes.get(secrets.choice(self.servers))
            if self._next_shot and shot is not None and shot.pid is not None:
                os.kill(shot.pid, signal.SIGKILL)
                self.shots -= 1
            self._next_shot = time.monotonic() + secrets.SystemRandom().uniform(0.5, 2.5)

    def _reap(self, seconds: float) -> None:
        ended = wait([process.sentinel for process in self._processes.values()], seconds)
        for role, process in list(self._processes.items()):
            if process.sentinel in ended:
                self._bury(role, process)

    def _bury(self, role: str, process: BaseProcess) -> None:
        process.join()
        del self._processes[role]
        if process.exitcode == 0 and role in (OPERATOR, *CLIENTS):
            return
        assert process.exitcode == -signal.SIGKILL, f"{role} ended by itself: {process.exitcode}\n{self.log()}"
        self.deaths.append(role)
        if role.startswith("sp"):
            self.put_clock_forward(_LEASE)
        if self.restarts:
            self._start(role)

    def _end(self) -> None:
        for process in self._processes.values():
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join()
        for listener in self._listeners.values():
            listener.close()
