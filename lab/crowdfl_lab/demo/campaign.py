"""The demo's campaign: every role a process of its own, real people's data, a dropout, one who vanishes."""

import datetime
import time
import tomllib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console

from crowdfl.campaigns.report import TaskReport
from crowdfl.durations import duration
from crowdfl.errors import NotReady
from crowdfl.learning.training import LocalTrainer
from crowdfl.retry import Backoff
from crowdfl.services.client.opening import RequesterFile, open_requester
from crowdfl.settings import UNTIL_PUBLISHED
from crowdfl.web.requester_console.model_evaluation import ModelEvaluation
from crowdfl_lab.demo.both import HARDENED_LANES, BothRounds, both_words, play_both
from crowdfl_lab.demo.finished import SERVERS, FinishedCampaign, KeySight, are_erased
from crowdfl_lab.demo.motion import SMALL_DATA, SMALL_LABELS, write_small
from crowdfl_lab.demo.plain import Plain, plain_fedavg, row_of
from crowdfl_lab.demo.processes import CampaignProcesses, port_options, set_up, task_file
from crowdfl_lab.demo.report import DROPS, campaign_result, write_page
from crowdfl_lab.report.output import print_result

_DROP_ROUND = 2
_PATIENCE = 1800.0  # seconds; a campaign that takes longer is stuck


@dataclass(frozen=True)
class _Plan:
    """What is played of one profile; `changes` are to the task file that `crowdfl task new` prints."""

    changes: Mapping[str, object]
    people: int = 10
    rounds: int = 3
    is_small: bool = False

    @property
    def vanishes(self) -> int:
        """The person who is not heard of from its first upload to the end."""
        return self.people - 2

    def data(self, folder: Path, person: int) -> str:
        return f"npz:{folder / SMALL_DATA}#{person}" if self.is_small else f"watch:{person}"


_PLANS = {
    "shares": _Plan({"max_norm": 20.0}),
    "hardened": _Plan({"lanes": HARDENED_LANES}),
    # A division for each weight, and a product for each weight and person: 20 weights are what a demo has time for.
    "paper": _Plan(
        {"rounds": 2, "channels": 1, "labels": SMALL_LABELS, "learner": "softmax", "late": UNTIL_PUBLISHED},
        7,
        2,
        is_small=True,
    ),
}


