"""Enrolment: a participant shows KGC that it owns both of its keys, and gets its certificate and the participants' bundle.

The request is signed, so the signing key is the asker's. The answer is sealed to the reading key, with the certificate inside:
whoever cannot open it has no certificate. Both name the task, the invitation and both keys, so neither serves in another place.
"""

import struct
from dataclasses import dataclass, field
from typing import Protocol

from crowdfl.crypto.sealing import ReaderKey, seal_to
from crowdfl.documents.signed import Certificate, EnrolmentRequest
from crowdfl.errors import DocumentError, Truncated
from crowdfl.protocols.profile import ParticipantKeys

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class Enrolled:
    """What a participant gets for an invitation. It leaves KGC sealed, never in the clear."""

    certificate: str
    bundle: bytes = field(repr=False)

    def seal(self, request: EnrolmentRequest) -> bytes:
        certificate = self.certificate.encode()
        return seal_to(
            request.reading, _LENGTH.pack(len(certificate)) + certificate + self.bundle, enrolment_context(request)
        )

    @classmethod
    def open(cls, sealed: bytes, request: EnrolmentRequest, reader: ReaderKey) -> "Enrolled":
        opened = reader.open(sealed, enrolment_context(request))
        start = _LENGTH.size
        end = start + int.from_bytes(opened[:start], "big")
        if len(opened) < end or len(opened) < start:
            raise Truncated("KGC's answer ends inside the certificate: join again")
        return cls(opened[start:end].decode("utf-8", "replace"), opened[end:])


class EnrollingKgc(Protocol):
    """KGC as whoever was invited reaches it."""

    def enrol(self, task: str, invitation: str, request: str) -> bytes: ...  # an `Enrolled`, sealed


def enrol(kgc: EnrollingKgc, task: str, invitation: str, keys: ParticipantKeys, kgc_key: bytes) -> Enrolled:
    """Ask KGC to certify these keys; what it answers is checked. Safe to repeat with the same keys."""
    request = EnrolmentRequest.of(task, invitation, keys.identity)
    enrolled = Enrolled.open(kgc.enrol(task, invitation, request.sign(keys.signing)), request, keys.reader)
    if Certificate.open(enrolled.certificate, kgc_key) != Certificate.of(task, keys.identity):
        raise DocumentError("KGC certified another task or other keys than it was asked to: tell the requester")
    return enrolled


def enrolment_context(request: EnrolmentRequest) -> bytes:
    """What KGC's answer to this request is bound to."""
    keys = f"{request.signing.hex()} {request.reading.hex()}"
    return f"crowdfl enrolment 2 {request.task} {request.invitation} {keys}".encode()
