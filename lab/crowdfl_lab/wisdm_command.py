"""`crowdfl wisdm`: fetch WISDM's raw text, and build the paper's data set from it."""

import hashlib
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn

from crowdfl.cli.output import Json, marked, show
from crowdfl.cli.waiting import waiting
from crowdfl.errors import DataAltered, DataMissing, SettingsError
from crowdfl_lab import wisdm_set
from crowdfl_lab.wisdm_set import WISDM_FILE, WISDM_URL, read_wisdm

_LONGEST = 2**30
_CHUNK = 2**18
_SECONDS = 60

app = typer.Typer(no_args_is_help=True)


@app.command("fetch")
def fetch_archive(
    folder: Annotated[Path, typer.Argument(help="Where to put it.")] = Path(),
    url: Annotated[str, typer.Option(help="Where to get it.")] = WISDM_URL,
    sha256: Annotated[str | None, typer.Option(help="Refuse an archive with another SHA-256.")] = None,
    as_json: Json = False,
) -> None:
    """Fetch WISDM's archive, show its size and checksum, and take the raw text out of it. Cite Kwapisz et al. 2010."""
    archive, text = folder / "WISDM_ar_latest.tar.gz", folder / WISDM_FILE
    columns = BarColumn(), DownloadColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=as_json) as progress:
        bar = progress.add_task("", total=None)
        size, digest = fetch(
            url, archive, sha256, lambda done, of: progress.update(bar, completed=done, total=of or None)
        )
    unpack_one(archive, WISDM_FILE, text)
    facts = {"file": str(text), "archive": str(archive), "bytes": size, "sha256": digest}
    words = f"{archive}: {size:,} bytes\nSHA-256 {digest}\n{text}\nnext: crowdfl wisdm build {text} {folder}"
    show(facts, words, as_json=as_json)


@app.command()
def build(
    raw: Annotated[Path, typer.Argument(help=f"WISDM's {WISDM_FILE}, as `fetch` takes it out of its archive.")],
    out: Annotated[Path, typer.Argument(help="The folder, or the .npz file, to write.")] = Path("data"),
    sha256: Annotated[str | None, typer.Option(help="Refuse a raw text with another SHA-256.")] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Take a text that has not as many records as WISDM v1.1.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the paper's data set from WISDM's raw text: 36 users, 49 windows each to train and 21 to test, by a fixed rule."""
    path = wisdm_set.set_path(out)
    if path.exists():
        raise SettingsError(f"{path} exists already: remove it, or name another file")
    with waiting("reading the records and choosing windows", quiet=as_json):
        text = _read_raw(raw)
        digest = hashlib.sha256(text).hexdigest()
        if sha256 is not None and digest != sha256.lower():
            raise DataAltered(f"{raw} has the SHA-256 {digest}, not {sha256.lower()}: nothing was written")
        people, faults = read_wisdm(text.decode("ascii", "replace").splitlines())
        if not unchecked:
            wisdm_set.check_known(people)
        data = wisdm_set.npz_bytes(wisdm_set.build_arrays(people))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    made = hashlib.sha256(data).hexdigest()
    facts = {"file": str(path), "sha256": made, "raw_sha256": digest, "notes": list(faults.notes)}
    words = f"{raw}: SHA-256 {digest}\n{path}: SHA-256 {made}\ntry: crowdfl train --look --data npz:{path}"
    show(facts, words, *marked(faults.notes), as_json=as_json)


def _read_raw(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataMissing(f"there is no {path}: {wisdm_set.HOW_TO_GET}") from None


def fetch(
    url: str, path: Path, sha256: str | None = None, progress: Callable[[int, int], None] = lambda _, __: None
) -> tuple[int, str]:
    """Download to a new file, once all of it is here and has the given hash; its size and SHA-256."""
    if not url.startswith("https://") and not (sha256 and url.startswith("http://")):
        raise SettingsError(f"{url}: data is downloaded by https://, or by http:// if --sha256 is given")
    if path.exists():
        raise SettingsError(f"{path} exists already: remove it, or name another file")
    data = _download(url, progress)
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is not None and digest != sha256.lower():
        raise DataAltered(
            f"{url} sent {len(data):,} bytes with SHA-256 {digest}, not {sha256.lower()}: nothing was kept"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return len(data), digest


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


def _download(url: str, progress: Callable[[int, int], None]) -> bytes:
    data = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 -- the scheme is checked above
            announced = int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(_CHUNK):
                data += chunk
                if len(data) > _LONGEST:
                    raise DataAltered(f"{url} sends more than {_LONGEST:,} bytes: it is not the data set")
                progress(len(data), announced)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise DataMissing(f"{url} cannot be downloaded: {error}") from error
    if announced and len(data) != announced:
        raise DataAltered(f"{url} broke off after {len(data):,} of {announced:,} bytes: try again")
    return bytes(data)
