"""A role's signing key, in a file of its own."""

import contextlib
from pathlib import Path

from crowdfl.crypto.sealing import SigningKey
from crowdfl.errors import KeyFileDamaged, KeyFilePermissions
from crowdfl.storage.atomic import require_owner_only, write_private


def signing_key(path: Path) -> SigningKey:
    """The one that is there, or a new one."""
    with contextlib.suppress(FileExistsError):
        write_private(path, SigningKey.fresh().private)
    return read_signing_key(path)


def read_signing_key(path: Path) -> SigningKey:
    with open(path, "rb") as file:
        require_owner_only(file.fileno(), path, KeyFilePermissions)
        private = file.read(100)
    if len(private) != 32:
        raise KeyFileDamaged(f"{path} is not a signing key; restore it from a backup")
    return SigningKey(private)
