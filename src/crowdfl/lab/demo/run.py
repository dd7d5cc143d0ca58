"""`crowdfl demo`: a whole campaign. Every role a process of its own, ten real people's data, a dropout, one who vanishes."""

import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crowdfl.cli.task.files import template
from crowdfl.errors import ServiceUnavailable
from crowdfl.lab.demo.plain import Plain, plain_fedavg
from crowdfl.lab.demo.processes import Processes
from crowdfl.lab.demo.report import FinishedCampaign, campaign_result, write_page
from crowdfl.lab.report.output import print_result

__all__ = ["demo"]

_PEOPLE = 10
_DROPS, _DROP_ROUND = 3, 2  # person 3 trains in round 2, loses the connection, and sends again after the window
_VANISHES = 8  # person 8 is never heard of again after its first upload
_ROUNDS = 3
_PATIENCE = 1800.0  # seconds; a campaign that takes longer is stuck


@dataclass(frozen=True)
class _Pace:
    """How long rounds wait. One of the ten vanishes, so rounds 2 and 3 always wait to their end: as short as is safe.

    `unit` is what `crowdfl init` took here just now, mostly the start of a program: about 2 s on a quiet machine. In a round
    each of ten people trains and encrypts for about half a unit, two at a time; whoever is slower than the window is late and
    still counts within the grace, and below three uploads a round waits for another window: 12 units before it is given up.
    """

    window: float  # long enough for everyone who is there
    grace: float  # long enough for one to start again after the window, and send
    claims: float  # long enough for nine people to claim

    @classmethod
    def of(cls, unit: float) -> "_Pace":
        return cls(max(8.0, 4 * unit), max(8.0, 4 * unit), max(15.0, 6 * unit))


@dataclass
class _RunningCampaign:
    """What is going on, as the processes tell it."""

    processes: Processes
    console: Console
    started: float = field(default_factory=time.monotonic)
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    held: int | None = None  # the round in which the one who drops out has not sent its upload
    plain: "Future[Plain] | None" = None

    @property
    def folder(self) -> Path:
        return self.processes.folder

    def say(self, what: str) -> None:
        self.console.print(
            f"[dim]{time.monotonic() - self.started:6.1f} s[/dim]  {what}", highlight=False, soft_wrap=True
        )

    def start(self, name: str, *command: str) -> None:
        self.say(f"{name}: process {self.processes.start(name, *command)}")

    def start_person(self, person: int, hold: int = 0) -> None:
        """A participant, with its own data alone."""
        invitation, home = self.folder / "invitations" / f"invitation-{person}.json", self.folder / f"person-{person}"
        options = ("--data", f"watch:{person}", "--home", str(home), "--yes", "--json", "--hold-upload", str(hold))
        self.start(f"person {person}", "participant", "run", str(invitation), *options)

    def wait_for(self, event: str) -> dict[str, Any]:
        """Follow the campaign until the requester says so."""
        while True:
            if time.monotonic() - self.started > _PATIENCE:
                raise ServiceUnavailable(
                    f"nothing like {event!r} within {_PATIENCE:.0f} s; see the logs in {self.folder}"
                )
            self.processes.require_alive("kgc", "sp", "csp", "requester")
            self._come_back()
            heard = self.processes.next_event()
            if heard is None:
                continue
            self.heard.append(heard)
            self._react(*heard)
            if heard[0] == "requester" and heard[1]["event"] == event:
                return heard[1]

    def _react(self, name: str, event: dict[str, Any]) -> None:
        what = event["event"]
        if what == "status":
            self._show_status(event)
        elif what == "holding":
            self.processes.kill(name)
            self.held = event["round"]
            self.say(f"{name} lost its connection before its upload of round {event['round']} was sent")
        elif what == "uploaded" and name == f"person {_VANISHES}":
            self.processes.kill(name)
            self.say(f"{name} has vanished for good")
        elif what in ("refused", "not paid", "waiting"):
            self.say(f"{name}: {event['why']}")

    def _show_status(self, status: dict[str, Any]) -> None:
        rounds = [f"round {r['number']} {r['state']} ({r['uploads']} uploads)" for r in status["rounds"]]
        self.say(f"{status['state']}; {', '.join(rounds[-2:]) or str(status['enrolled']) + ' have joined'}")
        self.status = status
        if status["state"] == "finished" and self.plain is None:
            # The servers have nothing left to compute: the comparison does not slow the campaign.
            self.plain = ThreadPoolExecutor(1).submit(plain_fedavg, self.folder / "task.toml", list(self.heard))

    def _come_back(self) -> None:
        """The one who dropped out starts again once the window is over: late, within the grace."""
        if self.held is None:
            return
        rounds = {entry["number"]: entry for entry in self.status.get("rounds", [])}
        entry = rounds.get(self.held)
        if entry is not None and time.time() > entry["deadline"]:
            self.say(f"person {_DROPS} is back and sends its upload again, late")
            self.held = None
            self.start_person(_DROPS)


def demo(
    out: Annotated[Path, typer.Option(help="Where to keep everything the campaign writes.")] = Path("crowdfl-demo"),
) -> None:
    """Run a campaign of three rounds over TLS on this machine, and report what everyone saw."""
    console = Console()
    folder = (out / time.strftime("%Y%m%d-%H%M%S")).absolute()
    folder.mkdir(parents=True, mode=0o700)
    campaign = _RunningCampaign(Processes(folder), console)
    try:
        finished = _run(campaign)
    finally:
        campaign.processes.stop()
    finished.seconds = time.monotonic() - campaign.started
    result = campaign_result(finished)
    path = write_page(finished, result)
    print_result(result, console)
    console.print(f"{time.monotonic() - campaign.started:.0f} s in all. Report: {path}", soft_wrap=True)


def _run(campaign: _RunningCampaign) -> FinishedCampaign:
    folder = campaign.folder
    campaign.say(f"a campaign in {folder}")
    campaign.processes.run("init", str(folder / "roles"), *_port_options())
    pace = _Pace.of(time.monotonic() - campaign.started)
    for role in ("kgc", "csp", "sp"):
        campaign.start(role, role, "serve", str(folder / "roles" / role / "settings.toml"))
    (folder / "task.toml").write_text(_task_file(pace))
    places = (str(folder / "task.toml"), str(folder / "invitations"), str(folder / "model.npz"))
    settings = str(folder / "roles" / "requester" / "settings.toml")
    campaign.start("requester", "task", "run", *places, "--people", str(_PEOPLE), "--json", "--settings", settings)
    task = campaign.wait_for("created")["task"]
    campaign.say(f"the requester posted task {task}")
    campaign.wait_for("invited")
    for person in range(_PEOPLE):
        campaign.start_person(person, hold=_DROP_ROUND if person == _DROPS else 0)
    report = campaign.wait_for("report")
    plain = campaign.plain.result() if campaign.plain is not None else Plain({}, {}, {})
    return FinishedCampaign(folder, task, campaign.heard, report, _ROUNDS, _DROPS, _VANISHES, plain)


def _task_file(pace: _Pace) -> str:
    changes = {
        "window = 3600.0 ": f"window = {pace.window:.1f} ",
        "grace = 600.0 ": f"grace = {pace.grace:.1f} ",
        "lanes = 1024 ": "lanes = 112 ",
        "claim_window = 604800.0 ": f"claim_window = {pace.claims:.1f} ",
    }
    text = template
    for before, after in changes.items():
        text = text.replace(before, after)
    return text


def _port_options() -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [str(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    pairs = zip(("--kgc-port", "--sp-port", "--csp-port"), ports, strict=True)
    return [part for pair in pairs for part in pair]
