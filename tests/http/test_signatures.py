"""A participant's signature is good for one request, for a while."""

import pytest

from crowdfl.services.signatures import DIGEST_HEADER, SKEW_SECONDS, Signer


@pytest.fixture
def signer(campaign):
    """The first participant's key."""
    return Signer(campaign.people[0].who, campaign.people[0].keys.signing)


def offset_of(campaign, rest=""):
    """A route that any participant may call for itself."""
    return f"/v1/tasks/{campaign.task}/rounds/1/uploads/{campaign.people[0].who}{rest}"


@pytest.mark.parametrize(
    ("away", "status"),
    [(0, 200), (-SKEW_SECONDS, 200), (SKEW_SECONDS, 200), (-SKEW_SECONDS - 1, 401), (SKEW_SECONDS + 1, 401)],
)
def test_a_clock_may_be_five_minutes_off(campaign, signer, away, status):
    """Phones are; and an old request cannot be replayed for long."""
    target = offset_of(campaign, "/offset")
    headers = signer.headers("GET", target, b"", campaign.world.clock.now() + away)
    assert campaign.world.http("sp").get(target, headers=headers).status_code == status


def test_a_signature_is_for_one_method_path_query_and_body(campaign, signer):
    """Moved to any other, it is refused; a body other than the signed one too."""
    now, http = campaign.world.clock.now(), campaign.world.http("sp")
    headers = signer.headers("PATCH", offset_of(campaign, "?offset=0"), b"piece", now)
    moved = [
        ("PUT", offset_of(campaign), b"piece", headers),
        ("PATCH", offset_of(campaign, "?offset=1"), b"piece", headers),
        ("PATCH", offset_of(campaign).replace("/rounds/1/", "/rounds/2/") + "?offset=0", b"piece", headers),
        ("PATCH", offset_of(campaign, "?offset=0"), b"piece", headers | {DIGEST_HEADER: "0" * 64}),
        ("PATCH", offset_of(campaign, "?offset=0"), b"piece", headers | {DIGEST_HEADER: ""}),
    ]
    for method, target, body, sent in moved:
        assert http.request(method, target, content=body, headers=sent).status_code == 401, (method, target)
    assert http.patch(offset_of(campaign, "?offset=0"), content=b"other", headers=headers).status_code == 403
    assert http.patch(offset_of(campaign, "?offset=0"), content=b"piece", headers=headers).status_code == 200


def test_a_signature_is_checked_before_the_body_is_read(campaign):
    """A stranger cannot make SP read."""
    read = []

    def body():
        read.append(1)
        yield b"x"

    target = offset_of(campaign)
    stranger = Signer(campaign.people[1].who, campaign.people[0].keys.signing)
    headers = stranger.headers("PUT", target, b"x", campaign.world.clock.now())
    assert campaign.world.http("sp").put(target, content=body(), headers=headers).status_code == 401
    assert read == []


def test_a_signing_key_is_not_shown(signer):
    """Secrets never reach a repr."""
    assert signer.signing.private.hex() not in repr(signer)
    assert repr(signer.signing.private) not in repr(signer)
