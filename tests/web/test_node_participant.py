"""The phone's agent, run by node, in a campaign over TLS beside Python participants: killed in the middle of an upload."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from crowdfl.errors import NotReady
from crowdfl.learning.models.shape import ModelShape
from crowdfl.learning.oracle import fedavg
from crowdfl.roles.participant.participant import Participant
from crowdfl.roles.requester import Requester
from crowdfl.services.client.peers import SpClient
from crowdfl.settings import TaskSettings
from tests import subprocesses
from tests.hosts import small_definition
from tests.http.processes import Loopback, serving
from tests.web.phone_platform import wait_for

ROOT = Path(__file__).parents[2]
ROUNDS, PYTHON, BUDGET = 3, 3, 36_000_000
SHAPE = ModelShape(("w", "b"), ((30, 20), (30,)))
INITIAL = [np.linspace(-1.0, 1.0, 600).reshape(30, 20), np.zeros(30)]
SETTINGS: dict[str, Any] = {
    "profile": "shares",
    "decimals": 5,
    "clip": 2.0,
    "max_samples": 50,
    "max_participants": PYTHON + 1,
    "min_participants": PYTHON + 1,  # so that no round ends without the phone
    "rounds": ROUNDS,
    "lanes": 256,
    "budget": "36.00",
    "window": 3600.0,
}
_Floats = npt.NDArray[np.float64]

pytestmark = [pytest.mark.second, pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")]


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Loopback]:
    """KGC, CSP and SP."""
    (tmp_path / "platform").mkdir()
    with serving(tmp_path / "platform") as platform:
        yield platform


@dataclass
class Phone:
    """A node process that takes part; killed and started again, it goes on with its file."""

    folder: Path
    ca: Path
    settings: dict[str, Any]
    told: list[dict[str, Any]] = field(default_factory=list)
    process: "subprocess.Popen[str] | None" = None

    def start(self, *, hang_after: int | None = None) -> None:
        path = self.folder / "settings.json"
        path.write_text(json.dumps(self.settings | {"folder": str(self.folder), "hangAfter": hang_after}))
        command = ["node", "--import", "./tools/resolve.mjs", "tests/js/drive_participant.mjs", path]
        trusts = os.environ | {"NODE_EXTRA_CA_CERTS": str(self.ca)}
        self.process = subprocesses.start(command, cwd=ROOT, env=trusts, stdout=subprocess.PIPE, text=True)

    def hear(self, event: str) -> dict[str, Any]:
        """Everything that it says until this; its end, or silence for minutes, is an error."""
        for one in self.lines():
            if one["event"] == event:
                return one
        raise AssertionError(f"the phone has ended without {event!r}: {self.told[-3:]}")

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says from now on, as it says it."""
        assert self.process is not None
        assert self.process.stdout is not None
        limit = threading.Timer(subprocesses.PATIENCE, self.process.kill)
        limit.start()
        try:
            for line in self.process.stdout:
                self.told.append(json.loads(line))
                yield self.told[-1]
        finally:
            limit.cancel()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.end()

    def end(self) -> int:
        """Its exit status; what it said last is lost."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(subprocesses.PATIENCE)

    def said(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.told if one["event"] == event]

    def trained(self, number: int) -> tuple[_Floats, int]:
        found = json.loads((self.folder / f"trained-{number}.json").read_text())
        return np.array(found["weights"]), found["samples"]


@dataclass
class Learner:
    """Trains a Python participant as the phone trains."""

    place: int
    trained: dict[int, tuple[_Floats, int]] = field(default_factory=dict)

    def train(self, arrays: list[_Floats], _settings: object, number: int) -> tuple[list[_Floats], int]:
        flat = np.concatenate([array.reshape(-1) for array in arrays])
        each = np.arange(len(flat))
        change = (each % 5 + 1) / 16 * (1 + self.place / 8)
        self.trained[number] = np.where(each % ROUNDS == number - 1, flat + change, flat), 3 + self.place
        return SHAPE.arrays(self.trained[number][0]), self.trained[number][1]


def post(platform: Loopback, requester: Requester, step: str) -> str:
    settings = TaskSettings.of(**SETTINGS, server_step=step)
    definition = replace(small_definition(settings, claim_window=10_000.0), shape=SHAPE)
    task = requester.create(definition, INITIAL)
    requester.fund(task, ROUNDS * BUDGET, "all")
    platform.confirm(task, "all", ROUNDS * BUDGET)
    return task


def invite(platform: Loopback, requester: Requester, task: str, folder: Path) -> Phone:
    assert isinstance(requester.sp, SpClient)
    folder.mkdir()
    (invitation,) = requester.invite(task, 1, 3600.0)
    keys = {"kgcKey": platform.kgc_key.hex(), "spKey": requester.sp.key().hex()}
    where = {name: platform.urls[name] for name in ("sp", "kgc")}
    own = {"least": PYTHON + 1, "piece": 500, "place": PYTHON, "rounds": ROUNDS}
    return Phone(folder, platform.ca, {"task": task, "invitation": invitation} | keys | where | own)


def play(person: Participant, learner: Learner, number: int) -> None:
    """One round of a Python participant, which may have to wait for it to open."""

    def look() -> None:
        person.step(learner.train)
        if not person.blobs.has(f"rounds/{number}/receipt"):
            raise NotReady("the round is not open yet")

    wait_for(look)


def rewards_of(person: Participant) -> dict[int, int]:
    person.step(Learner(0).train)
    if len(person.rewards()) < ROUNDS:
        raise NotReady("not all rewards are there yet")
    return person.rewards()


@dataclass
class Campaign:
    """A task with Python participants, and a phone that is invited."""

    platform: Loopback
    requester: Requester
    task: str
    phone: Phone
    people: list[Participant]
    learners: list[Learner]

    def play(self) -> None:
        """The Python participants' part, to the last upload."""
        for number in range(1, ROUNDS + 1):
            for person, learner in zip(self.people, self.learners, strict=True):
                play(person, learner, number)

    def require_the_oracles_averages(self) -> None:
        """Of what everyone has trained, in every round."""
        for number in range(1, ROUNDS + 1):
            models = [self.phone.trained(number), *(learner.trained[number] for learner in self.learners)]
            average = fedavg([weights for weights, _ in models], [samples for _, samples in models])
            assert np.max(np.abs(self.requester.read(self.task, number).weights - average)) < 2e-5

    def require_everyone_paid(self, end: dict[str, Any]) -> None:
        """Every budget is spent, and claimed by those who earned it."""
        rewards = [wait_for(partial(rewards_of, person)) for person in self.people]
        view = end["view"]
        own = {one["number"]: one["reward"] for one in view["rounds"]}
        for number in range(1, ROUNDS + 1):
            assert BUDGET - 10 <= own[number] + sum(of[number] for of in rewards) <= BUDGET
        assert (end["outcome"], view["phase"], view["claim"]["state"]) == ("ended", "ended", "paid")
        assert view["claim"]["amount"] == sum(own.values()) > 0
        assert [wait_for(person.claim) for person in self.people] == [sum(of.values()) for of in rewards]
        assert [one["mine"] for one in view["rounds"]] == ["arrived"] * ROUNDS

    def require_the_same_states(self, end: dict[str, Any]) -> None:
        """What a server step makes of an average, and carries on, is the same in Python and in the phone."""
        for person in self.people:
            person.step(Learner(0).train)
        mine = {one["number"]: one["digest"] for one in end["view"]["rounds"][:-1]}
        assert [person.states() for person in self.people] == [mine] * PYTHON
        assert len(set(mine.values())) == ROUNDS - 1
        assert None not in mine.values()
        self.requester.read(self.task, ROUNDS)
        assert {number: state for number, state in self.requester.states(self.task).items() if number < ROUNDS} == mine


