"""A worker of one role's Dask cluster: `dask worker ... --preload crowdfl.services.cluster.worker`.

It reads the role's key shares from the folder that CROWDFL_KEYS names, a copy of the role's own `keys`; where they are sealed,
that is the role's settings file. What travels between the role and its workers is rows as bytes, and recipes to make kernels
from: they name a share by its hash, so that no share ever travels through Dask, and show no number in a repr, for Dask logs
what a failed piece was called with. Work on uploads travels as their names in the role's store, or as their seeds.
"""

import hashlib
import os
import threading
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache, partial
from pathlib import Path
from socket import gethostname
from typing import Any

from gmpy2 import mpz

from crowdfl.crypto.blocks import Block, from_bytes
from crowdfl.crypto.compute import Kernel, Work, release_lock_while_computing
from crowdfl.crypto.paillier.kernels import (
    BucketProduct,
    FixedBase,
    FixedBasePower,
    MulMod,
    MultiPow,
    PartialDecrypt,
    PowEach,
    PowMod,
)
from crowdfl.errors import (
    CrowdFLError,
    FormatError,
    KeyFileDamaged,
    KeyFileMissing,
    KeyFilePermissions,
    KeyFileRole,
    NotReady,
    StoreUnavailable,
)
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.shares.dealing.keys import SharesCspBundle, SharesSpBundle
from crowdfl.roles.dealt import is_dealt_file
from crowdfl.roles.sp.aggregators import read_upload
from crowdfl.settings import S3Settings
from crowdfl.storage.atomic import require_owner_only
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.s3 import S3Blobs, open_keys
from crowdfl.storage.sealed_blobs import SealedBlobs
from crowdfl.storage.settings_file import SERVICES, read_service, read_settings, role_in

KEYS = "CROWDFL_KEYS"
_ROLES = (".sp", ".csp")
_WITHOUT_SHARE = (SharesSpBundle.kind, SharesCspBundle.kind)  # no power is computed with them
_LONGEST = 1 << 20  # bytes of a bundle
_PLAIN: dict[str, type] = {kind.__name__: kind for kind in (BucketProduct, MulMod, MultiPow, PowEach, PowMod)}


def share_name(exponent: int) -> str:
    """The hash that names a share: a number of thousands of random bits cannot be found from it."""
    return hashlib.sha256(b"crowdfl key share\0" + hex(exponent).encode()).hexdigest()


class KeyFolder:
    """The shares in a role's folder of bundles, or where they are sealed; one that is deleted is forgotten, a new one found."""

    def __init__(self, folder: Path, sealed: SealedBlobs | None = None) -> None:
        self.folder = folder
        self._sealed = sealed
        self._keys = sealed or FileBlobs(folder, make=False)
        self._shares: dict[str, tuple[str, mpz]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"KeyFolder({str(self.folder)!r})"

    def share(self, name: str) -> mpz:
        """The share of this name, or `KeyFileMissing` with what to do."""
        with self._lock:
            bundle, share = self._shares.get(name, (None, None))
            if bundle is None or share is None or not self._keys.has(bundle):
                self._read()
                _, share = self._shares.get(name, (None, None))
        if share is None:
            raise KeyFileMissing(
                f"this worker has no such key share in {self.folder}: copy the role's folder `keys` to where {KEYS} points"
            )
        return share

    def read(self) -> int:
        """Read every bundle now; returns how many shares there are."""
        with self._lock:
            self._read()
            return len(self._shares)

    def _read(self) -> None:
        if self._sealed is None and not self.folder.is_dir():
            raise KeyFileMissing(f"{self.folder} is not a folder: set {KEYS} to a copy of the role's folder `keys`")
        bundles = [name for name in sorted(self._keys.listing()) if not is_dealt_file(name)]
        suffixes = {Path(name).suffix for name in bundles}
        if len(suffixes) > 1 or not suffixes <= set(_ROLES):
            raise KeyFileRole(
                f"{self.folder} must hold the bundles of SP alone or of CSP alone: use that role's `keys`"
            )
        self._shares = {share_name(share): (name, share) for name in bundles for share in self._shares_in(name)}

    def _shares_in(self, name: str) -> list[mpz]:
        try:
            with self._keys.open(name) as file:
                if self._sealed is None:
                    require_owner_only(file.fileno(), self.folder / name, KeyFilePermissions)
                return _shares_of(file.read(_LONGEST), self.folder / name)
        except NotReady:  # deleted since it was listed
            return []


def _shares_of(data: bytes, path: Path) -> list[mpz]:
    from crowdfl.protocols.hardened.bundles import CspBundle, SpBundle  # late: a server loads its tasks' profiles alone
    from crowdfl.protocols.paper.profile import PaperBundle

    try:
        kind = Message.kind_of(data)
        if kind in _WITHOUT_SHARE:
            return []
        if kind == PaperBundle.kind:
            return [mpz(secret) for secret in PaperBundle.from_bytes(data, Limits.plain()).secrets]
        bundle = SpBundle if kind == SpBundle.kind else CspBundle
        return [mpz(bundle.from_bytes(data, Limits.plain()).share)]
    except FormatError:
        raise KeyFileDamaged(f"{path} is not a bundle of SP or CSP: copy it again") from None


@cache
def own_keys() -> KeyFolder:
    """In a folder; or as the role's settings say, where they are sealed."""
    named = os.environ.get(KEYS)
    if not named:
        raise KeyFileMissing(f"this worker has no keys: set {KEYS} to a copy of the role's folder `keys`")
    path = Path(named)
    if not path.is_file():
        return KeyFolder(path)
    settings = read_service(SERVICES[role_in(read_settings(path))], path)
    keys = open_keys(settings)
    return KeyFolder(settings.data / "keys", keys if isinstance(keys, SealedBlobs) else None)


def dask_setup(_worker: Any) -> None:  # noqa: ANN401 -- Dask's worker, which nothing is asked of
    """Read the shares when the worker starts; one that cannot does not start."""
    try:
        own_keys().read()
    except CrowdFLError as wrong:
        raise SystemExit(f"{type(wrong).__name__}: {wrong}") from None  # Dask logs other errors and goes on


@dataclass(frozen=True)
class KernelRecipe:
    """A kernel by its name and its fields as plain values: big numbers in hexadecimal, a key share by its hash."""

    kernel: str
    values: tuple[tuple[str, str | int], ...] = field(repr=False)


@dataclass(frozen=True)
class Rows:
    """Some rows of a block."""

    width: int
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, block: Block) -> "Rows":
        return cls(block.shape[1], block.tobytes())

    @property
    def block(self) -> Block:
        return from_bytes(self.data, self.width)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self.data)  # by which Dask judges what to keep in memory


