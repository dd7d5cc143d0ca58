"""Files that only their owner can read, written completely or not at all."""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from crowdfl.crypto.randomness import secret_hex
from crowdfl.crypto.signing import SigningKey
from crowdfl.crypto.webpush import PushKey
from crowdfl.errors import CrowdFLError, KeyFileDamaged, KeyFileMissing, KeyFilePermissions, SettingsError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LONGEST_SECRET = 1000


def write_private(
    path: Path, data: bytes, *, overwrite: bool = False, sync: bool = True, sync_folder: bool = True
) -> None:
    """Put `data` at `path`, mode 0600, on disk when this returns; a crash leaves the old file or the new, never a part.

    Without `overwrite` an existing file stays, whoever wins the race, and FileExistsError is raised. Without `sync_folder` the
    name is durable once its folder is, and without `sync` neither name nor data survives a power cut for sure.
    """
    # Beside its destination, because a rename is atomic only within one file system; hidden, so that no `*` matches it.
    temporary = os.path.join(os.path.dirname(path), f".{secret_hex(12)}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as wrong:
        wrong.filename = str(path)  # the temporary name would mean nothing to the reader
        raise
    try:
        _write_and_close(descriptor, data, sync=sync)
        if overwrite:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)  # unlike a rename, fails when the name is taken
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    if sync and sync_folder:
        sync_directory(path.parent)


@contextlib.contextmanager
def alone_in(folder: Path, what: str) -> Iterator[None]:
    """No other program that asks for it has this folder meanwhile; `SettingsError` if one has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            words = f"another program is using the {what} {folder}: wait until it has ended, or end it"
            raise SettingsError(words) from None
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough if the process forked meanwhile
    finally:
        os.close(descriptor)


def read_secret(path: Path, what: str) -> str:
    """A token or a passphrase: the first line, stripped, of a file that only its owner can read."""
    try:
        with open(path, "rb") as file:
            require_owner_only(file.fileno(), path, KeyFilePermissions)
            secret = file.readline(_LONGEST_SECRET).decode().strip()
    except FileNotFoundError:
        raise KeyFileMissing(f"there is no {what} at {path}") from None
    except (IsADirectoryError, UnicodeDecodeError):
        raise KeyFileDamaged(f"{path} does not contain a {what}: expected one line of text") from None
    if not secret:
        raise KeyFileDamaged(f"{path} is empty, or its first line is: expected a {what}")
    return secret


def require_owner_only(descriptor: int, path: Path, refusal: type[CrowdFLError]) -> None:
    """Raise `refusal` unless this is a regular file of this user, closed to everyone else."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise refusal(f"{path} is not a regular file")
    if status.st_uid != os.geteuid():
        raise refusal(f"{path} belongs to another user: run as its owner, or chown it and `chmod 600 {path}`")
    if status.st_mode & _OTHERS:
        raise refusal(f"{path} is open to other users: `chmod 600 {path}`, and ask who may have read it")


def _write_and_close(descriptor: int, data: bytes, *, sync: bool) -> None:
    try:
        os.fchmod(descriptor, 0o600)  # whatever the umask made of it
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make the new name itself survive a power cut."""
    _sync(os.open(directory, os.O_RDONLY | os.O_DIRECTORY))


def sync_file(file: Path) -> None:
    """Make what is in it survive a power cut, whoever has written it."""
    _sync(os.open(file, os.O_RDONLY))


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def signing_key(path: Path) -> SigningKey:
    """The one that is there, or a new one."""
    with contextlib.suppress(FileExistsError):
        write_private(path, SigningKey.fresh().private)
    return read_signing_key(path)


def read_signing_key(path: Path) -> SigningKey:
    return SigningKey(read_private_key(path))


def push_key(path: Path) -> PushKey:
    """As `signing_key`."""
    with contextlib.suppress(FileExistsError):
        write_private(path, PushKey.fresh().private)
    return PushKey(int.from_bytes(read_private_key(path), "big"))


def read_private_key(path: Path) -> bytes:
    with open(path, "rb") as file:
        require_owner_only(file.fileno(), path, KeyFilePermissions)
        private = file.read(100)
    if len(private) != 32:
        raise KeyFileDamaged(f"{path} is not a private key; restore it from a backup")
    return private
