"""Nobody joins whom the requester did not invite: SP and CSP each look at the whole chain, whatever KGC has signed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.invitations import Certificate, EnrolmentRequest, Ticket
from crowdfl.errors import (
    AlreadyCounted,
    BadSignature,
    Conflict,
    CrowdFLError,
    DocumentError,
    EnrolmentOver,
    InvitationRefused,
    Replaced,
    ServiceUnavailable,
    TaskEnded,
)
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.roles.csp import refuse_task
from crowdfl.roles.sp.people import People
from crowdfl.settings import MOST_DEVICES
from tests.hosts import BUDGET, HARDENED, Desk, raising, unchanged
from tests.roles.test_enrolment import certified, new_keys

SHARES = {"decimals": 6, "clip": 16.0, "pay": "equal"}
servers = pytest.mark.parametrize("server", ["sp", "csp"])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk.funded(tmp_path, 4, **SHARES)


def ticket_of(desk: Desk, signer: SigningKey | None = None, number: str = "7" * 32, device: int = 1) -> Ticket:
    return Ticket.make(desk.task, number, device, 1e9, signer or desk.requester.signing)


def minted(desk: Desk, ticket: Ticket, keys: ParticipantKeys, signer: SigningKey | None = None, **said: object) -> str:
    """What KGC's key signs for these keys under an invitation; `said`: what the request says instead."""
    request = replace(EnrolmentRequest.make(ticket, keys), **said)  # type: ignore[arg-type]
    text = request.sign(signer or ticket.key)
    return Certificate(desk.task, keys.who, ticket.invitation, text).sign(desk.signing)


def place_of(desk: Desk, who: str) -> str:
    return desk.csp.store.participant(desk.task, who).identity.place


def enrolling(desk: Desk, server: str) -> Any:
    """What takes a certificate in at this server."""
    return desk.sp.people.enrol if server == "sp" else desk.csp.enrol


@servers
def test_a_certificate_of_nobodys_invitation_is_refused(desk: Desk, server: str):
    """KGC's own key, a stranger's, or an invitation that was signed as something else: none is the requester's word."""
    keys, own = new_keys(), ticket_of(desk)
    payload = own.invitation.split(" ", 3)[3]
    forged = Envelope("invitation", payload, Envelope.sign("order", payload, desk.requester.signing).signature).text
    wrong = [ticket_of(desk, desk.signing), ticket_of(desk, SigningKey.fresh()), Ticket(forged, own.key)]
    for ticket in wrong:
        with pytest.raises(BadSignature):
            enrolling(desk, server)(desk.task, minted(desk, ticket, keys))
    enrolling(desk, server)(desk.task, minted(desk, own, keys))  # the requester's is


@servers
def test_kgc_puts_no_other_keys_under_an_invitation_that_it_has_seen(desk: Desk, server: str):
    """It has the invitation and its holder's request, and not the link: whatever it changes, a signature is missing."""
    ticket, mine, kgcs = ticket_of(desk), new_keys(), new_keys()
    with pytest.raises(BadSignature):
        enrolling(desk, server)(desk.task, minted(desk, ticket, kgcs, desk.signing))
    asked = EnrolmentRequest.make(ticket, mine).sign(ticket.key)
    with pytest.raises(DocumentError, match="somebody else"):  # the holder's request under another name
        enrolling(desk, server)(
            desk.task, Certificate(desk.task, kgcs.who, ticket.invitation, asked).sign(desk.signing)
        )
    with pytest.raises(BadSignature):  # a signing key that its owner has not proven
        enrolling(desk, server)(desk.task, minted(desk, ticket, mine, proof=bytes(64)))


@servers
def test_papers_of_another_task_number_or_device_are_refused(desk: Desk, server: str):
    ticket, keys, enrol = ticket_of(desk), new_keys(), enrolling(desk, server)
    foreign = Ticket.make("0" * 64, "7" * 32, 1, 1e9, desk.requester.signing)
    request = EnrolmentRequest.make(foreign, keys).sign(foreign.key)
    with pytest.raises(InvitationRefused, match="another task"):
        enrol(desk.task, Certificate(desk.task, keys.who, foreign.invitation, request).sign(desk.signing))
    for said in ({"task": "0" * 64}, {"number": "8" * 32}, {"device": 2}):
        with pytest.raises(InvitationRefused, match="another task or invitation"):
            enrol(desk.task, minted(desk, ticket, keys, **said))
    with pytest.raises(DocumentError, match="another task"):
        enrol(desk.task, Certificate("0" * 64, keys.who, "", "").sign(desk.signing))


