"""Download a public data set; its bytes are counted and hashed, and refused if they are not those expected."""

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from crowdfl.errors import DataAltered, DataMissing, SettingsError

WISDM_URL = "https://www.cis.fordham.edu/wisdm/includes/datasets/latest/WISDM_ar_latest.tar.gz"
WISDM_FILE = "WISDM_ar_v1.1_raw.txt"

_LONGEST = 2**30
_CHUNK = 2**18
_SECONDS = 60


def fetch(
    url: str, path: Path, sha256: str | None = None, progress: Callable[[int, int], None] = lambda _, __: None
) -> tuple[int, str]:
    """Download to a new file, which appears only once it is complete and has the given hash; its size and SHA-256."""
    if not url.startswith("https://") and not (sha256 and url.startswith("http://")):
        raise SettingsError(f"{url}: data is downloaded by https://, or by http:// if --sha256 is given")
    if path.exists():
        raise SettingsError(f"{path} exists already: remove it, or name another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            size, digest = _copy(url, file.write, progress)
        if sha256 is not None and digest != sha256.lower():
            raise DataAltered(
                f"{url} sent {size:,} bytes with SHA-256 {digest}, not {sha256.lower()}: nothing was kept"
            )
        Path(name).rename(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return size, digest


def unpack_one(archive: Path, wanted: str, path: Path) -> None:
    """Extract the one file of that name from a tar archive; the paths in the archive are not used."""
    try:
        with tarfile.open(archive) as members:
            member = next((m for m in members if m.isreg() and PurePosixPath(m.name).name == wanted), None)
            source = members.extractfile(member) if member else None
            if member is None or source is None or member.size > _LONGEST:
                raise DataAltered(f"{archive} does not contain {wanted}: is it the right archive?")
            with path.open("xb") as file:
                shutil.copyfileobj(source, file)
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
