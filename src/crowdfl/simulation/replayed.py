"""A run that repeats itself: secret bytes follow from a seed, so that nothing in it is secret.

HPKE's library draws the ephemeral key of a seal by itself, so that a replayed seal is made here, as RFC 9180 says (mode base,
one message). The library opens it; no service can reach this module.
"""

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from crowdfl.crypto.coins import Coins
from crowdfl.crypto.entropy import REPLAYED_SEAL, SOURCE
from crowdfl.crypto.randomness import secret_bytes

_KEM_ID, _SUITE_ID = b"KEM\0\x20", b"HPKE\0\x20\0\1\0\3"  # X25519, HKDF-SHA256, ChaCha20Poly1305


@contextmanager
def seeded(seed: bytes) -> Iterator[None]:
    """In this thread, until the end of the block. Whoever knows the seed knows every key that is made in it."""
    source = SOURCE.set(Coins(hashlib.sha256(b"crowdfl replayed 1" + seed).digest()).take)
    seal = REPLAYED_SEAL.set(_seal)
    try:
        yield
    finally:
        REPLAYED_SEAL.reset(seal)
        SOURCE.reset(source)


def _seal(reader: X25519PublicKey, plaintext: bytes, context: bytes) -> bytes:
    own = X25519PrivateKey.from_private_bytes(secret_bytes(32))
    sender = own.public_key().public_bytes_raw()
    prk = _extract(_KEM_ID, b"", b"eae_prk", own.exchange(reader))
    shared = _expand(_KEM_ID, prk, b"shared_secret", sender + reader.public_bytes_raw(), 32)
    hashes = _extract(_SUITE_ID, b"", b"psk_id_hash", b"") + _extract(_SUITE_ID, b"", b"info_hash", context)
    secret = _extract(_SUITE_ID, shared, b"secret", b"")
    key, nonce = (
        _expand(_SUITE_ID, secret, name, b"\0" + hashes, size) for name, size in ((b"key", 32), (b"base_nonce", 12))
    )
    return sender + ChaCha20Poly1305(key).encrypt(nonce, plaintext, b"")


def _extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    """LabeledExtract of RFC 9180."""
    return hmac.digest(salt, b"HPKE-v1" + suite + label + material, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """LabeledExpand of RFC 9180, of one block of SHA-256."""
    return hmac.digest(key, length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info + b"\1", "sha256")[:length]
