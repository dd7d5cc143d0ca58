"""`crowdfl wisdm`: fetch WISDM's raw text, and build the paper's data set from it."""

import hashlib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn

from crowdfl.cli.output import Json, marked, show, waiting
from crowdfl.errors import DataAltered, DataMissing, SettingsError
from crowdfl.learning.datasets.download import WISDM_FILE, WISDM_URL, fetch, unpack_one
from crowdfl.learning.datasets.wisdm_raw import read_wisdm
from crowdfl_lab import wisdm_set

app = typer.Typer(help="WISDM: fetch its raw text, build the paper's data set.", no_args_is_help=True)


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
    words = f"{raw}: SHA-256 {digest}\n{path}: SHA-256 {made}\ntry: crowdfl data show npz:{path}"
    show(facts, words, *marked(faults.notes), as_json=as_json)


def _read_raw(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataMissing(f"there is no {path}: {wisdm_set.HOW_TO_GET}") from None
