"""`crowdfl demo`: a whole campaign. Every role a process of its own, ten real people's data, a dropout, one who vanishes."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crowdfl.cli.demo_report import Outcome, print_outcome, write_report
from crowdfl.cli.task import template
from crowdfl.errors import ServiceUnavailable
from crowdfl.protocols.settings import to_millionths

__all__ = ["demo"]

_PEOPLE = 10
_DROPS, _DROP_ROUND = 3, 2  # person 3 trains in round 2, loses the connection, and sends again after the window
_VANISHES = 8  # person 8 is never heard of again after its first upload
_ROUNDS, _BUDGET = 3, "36.00"
_CLAIM_SECONDS = 12.0


@dataclass
class _Campaign:
    """The processes of a campaign, and what they said."""

    folder: Path
    console: Console
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    events: "queue.Queue[tuple[str, dict[str, Any]]]" = field(default_factory=queue.Queue)
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def start(self, name: str, *command: str) -> None:
        """A role as a process of its own; its events are listened to, its log goes to a file."""
        log = (self.folder / f"{name}.log").open("a")
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(  # noqa: S603 -- this very program
            [sys.executable, "-m", "crowdfl", *command],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
        self.processes[name] = process
        threading.Thread(target=self._listen, args=(name, process), daemon=True).start()
        self.console.print(f"  {name}: process {process.pid}")

    def run(self, *command: str) -> str:
        """A requester's command, to its end."""
        done = subprocess.run(  # noqa: S603 -- this very program
            [sys.executable, "-m", "crowdfl", *command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ServiceUnavailable(f"crowdfl {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def kill(self, name: str) -> None:
        """As a phone that is gone: no goodbye."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        """End what still runs."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            try:
                self.events.put((name, json.loads(line)))
            except ValueError:
                continue


def demo(
    out: Annotated[Path, typer.Option(help="Where to keep everything the campaign writes.")] = Path("crowdfl-demo"),
) -> None:
    """Run a campaign of three rounds over TLS on this machine, and report what everyone saw."""
    console = Console()
    folder = (out / time.strftime("%Y%m%d-%H%M%S")).absolute()
    folder.mkdir(parents=True, mode=0o700)
    campaign = _Campaign(folder, console)
    started = time.monotonic()
    try:
        outcome = _run(campaign)
    finally:
        campaign.stop()
    outcome.seconds = time.monotonic() - started
    print_outcome(outcome, console)
    console.print(f"Report: {write_report(outcome, folder)}")


def _run(campaign: _Campaign) -> Outcome:
    folder, console = campaign.folder, campaign.console
    console.print(f"A campaign in {folder}")
    ports = _free_ports(3)
    campaign.run("init", str(folder / "roles"), *_port_options(ports))
    for role in ("kgc", "csp", "sp"):
        campaign.start(role, role, "serve", str(folder / "roles" / role / "settings.toml"))
    settings = ("--settings", str(folder / "roles" / "requester" / "settings.toml"))
    (folder / "task.toml").write_text(_task_file())
    task = _patiently(lambda: campaign.run("task", "create", str(folder / "task.toml"), *settings))
    console.print(f"  requester posted task {task}")
    campaign.run("task", "invite", task, str(folder / "invitations"), "-n", str(_PEOPLE), *settings)
    for person in range(_PEOPLE):
        _start_person(campaign, person, hold=_DROP_ROUND if person == _DROPS else 0)
    _wait(campaign, lambda: sum(e["event"] == "joined" for _, e in campaign.heard) >= _PEOPLE, 90)
    campaign.run("task", "fund", task, str(_ROUNDS * to_millionths(_BUDGET) // 10**6), "--name", "all", *settings)
    campaign.start("requester", "task", "watch", task, "--until", "finished", "--json", *settings)
    _follow(campaign)
    campaign.run("task", "watch", task, "--until", "settled", *settings)
    campaign.run("task", "fetch", task, str(folder / "model.npz"), *settings)
    report = json.loads(campaign.run("task", "report", task, "--json", *settings))
    return Outcome(folder, task, campaign.heard, report, _ROUNDS, to_millionths(_BUDGET), _DROPS, _VANISHES)


def _follow(campaign: _Campaign) -> None:
    """Until the task has ended and everyone who is still there was paid; the two faults happen on the way."""
    restart_at: float | None = None
    status: dict[str, Any] = {}
    deadline = time.monotonic() + 600
    paid: set[str] = set()
    while len(paid) < _PEOPLE - 1 and time.monotonic() < deadline:
        if restart_at is not None and time.time() >= restart_at:
            campaign.console.print(f"  person {_DROPS} is back and sends its upload again, late")
            _start_person(campaign, _DROPS, hold=0)
            restart_at = None
        heard = _next(campaign)
        if heard is None:
            continue
        name, event = heard
        if name == "requester":
            status = event
        elif event["event"] == "holding":
            campaign.kill(name)
            closes = next(r["deadline"] for r in status["rounds"] if r["number"] == event["round"])
            restart_at = closes + 0.5
            campaign.console.print(f"  {name} lost its connection before its upload of round {event['round']} was sent")
        elif event["event"] == "uploaded" and name == f"person {_VANISHES}":
            campaign.kill(name)
            campaign.console.print(f"  {name} has vanished for good")
        elif event["event"] == "paid":
            paid.add(name)


def _next(campaign: _Campaign) -> tuple[str, dict[str, Any]] | None:
    try:
        name, event = campaign.events.get(timeout=0.5)
    except queue.Empty:
        return None
    campaign.heard.append((name, event))
    if name == "requester":
        rounds = ", ".join(f"{r['number']} {r['state']} ({r['uploads']})" for r in event["rounds"])
        campaign.console.print(f"  [dim]{time.strftime('%H:%M:%S')}[/dim] {event['state']}; rounds: {rounds or '-'}")
    return name, event


def _wait(campaign: _Campaign, done: Any, seconds: float) -> None:  # noqa: ANN401 -- a question without arguments
    deadline = time.monotonic() + seconds
    while not done():
        _next(campaign)
        if time.monotonic() > deadline:
            raise ServiceUnavailable(f"the participants did not join within {seconds:.0f} s; see their logs")


def _patiently(command: Any) -> str:  # noqa: ANN401
    """The services may still be starting."""
    for _ in range(20):
        try:
            return str(command())
        except ServiceUnavailable:
            time.sleep(1.0)
    return str(command())


def _start_person(campaign: _Campaign, person: int, hold: int) -> None:
    invitation = campaign.folder / "invitations" / f"invitation-{person}.json"
    home = campaign.folder / f"person-{person}"
    options = ("--data", f"watch:{person}", "--home", str(home), "--json", "--hold-upload", str(hold))
    campaign.start(f"person {person}", "participant", "run", str(invitation), *options)


def _task_file() -> str:
    changes = {
        "window = 3600.0": "window = 15.0",
        "grace = 600.0": "grace = 10.0",
        "lanes = 1024": "lanes = 112",
        "claim_window = 604800.0": f"claim_window = {_CLAIM_SECONDS}",
    }
    text = template
    for before, after in changes.items():
        text = text.replace(before, after)
    return text


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _port_options(ports: list[int]) -> tuple[str, ...]:
    return tuple(
        part for role, port in zip(("kgc", "sp", "csp"), ports, strict=True) for part in (f"--{role}-port", str(port))
    )
