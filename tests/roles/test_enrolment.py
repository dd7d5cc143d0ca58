"""Enrolment: nobody gets a certificate that binds a key they do not own, and no request serves where it was not signed for."""

import json
from dataclasses import replace

import pytest

from crowdfl.crypto.sealing import ReaderKey, SigningKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import Certificate, EnrolmentRequest, participant_name
from crowdfl.errors import BadSignature, DocumentError, InvalidKey, InvitationRefused, SealBroken
from crowdfl.protocols.profile import Identity, ParticipantKeys
from crowdfl.roles.participant.enrolment import Enrolled, enrol
from tests.hosts import Desk


def new_keys() -> ParticipantKeys:
    """Somebody's keys, under the name that they give."""
    fresh = ParticipantKeys.fresh("")
    return replace(fresh, who=participant_name(fresh.signing.public))


def request_for(desk: Desk, invitation: str, signing: bytes, reading: bytes) -> EnrolmentRequest:
    """A request that is right, whoever signs it."""
    return EnrolmentRequest.of(desk.task, invitation, Identity("", signing, reading))


def can_be_used(desk: Desk, invitation: str) -> bool:
    """Whether an invitation still serves its holder."""
    return bool(enrol(desk.kgc, desk.task, invitation, new_keys(), desk.signing.public))


@pytest.fixture
def desk(tmp_path) -> Desk:
    desk = Desk(tmp_path)
    desk.invite(1)
    return desk


@pytest.fixture
def invitation(desk) -> str:
    return desk.requester.invite(desk.task, 1, 1000)[0]


@pytest.fixture
def victim(desk) -> ParticipantKeys:
    """The keys of the one who has joined, of which others know the public halves."""
    return desk.crowd[0].keys


def test_repro_a_reading_key_of_mine_is_not_certified_under_the_name_of_another(desk, invitation, victim):
    """Rewards of the other would be sealed to me. Only the owner of the signing key can sign the request."""
    me = new_keys()
    mine = request_for(desk, invitation, victim.signing.public, me.reader.public)
    with pytest.raises(BadSignature):
        desk.kgc.enrol(desk.task, invitation, mine.sign(me.signing))
    assert can_be_used(desk, invitation)


def test_a_reading_key_of_another_under_my_name_gives_nobody_a_certificate(desk, invitation, victim):
    """The answer is sealed to the other, who did not ask: neither of us can open it, and nothing shows through."""
    me = new_keys()
    request = request_for(desk, invitation, me.signing.public, victim.reader.public)
    sealed = desk.kgc.enrol(desk.task, invitation, request.sign(me.signing))
    with pytest.raises(SealBroken):
        Enrolled.open(sealed, request, me.reader)
    own = request_for(desk, invitation, victim.signing.public, victim.reader.public)
    with pytest.raises(SealBroken):  # the other's phone opens answers to its own requests alone
        Enrolled.open(sealed, own, victim.reader)
    assert b"certificate" not in sealed
    assert me.who.encode() not in sealed


def test_a_request_of_another_does_not_serve_under_my_invitation(desk, invitation, victim):
    """Overheard, and sent with an invitation that it was not signed for."""
    (another,) = desk.requester.invite(desk.task, 1, 1000)
    overheard = request_for(desk, invitation, victim.signing.public, victim.reader.public).sign(victim.signing)
    with pytest.raises(InvitationRefused, match="another task or invitation"):
        desk.kgc.enrol(desk.task, another, overheard)
    assert can_be_used(desk, another)


def test_a_request_of_one_task_does_not_serve_in_another(desk, invitation, victim):
    """The same keys, a valid invitation of that task, and yet its owner never asked there."""
    elsewhere = EnrolmentRequest.of("0" * 64, invitation, victim.identity).sign(victim.signing)
    with pytest.raises(InvitationRefused, match="another task or invitation"):
        desk.kgc.enrol(desk.task, invitation, elsewhere)
    assert can_be_used(desk, invitation)


def test_a_signature_for_another_purpose_is_not_a_request(desk, invitation):
    me = new_keys()
    *_, payload = EnrolmentRequest.of(desk.task, invitation, me.identity).sign(me.signing).split(" ", 3)
    for kind in ("receipt", "certificate"):
        with pytest.raises(DocumentError, match="where a enrolment-request is expected"):
            desk.kgc.enrol(desk.task, invitation, Envelope.sign(kind, payload, me.signing).text)
    signature = Envelope.sign("order", payload, me.signing).signature
    with pytest.raises(BadSignature):
        desk.kgc.enrol(desk.task, invitation, Envelope(EnrolmentRequest.kind, payload, signature).text)
    assert can_be_used(desk, invitation)


def test_a_key_that_nothing_can_be_sealed_to_uses_no_invitation_up(desk, invitation):
    me = new_keys()
    for reading, error in ((bytes(32), InvalidKey), (b"short", DocumentError)):
        request = request_for(desk, invitation, me.signing.public, reading).sign(me.signing)
        with pytest.raises(error):
            desk.kgc.enrol(desk.task, invitation, request)
    assert can_be_used(desk, invitation)


def test_the_same_holder_may_ask_again(desk, invitation):
    me = new_keys()
    first, second = (enrol(desk.kgc, desk.task, invitation, me, desk.signing.public) for _ in range(2))
    assert first == second
    assert Certificate.open(first.certificate, desk.signing.public).identity == me.identity


def test_a_request_may_come_from_any_program(desk, invitation):
    """Its JSON may have any form: what was signed is what is checked."""
    me = new_keys()
    request = EnrolmentRequest.of(desk.task, invitation, me.identity)
    spaced = json.dumps(json.loads(request.sign(me.signing).split(" ", 3)[3]), indent=3, sort_keys=True)
    sealed = desk.kgc.enrol(desk.task, invitation, Envelope.sign(EnrolmentRequest.kind, spaced, me.signing).text)
    assert Enrolled.open(sealed, request, me.reader).bundle


class Lying:
    """A KGC that certifies something else than it was asked to."""

    def __init__(self, certificate: Certificate, key: SigningKey) -> None:
        self._answer = Enrolled(certificate.sign(key), b"bundle")

    def enrol(self, task, invitation, request):
        return self._answer.seal(EnrolmentRequest.open_own(request))


def test_a_participant_refuses_a_certificate_that_is_not_its_own(desk, invitation):
    """Of other keys, of another task, or of another KGC."""
    me = new_keys()
    other = replace(me.identity, reading=ReaderKey.fresh().public)
    for certificate in (Certificate.of(desk.task, other), Certificate.of("0" * 64, me.identity)):
        with pytest.raises(DocumentError, match="than it was asked to"):
            enrol(Lying(certificate, desk.signing), desk.task, invitation, me, desk.signing.public)
    lying = Lying(Certificate.of(desk.task, me.identity), SigningKey.fresh())
    with pytest.raises(BadSignature):
        enrol(lying, desk.task, invitation, me, desk.signing.public)


@pytest.mark.parametrize("server", ["sp", "csp"])
def test_a_certificate_under_another_name_is_refused(desk, server):
    """A name follows from the signing key, whatever KGC was made to sign."""
    me, taken = new_keys(), desk.crowd[0].keys.who
    certificate = Certificate.of(desk.task, replace(me.identity, who=taken)).sign(desk.signing)
    with pytest.raises(DocumentError, match="somebody else than the owner of its signing key"):
        getattr(desk, server).enrol(desk.task, certificate)
    desk.run()  # CSP is told of those who joined
    assert getattr(desk, server).store.participants(desk.task)[0].identity == desk.crowd[0].keys.identity
