"""A campaign over TLS on loopback: three services, a requester, three participants, from the definition to the claims."""

import hashlib
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from crowdfl.documents.signed import Receipt
from crowdfl.errors import Forbidden
from tests.hosts import INITIAL_MODEL
from tests.http.loopback import Loopback, serving, wait_for, wait_for_round
from tests.http.world import DEPOSIT, task_definition

PAID = 36_000_000


@pytest.fixture
def platform(tmp_path) -> Iterator[Loopback]:
    """KGC, CSP and SP."""
    with serving(tmp_path) as platform:
        yield platform


def test_a_campaign_over_tls_ends_with_the_model_and_paid_claims(platform):
    """Define, fund, invite, train, average, reward, claim: every byte through HTTPS, every party with its own credential."""
    requester = platform.requester()
    task = requester.create(task_definition(), INITIAL_MODEL)
    for _ in range(2):
        requester.fund(task, DEPOSIT, "first")  # a retry is the same deposit
        platform.confirm(task, "first", DEPOSIT)  # and the same confirmation
    people = [platform.join(requester, task, whole) for whole in (2**18, 0, 2**18)]  # the second one sends pieces

    wait_for_round(requester.sp, task, "open")
    rng = np.random.default_rng(1)
    weights = [[rng.normal(size=(2, 3)), rng.normal(size=2)] for _ in people]
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
        assert np.allclose(array, np.mean(sent, axis=0), atol=1e-5)

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


def test_requesters_share_a_service_and_none_reads_anothers_books(platform):
    """Both hold a token; each opens the task that its own key defined, and no other."""
    first, second = platform.requester(), platform.requester()
    task = first.create(task_definition(), INITIAL_MODEL)
    first.fund(task, DEPOSIT, "first")
    platform.confirm(task, "first", DEPOSIT)
    assert first.report(task)["paid_in"] == DEPOSIT
    first.order(task, "pause")
    first.close_enrolment(task)
    for act in (
        lambda: second.report(task),
        lambda: second.fund(task, 1),
        lambda: second.sp.final(task, 1),
        lambda: second.order(task, "resume"),
        lambda: second.kgc.done(task),
    ):
        with pytest.raises(Forbidden):
            act()
    assert first.sp.status(task)["state"] == "paused"
    assert first.report(task)["paid_in"] == DEPOSIT


@pytest.mark.second
def test_a_campaign_of_shares_over_tls_ends_with_the_model_and_paid_claims(platform):
    """KGC deals the servers their files, and nobody needs a key."""
    requester = platform.requester()
    task = requester.create(task_definition(profile="shares", lanes=256, max_norm=2.0), INITIAL_MODEL)
    requester.fund(task, DEPOSIT, "first")
    platform.confirm(task, "first", DEPOSIT)
    people = [platform.join(requester, task) for _ in range(4)]
    wait_for_round(requester.sp, task, "open")
    moved = [0.1 + 0.01 * place for place in range(len(people))]
    for person, step in zip(people, moved, strict=True):
        person.encrypt(1, [array + step for array in INITIAL_MODEL], 10)
        assert person.send(1)
    rewards = [wait_for(partial(person.open_reward, 1)) for person in people]
    assert PAID - 2 * len(people) <= sum(rewards) <= PAID
    model = wait_for(partial(requester.model, task))
    for array, initial in zip(model, INITIAL_MODEL, strict=True):
        assert np.allclose(array, initial + np.mean(moved), atol=1e-5)
    assert [wait_for(person.claim) for person in people] == rewards
    for role in ("kgc", "sp", "csp"):
        assert 'crowdfl_held{kind="dealt files"}' not in platform.metrics(role)
