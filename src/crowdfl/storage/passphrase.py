"""A cipher from a passphrase, by scrypt: slow on purpose, for those who guess."""

import unicodedata

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from crowdfl.errors import PassphraseError

__all__ = ["DEFAULT_WORK_FACTOR", "LARGEST_WORK_FACTOR", "SALT_BYTES", "cipher_from"]

DEFAULT_WORK_FACTOR = 17
LARGEST_WORK_FACTOR = 20  # 1 GiB and some seconds: no file may ask for more
SALT_BYTES = 16


def cipher_from(passphrase: str, salt: bytes, work_factor: int) -> ChaCha20Poly1305:
    """`work_factor` is log2 of scrypt's n."""
    scrypt = Scrypt(salt=salt, length=32, n=1 << work_factor, r=8, p=1)
    return ChaCha20Poly1305(scrypt.derive(_bytes_of(passphrase)))


def _bytes_of(passphrase: str) -> bytes:
    if not passphrase:
        raise PassphraseError("the passphrase is empty: give one, or none at all")
    try:
        # One keyboard types an accented letter as one character, another as two.
        return unicodedata.normalize("NFKC", passphrase).encode()
    except UnicodeEncodeError:
        raise PassphraseError("the passphrase holds characters that are no text") from None
