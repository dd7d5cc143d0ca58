"""Sealed blobs: nobody reads or alters them without the folder's passphrase; their names and lengths stay visible.

One blob, `sealing`, says how the key follows from the passphrase; layout: docs/formats.md.
"""

import contextlib
import io
import unicodedata
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import BinaryIO, Protocol, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from crowdfl.crypto.randomness import secret_bytes
from crowdfl.errors import Conflict, KeyFileDamaged, PassphraseError
from crowdfl.roles.ports import Blobs

SEALING = "sealing"
_MAGIC = b"CFLS\x01"
_SALT = 16
_HEAD = len(_MAGIC) + 1 + _SALT  # the work factor, and the salt
_NONCE = 12
_WORK_FACTOR = 17  # log2 of scrypt's n: slow on purpose, for those who guess
_LARGEST_WORK_FACTOR = 20  # 1 GiB and some seconds: no file may ask for more


class KeyBlobs(Blobs, Protocol):
    """What keys are sealed in: a folder, or a bucket."""

    @property
    def folder(self) -> PurePath: ...


_Keys = TypeVar("_Keys", bound=KeyBlobs)


def require_open(blobs: _Keys) -> _Keys:
    """The same, unless a passphrase is needed to read them."""
    if blobs.has(SEALING):
        raise PassphraseError(f"{blobs.folder} is sealed: name the file of its passphrase, `passphrase_file`")
    return blobs


class SealedBlobs:
    """The blobs of a folder that was empty when it was given its passphrase."""

    def __init__(self, blobs: KeyBlobs, passphrase: str, work_factor: int = _WORK_FACTOR) -> None:
        self._blobs = blobs
        self.has, self.delete, self.clear = blobs.has, blobs.delete, blobs.clear
        self.remove_unfinished = blobs.remove_unfinished
        if not blobs.has(SEALING):
            self._begin(passphrase, work_factor)
        told = blobs.get(SEALING)  # another process may have begun at the same moment: what is there counts
        if len(told) < _HEAD or not told.startswith(_MAGIC) or not 0 < told[len(_MAGIC)] <= _LARGEST_WORK_FACTOR:
            raise KeyFileDamaged(f"{blobs.folder / SEALING} was altered; restore it from a backup")
        self._cipher = _cipher_from(passphrase, told[_HEAD - _SALT : _HEAD], told[len(_MAGIC)])
        self._open(SEALING, told[_HEAD:], told[:_HEAD])

    def put(self, name: str, data: bytes) -> None:
        if not self.has(name):
            try:
                return self._blobs.put(name, self._seal(name, data))
            except Conflict:  # someone was faster, and sealed it in another way
                pass
        if self.get(name) != data:
            raise Conflict(f"{name} exists already, with other contents")

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        for name, data in blobs.items():
            self.put(name, data)

    def put_file(self, name: str, file: Path) -> None:
        self.put(name, file.read_bytes())

    def get(self, name: str) -> bytes:
        return self._open(name, self._blobs.get(name), _MAGIC + name.encode())

    def open(self, name: str) -> BinaryIO:
        """All of it at once: a part alone would not show that the rest was altered."""
        return io.BytesIO(self.get(name))

    def listing(self, inside: str = "") -> dict[str, float]:
        return {name: written for name, written in self._blobs.listing(inside).items() if name != SEALING}

    def _begin(self, passphrase: str, work_factor: int) -> None:
        if self._blobs.listing():
            raise PassphraseError(
                f"{self._blobs.folder} holds keys that are not sealed: end their tasks first, or take the passphrase out"
            )
        head = _MAGIC + bytes([work_factor]) + secret_bytes(_SALT)
        nonce = secret_bytes(_NONCE)
        proof = _cipher_from(passphrase, head[-_SALT:], work_factor).encrypt(nonce, b"", head)
        with contextlib.suppress(Conflict):  # another process has begun
            self._blobs.put(SEALING, head + nonce + proof)

    def _seal(self, name: str, data: bytes) -> bytes:
        nonce = secret_bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, data, _MAGIC + name.encode())

    def _open(self, name: str, sealed: bytes, about: bytes) -> bytes:
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], about)
        except (InvalidTag, ValueError):
            where = self._blobs.folder / name
            raise PassphraseError(f"{where} does not open: the passphrase is wrong, or the file was altered") from None


def _cipher_from(passphrase: str, salt: bytes, work_factor: int) -> ChaCha20Poly1305:
    if not passphrase:
        raise PassphraseError("the passphrase is empty: give one, or do not set `passphrase_file`")
    try:
        # One keyboard types an accented letter as one character, another as two.
        phrase = unicodedata.normalize("NFKC", passphrase).encode()
    except UnicodeEncodeError:
        raise PassphraseError("the passphrase contains characters that are not valid text") from None
    return ChaCha20Poly1305(Scrypt(salt=salt, length=32, n=1 << work_factor, r=8, p=1).derive(phrase))
