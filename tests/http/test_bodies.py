"""Bodies are refused before they are read, or cut off at the limit."""

import pytest

from crowdfl.errors import LimitExceeded
from crowdfl.services.client.transport import Signer
from crowdfl.services.http.bodies import JSON_LIMIT, SMALL_LIMIT


class Endless:
    """A body that says how much of it was taken."""

    def __init__(self, piece=64 * 1024):
        self.piece, self.taken = piece, 0

    def __iter__(self):
        while True:
            self.taken += self.piece
            yield bytes(self.piece)


def sending(campaign, service, method, path):
    """Headers that let the caller in, whatever the route."""
    if "uploads" in path or "claims" in path:
        person = campaign.people[0]
        return Signer(person.who, person.keys.signing).headers(method, path, b"", campaign.world.clock.now())
    caller = campaign.world.token("csp", "sp") if service == "csp" else campaign.world.owner(service)
    return caller.headers(method, path, b"", campaign.world.clock.now()) | {"X-CrowdFL-Protocol": "3"}


def places(campaign):
    """Every kind of body that is read, with the most that may be read of it."""
    task, who = f"/v1/tasks/{campaign.task}", campaign.people[0].who
    upload = campaign.world.sp.upload_limit(campaign.task)
    return [
        ("kgc", "POST", "/v1/tasks", JSON_LIMIT),
        ("kgc", "POST", f"{task}/participants", SMALL_LIMIT),
        ("kgc", "POST", f"{task}/close", JSON_LIMIT),
        ("sp", "PUT", f"{task}/deposits/n", JSON_LIMIT),
        ("sp", "POST", f"{task}/orders", JSON_LIMIT),
        ("sp", "POST", f"{task}/participants", SMALL_LIMIT),
        ("sp", "POST", f"{task}/claims", campaign.world.sp.claim_limit(campaign.task)),
        ("sp", "POST", "/v1/tasks", JSON_LIMIT + 256 * 1024 * 1024 * 4 // 3),
        ("sp", "PUT", f"{task}/rounds/1/uploads/{who}", upload),
        ("sp", "PATCH", f"{task}/rounds/1/uploads/{who}?offset=0", upload),
        ("sp", "POST", f"{task}/rounds/1/uploads/{who}/commit", 4096),
        ("csp", "POST", f"{task}/participants", SMALL_LIMIT),
        ("csp", "POST", f"{task}/requests", 256 * 1024 * 1024),
    ]


def test_an_announced_body_over_the_limit_is_refused_unread(campaign):
    """413, and not a byte was taken."""
    for service, method, path, limit in places(campaign):
        body = Endless()
        headers = sending(campaign, service, method, path) | {"Content-Length": str(limit + 1)}
        answer = campaign.world.http(service).request(method, path, content=body, headers=headers)
        assert (answer.status_code, body.taken) == (413, 0), path
        assert answer.json()["type"] == "urn:crowdfl:problem:limit-exceeded"


def test_a_body_of_unknown_length_is_cut_off_at_the_limit(campaign):
    """413 after no more than the limit and a piece."""
    for service, method, path, limit in places(campaign):
        if limit > 2 * JSON_LIMIT:
            continue  # the same code, and minutes of sending
        body = Endless()
        headers = sending(campaign, service, method, path)
        answer = campaign.world.http(service).request(method, path, content=body, headers=headers)
        assert answer.status_code == 413, path
        assert body.taken <= limit + 2 * body.piece


def test_an_upload_as_long_as_the_limit_is_looked_at(campaign, person):
    """The limit itself is allowed; one byte more is not."""
    limit = campaign.world.sp.upload_limit(campaign.task)
    assert len(campaign.update) <= limit
    with pytest.raises(LimitExceeded):
        person.sp.upload(campaign.task, 1, bytes(limit + 1))
    assert person.sp.service.call(
        "PATCH", f"/v1/tasks/{campaign.task}/rounds/1/uploads/{person.who}?offset=0", bytes(limit)
    )


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "\u00b2", "9" * 30])
def test_a_length_that_is_no_number_is_refused(campaign, length):
    """Whatever a proxy lets through."""
    path = f"/v1/tasks/{campaign.task}/claims"
    headers = {**sending(campaign, "sp", "POST", path), "Content-Length": length.encode()}
    answer = campaign.world.http("sp").post(path, content=iter([b"x"]), headers=headers)
    assert answer.status_code in (400, 413)
