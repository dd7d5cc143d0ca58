"""Sealing: what only its readers can open, bound to its context, so that one message cannot be served in place of another.

To an audience that shares a key by ChaCha20-Poly1305, to one reader by HPKE with X25519, both from `cryptography`.
"""

from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crowdfl.crypto.entropy import REPLAYED_SEAL
from crowdfl.crypto.randomness import secret_bytes
from crowdfl.errors import InvalidKey, SealBroken

_KEY_BYTES = 32
_SALT_BYTES = 32
_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)


@dataclass(frozen=True)
class AudienceKey:
    """What CSP and the members of an audience share, and SP never has."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != _KEY_BYTES:
            raise InvalidKey(f"an audience key has {_KEY_BYTES} bytes, not {len(self.key)}")

    @classmethod
    def fresh(cls) -> "AudienceKey":
        return cls(secret_bytes(_KEY_BYTES))

    def seal(self, plaintext: bytes, context: bytes) -> bytes:
        """Salt and ciphertext; a key of its own for every message, so that no nonce can repeat."""
        salt = secret_bytes(_SALT_BYTES)
        return salt + self._cipher(salt).encrypt(bytes(12), plaintext, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        try:
            return self._cipher(sealed[:_SALT_BYTES]).decrypt(bytes(12), sealed[_SALT_BYTES:], context)
        except InvalidTag:
            raise SealBroken("this was sealed for another audience or another place, or it was altered") from None

    def _cipher(self, salt: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(HKDF(SHA256(), _KEY_BYTES, salt, b"crowdfl audience 1").derive(self.key))


@dataclass(frozen=True)
class ReaderKey:
    """The X25519 key of one reader."""

    private: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> "ReaderKey":
        return cls(secret_bytes(_KEY_BYTES))

    @cached_property
    def public(self) -> bytes:
        return X25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    def open(self, sealed: bytes, context: bytes) -> bytes:
        try:
            return _SUITE.decrypt(sealed, X25519PrivateKey.from_private_bytes(self.private), context)
        except (InvalidTag, ValueError):
            raise SealBroken("this was sealed to another reader or another place, or it was altered") from None


def seal_to(reader: bytes, plaintext: bytes, context: bytes) -> bytes:
    """HPKE to the reader who owns this X25519 public key."""
    try:
        key = X25519PublicKey.from_public_bytes(reader)
        again = REPLAYED_SEAL.get()
        return _SUITE.encrypt(plaintext, key, context) if again is None else again(key, plaintext, context)
    except ValueError:  # of another length, or of low order: no secret can be agreed with it
        raise InvalidKey("this is not a valid X25519 public key") from None
