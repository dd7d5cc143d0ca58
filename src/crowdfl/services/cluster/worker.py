"""A worker of one role's Dask cluster: `dask worker ... --preload crowdfl.services.cluster.worker`.

It reads the role's key shares from the folder that CROWDFL_KEYS names, a copy of the role's own `keys`. Pieces of work name
a share by its hash, so that no share ever travels through Dask.
"""

import hashlib
import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

from gmpy2 import mpz

from crowdfl.errors import CrowdFLError, FormatError, KeyFileDamaged, KeyFileMissing, KeyFilePermissions, KeyFileRole
from crowdfl.protocols.hardened.keys import CspBundle, SpBundle
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper.profile import PaperBundle
from crowdfl.storage.atomic import require_owner_only

__all__ = ["KEYS", "KeyFolder", "dask_setup", "own_keys", "share_name"]

KEYS = "CROWDFL_KEYS"
_ROLES = (".sp", ".csp")
_LONGEST = 1 << 20  # bytes of a bundle


def share_name(exponent: int) -> str:
    """The hash that names a share: a number of thousands of random bits cannot be found from it."""
    return hashlib.sha256(b"crowdfl key share\0" + hex(exponent).encode()).hexdigest()


class KeyFolder:
    """The shares in a role's folder of bundles; one that is deleted is forgotten, one that is added is found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shares: dict[str, tuple[Path, mpz]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"KeyFolder({str(self.folder)!r})"

    def share(self, name: str) -> mpz:
        """The share of this name, or `KeyFileMissing` with what to do."""
        with self._lock:
            path, share = self._shares.get(name, (None, None))
            if path is None or share is None or not path.exists():
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
        if not self.folder.is_dir():
            raise KeyFileMissing(f"{self.folder} is not a folder: set {KEYS} to a copy of the role's folder `keys`")
        paths = [path for path in sorted(self.folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
        if len({path.suffix for path in paths}) > 1 or not {path.suffix for path in paths} <= set(_ROLES):
            raise KeyFileRole(
                f"{self.folder} must hold the bundles of SP alone or of CSP alone: use that role's `keys`"
            )
        self._shares = {share_name(share): (path, share) for path in paths for share in _shares_in(path)}


def _shares_in(path: Path) -> list[mpz]:
    try:
        with open(path, "rb") as file:
            require_owner_only(file.fileno(), path, KeyFilePermissions)
            data = file.read(_LONGEST)
    except FileNotFoundError:  # deleted since it was listed
        return []
    try:
        kind = Message.kind_of(data)
        if kind == PaperBundle.kind:
            return [mpz(secret) for secret in PaperBundle.from_bytes(data, Limits.plain()).secrets]
        bundle = SpBundle if kind == SpBundle.kind else CspBundle
        return [mpz(bundle.from_bytes(data, Limits.plain()).share)]
    except FormatError:
        raise KeyFileDamaged(f"{path} is not a bundle of SP or CSP: copy it again") from None


@cache
def own_keys() -> KeyFolder:
    folder = os.environ.get(KEYS)
    if not folder:
        raise KeyFileMissing(f"this worker has no keys: set {KEYS} to a copy of the role's folder `keys`")
    return KeyFolder(Path(folder))


def dask_setup(_worker: Any) -> None:  # noqa: ANN401 -- Dask's worker, which nothing is asked of
    """Read the shares when the worker starts; one that cannot does not start."""
    try:
        own_keys().read()
    except CrowdFLError as wrong:
        raise SystemExit(f"{type(wrong).__name__}: {wrong}") from None  # Dask logs other errors and goes on
