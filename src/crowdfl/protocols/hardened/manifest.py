"""The manifest of a `hardened` round: whose uploads it has, each signed by its owner for this round, and what it pays.

CSP takes one for a round, before any step of it, and none of a round that a later one has passed. It never sees ciphertexts of
uploads: what SP computes with in their place, within the round, no signature can say.
"""

import hashlib
from collections.abc import Mapping

from crowdfl.crypto.compute import Backend
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import form_bytes
from crowdfl.crypto.signing import SigningKey, verify
from crowdfl.errors import BadSignature
from crowdfl.protocols.common.binding import bind
from crowdfl.protocols.common.manifest import require_listed, require_signed
from crowdfl.protocols.messages import HEADER_BYTES, LENGTH_BYTES, Limits, Message, RoundRequest
from crowdfl.protocols.profile import TaskSpec

SIGNATURE_BYTES = 64


class HardenedUpload(Message, kind=34, repr=False):
    """What a participant sends to SP: its ciphertexts, and its signature of their hash for one round."""

    signature: bytes
    numbers: bytes  # the packed [[delta * w]] and, last, [[delta]]

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.numbers).digest()

    @classmethod
    def signed(cls, task: str, number: int, who: str, numbers: bytes, signing: SigningKey) -> "HardenedUpload":
        statement = upload_statement(task, number, who, hashlib.sha256(numbers).digest())
        return cls(signing.sign(statement), numbers)

    @classmethod
    def parse(cls, upload: bytes) -> "HardenedUpload":
        return cls.from_bytes(upload, Limits.plain(len(upload)))

    def require_of(self, task: str, number: int, who: str, key: bytes) -> None:
        """SP: CSP takes no other into the round."""
        try:
            verify(key, upload_statement(task, number, who, self.digest), self.signature)
        except BadSignature:
            raise BadSignature(f"this upload is not signed by {who} for round {number} of this task") from None


def upload_statement(task: str, number: int, who: str, digest: bytes) -> bytes:
    """What a participant signs."""
    return bind("crowdfl hardened upload 1", task.encode(), str(number).encode(), who.encode(), digest)


def upload_bytes(public: PublicKey, count: int) -> int:
    """Of every upload of so many ciphertexts."""
    return HEADER_BYTES + 2 * LENGTH_BYTES + SIGNATURE_BYTES + form_bytes(public, count)


class ManifestRequest(RoundRequest, kind=10):
    """SP to CSP: what the round pays in all, and the uploads by name, hash and signature. No other comes in after it."""

    payment: int  # millionths; 0 in a round that pays nothing
    participants: tuple[str, ...]
    digests: tuple[bytes, ...]
    signatures: tuple[bytes, ...]

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(b"crowdfl hardened manifest 1" + self.to_bytes()).digest()


class CoinsReply(Message, kind=11):
    """CSP to SP: its part of the sketch's coins."""

    nonce: bytes


def manifest_of(number: int, payment: int, uploads: Mapping[str, tuple[bytes, bytes]]) -> ManifestRequest:
    """`uploads`: by name, the hash and the signature."""
    names = tuple(sorted(uploads))
    digests, signatures = ([uploads[who][place] for who in names] for place in (0, 1))
    return ManifestRequest(number, payment, names, tuple(digests), tuple(signatures))


def check_manifest(manifest: ManifestRequest, task: TaskSpec, keys: Mapping[str, bytes], backend: Backend) -> None:
    """CSP, before anything of the round: everyone is certified, has signed an upload for it, and there are enough."""
    settings, names = task.settings, manifest.participants
    require_listed(names, keys, settings.min_participants, settings.most_in_round)
    rows = zip(names, manifest.digests, manifest.signatures, strict=True)
    number = manifest.round_number
    require_signed(
        [(keys[who], who, upload_statement(task.name, number, who, digest), by) for who, digest, by in rows], backend
    )
