"""A campaign of the profile `shares` through the services' apps: exchanges counted, dealt files burnt, refusals by name."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crowdfl.errors import (
    BadSignature,
    Forbidden,
    LimitExceeded,
    NotReady,
    RoundNotOpen,
    RoundsExhausted,
    UploadRejected,
    WrongBase,
)
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.round.upload import UploadBody, make_upload, upload_statement
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.dealt import DEALT_FILES, is_dealt_file
from crowdfl.roles.holdings import CspHoldings, key_shares
from crowdfl.roles.requester import own_key
from crowdfl.services.client.peers import KgcClient
from tests.hosts import INITIAL_MODEL
from tests.http.world import Person, World, definition_of

SETTINGS: dict[str, Any] = {
    "profile": "shares",
    "decimals": 3,
    "clip": 2.0,
    "max_norm": 3.0,
    "max_samples": 10,
    "max_participants": 5,
    "lanes": 128,
    "rounds": 2,
}
BUDGET = 36_000_000
START = np.concatenate([array.reshape(-1) for array in INITIAL_MODEL])
MOST = 15  # exchanges between the servers in a round
STEPS = {"gate": 13, "agreement": 13, "distance": 15}


class Counting:
    """An app, and the requests that reach it."""

    def __init__(self, app: Any) -> None:
        self.app, self.requests = app, list[tuple[str, str]]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests.append((scope["method"], scope["path"]))
        await self.app(scope, receive, send)


def counted(world: World, name: str) -> Counting:
    """From now on."""
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


def crafted(world: World, task: str, person: Person, update: Any, number: int = 1) -> UploadBody:
    """An upload of any integers, as this person's phone would sign it."""
    shape = SharesShape(world.sp.definition(task).spec)
    place = shape.place(number, ModelChain.from_bytes(kept_chain(person, number), 8).base)
    sealing = person.side.bundle.csp_sealing  # type: ignore[attr-defined]
    return make_upload(shape, place, person.who, person.keys.signing, sealing, np.asarray(update, dtype=np.int64), 5)


def signed(person: Person, body: UploadBody) -> bytes:
    statement = upload_statement(body.place, body.who, body.digest, body.sealed)
    return replace(body, signature=person.keys.signing.sign(statement)).to_bytes()


def _arrays(flat: Any) -> list[Any]:
    return [flat[:6].reshape(2, 3), flat[6:]]


def dealt_files(world: World, role: str) -> list[str]:
    return sorted(name.partition(".")[2] for name in world.disk.blobs(f"{role}/keys").listing() if is_dealt_file(name))


@pytest.mark.parametrize(
    "rule", ["gate", *(pytest.param(r, marks=pytest.mark.second) for r in ("agreement", "distance"))]
)
def test_a_campaign_takes_fifteen_exchanges_a_round_at_most_and_leaves_nothing_that_was_dealt(world: World, rule: str):
    """The average for everyone who may read it, rewards by the rule, claims paid; every request to CSP counted."""
    kgc = counted(world, "kgc")
    task, people = world.open_round(people=3, rule=rule, **SETTINGS)
    fetched = Counter(path.rpartition("/")[2] for _, path in kgc.requests if "/dealt/" in path)
    assert fetched == {"1": 2, "2": 2}  # each server its own, once
    assert not [name for name in world.disk.blobs("kgc/keys").listing() if name.endswith((".source", ".sp", ".csp"))]
    csp, base = counted(world, "csp"), START
    for number in (1, 2):
        csp.requests.clear()
        play(world, task, people, number)
        if number == 2:  # the first one tells CSP of three people too
            assert len(csp.requests) == STEPS[rule] <= MOST, csp.requests
        mean = np.average([change(number, place) for place in range(3)], axis=0, weights=[3, 4, 5])
        read = world.requester.read(task, number).weights
        assert np.max(np.abs(read - base - mean)) <= 0.001
        base = read
        left = [f"dealt.{later}" for later in range(number + 1, 3)]
        assert dealt_files(world, "sp") == dealt_files(world, "csp") == left
    rewards = [[person.participant.open_reward(number) for number in (1, 2)] for person in people]
    assert all(BUDGET - 6 <= sum(of_round) <= BUDGET for of_round in zip(*rewards, strict=True))
    assert [person.participant.claim() for person in people] == [sum(own) for own in rewards]
    held = CspHoldings(world.csp.store, world.csp.blobs, world.csp.bundles, world.csp.drop).held()
    assert held[task][DEALT_FILES] == key_shares(world.disk.blobs("sp/keys"))[task][DEALT_FILES] == 0


