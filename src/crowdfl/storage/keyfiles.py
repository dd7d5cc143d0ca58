"""Key files: what one role holds of a key, in one file that its owner alone reads. Layout: docs/key-files.md.

Without a passphrase a SHA-256 finds damage, not malice; with one, nobody reads or alters the file without it.
"""

import hashlib
import hmac
import os
import secrets
import struct
from dataclasses import astuple, dataclass
from enum import IntEnum
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from crowdfl.crypto.pctd import PublicKey
from crowdfl.errors import (
    InvalidKey,
    KeyFileDamaged,
    KeyFileExists,
    KeyFileMissing,
    KeyFilePermissions,
    KeyFileRole,
    KeyFileVersion,
    PassphraseError,
)
from crowdfl.storage.atomic import require_owner_only, write_private
from crowdfl.storage.keybundle import KeyBundle, Role, decode_fields, encode_fields
from crowdfl.storage.passphrase import DEFAULT_WORK_FACTOR, LARGEST_WORK_FACTOR, cipher_from

__all__ = ["DEFAULT_WORK_FACTOR", "KeyBundle", "Role", "load", "save"]

_SMALLEST_WORK_FACTOR = 15
_SMALLEST_TEST_WORK_FACTOR = 8

_MAGIC = b"CFLK"
_VERSION = 1
_PREFIX = struct.Struct(">4sB")  # magic, version
_REST = struct.Struct(">BBB32s16s12sI")  # role, protection, log2 n, fingerprint, salt, nonce, length of the body
_HEADER_SIZE = _PREFIX.size + _REST.size
_SIZE_LIMIT = 32 * 1024  # the longest key that pctd accepts takes less than 20 KiB
_DIGEST = 32
_TAG = 16

_ROLE_NUMBER = {Role.KGC: 1, Role.SP: 2, Role.CSP: 3, Role.PARTICIPANT: 4, Role.REQUESTER: 5}
_ROLE_NAME = {number: role for role, number in _ROLE_NUMBER.items()}


class _Protection(IntEnum):
    CHECKSUM = 0
    PASSPHRASE = 1


def save(
    path: str | os.PathLike[str],
    bundle: KeyBundle,
    *,
    passphrase: str | None = None,
    work_factor: int = DEFAULT_WORK_FACTOR,
    overwrite: bool = False,
) -> None:
    """Write a key file, mode 0600, durable on return. `work_factor` is log2 of scrypt's n."""
    if passphrase is None:
        data = _checksummed(bundle)
    else:
        _require_work_factor(work_factor, bundle.public)
        data = _sealed(bundle, passphrase, work_factor)
    try:
        write_private(Path(path), data, overwrite=overwrite)
    except FileExistsError:
        raise KeyFileExists(f"{path} is already there: pick another name; a key overwritten is lost") from None
    except (FileNotFoundError, NotADirectoryError):
        raise KeyFileMissing(f"there is no folder for {path}: `mkdir -m 700` it first") from None


def load(
    path: str | os.PathLike[str], role: Role, *, passphrase: str | None = None, insecure_test_key: bool = False
) -> KeyBundle:
    """Read the key file of `role`. No key in it is looked at before its checksum or its tag was verified."""
    path = Path(path)
    data = _read(path)
    header = _Header.parse(path, data)
    header.require(path, role, len(data), passphrase)
    body = _verified(path, data) if passphrase is None else _unsealed(path, data, header, passphrase)
    try:
        bundle = decode_fields(role, body, insecure_test_key=insecure_test_key)
    except (InvalidKey, KeyFileRole) as problem:
        raise KeyFileDamaged(f"{path}: {problem}; restore it from a backup") from None
    if bundle.public.fingerprint != header.fingerprint:
        raise KeyFileDamaged(f"{path} names one key and holds another; restore it from a backup")
    return bundle


