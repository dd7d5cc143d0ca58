"""Signatures: Ed25519, from `cryptography`."""

from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from crowdfl.crypto.randomness import secret_bytes
from crowdfl.errors import BadSignature

_KEY_BYTES = 32


@dataclass(frozen=True)
class SigningKey:
    """An Ed25519 key."""

    private: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> "SigningKey":
        return cls(secret_bytes(_KEY_BYTES))

    @cached_property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.private)

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


def verify(public: bytes, message: bytes, signature: bytes) -> None:
    """Raise `BadSignature` unless the owner of `public` signed this message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise BadSignature("the signature does not fit the message and its claimed signer") from None
