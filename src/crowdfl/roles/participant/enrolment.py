"""Enrolment: a participant signs its keys with its invitation's key, and gets a certificate and the participants' bundle.

The request proves the signing key. The answer is sealed to the reading key, with the certificate inside: whoever cannot open it
has no certificate. Both name the task, the invitation and both keys, so neither serves in another place.
"""

from typing import Protocol

from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.documents.invitations import EnrolmentRequest, Ticket, admitted
from crowdfl.documents.signed import Definition
from crowdfl.errors import DocumentError, InvitationRefused
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.profile import ParticipantKeys


class Enrolled(Message, kind=71, repr=False):
    """What a participant gets for an invitation. It leaves KGC sealed, never in the clear."""

    certificate: str
    bundle: bytes

    def seal(self, request: EnrolmentRequest) -> bytes:
        return seal_to(request.reading, self.to_bytes(), request.context)

    @classmethod
    def open(cls, sealed: bytes, request: EnrolmentRequest, reader: ReaderKey) -> "Enrolled":
        return cls.from_bytes(reader.open(sealed, request.context), Limits.plain())


class EnrollingKgc(Protocol):
    """KGC as whoever was invited reaches it."""

    def enrol(self, task: str, invitation: str, request: str) -> bytes: ...  # an `Enrolled`, sealed


def enrol(kgc: EnrollingKgc, definition: Definition, ticket: str, keys: ParticipantKeys, kgc_key: bytes) -> Enrolled:
    """Ask KGC to certify these keys; what it answers is checked, as both servers will. Safe to repeat with the same keys."""
    own = Ticket.parse(ticket)
    if own.opened.task != definition.task:
        raise InvitationRefused("this invitation is for another task")
    request = EnrolmentRequest.make(own, keys)
    sealed = kgc.enrol(definition.task, own.invitation, request.sign(own.key))
    enrolled = Enrolled.open(sealed, request, keys.reader)
    found = admitted(enrolled.certificate, kgc_key, definition)
    if (found.identity, found.identity.place, found.device) != (keys.identity, request.number, request.device):
        raise DocumentError("KGC certified another task or other keys than it was asked to: tell the requester")
    return enrolled


def takes_a_place(ticket: str) -> bool:
    """Whether it is for somebody who has a place in the task already, with another device; none at all is not."""
    return bool(ticket) and Ticket.parse(ticket).opened.device > 1
