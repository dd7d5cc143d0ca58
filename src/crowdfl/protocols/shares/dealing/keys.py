"""What KGC deals to each role of a `shares` task: no key that decrypts uploads, but seeds, and the keys of CSP and readers.

Everyone gets CSP's public keys and those of both audiences, which servers seal the seeds of their masks to. SP and CSP get a
seed each, CSP its private keys, and readers their audience's. The two seeds together are the source of all correlations: KGC
keeps them until both servers have every file that they need, and then destroys them.
"""

import hashlib

from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes
from crowdfl.crypto.sealing import ReaderKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.errors import FormatError, KeyMismatch
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import Dealing

PARTICIPANTS, REQUESTER = "participants", "requester"


class _PublicKeys(Message, repr=False):
    """What every role has: CSP's keys, to check its signatures and to seal to it, and the keys of those who read averages."""

    csp_signing: bytes
    csp_sealing: bytes
    participants: bytes
    requester: bytes

    @property
    def fingerprint(self) -> bytes:
        public = self.csp_signing, self.csp_sealing, self.participants, self.requester
        return hashlib.sha256(b"crowdfl shares keys 2" + b"".join(public)).digest()

    @property
    def audiences(self) -> dict[str, bytes]:
        return {PARTICIPANTS: self.participants, REQUESTER: self.requester}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"


class SharesSpBundle(_PublicKeys, kind=50, repr=False):
    """For SP: its dealt seed."""

    seed: bytes


class SharesCspBundle(_PublicKeys, kind=51, repr=False):
    """For CSP: its dealt seed and its private keys."""

    seed: bytes
    signing: bytes
    sealing: bytes


class SharesReaderBundle(_PublicKeys, kind=52, repr=False):
    """For a member of an audience: its private key, and the ring, so that a client in another language need not derive it."""

    reading: bytes
    ring_bits: int

    def require_ring(self, bits: int) -> None:
        if self.ring_bits != bits:
            raise KeyMismatch(
                f"KGC dealt for shares of {self.ring_bits} bits where this program finds {bits}: both must run the same version"
            )

    def reader(self, audience: str) -> ReaderKey:
        """The audience's key; it must be the one that servers seal to."""
        key = ReaderKey(self.reading)
        if key.public != self.audiences[audience]:
            raise KeyMismatch(
                "KGC dealt a private key that does not fit the public one, which servers seal averages to"
            )
        return key


def deal_keys(ring_bits: int) -> Dealing:
    """Make a task's keys and seeds; what is not in the dealing is gone when this returns."""
    signing, sealing = SigningKey.fresh(), ReaderKey.fresh()
    participants, requester = ReaderKey.fresh(), ReaderKey.fresh()
    seeds = secret_bytes(SEED_BYTES), secret_bytes(SEED_BYTES)
    public = signing.public, sealing.public, participants.public, requester.public
    sp = SharesSpBundle(*public, seeds[0])
    return Dealing(
        fingerprint=sp.fingerprint,
        sp=sp.to_bytes(),
        csp=SharesCspBundle(*public, seeds[1], signing.private, sealing.private).to_bytes(),
        requester=SharesReaderBundle(*public, requester.private, ring_bits).to_bytes(),
        participant=SharesReaderBundle(*public, participants.private, ring_bits).to_bytes(),
        source=seeds[0] + seeds[1],
        csp_key=signing.public,
    )


def seeds_of(source: bytes) -> tuple[bytes, bytes]:
    """SP's and CSP's."""
    if len(source) != 2 * SEED_BYTES:
        raise FormatError(f"the source of a task's correlations has {2 * SEED_BYTES} bytes, not {len(source)}")
    return source[:SEED_BYTES], source[SEED_BYTES:]
