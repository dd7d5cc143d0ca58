"""Enrolment: nobody gets a certificate that binds a key they do not own, and no request serves where it was not signed for."""

import json
from dataclasses import replace

import pytest

from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.invitations import Certificate, EnrolmentRequest, Ticket, admitted
from crowdfl.documents.signed import participant_name
from crowdfl.errors import BadSignature, DocumentError, InvalidKey, InvitationRefused, SealBroken
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.roles.participant.enrolment import Enrolled, enrol
from tests.hosts import Desk


def new_keys() -> ParticipantKeys:
    """Somebody's keys, under the name that they give."""
    fresh = ParticipantKeys.fresh("")
    return replace(fresh, who=participant_name(fresh.signing.public))


def certified(desk: Desk, ticket: str, keys: ParticipantKeys) -> str:
    """KGC's certificate of these keys, under this invitation."""
    return enrol(desk.kgc, desk.sp.core.definition(desk.task), ticket, keys, desk.signing.public).certificate


def can_be_used(desk: Desk, ticket: Ticket) -> bool:
    """Whether an invitation still serves its holder."""
    return bool(certified(desk, ticket.text, new_keys()))


@pytest.fixture
def desk(tmp_path) -> Desk:
    desk = Desk(tmp_path)
    desk.invite(1)
    return desk


@pytest.fixture
def ticket(desk) -> Ticket:
    return Ticket.parse(desk.requester.invite(desk.task, 1, 1000)[0])


@pytest.fixture
def victim(desk) -> ParticipantKeys:
    """The keys of the one who has joined, of which others know the public halves."""
    return desk.crowd[0].keys


def asked(desk: Desk, ticket: Ticket, request: EnrolmentRequest, signer: SigningKey | None = None) -> bytes:
    """What KGC answers to whoever holds the invitation."""
    return desk.kgc.enrol(desk.task, ticket.invitation, request.sign(signer or ticket.key))


def test_an_invitation_without_its_key_gets_nobody_in(desk, ticket):
    """Whoever has seen it, KGC too, has half of what it takes: the request is signed by whoever has the link."""
    me = new_keys()
    request = EnrolmentRequest.make(ticket, me)
    for signer in (me.signing, SigningKey.fresh(), desk.signing):
        with pytest.raises(BadSignature):
            asked(desk, ticket, request, signer)
    assert can_be_used(desk, ticket)


def test_repro_a_reading_key_of_mine_is_not_certified_under_the_name_of_another(desk, ticket, victim):
    """Rewards of the other would be sealed to me. Only the owner of the signing key can prove it."""
    me = new_keys()
    mine = replace(EnrolmentRequest.make(ticket, me), signing=victim.signing.public)
    for proof in (mine.proof, me.signing.sign(mine.context)):
        with pytest.raises(BadSignature):
            asked(desk, ticket, replace(mine, proof=proof))
    assert can_be_used(desk, ticket)


def test_a_reading_key_of_another_under_my_name_gives_nobody_a_certificate(desk, ticket, victim):
    """The answer is sealed to the other, who did not ask: neither of us can open it, and nothing shows through."""
    me = new_keys()
    request = EnrolmentRequest.make(ticket, replace(me, reader=victim.reader))
    sealed = asked(desk, ticket, request)
    with pytest.raises(SealBroken):
        Enrolled.open(sealed, request, me.reader)
    with pytest.raises(SealBroken):  # the other's phone opens answers to its own requests alone
        Enrolled.open(sealed, EnrolmentRequest.make(ticket, victim), victim.reader)
    assert b"certificate" not in sealed
    assert me.who.encode() not in sealed


def test_a_request_of_another_does_not_serve_under_my_invitation(desk, ticket, victim):
    """Overheard, and sent with an invitation that it was not signed for; also if one key had signed both."""
    another = Ticket.parse(desk.requester.invite(desk.task, 1, 1000)[0])
    overheard = EnrolmentRequest.make(ticket, victim)
    with pytest.raises(BadSignature):
        asked(desk, another, overheard, ticket.key)
    with pytest.raises(InvitationRefused, match="another task or invitation"):
        asked(desk, another, overheard, another.key)
    assert can_be_used(desk, another)


def test_a_request_of_one_task_or_device_does_not_serve_in_another(desk, ticket, victim):
    """The same keys, a valid invitation, and yet its owner never asked there."""
    request = EnrolmentRequest.make(ticket, victim)
    for elsewhere in (replace(request, task="0" * 64), replace(request, device=2)):
        with pytest.raises(InvitationRefused, match="another task or invitation"):
            asked(desk, ticket, elsewhere)
    assert can_be_used(desk, ticket)