@pytest.fixture(params=["none"])
def campaign(platform: Loopback, tmp_path: Path, request: pytest.FixtureRequest) -> Campaign:
    """Nobody but the Python participants has joined yet. The parameter is the server step."""
    requester = platform.requester()
    task = post(platform, requester, request.param)
    phone = invite(platform, requester, task, tmp_path / "phone")
    people = [platform.join(requester, task) for _ in range(PYTHON)]
    return Campaign(platform, requester, task, phone, people, [Learner(place) for place in range(PYTHON)])


def test_a_phone_that_is_killed_in_an_upload_goes_on_and_everyone_is_paid(campaign: Campaign):
    """The average of every round is the oracle's; what was sent before the kill is not sent again, and nothing else is."""
    phone = campaign.phone
    phone.start(hang_after=2)
    phone.hear("halfway")
    phone.kill()
    phone.start()
    campaign.play()
    end = phone.hear("over")
    assert phone.end() == 0
    campaign.require_the_oracles_averages()
    resumed = [one["sent"] for one in phone.said("sending") if one["round"] == 1]
    assert resumed[:4] == [0, 500, 1000, 1000]  # at the offset that SP has, not from the beginning
    assert [one["round"] for one in phone.said("trained")] == [1, 2, 3]  # once each: the kill came after the first
    assert [one["round"] for one in phone.said("uploaded")] == [1, 2, 3]
    campaign.require_everyone_paid(end)
    accuracies = [(one["accuracyBefore"] is None, one["accuracyAfter"] is None) for one in end["view"]["rounds"]]
    assert accuracies == [(False, False), (False, False), (False, True)]  # the last average is for the requester
    assert [one["digest"] for one in end["view"]["rounds"]] == [None] * ROUNDS


@pytest.mark.parametrize("campaign", ["fedadam"], indirect=True)
def test_a_phone_that_is_killed_again_and_again_comes_to_the_same_end(campaign: Campaign):
    """After every few words; wherever that is, no upload is refused, nothing is paid twice, and no step is taken twice."""
    phone = campaign.phone
    others = threading.Thread(target=campaign.play, daemon=True)
    others.start()
    for words in (1, 2, 3, 4, 5, 6):
        phone.start()
        for _ in zip(range(words), phone.lines(), strict=False):
            pass
        phone.kill()
    phone.start()
    end = phone.hear("over")
    others.join()
    assert phone.end() == 0
    assert not phone.said("refused")
    assert {one["who"] for one in phone.said("joined")} == {end["view"]["who"]}
    campaign.require_the_oracles_averages()
    campaign.require_everyone_paid(end)
    campaign.require_the_same_states(end)
