"""Two processes of a server meet: one is about to commit what it has computed, the other does a whole step first.

Whoever was first has answered. The other finds that what it has read is no longer so, looks again, and gives the winner's
answer or none. Then the campaign goes on to its end, and all holds that holds of an undisturbed one. A round that somebody has
tampered with may be void.
"""

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from crowdfl.errors import CrowdFLError
from crowdfl.protocols.messages import Limits
from crowdfl.protocols.records import Place
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.round.csp_records import KeptTask
from crowdfl.protocols.shares.round.manifest import (
    ManifestEntry,
    StepRequest,
    Transcript,
    manifest_of,
)
from crowdfl.protocols.shares.round.steps import shown_in
from crowdfl.protocols.shares.round.upload import parse_upload
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.simulation.faults import Plan, Point, nothing_happens
from crowdfl.simulation.host import CSP, SP, Call
from crowdfl.simulation.replayed import seeded
from tests.cut.campaign import PATIENCE, SIZE, Campaign, Script
from tests.cut.forks import Forks

MET = Script(("ada", "bob", "cem", "dora"), {"lanes": 128, "rounds": 2})
TIERS = [10, pytest.param(1, marks=pytest.mark.slow)]  # every so-manieth meeting


@dataclass
class Meetings:
    """`happens` at chosen points of a campaign with two processes of each server, which take turns."""

    chosen: Callable[[Campaign, Point], bool]
    happens: Callable[[Campaign, Point], None]
    campaign: Campaign | None = None

    def survive(self, stride: int, least: int) -> None:
        """At one of so many, always the same ones; there are at least so many to choose from."""
        draw, found = random.Random(36), []  # noqa: S311 -- no secret

        def chosen(point: Point) -> bool:
            if not self.chosen(self.now, point):
                return False
            found.append(point)
            return draw.randrange(stride) == 0

        forks = Forks(chosen, lambda point: self.happens(self.now, point))
        forks.run(self._play)
        assert not forks.failures, f"{len(forks.failures)} of {len(forks.cut)} meetings: " + "\n".join(forks.failures)
        assert len(found) >= least, f"{len(found)} meetings"

    @property
    def now(self) -> Campaign:
        assert self.campaign is not None
        return self.campaign

    def _play(self, plan: Plan) -> None:
        with seeded(b"meet"):
            self.campaign = Campaign(MET, plan, begins=plan, sps=2, csps=2)
            self.campaign.route = _in_turn
            self.campaign.live()
        self.campaign.check()


def _in_turn(call: Call) -> str | None:
    """Half of the requests go to CSP's second process."""
    return None if (call.receiver, call.name) != (CSP, "answer") else (CSP, "csp2")[call.arguments[1][-1] % 2]


def other_of(process: str) -> str:
    return {SP: "sp2", "sp2": SP, CSP: "csp2", "csp2": CSP}[process]


# SP, under a lease that has run out.


def is_of_sp(_campaign: Campaign, point: Point) -> bool:
    """Before a transaction, and before and after a message to CSP."""
    return point.process.startswith(SP) and (point.name == "begin" or point.name.startswith("csp."))


def take_over(campaign: Campaign, point: Point) -> None:
    """The other process goes on with the task until there is nothing to do."""
    campaign.begins = campaign.faults = nothing_happens
    campaign.clock.time += PATIENCE
    for _ in range(30):
        with contextlib.suppress(CrowdFLError):
            if not campaign.role(other_of(point.process)).tick():
                return


@pytest.mark.second
@pytest.mark.parametrize("stride", TIERS)
def test_an_sp_whose_lease_has_run_out_meets_the_one_that_took_its_task(stride: int):
    Meetings(is_of_sp, take_over).survive(stride, 200)


# CSP: one process computes the answer to a request, and another process answers a second one before it is set.


def genuine(campaign: Campaign) -> bytes:
    return campaign.asking


