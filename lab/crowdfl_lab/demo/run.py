"""`crowdfl demo`: a whole campaign. Every role a process of its own, ten real people's data, a dropout, one who vanishes."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crowdfl.cli.task.views import task_text
from crowdfl.errors import SettingsError
from crowdfl.retry import Backoff
from crowdfl_lab.demo.finished import SERVERS, FinishedCampaign, KeySight, Plain, are_erased, plain_fedavg
from crowdfl_lab.demo.processes import CampaignProcesses, port_options
from crowdfl_lab.demo.report import DROPS, VANISHES, campaign_result, write_page
from crowdfl_lab.report.output import print_result

_PEOPLE = 10
_DROP_ROUND = 2
_PATIENCE = 1800.0  # seconds; a campaign that takes longer is stuck
_CHANGES = {  # to the task file that `crowdfl task new` prints
    "shares": {"# max_norm = 5.0": "max_norm = 20.0"},
    "hardened": {"lanes = 1024 ": "lanes = 112 "},
}


@dataclass
class _RunningCampaign(CampaignProcesses):
    """Ten people, of whom one drops out for a while and one vanishes."""

    profile: str = "shares"
    held: int | None = None  # the round in which the one who drops out has not sent its upload
    plain: "Future[Plain] | None" = None
    keys: KeySight | None = None

    def react(self, name: str, event: dict[str, Any]) -> None:
        what = event["event"]
        if what == "status":
            self._show_status(event)
        elif what == "holding":
            self.kill(name)
            self.held = event["round"]
            self.say(f"{name} lost its connection before its upload of round {event['round']} was sent")
        elif what == "funded":
            self.confirm(event)
        elif what == "uploaded" and name == f"person {VANISHES}":
            self.kill(name)
            self.say(f"{name} has vanished for good")
        elif what in ("refused", "not paid", "waiting"):
            self.say(f"{name}: {event['why']}")

    def _show_status(self, status: dict[str, Any]) -> None:
        rounds = [f"round {r['number']} {r['state']} ({r['uploads']} uploads)" for r in status["rounds"]]
        self.say(f"{status['state']}; {', '.join(rounds[-2:]) or str(status['enrolled']) + ' have joined'}")
        self.status = status
        if self.keys is None and status["rounds"]:  # dealt, and not erased yet
            self.keys = KeySight.of(self.roles, status["task"], self.profile)
        if status["state"] == "finished" and self.plain is None:
            # The servers have nothing left to compute: the comparison does not slow the campaign.
            self.plain = ThreadPoolExecutor(1).submit(plain_fedavg, self.folder / "task.toml", list(self.heard))

    def look(self) -> None:
        """The one who dropped out starts again once the window is over: late, within the grace."""
        if self.held is None:
            return
        deadlines = {entry["number"]: entry["deadline"] for entry in self.status.get("rounds", [])}
        if time.time() > deadlines.get(self.held, inf):
            self.say(f"person {DROPS} is back and sends its upload again, late")
            self.held = None
            self.start_person(DROPS, f"watch:{DROPS}")

    def play(self) -> FinishedCampaign:
        self.say(f"a campaign in {self.folder}")
        self.set_up(*port_options())
        task = self.post_task(_task_file(time.monotonic() - self.started, self.profile), _PEOPLE)
        for person in range(_PEOPLE):
            hold = _DROP_ROUND if person == DROPS else 0
            self.start_person(person, f"watch:{person}", "--hold-upload", str(hold))
        report = self.wait_for("report")
        plain = self.plain.result() if self.plain is not None else Plain()
        # SP tells the others that the task has ended; what is left after a minute, the report shows.
        looks = Backoff.steady(0.2, deadline=60.0).start()
        while not are_erased(self.roles, task) and looks.wait():
            pass
        if are_erased(self.roles, task):
            self.say("the task has ended: SP and CSP have erased their secrets")
        keys = self.keys or KeySight({}, dict.fromkeys(SERVERS, ()))  # no round was opened
        return FinishedCampaign(self.folder, task, self.heard, report, plain, keys, self.profile)


def demo(
    out: Annotated[Path, typer.Option(help="Where to keep everything the campaign writes.")] = Path("crowdfl-demo"),
    profile: Annotated[
        str, typer.Option(help='"shares" or "hardened": docs/shares.md says when to take which.')
    ] = "shares",
) -> None:
    """Run a campaign of three rounds over TLS on this machine, and report what everyone saw."""
    if profile not in _CHANGES:
        raise SettingsError(f"the demo runs the profile {' or '.join(_CHANGES)}, not {profile!r}")
    console = Console()
    folder = (out / time.strftime("%Y%m%d-%H%M%S")).absolute()
    folder.mkdir(parents=True, mode=0o700)
    campaign = _RunningCampaign(folder, console, _PATIENCE, profile=profile)
    try:
        finished = campaign.play()
    finally:
        campaign.stop()
    finished.seconds = time.monotonic() - campaign.started
    result = campaign_result(finished)
    path = write_page(finished, result)
    print_result(result, console)
    console.print(f"{time.monotonic() - campaign.started:.0f} s in all. Report: {path}", soft_wrap=True)


def _task_file(unit: float, profile: str) -> str:
    """How long rounds wait. One of the ten vanishes, so rounds 2 and 3 always wait to their end: as short as is safe.

    `unit` is what `crowdfl init` took here just now, mostly the start of a program: about 2 s on a quiet machine. In a round
    each of ten people trains and encrypts for about half a unit, two at a time; whoever is slower than the window is late and
    still counts within the grace, and below five uploads a round waits for another window: 12 units before it is given up.
    """
    wait = max(8.0, 4 * unit)  # for everyone who is there, and again for one to start after the window and send
    changes = {
        "window = 3600.0 ": f"window = {wait:.1f} ",
        "grace = 600.0 ": f"grace = {wait:.1f} ",
        "claim_window = 604800.0 ": f"claim_window = {max(15.0, 6 * unit):.1f} ",  # for nine people to claim
    }
    text = task_text(profile)
    for before, after in (changes | _CHANGES[profile]).items():
        text = text.replace(before, after)
    return text
