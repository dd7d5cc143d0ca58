"""Processes of a demo, one for each role: what each says on standard output is heard, and its log is a file of its name."""

import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console

from crowdfl.errors import ServiceUnavailable, SettingsError

_PROGRAM = (sys.executable, "-m", "crowdfl")
_LOOK_SECONDS = 0.25


@dataclass
class CampaignProcesses:
    """The roles and people of one campaign; a demo reacts to what they say."""

    folder: Path
    console: Console
    patience: float = inf  # seconds; a campaign that takes longer is stuck
    names_processes: bool = True
    started: float = field(default_factory=time.monotonic)
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    reached: dict[tuple[int, str], float] = field(default_factory=dict)  # when each round was first in a state
    _told: set[str] = field(default_factory=set)
    _running: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict, repr=False)
    _events: "queue.Queue[tuple[str, dict[str, Any]]]" = field(default_factory=queue.Queue, repr=False)

    @property
    def roles(self) -> Path:
        return self.folder / "roles"

    def react(self, name: str, event: dict[str, Any]) -> None:
        """Whoever says something; for a demo to fill in."""

    def look(self) -> None:
        """Between two things said; for a demo to fill in."""

    def say(self, what: str) -> None:
        passed = f"[dim]{time.monotonic() - self.started:6.1f} s[/dim]"
        self.console.print(f"{passed}  {what}", highlight=False, soft_wrap=True)

    def say_once(self, words: str, about: str) -> None:
        if about not in self._told:
            self._told.add(about)
            self.say(words)

    def show_status(self, status: dict[str, Any], people: int) -> None:
        for entry in status["rounds"]:
            self.reached.setdefault((entry["number"], entry["state"]), time.monotonic())
        words, seconds = stage(status, people, time.time(), self.reached)
        self.say_once(words + seconds, words)
        self.status = status

    def post_task(self, task: str, people: int) -> str:
        """Start the servers and the requester; the task's id, once everyone is invited."""
        for role in ("kgc", "csp", "sp"):
            self.start(role, role, "serve", str(self.roles / role / "settings.toml"))
        (self.folder / "task.toml").write_text(task)
        places = (str(self.folder / name) for name in ("task.toml", "invitations", "model.npz"))
        options = ("--people", str(people), "--json", "--settings", str(self.roles / "requester/settings.toml"))
        self.start("requester", "task", "run", *places, *options)
        name = str(self.wait_for("created")["task"])
        self.say(f"the requester posted task {name}")
        self.wait_for("invited")
        return name

    def start_person(self, person: int, data: str, *options: str) -> None:
        invitation, home = self.folder / f"invitations/invitation-{person}.json", self.folder / f"person-{person}"
        options = ("--data", data, "--home", str(home), "--yes", "--json", *options)
        self.start(f"person {person}", "participant", "run", str(invitation), *options)

    def start(self, name: str, *command: str) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with self._log(name).open("a") as log:
            process = subprocess.Popen(  # noqa: S603 -- this very program
                [*_PROGRAM, *command], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self._running[name] = process
        threading.Thread(target=self._listen, args=(name, process), daemon=True).start()
        if self.names_processes:
            self.say(f"{name}: process {process.pid}")

    def stop(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        for process in self._running.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait_for(self, event: str) -> dict[str, Any]:
        while True:
            if time.monotonic() - self.started > self.patience:
                raise ServiceUnavailable(
                    f"nothing like {event!r} within {self.patience:.0f} s; see the logs in {self.folder}"
                )
            for name in ("kgc", "sp", "csp", "requester"):
                if (failure := self.failure_of(name)) is not None:
                    raise ServiceUnavailable(failure)
            self.look()
            try:
                heard = self._events.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            self.heard.append(heard)
            self.react(*heard)
            if heard[0] == "requester" and heard[1]["event"] == event:
                return heard[1]

    def failure_of(self, name: str) -> str | None:
        """How a process has failed, with the last line of its log; None if it has not."""
        process = self._running.get(name)
        if process is None or process.poll() in (None, 0):
            return None
        last = self._log(name).read_text().strip().splitlines()[-1:]
        return f"{name} has ended with {process.returncode}: {' '.join(last)}"

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()

    def confirm(self, funded: dict[str, Any]) -> None:
        """As SP's operator, whose money it is in this demo too."""
        sp, task = self.roles / "sp/settings.toml", self.status["task"]
        _do("sp", "deposit", "confirm", str(sp), task, funded["deposit"], funded["amount"], funded["currency"])
        self.say(f"the operator of SP has confirmed the deposit of {funded['amount']} {funded['currency']}")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"

    def _listen(self, name: str, process: "subprocess.Popen[str]") -> None:
        for line in process.stdout or ():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                self._events.put((name, event))


def set_up(roles: Path, *options: str) -> None:
    """Every role's folder; nobody waits a day for the end of a demo."""
    _do("init", str(roles), *options)
    settings = roles / "sp" / "settings.toml"
    settings.write_text(settings.read_text().replace('# min_claim_window = "1 day"', 'min_claim_window = "0 s"'))


def _do(*command: str) -> None:
    done = subprocess.run([*_PROGRAM, *command], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise ServiceUnavailable(f"crowdfl {' '.join(command)}: {done.stderr.strip()}")


def stage(
    status: Mapping[str, Any], people: int, now: float, reached: Mapping[tuple[int, str], float]
) -> tuple[str, str]:
    """What the campaign waits for, and for how many seconds, where somebody knows."""
    if not status["rounds"]:
        joined = status["enrolled"]
        return (f"{joined} of {people} have joined" if joined < people else "everyone has joined; round 1 opens"), ""
    last = status["rounds"][-1]
    number, came = last["number"], f"{last['uploads']} of {status['enrolled']} uploads have come"
    if status["state"] == "settled":
        return "settled: what nobody claimed has gone back to the requester", ""
    if last["state"] in ("open", "held"):
        left = last["last_call"] - now
        return f"round {number}: {came}", f"; late ones count too, for {left:.0f} s, or until all have come"
    if last["state"] in ("closed", "gathered", "published", "weighed"):
        began, ended = (reached.get((number - 1, state)) for state in ("closed", "rewarded"))
        before = f"; that took {ended - began:.0f} s in round {number - 1}" if began and ended else ""
        return f"round {number}: SP and CSP compute the average and the rewards of {last['uploads']}", before
    if status["state"] in ("finished", "cancelled"):
        left = status["claim_seconds_left"]
        return f"{status['state']}; people claim their rewards", "" if left is None else f" for another {left:.0f} s"
    return f"round {number} is over; the next one opens", ""


def task_file(profile: str, changes: Mapping[str, object]) -> str:
    """The one that `crowdfl task new` prints, with these values."""
    from crowdfl.cli.task.template import task_text

    text = task_text(profile)
    for name, value in changes.items():
        line = f"{name} = {json.dumps(value)}".replace("\\", r"\\")
        # The first of its name: [training] has a window too.
        text, found = re.subn(rf"^(# )?{name} = .*$", line, text, count=1, flags=re.MULTILINE)
        if not found:
            raise SettingsError(f"the task file has no `{name}`")
    return text


def port_options(host: str = "127.0.0.1") -> list[str]:
    """For `crowdfl init`: ports that are free now."""
    with ExitStack() as open_ports:
        names = "--kgc-port", "--sp-port", "--csp-port"
        sockets = {name: open_ports.enter_context(socket.create_server((host, 0))) for name in names}
        return [part for name, bound in sockets.items() for part in (name, str(bound.getsockname()[1]))]
