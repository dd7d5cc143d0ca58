"""A campaign over TLS on loopback: three services, a requester, three participants, from the definition to the claims."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from gmpy2 import mpz

from crowdfl import LocalFederation, Update
from crowdfl.crypto.blocks import from_ints, to_ints
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, RunningProduct, Unchecked
from crowdfl.documents.signed import Receipt
from crowdfl.errors import (
    BadSignature,
    Forbidden,
    LimitExceeded,
    NotAuthenticated,
    RoundNotOpen,
    UploadRejected,
    WrongBase,
)
from crowdfl.protocols.party import Costs, CountingBackend
from crowdfl.protocols.shares.chain import ModelChain
from crowdfl.protocols.shares.round.upload import UploadBody, make_upload, upload_statement
from crowdfl.protocols.shares.shape import SharesShape
from crowdfl.roles.dealt import DEALT_FILES, is_dealt_file
from crowdfl.roles.retention import CspRetention, key_shares
from crowdfl.simulation.local_host import Recorder
from tests.hosts import INITIAL_MODEL, ONE, moved_by
from tests.http.processes import Loopback, serving, wait_for, wait_for_round
from tests.http.world import DEPOSIT, TASK, Person, World, task_definition

PAID = 36_000_000


@pytest.fixture
def platform(tmp_path) -> Iterator[Loopback]:
    with serving(tmp_path) as platform:
        yield platform


@pytest.mark.second
def test_a_campaign_over_tls_ends_with_the_model_and_paid_claims(platform):
    """Define, fund, invite, train, average, reward, claim: every byte through HTTPS, every party with its own credential."""
    requester, task, people = platform.open_round(task_definition(), (2**18, 0, 2**18))  # the second one sends pieces
    for _ in range(2):
        requester.fund(task, DEPOSIT, "first")  # a retry is the same deposit
        platform.confirm(task, "first", DEPOSIT)  # and the same confirmation
    assert requester.report(task)["paid_in"] == 2 * DEPOSIT
    rng = np.random.default_rng(1)
    weights = [[rng.uniform(-1, 1, (2, 3)), rng.uniform(-1, 1, 2)] for _ in people]
    for person, update in zip(people, weights, strict=True):
        person.encrypt(1, update, 10)
        upload = person.blobs.get("rounds/1/upload")
        assert person.send(1)
        receipt = Receipt.open(person.blobs.get("rounds/1/receipt").decode(), person.sp.key())
        assert receipt.digest == hashlib.sha256(upload).hexdigest()

    rewards = [wait_for(partial(person.open_reward, 1)) for person in people]
    assert PAID - 3 <= sum(rewards) <= PAID
    model = wait_for(partial(requester.model, task))
    for array, sent in zip(model, zip(*weights, strict=True), strict=True):
        assert np.allclose(array, np.mean(sent, axis=0), atol=1e-3)

    assert [wait_for(person.claim) for person in people] == rewards
    again = people[0].sp.claim(task, people[0].blobs.get("claim"), people[0].keys)
    assert (again.paid, again.claimed, again.short) == (
        {1: rewards[0]},
        {1: rewards[0]},
        {},
    )  # a repeat is answered, and paid once
    books = requester.sp.ledger(task)
    assert books["balances"]["rewards"] == PAID  # the requester does not see it shrink, claim by claim
    assert not [movement for movement in books["movements"] if movement["name"].startswith("pay")]


SHARES: dict[str, Any] = {
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
    held = CspRetention(world.csp.store, world.csp.bundles, world.clock, world.csp.blobs).held()
    assert held[task][DEALT_FILES] == key_shares(world.disk.blobs("sp/keys"))[task][DEALT_FILES] == 0


def test_a_rejected_phone_is_told_why_and_the_others_are_paid_as_if_it_had_not_come(world: World):
    task, people = world.open_round(people=4, **SHARES)
    body = crafted(world, task, people[3], [10**6] * 8)
    people[3].participant.blobs.put("rounds/1/upload", body.to_bytes())
    people[3].participant.send(1)
    play(world, task, people[:3], 1)
    with pytest.raises(UploadRejected, match="out of bounds"):
        people[3].participant.open_reward(1)
    assert "out of bounds" in str(people[3].participant.read(1).standing)
    assert [person.participant.open_reward(1) for person in people[:3]] == [BUDGET // 3] * 3


def test_an_upload_that_is_not_for_this_round_model_or_person_is_refused_by_name(world: World):
    """Whoever signed it; the honest one is taken afterwards, and is as long as uploads may be."""
    task, (first, second, _) = world.open_round(people=3, **SHARES)
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


PEOPLE = 3
ROLES = ("SP", "CSP")
SETTINGS = [{}, {"total": "hidden"}, {"profile": "paper", "mask_bits": 40, "key_bits": 1536}]


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
        ciphertexts = len(Unchecked.parse(upload, people[0].side.party.public, max_count=1000))
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


@pytest.mark.parametrize("groups", [(1, 1, 1, 1), (4,), (2, 2), (1, 3), (3, 1)])
def test_a_sum_costs_the_same_however_its_uploads_came(groups):
    """A service adds up what has come so far, a local host all at once."""
    public, costs = PublicKey(mpz(2**257 + 1) * (2**254 + 1), mpz(4), insecure_test_key=True), Costs()
    vectors = CipherVector(public, from_ints(range(2, 6), public.ciphertext_bytes))
    whole = RunningProduct(public, 1, 4, backend=CountingBackend(ONE, costs))
    for start, count in zip(accumulate((0, *groups)), groups, strict=False):
        whole.add_all([vectors.part(place, place + 1) for place in range(start, start + count)])
    assert costs.counts == {("", "PAdd"): 3}
    assert to_ints(whole.result().block) == [2 * 3 * 4 * 5]


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
