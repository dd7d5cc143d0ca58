"""Bad input, one kind at a time: each is refused with a status and a type of its own, and nothing of it stays."""

import json

import pytest

from crowdfl.documents.signed import Certificate, EnrolmentRequest, Invitation, Order
from crowdfl.services.client.transport import Signer
from tests.fuzz.platform import Answer, check_problem

HEADER = 52  # of a vector of ciphertexts


@pytest.fixture(scope="module")
def other(campaign):
    """Another task of the same requester, with somebody in it and an upload under its key."""
    task = campaign.world.post(window=7)
    somebody = campaign.world.add_person(task)
    return task, somebody, somebody.update()


def kept(campaign):
    """Every file of SP's but its database, and every upload that counts."""
    folder = campaign.world.folder / "sp"
    files = sorted(str(path) for path in folder.rglob("*") if "state.db" not in path.name)
    return files, campaign.world.sp.store.uploads(campaign.task, 1), campaign.world.sp.store.movements(campaign.task)


def refused(campaign, method, target, body, credential, service="sp"):
    """Status and type of a refusal that leaves everything as it was."""
    before = kept(campaign)
    headers = {"X-CrowdFL-Protocol": "3"}
    if credential is not None:
        headers |= credential.headers(method, target, body, campaign.world.clock.now())
    found = campaign.world.http(service).request(method, target, content=body, headers=headers)
    assert kept(campaign) == before
    check_problem(Answer(found.status_code, dict(found.headers), found.content))
    return found.status_code, found.json()["type"].rpartition(":")[2]


def signer(person):
    return Signer(person.who, person.keys.signing)


def place(task, person):
    return f"/v1/tasks/{task}/rounds/1/uploads/{person.who}"


def row(campaign, number):
    public = campaign.people[0].side.party.public
    return int(number(public)).to_bytes(public.ciphertext_bytes, "big")


def zero(_public):
    return 0


def square(public):
    return public.n_squared


def modulus(public):
    return public.n


def shortened(campaign, good):
    """A vector of one ciphertext fewer that is otherwise right."""
    width = len(row(campaign, zero))
    count = int.from_bytes(good[HEADER - 8 : HEADER], "big") - 1
    return good[: HEADER - 8] + count.to_bytes(8, "big") + good[HEADER:-width]


BAD_UPLOADS = {
    "empty": (lambda c, good: b"", 400, "truncated"),
    "cut inside its header": (lambda c, good: good[: HEADER - 1], 400, "truncated"),
    "cut by a byte": (lambda c, good: good[:-1], 400, "truncated"),
    "no vector": (lambda c, good: b"x" * len(good), 400, "format-error"),
    "one ciphertext short": (shortened, 422, "length-mismatch"),
    "zero": (lambda c, good: good[: -len(row(c, zero))] + row(c, zero), 422, "ciphertext-out-of-range"),
    "N squared": (lambda c, good: good[: -len(row(c, zero))] + row(c, square), 422, "ciphertext-out-of-range"),
    "a factor of N": (lambda c, good: good[: -len(row(c, zero))] + row(c, modulus), 422, "not-aunit"),
}


@pytest.mark.parametrize("what", BAD_UPLOADS)
def test_a_bad_upload_is_refused(campaign, person, what):
    make, status, kind = BAD_UPLOADS[what]
    good = person.update()
    body = make(campaign, good)
    assert refused(campaign, "PUT", place(campaign.task, person), body, signer(person)) == (status, kind)
    assert person.sp.upload(campaign.task, 1, good)  # the good one is still welcome


def test_an_upload_under_another_task_s_key_is_refused(campaign, person, other):
    _, _, upload = other
    assert refused(campaign, "PUT", place(campaign.task, person), upload, signer(person)) == (422, "key-mismatch")


def test_a_participant_of_another_task_is_nobody_here(campaign, other):
    _, somebody, upload = other
    for method, path in (
        ("PUT", place(campaign.task, somebody)),
        ("DELETE", f"/v1/tasks/{campaign.task}/participants/"),
    ):
        target = path + (somebody.who if method == "DELETE" else "")
        assert refused(campaign, method, target, upload, signer(somebody)) == (401, "not-authenticated")


def test_a_task_that_is_not_there(campaign, person):
    """404 for everyone who may ask, 401 for who cannot show that it may."""
    nowhere = "0" * 64
    requester = campaign.world.owner("sp")
    sp = campaign.world.token("csp", "sp")
    unknown = (404, "unknown-task")
    assert refused(campaign, "GET", f"/v1/tasks/{nowhere}", b"", None) == unknown
    assert refused(campaign, "POST", f"/v1/tasks/{nowhere}/claims", b"x", None) == unknown
    body = json.dumps({"amount": 1}).encode()
    assert refused(campaign, "PUT", f"/v1/tasks/{nowhere}/deposits/n", body, requester) == unknown
    assert refused(campaign, "POST", f"/v1/tasks/{nowhere}/requests", b"x", sp, "csp") == unknown
    assert refused(campaign, "PUT", place(nowhere, person), b"x", signer(person))[0] in (401, 404)


def test_papers_of_another_task_are_refused(campaign, person, other):
    """A certificate, an invitation and an order, each where it does not belong; each signed by whom it should."""
    world, (task, somebody, _) = campaign.world, other
    certificate = Certificate.of(task, world.sp.participant(task, somebody.who).identity).sign(world.kgc.signing)
    body = json.dumps({"certificate": certificate}).encode()
    assert refused(campaign, "POST", f"/v1/tasks/{campaign.task}/participants", body, None) == (400, "document-error")
    invitation = Invitation(task, "new", world.clock.now() + 10, "").sign(world.requester.signing)
    request = EnrolmentRequest.of(campaign.task, invitation, person.keys.identity).sign(person.keys.signing)
    body = json.dumps({"invitation": invitation, "request": request}).encode()
    there = f"/v1/tasks/{campaign.task}/participants"
    assert refused(campaign, "POST", there, body, None, "kgc") == (403, "invitation-refused")
    order = Order(task, "cancel", 0.0).sign(world.requester.signing)
    body = json.dumps({"order": order}).encode()
    requester = world.owner("sp")
    assert refused(campaign, "POST", f"/v1/tasks/{campaign.task}/orders", body, requester) == (400, "document-error")
