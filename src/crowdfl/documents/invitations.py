"""From the requester's word to a participant's keys: an invitation names a key, that key signs keys that join, KGC certifies.

Whoever takes somebody in checks all of it, by the requester's key in the task's definition: KGC alone can neither add nor
replace anyone. A number is a place in the task. Its devices come one after the other, each by an invitation of its own.
"""

import contextlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.documents.envelope import Document, Envelope, from_base64url, to_base64url
from crowdfl.documents.signed import Definition, participant_name
from crowdfl.errors import BadSignature, DocumentError, FormatError, InvitationRefused
from crowdfl.protocols.profile import Identity, ParticipantKeys
from crowdfl.settings import MOST_DEVICES

_Seconds = Annotated[float, Field(ge=0, le=1e12)]
_Key = Annotated[bytes, Field(min_length=32, max_length=32)]
_Signature = Annotated[bytes, Field(min_length=64, max_length=64)]
_Number = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
_Device = Annotated[int, Field(ge=1, le=MOST_DEVICES)]
_AT_HAND = 1024  # certificates that were checked in this process


@dataclass(frozen=True)
class Invitation(Document):
    """Whoever holds the key may join, once. A recruiter's word is as good as the requester's, but not for a second device."""

    kind = "invitation"
    number: _Number = field(repr=False)
    device: _Device  # which one of the person's: each takes the place of those before it
    key: _Key
    expires: _Seconds

    @classmethod
    def open_in(cls, text: str, definition: Definition) -> "Invitation":
        """One to this task, of its requester or recruiter."""
        return _opened(text, definition.task, definition.requester, definition.recruiter)


def _opened(text: str, task: str, requester: bytes, recruiter: bytes) -> Invitation:
    envelope = Envelope.parse(text, Invitation.kind)
    found = Invitation.read(envelope)
    try:
        envelope.verify(requester)
    except BadSignature:
        if not recruiter or found.device > 1:
            raise
        envelope.verify(recruiter)
    if found.task != task:
        raise InvitationRefused("this invitation is for another task")
    return found


@dataclass(frozen=True)
class Ticket:
    """What an invited person is given: the invitation, and the private half of its key. Whoever has it can join: a secret."""

    invitation: str = field(repr=False)
    key: SigningKey = field(repr=False)

    @classmethod
    def make(cls, task: str, number: str, device: int, expires: float, signer: SigningKey) -> "Ticket":
        key = SigningKey.fresh()
        return cls(Invitation(task, number, device, key.public, expires).sign(signer), key)

    @classmethod
    def parse(cls, text: str) -> "Ticket":
        letters, _, invitation = text.partition(" ")
        with contextlib.suppress(DocumentError, FormatError, ValueError):
            ticket = cls(invitation, SigningKey(from_base64url(letters)))
            if ticket.key.public == ticket.opened.key:
                return ticket
        raise DocumentError("this is no invitation with its key: take it as the requester gave it, whole")

    @property
    def text(self) -> str:
        return f"{to_base64url(self.key.private)} {self.invitation}"

    @property
    def opened(self) -> Invitation:
        """What the invitation says; who signed it, others check."""
        return Invitation.read(Envelope.parse(self.invitation, Invitation.kind))


@dataclass(frozen=True)
class EnrolmentRequest(Document):
    """These keys join with an invitation. Signed by the invitation's key; `proof` by the signing key, whose owner wants it."""

    kind = "enrolment-request"
    number: _Number = field(repr=False)
    device: _Device
    signing: _Key
    reading: _Key
    proof: _Signature = field(default=b"", repr=False)

    @classmethod
    def make(cls, ticket: Ticket, keys: ParticipantKeys) -> "EnrolmentRequest":
        found, own = ticket.opened, keys.identity
        unsigned = cls(found.task, found.number, found.device, own.signing, own.reading)
        return cls(*unsigned.what, keys.signing.sign(unsigned.context))

    @property
    def what(self) -> tuple[str, str, int, bytes, bytes]:
        return self.task, self.number, self.device, self.signing, self.reading

    @property
    def context(self) -> bytes:
        """What the proof is over, and what KGC's answer is bound to."""
        keys = f"{self.signing.hex()} {self.reading.hex()}"
        return f"crowdfl enrolment 3 {self.task} {self.number} {self.device} {keys}".encode()

    @property
    def identity(self) -> Identity:
        return Identity(participant_name(self.signing), self.signing, self.reading, self.number)

    @classmethod
    def open_under(cls, text: str, invitation: Invitation) -> "EnrolmentRequest":
        """One that the holder of this invitation has signed, and the owner of the signing key that it names."""
        found = cls.open(text, invitation.key)
        if (found.task, found.number, found.device) != (invitation.task, invitation.number, invitation.device):
            raise InvitationRefused("this request was signed for another task or invitation: sign one for this")
        verify(found.signing, found.context, found.proof)
        return found


@dataclass(frozen=True)
class Certificate(Document):
    """KGC's word that an invitation was used once, with the two documents that show who may join with it."""

    kind = "certificate"
    who: str
    invitation: str
    request: str


@dataclass(frozen=True)
class Admission:
    """Who joins, by a certificate whose whole chain was checked."""

    identity: Identity
    device: int
    expires: float  # the invitation


def admitted(certificate: str, kgc_key: bytes, definition: Definition) -> Admission:
    """Whom a certificate lets into this task; what was found in order once need not be looked at again."""
    return _admitted(certificate, kgc_key, definition.task, definition.requester, definition.recruiter)


@lru_cache(maxsize=_AT_HAND)
def _admitted(certificate: str, kgc_key: bytes, task: str, requester: bytes, recruiter: bytes) -> Admission:
    found = Certificate.open(certificate, kgc_key)
    if found.task != task:
        raise DocumentError("this certificate is for another task")
    invitation = _opened(found.invitation, task, requester, recruiter)
    request = EnrolmentRequest.open_under(found.request, invitation)
    if found.who != request.identity.who:
        raise DocumentError("this certificate names somebody else than the owner of its signing key")
    return Admission(request.identity, invitation.device, invitation.expires)
