"""Campaigns through the apps: what a round costs, how many exchanges it takes, and what is left of what was dealt."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdfl import LocalFederation, Update
from crowdfl.crypto.paillier.vector import Unchecked
from crowdfl.errors import Forbidden, NotAuthenticated
from crowdfl.protocols.hardened.manifest import HardenedUpload
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.roles.csp_retention import CspRetention
from crowdfl.roles.dealt import DEALT_FILES, is_dealt_file
from crowdfl.roles.retention import key_shares
from crowdfl.simulation.recorder import Recorder
from tests.hosts import FEW_LANES, HARDENED, INITIAL_MODEL, ONE, SMALL_BOUNDS, moved_by
from tests.http.processes import serving, wait_for_round
from tests.http.world import TASK, Person, World, task_definition

SHARES = SMALL_BOUNDS | FEW_LANES | {"rounds": 2}
BUDGET = 36_000_000
START = np.concatenate([array.reshape(-1) for array in INITIAL_MODEL])
MOST = 14  # exchanges between the servers in a round
STEPS = {"equal": 6, "samples": 6, "distance": 14}


class Counting:
    def __init__(self, app: Any) -> None:
        self.app, self.requests = app, list[tuple[str, str]]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests.append((scope["method"], scope["path"]))
        await self.app(scope, receive, send)


def counted(world: World, name: str) -> Counting:
    world.apps[name] = counting = Counting(world.apps[name])  # type: ignore[assignment]
    return counting


def change(number: int, person: int) -> Any:
    """Another coordinate in each round: nothing that a sketch could get wrong."""
    return np.eye(8)[number] * (0.25 + 0.25 * person)


def play(world: World, task: str, people: list[Person], number: int) -> None:
    for place, person in enumerate(people):
        base = ModelChain.from_bytes(kept_chain(person, number), 8).weights / 1000
        person.participant.encrypt(number, _arrays(base + change(number, place)), 3 + place)
        person.participant.send(number)
    world.run()


def kept_chain(person: Person, number: int) -> bytes:
    """What a person holds once it has read what is before this round."""
    person.participant.encrypt(number, INITIAL_MODEL, 1)
    person.participant.blobs.delete(f"rounds/{number}/upload")
    return person.side.chain() or b""


def _arrays(flat: Any) -> list[Any]:
    return [flat[:6].reshape(2, 3), flat[6:]]


def dealt_files(world: World, role: str) -> list[str]:
    return sorted(name.partition(".")[2] for name in world.disk.blobs(f"{role}/keys").listing() if is_dealt_file(name))


@pytest.mark.parametrize(
    "pay", ["equal", *(pytest.param(r, marks=pytest.mark.second) for r in ("samples", "distance"))]
)
def test_a_campaign_takes_fourteen_exchanges_a_round_at_most_and_leaves_nothing_that_was_dealt(world: World, pay: str):
    """The average for everyone who may read it, rewards by the rule, claims paid; every request to CSP counted."""
    kgc = counted(world, "kgc")
    task, people = world.open_round(people=3, pay=pay, **SHARES)
    fetched = Counter(path.rpartition("/")[2] for _, path in kgc.requests if "/dealt/" in path)
    assert fetched == {"1": 2, "2": 2}  # each server its own, once
    assert not [name for name in world.disk.blobs("kgc/keys").listing() if name.endswith((".source", ".sp", ".csp"))]
    csp, base = counted(world, "csp"), START
    for number in (1, 2):
        csp.requests.clear()
        play(world, task, people, number)
        if number == 2:  # the first one tells CSP of three people too
            assert len(csp.requests) == STEPS[pay] <= MOST, csp.requests
        mean = np.average([change(number, place) for place in range(3)], axis=0, weights=[3, 4, 5])
        read = world.requester.read(task, number).weights
        assert np.max(np.abs(read - base - mean)) <= 0.001
        base = read
        left = [f"dealt.{later}" for later in range(number + 1, 3)]
        assert dealt_files(world, "sp") == dealt_files(world, "csp") == left
    rewards = [[person.participant.open_reward(number) for number in (1, 2)] for person in people]
    assert all(BUDGET - 6 <= sum(of_round) <= BUDGET for of_round in zip(*rewards, strict=True))
    assert [person.participant.claim() for person in people] == [sum(own) for own in rewards]
    held = CspRetention(world.csp.store, world.csp.bundles, world.clock, world.csp.blobs, world.csp.guard).held()
    assert held[task][DEALT_FILES] == key_shares(world.disk.blobs("sp/keys"))[task][DEALT_FILES] == 0


PEOPLE = 3
ROLES = ("SP", "CSP")
LONGER = HARDENED | {"key_bits": 1088}
SETTINGS = [LONGER, LONGER | {"total": "hidden"}, {"profile": "paper", "mask_bits": 40, "key_bits": 1536}]


def updates():
    """What each person trained; the same in every run."""
    chance = np.random.default_rng(11)
    return [Update([chance.normal(size=(2, 3)), chance.normal(size=2)], 8 + number) for number in range(PEOPLE)]


class StageRecorder(Recorder):
    """Also what was counted when each stage of a round began."""

    def __init__(self):
        super().__init__()
        self.begun = []

    def begin(self, stage):
        self.begun.append((stage, {role: self.costs(role).counts.copy() for role in ROLES}))

    @property
    def stages(self):
        return [stage for stage, _ in self.begun]

    def before(self, stage):
        """What had been counted when this stage began for the first time."""
        return next(counts for name, counts in self.begun if name == stage)


def as_services(folder, **settings):
    """One rewarded round through three services; the recorder of both servers, and the ciphertexts of an upload."""
    recorder = StageRecorder()
    with serving(folder, recorder) as platform:
        requester, task, people = platform.open_round(task_definition(**settings))
        for person, update in zip(people, updates(), strict=True):
            person.encrypt(1, update.weights, update.samples)
            person.send(1)
        wait_for_round(requester.sp, task, "rewarded")
        upload = people[0].blobs.get("rounds/1/upload")
        numbers = upload if settings.get("profile") == "paper" else HardenedUpload.parse(upload).numbers
        ciphertexts = len(Unchecked.parse(numbers, people[0].side.party.public, max_count=1000))
    return recorder, ciphertexts


def in_one_process(**settings):
    """The same round of a `LocalFederation`, the last one of its task as that of the service is."""
    fed = LocalFederation(insecure_test_key=True, backend=ONE, **(TASK | settings))
    fed.round({str(number): update for number, update in enumerate(updates())}, final=True)
    return fed.recorder


@pytest.mark.second
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_round_costs_the_same_locally_and_as_a_service(settings, tmp_path):
    """Every counter of both servers; an upload is validated once, and a rewarded round publishes once."""
    service, ciphertexts = as_services(tmp_path, **settings)
    rewarded, plain = in_one_process(**settings), in_one_process(**settings, budget=None)
    for role in ROLES:
        here, there = rewarded.costs(role), service.costs(role)
        assert here.total("PDec") > 0
        assert here.counts == there.counts
        assert here.messages == there.messages
        # A random number may have a leading zero byte, which is not sent.
        assert abs(here.bytes_sent - there.bytes_sent) <= 8
        # Before and after the rewards the same is done as in a round without rewards, and it is done once.
        beside = service.before("reward")[role] + (there.counts - service.before("average")[role])
        if settings.get("profile") != "paper":  # whose rewards begin with the average
            assert beside == +plain.costs(role).counts
    assert service.stages == ["check", "reward", "check", "average"]
    assert service.before("check")["SP"]["", "check"] == PEOPLE * ciphertexts


def test_a_reference_goes_over_http_by_its_requester_alone(world):
    """Signed by the task's requester; whoever goes against it is left out of the round."""
    settings = {"profile": "shares", "reference": True, "weighting": "equal", "lanes": 1024, "max_norm": 4.0}
    task, people = world.open_round(4, **settings, min_participants=3)
    world.requester.refer(task, 1, moved_by(0.4))
    kept = world.requester.blobs.get(f"{task}/rounds/1/reference")
    with pytest.raises((NotAuthenticated, Forbidden)):
        replace(world.for_requester(), service=world.service("sp")).reference(task, 1, kept)
    for person, distance in zip(people, (0.5, 0.5, 0.5, -0.5), strict=True):
        person.participant.step(moved_by(distance))
    world.run()
    assert set(world.sp.rejected(task, 1)) == {people[3].who}
