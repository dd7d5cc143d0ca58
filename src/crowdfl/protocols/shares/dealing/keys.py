"""What KGC deals to each role of a `shares` task: no key that decrypts anything, but seeds, audience keys and CSP's two keys.

SP gets a seed of its own; CSP a seed, the key it signs with, the key that uploads are sealed to, and both audience keys;
readers their audience's key. The two seeds together are the source of all correlations: KGC keeps them until both servers
have every file that they need, and then destroys them.
"""

import hashlib
import secrets

from crowdfl.crypto.randomness import SEED_BYTES
from crowdfl.crypto.sealing import AudienceKey, ReaderKey, SigningKey
from crowdfl.errors import FormatError, KeyMismatch
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import Dealing


class _PublicKeys(Message, repr=False):
    """CSP's public keys, which every role has: to check its signatures, and to seal to it."""

    csp_signing: bytes
    csp_sealing: bytes

    @property
    def fingerprint(self) -> bytes:
        return hashlib.sha256(b"crowdfl shares keys 1" + self.csp_signing + self.csp_sealing).digest()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"


class SharesSpBundle(_PublicKeys, kind=50, repr=False):
    """For SP: its dealt seed. No audience key."""

    seed: bytes


class SharesCspBundle(_PublicKeys, kind=51, repr=False):
    """For CSP: its dealt seed, its private keys, both audience keys."""

    seed: bytes
    signing: bytes
    sealing: bytes
    participants: bytes
    requester: bytes


class SharesReaderBundle(_PublicKeys, kind=52, repr=False):
    """For a member of an audience: its key, and the ring, so that a client in another language need not derive it."""

    audience: bytes
    ring_bits: int

    def require_ring(self, bits: int) -> None:
        if self.ring_bits != bits:
            raise KeyMismatch(
                f"KGC dealt for shares of {self.ring_bits} bits where this program finds {bits}: both must run the same version"
            )


def deal_keys(ring_bits: int) -> Dealing:
    """Make a task's keys and seeds; what is not in the dealing is gone when this returns."""
    signing, sealing = SigningKey.fresh(), ReaderKey.fresh()
    participants, requester = AudienceKey.fresh(), AudienceKey.fresh()
    seeds = secrets.token_bytes(SEED_BYTES), secrets.token_bytes(SEED_BYTES)
    public = signing.public, sealing.public
    sp = SharesSpBundle(*public, seeds[0])
    csp = SharesCspBundle(*public, seeds[1], signing.private, sealing.private, participants.key, requester.key)
    return Dealing(
        fingerprint=sp.fingerprint,
        sp=sp.to_bytes(),
        csp=csp.to_bytes(),
        requester=SharesReaderBundle(*public, requester.key, ring_bits).to_bytes(),
        participant=SharesReaderBundle(*public, participants.key, ring_bits).to_bytes(),
        source=seeds[0] + seeds[1],
    )


def seeds_of(source: bytes) -> tuple[bytes, bytes]:
    """SP's and CSP's."""
    if len(source) != 2 * SEED_BYTES:
        raise FormatError(f"the source of a task's correlations has {2 * SEED_BYTES} bytes, not {len(source)}")
    return source[:SEED_BYTES], source[SEED_BYTES:]
