"""A participant's signature is good for one request, for a while."""

import pytest

from crowdfl.errors import UnknownParticipant
from crowdfl.protocols.uploads import upload_digest
from crowdfl.roles.ports import ManualClock
from crowdfl.roles.sp import core
from crowdfl.roles.sp.time import ClockWatch
from crowdfl.services.client.transport import Signer
from crowdfl.services.http.signatures import SKEW_SECONDS, ByParticipant
from crowdfl.services.http.wire import DIGEST_HEADER
from crowdfl.storage.sql import SqlStore


@pytest.fixture
def signer(campaign):
    return Signer(campaign.people[0].who, campaign.people[0].keys.signing)


OFFSET = f"/offset?digest={'0' * 64}"


def offset_of(campaign, rest=""):
    """A route that any participant may call for itself."""
    return f"/v1/tasks/{campaign.task}/rounds/1/uploads/{campaign.people[0].who}{rest}"


@pytest.mark.parametrize(
    ("away", "status"),
    [(0, 200), (-SKEW_SECONDS, 200), (SKEW_SECONDS, 200), (-SKEW_SECONDS - 1, 401), (SKEW_SECONDS + 1, 401)],
)
def test_a_clock_may_be_five_minutes_off(campaign, signer, away, status):
    target = offset_of(campaign, OFFSET)
    headers = signer.headers("GET", target, b"", campaign.world.clock.now() + away)
    assert campaign.world.http("sp").get(target, headers=headers).status_code == status


@pytest.mark.parametrize(("away", "status"), [(0, 200), (10**6, 200), (3600, 503)])
def test_while_the_clock_is_in_doubt_nobody_is_refused_for_its_time(campaign, signer, away, status, monkeypatch):
    """By the right time, or by the wrong one that this service shows; whoever has another waits."""
    clock, target = campaign.world.clock, offset_of(campaign, OFFSET)
    watch = ClockWatch(clock, ManualClock().now, SqlStore.in_memory(), 300.0)
    monkeypatch.setattr(campaign.world.sp.options, "watch", watch)
    assert watch.is_sure()
    headers = signer.headers("GET", target, b"", clock.now() + away)
    monkeypatch.setattr(clock, "time", clock.time + 10**6)
    assert campaign.world.http("sp").get(target, headers=headers).status_code == status


def test_a_signature_is_for_one_method_path_query_and_body(campaign, signer):
    """Moved to any other, it is refused; a body other than the signed one too."""
    now, http = campaign.world.clock.now(), campaign.world.http("sp")
    piece, name = campaign.update, upload_digest(campaign.update)
    headers = signer.headers("PATCH", offset_of(campaign, "?offset=0"), b"", now, name)
    moved = [
        ("PUT", offset_of(campaign), piece, headers),
        ("PATCH", offset_of(campaign, "?offset=1"), piece, headers),
        ("PATCH", offset_of(campaign).replace("/rounds/1/", "/rounds/2/") + "?offset=0", piece, headers),
        ("PATCH", offset_of(campaign, "?offset=0"), piece, headers | {DIGEST_HEADER: "0" * 64}),
        ("PATCH", offset_of(campaign, "?offset=0"), piece, headers | {DIGEST_HEADER: ""}),
    ]
    for method, target, body, sent in moved:
        assert http.request(method, target, content=body, headers=sent).status_code == 401, (method, target)
    for other in (
        b"other",
        piece[:-1],
        piece[:-1] + bytes([piece[-1] ^ 1]),
        piece[:99] + bytes([piece[99] ^ 1]) + piece[100:],
    ):
        assert http.patch(offset_of(campaign, "?offset=0"), content=other, headers=headers).status_code == 403
    assert http.patch(offset_of(campaign, "?offset=0"), content=piece, headers=headers).status_code == 200


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
    assert signer.signing.private.hex() not in repr(signer)
    assert repr(signer.signing.private) not in repr(signer)


def test_a_key_is_looked_up_once(campaign, monkeypatch):
    """By the participant's name; a stranger costs one look, and is told what everyone is told."""
    guard, store, looks = ByParticipant(campaign.world.sp), campaign.world.sp.store, []
    campaign.world.sp.core._identities.clear()  # as after a start
    look_up = store.participant
    monkeypatch.setattr(store, "participant", lambda *place: looks.append(place[1]) or look_up(*place))

    def key(who: str) -> bytes:
        return campaign.world.portal.call(guard._key, campaign.task, who)

    for _ in range(2):
        assert all(key(person.who) == person.keys.signing.public for person in campaign.people)
    assert looks == [person.who for person in campaign.people]
    with pytest.raises(UnknownParticipant):
        key("0" * 20)


def test_strangers_leave_nothing_behind(campaign):
    guard, kept = ByParticipant(campaign.world.sp), campaign.world.sp.core._identities
    before = dict(kept)
    for task, who in (("0" * 64, campaign.people[0].who), (campaign.task, "0" * 20)):
        with pytest.raises(UnknownParticipant):
            campaign.world.portal.call(guard._key, task, who)
    assert kept == before


def test_keys_beyond_the_bound_make_room(campaign, monkeypatch):
    guard, kept = ByParticipant(campaign.world.sp), campaign.world.sp.core._identities
    monkeypatch.setattr(core, "MOST_IDENTITIES", 2)
    kept.clear()
    for person in [*campaign.people, *campaign.people]:
        found = campaign.world.portal.call(guard._key, campaign.task, person.who)
        assert found == person.keys.signing.public
        assert len(kept) <= 2
