"""A seed becomes as many bytes as needed: AES-256-CTR, which phones and browsers have in hardware.

The key is HKDF-SHA-256 of the seed with the context as `info`, without salt; the counter block starts at zero. A seed and a
context are used for one purpose ever, so that no stream of bytes masks two things.
"""

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crowdfl.crypto.randomness import SEED_BYTES

_KEY_BYTES = 32
_COUNTER = bytes(16)
_ZEROS = memoryview(bytes(1 << 22))  # kept: fresh zeros for every call would take three times as long as AES


class Stream:
    """The bytes of one seed and context, in order."""

    def __init__(self, seed: bytes, context: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        key = HKDF(SHA256(), _KEY_BYTES, None, context).derive(seed)
        self._cipher = Cipher(AES(key), CTR(_COUNTER)).encryptor()

    def take(self, length: int) -> bytes:
        """The next bytes; two calls give what one for both lengths gives."""
        if length < 0:
            raise ValueError(f"no stream gives {length} bytes")
        if length <= len(_ZEROS):
            return self._cipher.update(_ZEROS[:length])
        pieces = (min(len(_ZEROS), length - start) for start in range(0, length, len(_ZEROS)))
        return b"".join(self._cipher.update(_ZEROS[:size]) for size in pieces)

    def __repr__(self) -> str:
        return "Stream(secret)"


def expand(seed: bytes, context: bytes, length: int) -> bytes:
    """The first bytes of a stream."""
    return Stream(seed, context).take(length)