def test_a_signature_for_another_purpose_is_not_a_request(desk, ticket):
    *_, payload = EnrolmentRequest.make(ticket, new_keys()).sign(ticket.key).split(" ", 3)
    for kind in ("receipt", "certificate"):
        with pytest.raises(DocumentError, match="where a enrolment-request is expected"):
            desk.kgc.enrol(desk.task, ticket.invitation, Envelope.sign(kind, payload, ticket.key).text)
    signature = Envelope.sign("order", payload, ticket.key).signature
    with pytest.raises(BadSignature):
        desk.kgc.enrol(desk.task, ticket.invitation, Envelope(EnrolmentRequest.kind, payload, signature).text)
    assert can_be_used(desk, ticket)


def test_a_key_that_nothing_can_be_sealed_to_uses_no_invitation_up(desk, ticket):
    me = new_keys()
    for reading, error in ((bytes(32), InvalidKey), (b"short", DocumentError)):
        request = replace(EnrolmentRequest.make(ticket, me), reading=reading)
        with pytest.raises(error):
            asked(desk, ticket, replace(request, proof=me.signing.sign(request.context)))
    assert can_be_used(desk, ticket)


def test_the_same_holder_may_ask_again_and_nobody_else(desk, ticket):
    me = new_keys()
    first, second = (certified(desk, ticket.text, me) for _ in range(2))
    assert first == second
    found = admitted(first, desk.signing.public, desk.sp.core.definition(desk.task))
    assert (found.identity, found.identity.place, found.device) == (me.identity, ticket.opened.number, 1)
    with pytest.raises(InvitationRefused, match="used by someone else"):
        certified(desk, ticket.text, new_keys())


def test_a_request_may_come_from_any_program(desk, ticket):
    """Its JSON may have any form: what was signed is what is checked."""
    me = new_keys()
    request = EnrolmentRequest.make(ticket, me)
    spaced = json.dumps(json.loads(request.sign(ticket.key).split(" ", 3)[3]), indent=3, sort_keys=True)
    sealed = desk.kgc.enrol(desk.task, ticket.invitation, Envelope.sign(EnrolmentRequest.kind, spaced, ticket.key).text)
    assert Enrolled.open(sealed, request, me.reader).bundle


def test_a_ticket_is_a_secret_that_is_taken_whole_or_not_at_all(desk, ticket):
    """Without its key, with another's, or with a letter less it is no ticket; and it shows in no repr and no error."""
    other = Ticket.parse(desk.requester.invite(desk.task, 1, 1000)[0])
    letters = ticket.text.partition(" ")[0]
    for text in ("", ticket.invitation, Ticket(other.invitation, ticket.key).text, ticket.text[1:], f"{letters} x"):
        with pytest.raises(DocumentError, match="no invitation with its key") as refusal:
            Ticket.parse(text)
        assert letters not in str(refusal.value)
    assert Ticket.parse(ticket.text) == ticket
    assert letters not in repr(ticket) + repr(ticket.opened)


class Lying:
    """A KGC that certifies something else than it was asked to."""

    def __init__(self, certificate: str, invitation: Ticket) -> None:
        self._answer, self._ticket = Enrolled(certificate, b"bundle"), invitation

    def enrol(self, task, invitation, request):
        return self._answer.seal(EnrolmentRequest.open_under(request, self._ticket.opened))


def test_a_participant_refuses_a_certificate_that_is_not_its_own(desk, ticket):
    """Of other keys, of another invitation of mine, of another task, or of another KGC."""
    me, definition = new_keys(), desk.sp.core.definition(desk.task)
    other = Ticket.parse(desk.requester.invite(desk.task, 1, 1000)[0])

    def signed(task: str, ticket: Ticket, keys: ParticipantKeys, key: SigningKey) -> str:
        request = EnrolmentRequest.make(ticket, keys).sign(ticket.key)
        return Certificate(task, keys.who, ticket.invitation, request).sign(key)

    wrong = {
        signed(desk.task, ticket, replace(me, reader=ReaderKey.fresh()), desk.signing): DocumentError,
        signed(desk.task, other, me, desk.signing): DocumentError,
        signed("0" * 64, ticket, me, desk.signing): DocumentError,
        signed(desk.task, ticket, me, SigningKey.fresh()): BadSignature,
    }
    for certificate, error in wrong.items():
        with pytest.raises(error):
            enrol(Lying(certificate, ticket), definition, ticket.text, me, desk.signing.public)
    right = signed(desk.task, ticket, me, desk.signing)
    assert enrol(Lying(right, ticket), definition, ticket.text, me, desk.signing.public).certificate == right
