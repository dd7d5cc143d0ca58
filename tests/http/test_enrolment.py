"""Enrolment over HTTP: what KGC's route takes, what it answers, and who can make use of it."""

import json
from base64 import b64decode
from dataclasses import replace

import pytest

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import Certificate, EnrolmentRequest, participant_name
from crowdfl.errors import (
    BadSignature,
    DocumentError,
    InvitationRefused,
    KeyMismatch,
    SealBroken,
    ServiceUnavailable,
    TaskFull,
)
from crowdfl.protocols.profile import Identity, ParticipantKeys
from crowdfl.protocols.registry import PROFILES
from crowdfl.roles.participant.enrolment import Enrolled, enrol
from crowdfl.roles.sp.csp_link import CspEnrolment
from crowdfl.services.client.peers import CspClient, KgcClient, SpClient
from tests.hosts import SMALL_TASK
from tests.http.world import INITIAL_MODEL, task_definition
from tests.simulation.faults import Crash


def new_keys() -> ParticipantKeys:
    fresh = ParticipantKeys.fresh("")
    return replace(fresh, who=participant_name(fresh.signing.public))


def ask(campaign, invitation, request, task=None):
    body = {"invitation": invitation, "request": request}
    return campaign.world.http("kgc").post(f"/v1/tasks/{task or campaign.task}/participants", json=body)


def kind_of(answer):
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


@pytest.fixture
def invitation(campaign):
    return campaign.world.requester.invite(campaign.task, 1, 1000)[0]


def test_repro_kgc_certifies_nobody_else_s_signing_key(campaign, invitation, person):
    """My reading key under another's name: refused, and the invitation still serves me."""
    me, world = new_keys(), campaign.world
    mixed = Identity(person.who, person.keys.signing.public, me.reader.public)
    forged = EnrolmentRequest.of(campaign.task, invitation, mixed).sign(me.signing)
    assert kind_of(ask(campaign, invitation, forged)) == (403, "bad-signature")
    kgc = KgcClient(world.service("kgc"))
    with pytest.raises(BadSignature):
        kgc.enrol(campaign.task, invitation, forged)
    assert enrol(kgc, campaign.task, invitation, me, world.signing.public).bundle


def test_the_answer_is_of_use_to_the_owner_of_the_reading_key_alone(campaign, invitation, person):
    """It holds one sealed field; my signature over another's reading key gives me nothing that SP would take."""
    me = new_keys()
    mixed = EnrolmentRequest.of(campaign.task, invitation, replace(me.identity, reading=person.keys.reader.public))
    answer = ask(campaign, invitation, mixed.sign(me.signing))
    assert (answer.status_code, list(answer.json())) == (200, ["sealed"])
    sealed = b64decode(answer.json()["sealed"])
    with pytest.raises(SealBroken):
        Enrolled.open(sealed, mixed, me.reader)
    made_up = Certificate.of(campaign.task, me.identity).sign(me.signing)
    with pytest.raises(BadSignature):
        SpClient(campaign.world.service("sp")).enrol(campaign.task, made_up)


def test_an_overheard_request_serves_nowhere_else(campaign, invitation, person):
    world, me = campaign.world, person.keys
    overheard = EnrolmentRequest.of(campaign.task, invitation, me.identity).sign(me.signing)
    (another,) = world.requester.invite(campaign.task, 1, 1000)
    assert kind_of(ask(campaign, another, overheard)) == (403, "invitation-refused")
    elsewhere = world.post(window=31)
    (there,) = world.requester.invite(elsewhere, 1, 1000)
    assert kind_of(ask(campaign, there, overheard, elsewhere)) == (403, "invitation-refused")
    with pytest.raises(InvitationRefused):
        KgcClient(world.service("kgc")).enrol(elsewhere, invitation, overheard)


def test_an_overheard_request_repeated_helps_its_owner_alone(campaign, invitation):
    """The same request again is answered again, sealed to the same reader."""
    me, world = new_keys(), campaign.world
    first = enrol(KgcClient(world.service("kgc")), campaign.task, invitation, me, world.signing.public)
    request = EnrolmentRequest.of(campaign.task, invitation, me.identity)
    answer = ask(campaign, invitation, request.sign(me.signing))
    assert Enrolled.open(b64decode(answer.json()["sealed"]), request, me.reader) == first
    with pytest.raises(SealBroken):
        Enrolled.open(b64decode(answer.json()["sealed"]), request, new_keys().reader)


def test_a_request_may_come_from_any_program(campaign, invitation):
    """Its JSON may have any form: what was signed is what is checked."""
    me = new_keys()
    request = EnrolmentRequest.of(campaign.task, invitation, me.identity).sign(me.signing)
    spaced = json.dumps(json.loads(request.split(" ", 3)[3]), indent=3, sort_keys=True)
    assert ask(campaign, invitation, Envelope.sign(EnrolmentRequest.kind, spaced, me.signing).text).status_code == 200