@dataclass
class _RunningCampaign(CampaignProcesses):
    """Some people, of whom one drops out for a while and one vanishes."""

    profile: str = "shares"
    plan: _Plan = _PLANS["shares"]
    gone: bool = False  # the one who vanishes
    held: int | None = None  # the round in which the one who drops out has not sent its upload
    wait: float = 0.0  # seconds of a round's window, and again for late uploads
    plain: "Future[Plain] | None" = None
    keys: KeySight | None = None

    def react(self, name: str, event: dict[str, Any]) -> None:
        what = event["event"]
        if what == "status":
            self._look_on(event)
        elif what == "holding":
            self.kill(name)
            self.held = event["round"]
            self.say(f"{name} lost its connection before its upload of round {event['round']} was sent")
        elif what == "funded":
            self.confirm(event)
        elif what == "uploaded" and name == f"person {self.plan.vanishes}":
            self.kill(name)
            self.gone = True
            self.say(f"{name} has vanished")
        elif what in ("refused", "not paid", "waiting"):
            self.say_once(f"{name}: {event['why']}", event["why"])

    def _look_on(self, status: dict[str, Any]) -> None:
        self.show_status(status, self.plan.people)
        if self.keys is None and status["rounds"]:  # dealt, and not erased yet
            self.keys = KeySight.of(self.roles, status["task"], self.profile)
        if status["state"] == "finished" and self.gone:
            self.gone = False
            self.say(f"person {self.plan.vanishes} is back, after the end, and claims what it has earned")
            self.start_person(self.plan.vanishes, self.plan.data(self.folder, self.plan.vanishes))
        if status["state"] == "finished" and self.plain is None:
            # The servers have nothing left to compute: the comparison does not slow the campaign.
            self.plain = ThreadPoolExecutor(1).submit(
                plain_fedavg, self.folder / "task.toml", list(self.heard), partial(self.plan.data, self.folder)
            )

    def look(self) -> None:
        """The one who dropped out starts again once the window is over: late, and still taken."""
        if self.held is None:
            return
        ends = {entry["number"]: entry["last_call"] for entry in self.status.get("rounds", [])}
        if time.time() > ends.get(self.held, inf) - self.wait:
            self.say(f"person {DROPS} is back and sends its upload again, late")
            self.held = None
            self.start_person(DROPS, self.plan.data(self.folder, DROPS))

    def play(self) -> FinishedCampaign:
        plan, gone = self.plan, f"person {DROPS} loses its connection in round {_DROP_ROUND}"
        self.say(
            f"{plan.people} people, {plan.rounds} rounds, profile {self.profile}; {gone}, person {plan.vanishes} vanishes"
        )
        self.say(f"everything is kept in {self.folder}, with a log of each process")
        set_up(self.roles, *port_options())
        if self.plan.is_small:
            write_small(self.folder / SMALL_DATA, self.plan.people)
        data, changes = self.plan.data(self.folder, 0), dict(self.plan.changes)
        unit = training_seconds(task_file(self.profile, changes), data)
        self.wait = window_seconds(unit)
        text = task_file(self.profile, waits(unit) | changes)
        task = self.post_task(text, self.plan.people)
        for person in range(self.plan.people):
            hold = _DROP_ROUND if person == DROPS else 0
            self.start_person(person, self.plan.data(self.folder, person), "--hold-upload", str(hold))
        report = self.wait_for("report")
        plain = self.plain.result() if self.plain is not None else Plain()
        # SP tells the others that the task has ended; what is left after a minute, the report shows.
        looks = Backoff.steady(0.2, deadline=60.0).start()
        while not are_erased(self.roles, task) and looks.wait():
            pass
        if are_erased(self.roles, task):
            self.say("the task has ended: SP and CSP have erased their secrets")
        keys = self.keys or KeySight({}, dict.fromkeys(SERVERS, ()))  # no round was opened
        facts = self.profile, self.plan.rounds, self.plan.vanishes
        return FinishedCampaign(self.folder, task, self.heard, report, plain, keys, *facts)

    def tell(self, task: str) -> TaskReport:
        """The report that every requester has, evaluated on what everyone has held out."""
        with open_requester(RequesterFile.read(self.roles / "requester/settings.toml")) as requester:
            with suppress(NotReady):  # no round was through
                everyone = [self.plan.data(self.folder, person) for person in range(self.plan.people)]
                ModelEvaluation(requester).by_round(task, everyone, lambda *_: None)
            return TaskReport.of(requester, task)

    def play_both(self, finished: FinishedCampaign) -> BothRounds | None:
        """One round of the updates of a campaign on `shares` under the paper's cryptosystem too."""
        if self.profile != "shares" or finished.definition is None or 1 not in finished.models:
            return None
        self.say("one round of the same updates once more: threshold Paillier, distances and Eq. 10 (profile hardened)")
        return play_both(finished.plain, finished.definition.settings, row_of(finished.models[1]))


def run_demo(folder: Path, profile: str, console: Console) -> None:
    """The campaign, the round that is played twice, and the report."""
    campaign = _RunningCampaign(folder, console, _PATIENCE, profile=profile, plan=_PLANS[profile])
    try:
        finished = campaign.play()
        told = campaign.tell(finished.task)
    finally:
        campaign.stop()
    finished.seconds = time.monotonic() - campaign.started
    both = campaign.play_both(finished)
    result = campaign_result(finished, both)
    path = write_page(finished, told, result, both)
    print_result(result, console)
    if both is not None:
        console.print(both_words(both), markup=False, highlight=False)
    console.print(f"{time.monotonic() - campaign.started:.0f} s in all. Report: {path}", soft_wrap=True)


def training_seconds(task: str, data: str) -> float:
    """How long one person's data and training take here, just now."""
    trainer, began = LocalTrainer(data, tomllib.loads(task)["training"]), time.monotonic()
    trainer.train(trainer.learner.weights(), {}, 1)
    return time.monotonic() - began


def window_seconds(unit: float) -> float:
    """For everyone who is there, and again for one to start after the window and send."""
    return round(max(5.0, 50 * unit), 1)


def waits(unit: float) -> dict[str, object]:
    """How long rounds wait. One person vanishes, so that rounds after the first always wait to their end: as short as is safe.
    Everyone is there within minutes; the books are closed once everyone has claimed, or soon after.

    `unit` is how long a person's training takes here, about 0.1 s on a quiet machine. In a round ten people train at the same
    time and encrypt; a program starts in ten units. Whoever is slower than the window is late and still counts as late as that,
    and below five uploads a round waits for another window.
    """
    wait = window_seconds(unit)
    joined = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=10)
    plan = {"enrol_until": joined.isoformat(timespec="seconds"), "room": "1 min"}
    claims = round(max(15.0, 150 * unit), 1)  # for all who are left to claim
    return {"window": duration(wait), "late": duration(wait), "claim_window": duration(claims), **plan}
