"""Blobs in an S3 bucket, for a role of several machines. Needs the extra `s3`; credentials are in the environment.

A blob is one object, written whole: it is there or it is not. Where a server cannot write "only if it is not there", whoever
writes looks first; names that two may write at once hold the digest of their contents, so that both write the same.
"""

import io
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar

from crowdfl.crypto.randomness import secret_hex
from crowdfl.errors import Conflict, NotReady, StoreUnavailable
from crowdfl.settings import ComputingSettings, S3Settings, ServiceSettings
from crowdfl.storage.atomic import read_secret
from crowdfl.storage.blobs import OF_STORE, FileBlobs, require_blob_name
from crowdfl.storage.sealed_blobs import SealedBlobs, require_open

_Result = TypeVar("_Result")
_AT_ONCE = 8  # objects that are written together
_IN_MEMORY = 1 << 20  # bytes; what is longer is read by way of a temporary file


class S3Blobs:
    """The objects under one prefix. What cannot be reached is `StoreUnavailable`."""

    def __init__(self, settings: S3Settings, part: str) -> None:
        try:
            from obstore import exceptions, store
        except ImportError:
            raise StoreUnavailable("blobs in S3 need a package that is not installed: crowdfl[s3]") from None
        self._exceptions = exceptions
        prefix = PurePosixPath(settings.prefix) / part
        self.folder = PurePosixPath(settings.bucket) / prefix
        plain = (settings.endpoint or "").startswith("http://")
        self._objects = store.S3Store(
            settings.bucket,
            prefix=str(prefix),
            endpoint=settings.endpoint,
            region=settings.region,
            client_options={"allow_http": plain},
            retry_config={"max_retries": 4},
        )
        self._creates = True  # until the server says that it cannot
        self._store: str | None = None
        self._pool = ThreadPoolExecutor(_AT_ONCE, "s3")

    def name(self) -> str:
        """That the prefix carries, and a new one for a prefix that carries none."""
        if not self.has(OF_STORE):
            self.put(OF_STORE, secret_hex(16).encode())
        return self.get(OF_STORE).decode("ascii", "replace")

    def bind(self, store: str) -> None:
        """As a folder is bound."""
        self._store = store
        self.require_own()

    def require_own(self) -> None:
        """Else objects that are elsewhere would look lost."""
        if self._store is not None and (not self.has(OF_STORE) or self.name() != self._store):
            raise StoreUnavailable(
                f"s3://{self.folder} belongs to another database, or to none: name this one's bucket"
            )

    def put(self, name: str, data: bytes) -> None:
        try:
            self._named(name, self._create, require_blob_name(name), data)
        except NotReady:
            raise StoreUnavailable(f"there is no bucket {self.folder.parts[0]}: make it, or name another") from None

    def put_all(self, blobs: Mapping[str, bytes]) -> None:
        if len(blobs) == 1:
            return self.put(*next(iter(blobs.items())))
        for written in [self._pool.submit(self.put, name, data) for name, data in blobs.items()]:
            written.result()
        return None

    def put_file(self, name: str, file: Path) -> None:
        """A long one goes in parts, which no server takes under a condition: whoever writes looks first."""
        if file.stat().st_size <= _IN_MEMORY:
            return self.put(name, file.read_bytes())
        if not self.has(name):
            return self._named(name, self._send, require_blob_name(name), file)
        with self.open(name) as found, file.open("rb") as whole:
            if any(found.read(_IN_MEMORY) != part for part in iter(lambda: whole.read(_IN_MEMORY), b"")) or found.read(
                1
            ):
                raise Conflict(f"{name} exists already, with other contents")
        return None

    def get(self, name: str) -> bytes:
        return self._named(name, self._get, require_blob_name(name))

    def open(self, name: str) -> BinaryIO:
        """Read at once, so that its name may go away meanwhile."""
        return self._named(name, self._fetched, require_blob_name(name))

    def has(self, name: str) -> bool:
        try:
            self._named(name, self._objects.head, require_blob_name(name))
        except NotReady:
            return False
        return True

    def delete(self, name: str) -> None:
        if self.has(name):  # of what is not there, servers say different things
            self._named(name, self._objects.delete, name)

    def clear(self, folder: str) -> None:
        for name in self.listing(require_blob_name(folder)):
            self.delete(name)

    def listing(self, inside: str = "") -> dict[str, float]:
        below = f"{inside}/" if inside else None
        found = self._named("", lambda: [one for page in self._objects.list(below) for one in page])
        return {one["path"]: one["last_modified"].timestamp() for one in found if one["path"] != OF_STORE}

    def remove_unfinished(self, before: float) -> int:
        """Nothing is half written."""
        del before
        return 0

    def _create(self, name: str, data: bytes) -> None:
        if self._creates:
            try:
                self._objects.put(name, data, mode="create", use_multipart=False)
            except self._exceptions.AlreadyExistsError:
                self._require_same(name, data)
            except self._exceptions.GenericError as cannot:
                if "NotImplemented" not in str(cannot):
                    raise
                self._creates = False
        if not self._creates:
            try:
                self._require_same(name, data)
            except FileNotFoundError:
                self._objects.put(name, data, use_multipart=False)

    def _send(self, name: str, file: Path) -> None:
        self._objects.put(name, file)

    def _require_same(self, name: str, data: bytes) -> None:
        if self._get(name) != data:
            raise Conflict(f"{name} exists already, with other contents")

    def _get(self, name: str) -> bytes:
        return bytes(self._objects.get(name).bytes())

    def _fetched(self, name: str) -> BinaryIO:
        found = self._objects.get(name)
        file: Any = io.BytesIO() if found.meta["size"] <= _IN_MEMORY else tempfile.TemporaryFile()  # noqa: SIM115
        for piece in found.stream():
            file.write(piece)
        file.seek(0)
        return file  # type: ignore[no-any-return]

    def _named(self, name: str, act: Callable[..., _Result], *arguments: object) -> _Result:
        """With the errors of this project. A server's own words may name what it was sent: they stay out."""
        try:
            return partial(act, *arguments)()
        except FileNotFoundError:
            raise NotReady(f"{name} does not exist (yet)") from None
        except self._exceptions.BaseError as wrong:
            raise StoreUnavailable(f"s3://{self.folder} cannot be used now: {type(wrong).__name__}") from None


def open_keys(settings: ServiceSettings) -> FileBlobs | S3Blobs | SealedBlobs:
    """A role's key shares; a named error if its passphrase does not open them."""
    blobs = kept(settings, "keys")
    if settings.passphrase_file is None:
        return require_open(blobs)
    return SealedBlobs(blobs, read_secret(settings.passphrase_file, "passphrase"))


def kept(settings: ServiceSettings, part: str) -> FileBlobs | S3Blobs:
    """`blobs`, `keys` or `guard`, where the settings say."""
    if isinstance(settings, ComputingSettings):
        if part == "guard" and settings.guard is not None:
            return FileBlobs(settings.guard)
        if settings.s3 is not None:
            return S3Blobs(settings.s3, part)
    return FileBlobs(settings.data / part)