@pytest.mark.parametrize("server", ["sp", "csp"])
def test_a_certificate_under_another_name_is_refused(campaign, person, server):
    world, me = campaign.world, new_keys()
    certificate = Certificate.of(campaign.task, replace(me.identity, who=person.who)).sign(world.signing)
    client = SpClient if server == "sp" else CspClient
    credential = None if server == "sp" else world.token("csp", "sp")
    with pytest.raises(DocumentError, match="somebody else than the owner of its signing key"):
        client(world.service(server, credential)).enrol(campaign.task, certificate)
    assert world.sp.participant(campaign.task, person.who).identity == person.keys.identity


def test_a_phone_is_told_what_a_lying_kgc_certified(campaign, invitation, monkeypatch):
    """Over the real route: another reading key in the certificate than in the request."""
    world, me, other = campaign.world, new_keys(), ReaderKey.fresh().public
    seal = Enrolled.seal

    def lie(self, request):
        certificate = Certificate.of(campaign.task, replace(me.identity, reading=other)).sign(world.signing)
        return seal(replace(self, certificate=certificate), request)

    monkeypatch.setattr(Enrolled, "seal", lie)
    with pytest.raises(DocumentError, match="than it was asked to"):
        enrol(KgcClient(world.service("kgc")), campaign.task, invitation, me, world.signing.public)


@pytest.mark.parametrize("role", ["sp", "csp", "requester", "participant"])
def test_a_key_that_kgc_did_not_appoint_is_refused_over_http(world, monkeypatch, role):
    """By whoever is dealt it, under its own name across the services; no task runs with it, nobody joins."""
    kind = type(PROFILES["hardened"])
    honest = kind.deal

    def deal(self, spec, *, insecure_test_key):
        mine, wrong = (honest(self, spec, insecure_test_key=insecure_test_key) for _ in range(2))
        return replace(mine, **{role: getattr(wrong, role)})

    def use() -> None:
        task = world.create(task_definition(), INITIAL_MODEL)
        world.add_person(task)

    monkeypatch.setattr(kind, "deal", deal)
    with pytest.raises(KeyMismatch, match="KGC appointed"):
        use()
    assert [world.sp.status(stored.task)["enrolled"] for stored in world.sp.store.tasks()] in ([], [0])


async def away(scope, receive, send):
    """A proxy whose server is gone."""
    del scope, receive
    await send({"type": "http.response.start", "status": 502, "headers": []})
    await send({"type": "http.response.body", "body": b"Bad Gateway"})


def told(world, task):
    """Whom CSP knows, in the order in which it was told."""
    return [one.identity.who for one in world.csp.store.participants(task)]


def run(world):
    try:
        world.run()
    except ServiceUnavailable:
        return False
    return True


def test_a_round_of_people_whom_csp_never_heard_of_goes_on_when_csp_is_back(world):
    task = world.post(**SMALL_TASK | {"rounds": 1})
    world.apps["csp"] = away
    people = [world.add_person(task) for _ in range(3)]
    while not world.sp.status(task)["rounds"]:
        run(world)
    for person in people:
        assert person.sp.upload(task, 1, person.update())
    assert not run(world)
    assert (world.sp.status(task)["rounds"][0]["state"], told(world, task)) == ("closed", [])
    world.start_csp()
    assert run(world)
    assert told(world, task) == [person.who for person in people]
    assert world.sp.status(task)["rounds"][0]["state"] == "rewarded"
    assert people[0].sp.reward(task, 1)


def test_csp_is_told_once_in_order_and_again_after_a_crash(world, monkeypatch):
    """How far it was told is durable; who was told twice is known once."""
    task = world.post()
    sent = []
    enrol = world.csp.enrol

    def noted(name, certificate):
        sent.append(certificate)
        enrol(name, certificate)
        if len(sent) == 2:
            raise Crash

    people = [world.add_person(task) for _ in range(4)]
    monkeypatch.setattr(world.sp.ports, "csp", world.csp)
    monkeypatch.setattr(world.csp, "enrol", noted)
    introductions = CspEnrolment(world.sp._core, world.sp.steps.end_with_csp)
    with pytest.raises(Crash):
        introductions.step(task)
    again = CspEnrolment(world.sp._core, world.sp.steps.end_with_csp)
    assert again.due(world.sp.store.task(task))
    assert again.step(task)
    assert told(world, task) == [person.who for person in people]
    assert len(sent) == 5  # the second one twice
    stored = world.sp.store.task(task)
    assert not again.due(stored)
    assert not CspEnrolment(world.sp._core, world.sp.steps.end_with_csp).due(stored)


def test_somebody_whom_csp_refuses_keeps_nobody_waiting(world, monkeypatch):
    task, alerts, enrol = world.post(), [], world.csp.enrol
    people = [world.add_person(task) for _ in range(3)]

    def full_once(name, certificate):
        if not alerts:
            raise TaskFull("no place")
        enrol(name, certificate)

    world.options.events = lambda event, **fields: alerts.append((event, fields.get("error")))
    monkeypatch.setattr(world.csp, "enrol", full_once)
    world.run()
    assert alerts == [("participant refused by CSP", "TaskFull")]
    assert told(world, task) == [person.who for person in people[1:]]
