"""What KGC deals to each role of a `hardened` task: one split of the key, audience keys, a public seed."""

from gmpy2 import mpz

from crowdfl.crypto.paillier import pctd
from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.randomness import SEED_BYTES, secret_bytes
from crowdfl.crypto.sealing import AudienceKey
from crowdfl.crypto.signing import SigningKey
from crowdfl.protocols.messages import Message
from crowdfl.protocols.profile import Dealing


class _Bundle(Message, repr=False):
    """The public key and the seed of the public permutation, which every role has."""

    n: int
    h_s: int
    seed: bytes

    def public(self, *, insecure_test_key: bool) -> PublicKey:
        return PublicKey(mpz(self.n), mpz(self.h_s), insecure_test_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"


class SpBundle(_Bundle, kind=30, repr=False):
    """For SP: lambda_sc, and the key that CSP's attestations are checked with. No audience key."""

    share: int
    csp_key: bytes


class CspBundle(_Bundle, kind=31, repr=False):
    """For CSP: lambda_c, both audience keys, the key it attests with."""

    share: int
    participants: bytes
    requester: bytes
    signing: bytes


class ReaderBundle(_Bundle, kind=32, repr=False):
    """For a member of an audience: that audience's key, and the key that CSP signs with. No share."""

    audience: bytes
    csp_key: bytes


def deal(prime_bits: int, *, insecure_test_key: bool) -> Dealing:
    """Make a task's keys; what is not in the dealing is gone when this returns."""
    keys = pctd.keygen(prime_bits, insecure_test_key=insecure_test_key)
    sc, c = keys.private.split()
    seed = secret_bytes(SEED_BYTES)
    participants = AudienceKey.fresh()
    requester = AudienceKey.fresh()
    signing = SigningKey.fresh()
    common = (int(keys.public.n), int(keys.public.h_s), seed)
    return Dealing(
        fingerprint=keys.public.fingerprint,
        sp=SpBundle(*common, int(sc.exponent), signing.public).to_bytes(),
        csp=CspBundle(*common, int(c.exponent), participants.key, requester.key, signing.private).to_bytes(),
        requester=ReaderBundle(*common, requester.key, signing.public).to_bytes(),
        participant=ReaderBundle(*common, participants.key, signing.public).to_bytes(),
        csp_key=signing.public,
    )
