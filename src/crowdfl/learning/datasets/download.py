"""Download a public data set; its bytes are counted and hashed, and refused if they are not those expected."""

import hashlib
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crowdfl.errors import DataAltered, DataMissing, SettingsError

__all__ = ["WISDM_FILE", "WISDM_URL", "Fetched", "fetch", "unpack_one"]

WISDM_URL = "https://www.cis.fordham.edu/wisdm/includes/datasets/latest/WISDM_ar_latest.tar.gz"
WISDM_FILE = "WISDM_ar_v1.1_raw.txt"

_LONGEST = 2**30
_CHUNK = 2**18
_SECONDS = 60


@dataclass(frozen=True)
class Fetched:
    """A downloaded file."""

    path: Path
    size: int
    sha256: str


def fetch(
    url: str, path: Path, sha256: str | None = None, progress: Callable[[int, int], None] | None = None
) -> Fetched:
    """Download to a new file, which appears only once it is complete and has the given hash."""
    if not url.startswith("https://") and not (sha256 and url.startswith("http://")):
        raise SettingsError(f"{url}: data is downloaded by https://, or by http:// if --sha256 is given")
    if path.exists():
        raise SettingsError(f"{path} exists already: remove it, or name another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            found = _copy(url, file.write, progress or (lambda _, __: None))
        if sha256 is not None and found[1] != sha256.lower():
            raise DataAltered(
                f"{url} sent {found[0]:,} bytes with SHA-256 {found[1]}, not {sha256.lower()}: nothing was kept"
            )
        Path(name).rename(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return Fetched(path, *found)


def unpack_one(archive: Path, wanted: str, path: Path) -> None:
    """Extract the one file of that name from a tar archive; the paths in the archive are not used."""
    try:
        with tarfile.open(archive) as members:
            member = next((m for m in members if m.isreg() and PurePosixPath(m.name).name == wanted), None)
            source = members.extractfile(member) if member else None
            if member is None or source is None or member.size > _LONGEST:
                raise DataAltered(f"{archive} does not contain {wanted}: is it the right archive?")
            with path.open("xb") as file:
                while chunk := source.read(_CHUNK):
                    file.write(chunk)
    except FileExistsError as error:
        raise SettingsError(f"{path} exists already: remove it, or name another file") from error
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataAltered(f"{archive} is not a readable tar archive: {error}") from error


def _copy(url: str, write: Callable[[bytes], object], progress: Callable[[int, int], None]) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 -- the scheme is checked above
            announced = int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(_CHUNK):
                size += len(chunk)
                if size > _LONGEST:
                    raise DataAltered(f"{url} sends more than {_LONGEST:,} bytes: it is not the data set")
                digest.update(chunk)
                write(chunk)
                progress(size, announced)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise DataMissing(f"{url} cannot be downloaded: {error}") from error
    if announced and size != announced:
        raise DataAltered(f"{url} broke off after {size:,} of {announced:,} bytes: try again")
    return size, digest.hexdigest()
