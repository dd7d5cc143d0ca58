"""Claims over HTTP: who sends one is known before it is read, and how long it may be follows from the task."""

from collections.abc import Iterator

import pytest

from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import NotAuthenticated, UnknownTask
from crowdfl.protocols.registry import profile_named
from crowdfl.services.client.transport import Signer
from tests.http.test_bodies import Endless
from tests.http.world import World, task_definition


@pytest.fixture(scope="module")
def world(tmp_path_factory, portal) -> Iterator[World]:
    """One for all: each test has a claimant of its own."""
    world = World(tmp_path_factory.mktemp("platform"), portal)
    yield world
    world.close()


@pytest.fixture(scope="module")
def earned(world):
    """A task that has ended, and those who earned something in it."""
    task, people = world.open_round(people=4)
    for person in people:
        person.sp.upload(task, 1, person.update())
    world.run()
    for person in people:
        person.side.open_reward(person.sp.reward(task, 1), 1)
    return task, people


def place(task):
    """Where claims go."""
    return f"/v1/tasks/{task}/claims"


def test_a_signed_claim_is_paid(world, earned):
    """Also to somebody who has left since; and again, when its answer was lost."""
    task, people = earned
    people[0].sp.leave(task)
    first, again = (people[0].sp.claim(task, people[0].side.claim()) for _ in range(2))
    assert (first.amount > 0, again) == (True, first)


def test_a_claim_must_be_signed(world, earned):
    """Before anything is read."""
    task, _ = earned
    unsigned = ({}, {"X-CrowdFL-Protocol": "3"}, {"X-CrowdFL-Protocol": "3", "Authorization": "Bearer x"})
    for headers in unsigned:
        body = Endless()
        answer = world.http("sp").post(place(task), content=body, headers=headers)
        assert (answer.status_code, body.taken) == (401, 0)


def test_a_stranger_s_signature_is_refused_before_the_body(world, earned):
    """So is one over another body, once that has arrived."""
    task, people = earned
    stranger = Signer(people[0].who, SigningKey.fresh())
    body = Endless()
    headers = stranger.headers("POST", place(task), b"", world.clock.now())
    assert world.http("sp").post(place(task), content=body, headers=headers).status_code == 401
    assert body.taken == 0
    claim = people[0].side.claim()
    headers = Signer(people[0].who, people[0].keys.signing).headers("POST", place(task), b"other", world.clock.now())
    answer = world.http("sp").post(place(task), content=claim, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:crowdfl:problem:bad-signature")
    with pytest.raises(NotAuthenticated):
        people[0].sp.claim(world.post(window=7), claim)  # a task that it has no part in


def test_a_claim_of_an_unknown_task_is_refused_before_it_is_read(world, earned):
    """Signed or not."""
    _, people = earned
    body = Endless()
    answer = world.http("sp").post(place("0" * 32), content=body, headers={"X-CrowdFL-Protocol": "3"})
    assert (answer.status_code, body.taken) == (404, 0)
    with pytest.raises(UnknownTask):
        people[0].sp.claim("0" * 32, b"claim")


def test_the_limit_follows_from_the_task(world, earned):
    """An honest claim fits, with little to spare; a longer body is not read."""
    task, people = earned
    claim, limit = people[0].side.claim(), world.sp.claim_limit(task)
    assert len(claim) <= limit <= len(claim) + 4096 + 100
    body = Endless(piece=1024)
    headers = Signer(people[0].who, people[0].keys.signing).headers("POST", place(task), b"", world.clock.now())
    answer = world.http("sp").post(place(task), content=body, headers=headers)
    assert (answer.status_code, body.taken <= limit + 2 * 1024) == (413, True)


def test_a_longer_campaign_has_longer_claims():
    """Each round adds a mask, a salt, an amount and its number."""
    settings = task_definition().settings
    sizes = [profile_named("hardened").claim_bytes(settings, rounds) for rounds in (0, 1, 2, 1000)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > settings.key_bits // 8
    assert sizes[3] == sizes[0] + 1000 * (sizes[1] - sizes[0])
