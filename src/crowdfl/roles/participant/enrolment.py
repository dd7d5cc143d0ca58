"""Enrolment: a participant shows KGC that it owns both of its keys, and gets its certificate and the participants' bundle.

The request is signed, so the signing key is the asker's. The answer is sealed to the reading key, with the certificate inside:
whoever cannot open it has no certificate. Both name the task, the invitation and both keys, so neither serves in another place.
"""

from typing import Protocol

from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.documents.envelope import Envelope
from crowdfl.documents.signed import Certificate, EnrolmentRequest, Invitation
from crowdfl.errors import DocumentError
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.profile import ParticipantKeys


class Enrolled(Message, kind=71, repr=False):
    """What a participant gets for an invitation. It leaves KGC sealed, never in the clear."""

    certificate: str
    bundle: bytes

    def seal(self, request: EnrolmentRequest) -> bytes:
        return seal_to(request.reading, self.to_bytes(), enrolment_context(request))

    @classmethod
    def open(cls, sealed: bytes, request: EnrolmentRequest, reader: ReaderKey) -> "Enrolled":
        return cls.from_bytes(reader.open(sealed, enrolment_context(request)), Limits.plain())


class EnrollingKgc(Protocol):
    """KGC as whoever was invited reaches it."""

    def enrol(self, task: str, invitation: str, request: str) -> bytes: ...  # an `Enrolled`, sealed


def enrol(kgc: EnrollingKgc, task: str, invitation: str, keys: ParticipantKeys, kgc_key: bytes) -> Enrolled:
    """Ask KGC to certify these keys; what it answers is checked. Safe to repeat with the same keys."""
    request = EnrolmentRequest.of(task, invitation, keys.identity)
    enrolled = Enrolled.open(kgc.enrol(task, invitation, request.sign(keys.signing)), request, keys.reader)
    found = Certificate.open(enrolled.certificate, kgc_key)
    if found != Certificate.of(task, keys.identity, found.replaces) or bool(found.replaces) != takes_a_place(
        invitation
    ):
        raise DocumentError("KGC certified another task or other keys than it was asked to: tell the requester")
    return enrolled


def takes_a_place(invitation: str) -> bool:
    """Whether it is for somebody who has a place in the task already, with another device; none at all is not."""
    return bool(invitation) and bool(Invitation.read(Envelope.parse(invitation, Invitation.kind)).replaces)


def enrolment_context(request: EnrolmentRequest) -> bytes:
    """What KGC's answer to this request is bound to."""
    keys = f"{request.signing.hex()} {request.reading.hex()}"
    return f"crowdfl enrolment 2 {request.task} {request.invitation} {keys}".encode()
