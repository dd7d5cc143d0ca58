"""Web Push: what a platform posts for one browser, by RFC 8291 (aes128gcm), and in whose name, by RFC 8292 (VAPID)."""

import json
from base64 import urlsafe_b64encode
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from crowdfl.crypto.randomness import random_p256, secret_bytes
from crowdfl.errors import InvalidKey

_CURVE = ec.SECP256R1()
_RECORD = 4096
AUTH_BYTES = 16


class PushKey:
    """A platform's VAPID key, or the one that a single message is agreed on with."""

    def __init__(self, private: int) -> None:
        self._key = ec.derive_private_key(private, _CURVE)

    @classmethod
    def fresh(cls) -> "PushKey":
        return cls(random_p256().private_numbers().private_value)

    @property
    def private(self) -> bytes:
        return self._key.private_numbers().private_value.to_bytes(32, "big")

    @cached_property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def agree(self, other: bytes) -> bytes:
        return self._key.exchange(ec.ECDH(), browser_key(other))

    def authorization(self, audience: str, subject: str, until: float) -> str:
        """The header that proves to the push service at `audience` who sends, until that time."""
        claims = {"aud": audience, "exp": int(until), "sub": subject}
        signed = ".".join(_text(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ES256"}, claims))
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        return f"vapid t={signed}.{_text(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}, k={_text(self.public)}"


def browser_key(point: bytes) -> ec.EllipticCurvePublicKey:
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, point)
    except ValueError:
        raise InvalidKey("this is not a browser's key for push messages: expected a point of P-256") from None


def encrypt(
    message: bytes, browser: bytes, auth: bytes, length: int, *, key: PushKey | None = None, salt: bytes | None = None
) -> bytes:
    """The body to post; padded to `length`, so that the push service cannot tell one message from another. A key and a salt are
    given by test vectors alone."""
    own = key or PushKey.fresh()
    salt = salt or secret_bytes(16)
    shared = _derive(own.agree(browser), auth, b"WebPush: info\0" + browser + own.public, 32)
    content = _derive(shared, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(shared, salt, b"Content-Encoding: nonce\0", 12)
    padded = (message + b"\x02").ljust(length + 1, b"\0")
    header = salt + _RECORD.to_bytes(4, "big") + bytes([len(own.public)]) + own.public
    return header + AESGCM(content).encrypt(nonce, padded, b"")


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