def test_the_first_keys_that_csp_has_for_an_invitation_stand(desk: Desk):
    """Whoever has the link's key too, and KGC with them, comes second; SP lets nobody in whom CSP has not."""
    ticket, first, second = ticket_of(desk), new_keys(), new_keys()
    desk.csp.enrol(desk.task, minted(desk, ticket, first))
    with pytest.raises(Conflict, match="first keys stand"):
        desk.csp.enrol(desk.task, minted(desk, ticket, second))
    with pytest.raises(Conflict, match="first keys stand"):
        desk.sp.people.enrol(desk.task, minted(desk, ticket, second))
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 4
    desk.sp.people.enrol(desk.task, minted(desk, ticket, first))
    assert desk.sp.tasks.status(desk.task)["enrolled"] == 5


def test_sp_confirms_nobody_before_csp_has(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """While CSP is away nobody is in, and the same certificate serves later."""
    certificate = minted(desk, ticket_of(desk), new_keys())
    with monkeypatch.context() as away:
        away.setattr(desk.csp, "enrol", raising(ServiceUnavailable("away")))
        with pytest.raises(ServiceUnavailable):
            desk.sp.people.enrol(desk.task, certificate)
        assert desk.sp.tasks.status(desk.task)["enrolled"] == 4
    desk.sp.people.enrol(desk.task, certificate)
    assert len(desk.csp.store.participants(desk.task)) == desk.sp.tasks.status(desk.task)["enrolled"] == 5


def test_csp_is_told_of_each_once_and_by_no_round_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    desk = Desk(tmp_path, **SHARES)
    told, enrol = list[str](), desk.csp.enrol
    monkeypatch.setattr(
        desk.csp, "enrol", lambda task, certificate: told.append(certificate) or enrol(task, certificate)
    )
    desk.invite(4)
    desk.requester.fund(desk.task, 2 * BUDGET)
    desk.run()
    desk.play()
    assert desk.states()[0] == "rewarded"
    assert told == [person.blobs.get("certificate").decode() for person in desk.crowd]


def test_a_csp_that_has_ended_the_task_ends_it_for_whoever_comes(desk: Desk):
    refuse_task(desk.csp.store, desk.task, "no more")
    with pytest.raises(TaskEnded):
        desk.sp.people.enrol(desk.task, minted(desk, ticket_of(desk), new_keys()))
    assert desk.state == "cancelled"


@servers
def test_each_server_looks_at_the_end_of_enrolment_itself(tmp_path: Path, server: str):
    """A KGC that certifies after it, or with an invitation that has expired, gets nobody in; who was in, stays; a new device
    of somebody's comes later too."""
    desk = Desk(tmp_path, {"enrol_until": "1970-01-01T00:20:00+00:00"}, **SHARES)
    desk.invite(3)
    enrol, old = enrolling(desk, server), desk.crowd[0]
    short = Ticket.make(desk.task, "8" * 32, 1, 1100.0, desk.requester.signing)
    late, expired = (minted(desk, ticket, new_keys()) for ticket in (ticket_of(desk), short))
    desk.clock.time = 1150.0
    with pytest.raises(InvitationRefused, match="expired"):
        enrol(desk.task, expired)
    desk.clock.time = 1300.0
    with pytest.raises(EnrolmentOver):
        enrol(desk.task, late)
    enrol(desk.task, old.blobs.get("certificate").decode())
    enrol(desk.task, minted(desk, ticket_of(desk, None, place_of(desk, old.keys.who), 2), new_keys()))


def test_sp_asks_csp_for_nobody_whose_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    desk = Desk(tmp_path, {"enrol_until": "1970-01-01T00:20:00+00:00"}, **SHARES)
    late = minted(desk, ticket_of(desk), new_keys())
    desk.clock.time = 1300.0
    monkeypatch.setattr(desk.csp, "enrol", raising(AssertionError("asked")))
    with pytest.raises(EnrolmentOver):
        desk.sp.people.enrol(desk.task, late)


@servers
def test_a_recruiter_invites_in_the_requesters_place_and_replaces_nobody(tmp_path: Path, server: str):
    recruiter = SigningKey.fresh()
    desk = Desk(tmp_path, study={"recruiter": recruiter.public}, **SHARES)
    desk.invite(3)
    enrol, place = enrolling(desk, server), place_of(desk, desk.crowd[0].keys.who)
    enrol(desk.task, minted(desk, ticket_of(desk, recruiter), new_keys()))
    with pytest.raises(BadSignature):
        enrol(desk.task, minted(desk, ticket_of(desk, recruiter, place, 2), new_keys()))
    enrol(desk.task, minted(desk, ticket_of(desk, None, place, 2), new_keys()))
    keys = new_keys()
    assert certified(desk, ticket_of(desk, recruiter, "9" * 32).text, keys)  # KGC takes its word too
    with pytest.raises(BadSignature):
        certified(desk, ticket_of(desk, recruiter, place, 3).text, keys)


def test_a_recruiters_key_is_nobodys_where_the_definition_names_none(desk: Desk):
    for key in (SigningKey.fresh(), desk.signing):
        with pytest.raises(BadSignature):
            certified(desk, ticket_of(desk, key).text, new_keys())


# Another device of the same person.


def replaced(desk: Desk, who: str, name: str):
    person = desk.new_participant(desk.task, name)
    person.join(desk.requester.invite(desk.task, 1, 1000.0, who)[0])
    desk.people[name] = person
    return person


def test_one_place_has_five_devices_at_most_and_never_two_places(desk: Desk):
    first, status = desk.crowd[0], desk.sp.tasks.status(desk.task)
    names = [first.keys.who]
    for number in range(2, MOST_DEVICES + 1):
        names.append(replaced(desk, names[-1], f"device {number}").keys.who)
    with pytest.raises(InvitationRefused, match="5 devices"):
        desk.requester.invite(desk.task, 1, 1000.0, names[-1])
    with pytest.raises(DocumentError, match="device"):  # nor does anyone read a requester's that says so
        desk.csp.enrol(desk.task, minted(desk, ticket_of(desk, None, place_of(desk, first.keys.who), 6), new_keys()))
    assert desk.sp.tasks.status(desk.task)["enrolled"] == status["enrolled"] == 4
    states = {
        server: [one.state for one in getattr(desk, server).store.participants(desk.task)] for server in ("sp", "csp")
    }
    assert states["sp"] == states["csp"] == ["replaced", "in", "in", "in", *["replaced"] * 3, "in"]


@servers
def test_an_older_device_of_the_same_place_is_not_let_in_after_a_newer_one(desk: Desk, server: str):
    place = place_of(desk, desk.crowd[0].keys.who)
    second, third = (minted(desk, ticket_of(desk, None, place, device), new_keys()) for device in (2, 3))
    enrol = enrolling(desk, server)
    enrol(desk.task, third)
    for older in (second, desk.crowd[0].blobs.get("certificate").decode()):
        with pytest.raises(Replaced):
            enrol(desk.task, older)


def test_a_requester_names_whose_device_is_replaced_by_what_that_person_has_signed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    """A KGC that names another's number is found out, and so is one that makes a certificate up."""
    victim, asked = desk.crowd[1].keys.who, desk.crowd[0].keys.who
    other = desk.kgc.certified(desk.task, victim)
    monkeypatch.setattr(desk.kgc, "certified", lambda _task, _name: other)
    with pytest.raises(InvitationRefused, match="not the newest device"):
        desk.requester.invite(desk.task, 1, 1000.0, asked)
    keys = replace(new_keys(), who=asked)
    made_up = minted(desk, ticket_of(desk, desk.signing, place_of(desk, victim)), keys)
    monkeypatch.setattr(desk.kgc, "certified", lambda _task, _name: made_up)
    with pytest.raises(BadSignature):
        desk.requester.invite(desk.task, 1, 1000.0, asked)


@pytest.mark.parametrize(
    "settings", [SHARES, SHARES | {"cohort": 3}, HARDENED], ids=["one manifest", "two cohorts", "hardened"]
)
def test_two_devices_of_one_person_are_never_in_one_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
):
    """An SP that keeps the old device's upload beside the new one's gets no answer, in whichever cohort either is."""
    desk = Desk.funded(tmp_path, 5, **settings | {"max_participants": 6})
    old, others = desk.crowd[-1], desk.crowd[:-1]
    with monkeypatch.context() as deviating:
        deviating.setattr(People, "_take_back", lambda *_: None)
        old.step(unchanged)
        new = replaced(desk, old.keys.who, "new phone")
    desk.upload([*others, new])
    desk.clock.time += 1000
    with pytest.raises(AlreadyCounted, match="another device"):
        desk.run()


def test_a_new_device_earns_from_its_first_round_on(desk: Desk):
    """What came before is the old keys', wherever they say that it is paid to: no word of the requester's moves it."""
    old = desk.crowd[0]
    desk.play()
    new = replaced(desk, old.keys.who, "new phone")
    with pytest.raises(CrowdFLError):
        desk.sp.envelope(desk.task, 1, new.keys.who)
    desk.upload()
    desk.run()
    desk.upload()
    assert (old.claim(), new.claim()) == (9_000_000, 9_000_000)  # a round each