@dataclass(frozen=True)
class Piece:
    """The work that one worker does at a time."""

    recipe: KernelRecipe
    rows: tuple[Rows, ...]


def recipe_of(kernel: Kernel) -> KernelRecipe | None:
    """How a worker makes this kernel; None for one that workers do not know."""
    if type(kernel) is PartialDecrypt:
        values = (("share", share_name(kernel.exponent)), ("modulus", hex(kernel.modulus)))
        return KernelRecipe("PartialDecrypt", (*values, ("constant_time", kernel.constant_time)))
    if type(kernel) is FixedBasePower:
        return KernelRecipe("FixedBasePower", _values(kernel.fixed))
    name = type(kernel).__name__
    return KernelRecipe(name, _values(kernel)) if _PLAIN.get(name) is type(kernel) else None


def run_piece(piece: Piece) -> Rows:
    return run_rows(piece.recipe, *piece.rows)


def run_rows(recipe: KernelRecipe, *rows: Rows) -> Rows:
    """On a worker: the kernel over rows that may be results of other pieces."""
    release_lock_while_computing()
    return Rows.of(_kernel(recipe).run(*(part.block for part in rows)))


@dataclass(frozen=True)
class Store:
    """Where a role's uploads are: a folder that its workers see under the same name, or a bucket."""

    where: Path | S3Settings
    name: str  # of the database that it belongs to


@dataclass(frozen=True)
class WorkPart:
    """A part of a work on uploads: it may hold seeds."""

    work: Work[Any, Any] = field(repr=False)
    store: Store | None


def run_part(part: WorkPart) -> Any:  # noqa: ANN401 -- whatever the work finds
    return part.work.run(partial(_read, part.store))


def _read(store: Store | None, name: str) -> bytes:
    """From a worker's own view of the store. That it has none, or another one, says nothing about an upload."""
    try:
        return read_upload(_opened(store), name)
    except (OSError, StoreUnavailable) as wrong:
        why = str(wrong) if isinstance(wrong, StoreUnavailable) else f"{type(wrong).__name__} at {name}"
        raise StoreUnavailable(f"the worker on {gethostname()} cannot read uploads: {why}") from None


@lru_cache(maxsize=4)
def _opened(store: Store | None) -> FileBlobs | S3Blobs:
    if store is None:
        raise StoreUnavailable("the role has not said where they are")
    blobs = FileBlobs(store.where, make=False) if isinstance(store.where, Path) else S3Blobs(store.where, "blobs")
    blobs.bind(store.name)  # another one, or none at all, is named
    return blobs


def _values(of: Any) -> tuple[tuple[str, str | int], ...]:  # noqa: ANN401 -- any dataclass of numbers
    pairs = [(one.name, getattr(of, one.name)) for one in fields(of)]
    return tuple((name, hex(value) if isinstance(value, mpz) else value) for name, value in pairs)


def _numbers(recipe: KernelRecipe) -> dict[str, Any]:
    return {name: mpz(int(value, 16)) if isinstance(value, str) else value for name, value in recipe.values}


def _kernel(recipe: KernelRecipe) -> Kernel:
    if recipe.kernel != "PartialDecrypt":
        return _cached(recipe)
    # Never cached: a share is kept by `KeyFolder` alone, which forgets a deleted key.
    values = dict(recipe.values)
    share = own_keys().share(str(values["share"]))
    return PartialDecrypt(share, mpz(int(str(values["modulus"]), 16)), bool(values["constant_time"]))


@lru_cache(maxsize=64)
def _cached(recipe: KernelRecipe) -> Kernel:
    """Cached because a fixed base builds a table."""
    if recipe.kernel == "FixedBasePower":
        return FixedBasePower(FixedBase(**_numbers(recipe)))
    kernel: Kernel = _PLAIN[recipe.kernel](**_numbers(recipe))
    return kernel