@dataclass(frozen=True)
class _Header:
    """What stands before the body; all of it is under the checksum or the tag."""

    role: int
    protection: int
    work_factor: int
    fingerprint: bytes
    salt: bytes
    nonce: bytes
    body_length: int

    def pack(self) -> bytes:
        return _PREFIX.pack(_MAGIC, _VERSION) + _REST.pack(*astuple(self))

    @classmethod
    def parse(cls, path: Path, data: bytes) -> "_Header":
        if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
            raise KeyFileDamaged(f"{path} is truncated, or no key file")
        version = data[len(_MAGIC)]
        if version != _VERSION:
            raise KeyFileVersion(f"{path} is of version {version}; this program reads version {_VERSION}")
        if len(data) < _HEADER_SIZE:
            raise KeyFileDamaged(f"{path} is truncated; restore it from a backup")
        return cls(*_REST.unpack_from(data, _PREFIX.size))

    def require(self, path: Path, role: Role, size: int, passphrase: str | None) -> None:
        """Refuse what can be refused before any time is spent on the passphrase."""
        if self.role not in _ROLE_NAME or self.protection not in list(_Protection):
            raise KeyFileDamaged(f"{path} was altered: role {self.role}, protection {self.protection}")
        if self.role != _ROLE_NUMBER[role]:
            found = _ROLE_NAME[self.role]
            raise KeyFileRole(f"{path} holds the keys of {found.value}; give the key file of {role.value}")
        sealed = self.protection == _Protection.PASSPHRASE
        if size != _HEADER_SIZE + self.body_length + (_TAG if sealed else _DIGEST):
            raise KeyFileDamaged(f"{path} is truncated, or longer than it says; restore it from a backup")
        if sealed and not _SMALLEST_TEST_WORK_FACTOR <= self.work_factor <= LARGEST_WORK_FACTOR:
            raise KeyFileDamaged(f"{path} was altered: it asks for scrypt with n = 2^{self.work_factor}")
        if not sealed and (self.work_factor or any(self.salt) or any(self.nonce)):
            raise KeyFileDamaged(f"{path} was altered: scrypt settings without a passphrase")
        if sealed and passphrase is None:
            raise PassphraseError(f"{path} is encrypted: give its passphrase")
        if not sealed and passphrase is not None:
            raise PassphraseError(f"{path} has no passphrase: give none, and ask whether it should have had one")


def _require_work_factor(work_factor: int, public: PublicKey) -> None:
    smallest = _SMALLEST_WORK_FACTOR if public.is_secure else _SMALLEST_TEST_WORK_FACTOR
    if not smallest <= work_factor <= LARGEST_WORK_FACTOR:
        raise PassphraseError(f"a work factor must lie in {smallest}..{LARGEST_WORK_FACTOR}, not {work_factor}")


def _read(path: Path) -> bytes:
    try:
        # Not blocking: a named pipe in place of the file must not hang the program.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise KeyFileMissing(f"there is no key file {path}") from None
    except PermissionError:
        raise KeyFilePermissions(f"{path} cannot be read: run as its owner, and `chmod 600 {path}`") from None
    try:
        require_owner_only(descriptor, path, KeyFilePermissions)
        if os.fstat(descriptor).st_size > _SIZE_LIMIT:
            raise KeyFileDamaged(f"{path} is longer than {_SIZE_LIMIT} bytes: no key file is")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_SIZE_LIMIT)
    finally:
        os.close(descriptor)


def _checksummed(bundle: KeyBundle) -> bytes:
    body = encode_fields(bundle)
    number, fingerprint = _ROLE_NUMBER[bundle.role], bundle.public.fingerprint
    header = _Header(number, _Protection.CHECKSUM, 0, fingerprint, bytes(16), bytes(12), len(body))
    data = header.pack() + body
    return data + hashlib.sha256(data).digest()


def _verified(path: Path, data: bytes) -> bytes:
    if not hmac.compare_digest(hashlib.sha256(data[:-_DIGEST]).digest(), data[-_DIGEST:]):
        raise KeyFileDamaged(f"{path} was altered: its checksum does not match; restore it from a backup")
    return data[_HEADER_SIZE:-_DIGEST]


def _sealed(bundle: KeyBundle, passphrase: str, work_factor: int) -> bytes:
    body = encode_fields(bundle)
    number, fingerprint = _ROLE_NUMBER[bundle.role], bundle.public.fingerprint
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
    header = _Header(number, _Protection.PASSPHRASE, work_factor, fingerprint, salt, nonce, len(body))
    return header.pack() + _cipher(header, passphrase).encrypt(nonce, body, header.pack())


def _unsealed(path: Path, data: bytes, header: _Header, passphrase: str) -> bytes:
    cipher = _cipher(header, passphrase)
    try:
        return cipher.decrypt(header.nonce, data[_HEADER_SIZE:], data[:_HEADER_SIZE])
    except InvalidTag:
        raise PassphraseError(f"{path} does not open: the passphrase is wrong, or the file was altered") from None


def _cipher(header: _Header, passphrase: str) -> ChaCha20Poly1305:
    return cipher_from(passphrase, header.salt, header.work_factor)