def test_dealt_files_are_for_their_server_until_it_has_all_of_them(world: World):
    """The same bytes as often as it asks; no other round, no other role, and nothing once it has acknowledged."""
    requester = own_key(world.disk.blobs("requester"))
    definition = definition_of(requester, **SETTINGS)
    task = world.requester.kgc.create_task(definition.sign(requester)).task
    sp, csp = (KgcClient(world.peer("kgc", role)) for role in ("sp", "csp"))
    assert csp.dealt(task, 2) == csp.dealt(task, 2) != csp.dealt(task, 1)
    assert len({sp.dealt(task, 1), sp.dealt(task, 2), csp.dealt(task, 1)}) == 3
    with pytest.raises(RoundsExhausted, match="round 3 of 2"):
        csp.dealt(task, 3)
    with pytest.raises(Forbidden):
        world.service("kgc", world.token("kgc", "requester")).call("GET", f"/v1/tasks/{task}/dealt/1")
    sp.acknowledge(task)
    with pytest.raises(NotReady, match="handed over"):
        sp.dealt(task, 1)
    assert csp.dealt(task, 1)
    csp.acknowledge(task)
    assert not world.kgc.bundles.has(f"{task}.source")
    with pytest.raises(NotReady, match="handed over"):
        csp.dealt(task, 1)


def test_a_rejected_phone_is_told_why_and_the_others_are_paid_as_if_it_had_not_come(world: World):
    task, people = world.open_round(people=4, **SETTINGS)
    body = crafted(world, task, people[3], [10**6] * 8)
    people[3].participant.blobs.put("rounds/1/upload", body.to_bytes())
    people[3].participant.send(1)
    play(world, task, people[:3], 1)
    with pytest.raises(UploadRejected, match="out of bounds"):
        people[3].participant.open_reward(1)
    assert "out of bounds" in str(people[3].participant.read(1).standing)
    rewards = [person.participant.open_reward(1) for person in people[:3]]
    assert np.allclose(rewards, [BUDGET * s / 12 for s in (3, 4, 5)], atol=6)


def test_an_upload_that_is_not_for_this_round_model_or_person_is_refused_by_name(world: World):
    """Whoever signed it; the honest one is taken afterwards, and is as long as uploads may be."""
    task, (first, second, _) = world.open_round(people=3, **SETTINGS)
    body = crafted(world, task, first, [0] * 8)
    with pytest.raises(WrongBase, match="another model"):
        first.sp.upload(task, 1, signed(first, replace(body, base=bytes(32))))
    with pytest.raises(RoundNotOpen, match="round 2"):
        first.sp.upload(task, 1, signed(first, replace(body, number=(2).to_bytes(4, "big"))))
    with pytest.raises(BadSignature, match=f"is {first.who}'s, or says so"):
        second.sp.upload(task, 1, body.to_bytes())
    with pytest.raises(BadSignature):
        second.sp.upload(task, 1, replace(body, who=second.who).to_bytes())
    honest = body.to_bytes()
    assert world.sp.uploads.limit(task) == len(honest)
    with pytest.raises(LimitExceeded):
        first.sp.upload(task, 1, honest + b"\0")
    with pytest.raises(LimitExceeded):
        first.sp.upload_in_pieces(task, 1, honest + b"\0", piece=100)
    assert first.sp.upload(task, 1, honest)
