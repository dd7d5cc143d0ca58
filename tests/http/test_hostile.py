"""Bad input, one kind at a time: each is refused with a status and a type of its own, and nothing of it stays."""

import json

import pytest

from crowdfl.documents.invitations import EnrolmentRequest, Ticket
from crowdfl.documents.signed import Order
from crowdfl.services.client.transport import Signer
from tests.fuzz.platform import Answer, check_problem


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
    certificate = world.sp.store.participant(task, somebody.who).certificate
    body = json.dumps({"certificate": certificate}).encode()
    assert refused(campaign, "POST", f"/v1/tasks/{campaign.task}/participants", body, None) == (400, "document-error")
    ticket = Ticket.make(task, "0" * 32, 1, world.clock.now() + 10, world.requester.signing)
    request = EnrolmentRequest.make(ticket, person.keys).sign(ticket.key)
    body = json.dumps({"invitation": ticket.invitation, "request": request}).encode()
    there = f"/v1/tasks/{campaign.task}/participants"
    assert refused(campaign, "POST", there, body, None, "kgc") == (403, "invitation-refused")
    order = Order(task, "cancel", 0.0).sign(world.requester.signing)
    body = json.dumps({"order": order}).encode()
    requester = world.owner("sp")
    assert refused(campaign, "POST", f"/v1/tasks/{campaign.task}/orders", body, requester) == (400, "document-error")