def altered(campaign: Campaign) -> bytes:
    """The same step, with other contents."""
    asked = opened(campaign)
    campaign.may_be_void.add(asked.round_number)
    payload = asked.payload[:-1] + bytes([asked.payload[-1] ^ 1])
    return replace(asked, payload=payload).to_bytes()


def following(campaign: Campaign) -> bytes:
    """The manifest of the next round, of uploads to the same model."""
    number = opened(campaign).round_number + 1
    campaign.may_be_void |= {number - 1, number}
    shape, entries = shape_of(campaign), {}
    for person in list(campaign.people.values())[:2]:
        place = shape.place(number, ModelChain.from_bytes(person.side.chain() or b"", SIZE).base)
        upload = person.side.encrypt_update(np.full(SIZE, 0.1), 1, number)
        entries[person.keys.who] = ManifestEntry.of(parse_upload(upload, shape, place))
    manifest = manifest_of(place, shape.payment, entries, 1, 2)
    return StepRequest(number, 1, Transcript.start(place).digest, manifest.to_bytes()).to_bytes()


def opened(campaign: Campaign) -> StepRequest:
    return StepRequest.from_bytes(campaign.asking, Limits.plain(len(campaign.asking)))


def shape_of(campaign: Campaign) -> SharesShape:
    return SharesShape(campaign.requester.definition(campaign.task).spec)


def is_step(campaign: Campaign, point: Point) -> bool:
    return point.name == "asked" and campaign.passed.step_of(campaign.task, campaign.asking) is not None


def has_following(campaign: Campaign, point: Point) -> bool:
    return is_step(campaign, point) and opened(campaign).round_number < MET.task.rounds


def ask(campaign: Campaign, process: str, request: bytes) -> bool:
    """Whether it was answered."""
    try:
        reply = campaign.role(process).answer(campaign.task, request)
    except CrowdFLError:
        return False
    campaign.heard(campaign.task, request, reply)
    return True


@dataclass
class Race:
    """Of two requests: the second is answered before one of the transactions of the first."""

    first: Callable[[Campaign], bytes]
    second: Callable[[Campaign], bytes]
    transaction: int

    def __call__(self, campaign: Campaign, _point: Point) -> None:
        campaign.faults, answered, begun = nothing_happens, set[Callable[[Campaign], bytes]](), 0

        def come_first(point: Point) -> None:
            nonlocal begun
            begun += point.process == CSP
            if point.process == CSP and begun == self.transaction and ask(campaign, "csp2", second):
                answered.add(self.second)

        first, second = self.first(campaign), self.second(campaign)
        campaign.begins = come_first
        if ask(campaign, CSP, first):
            answered.add(self.first)
        campaign.begins = nothing_happens
        assert begun or not answered, "there was nothing to overtake"  # what is refused at once changes nothing
        if {genuine, altered} <= answered:
            raise AssertionError("one step was answered for two contents")
        if {genuine, following} <= answered and opened(campaign).step >= shown_in(shape_of(campaign)):
            assert unshown(campaign), "bits were shown of a round that is over, and CSP has not counted them"


def unshown(campaign: Campaign) -> tuple[str, ...]:
    """Of whom bits were shown in rounds that no record names, as CSP has counted them."""
    body = campaign.disk.store(CSP).record(campaign.task, Place(KeptTask.kind)).body
    return KeptTask.from_bytes(body, Limits.plain(len(body))).unshown


@pytest.mark.second
@pytest.mark.parametrize("stride", TIERS)
@pytest.mark.parametrize("transaction", [1, 2])  # a step is reserved, then answered
@pytest.mark.parametrize(
    ("first", "second"),
    [(genuine, genuine), (genuine, altered), (altered, genuine), (genuine, following), (following, genuine)],
)
def test_two_processes_of_csp_answer_at_once(first, second, transaction: int, stride: int):
    wanted = has_following if following in (first, second) else is_step
    Meetings(wanted, Race(first, second, transaction)).survive(stride, 10)
