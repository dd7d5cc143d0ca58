"""`crowdfl data`: look at a data set before training on it, fetch one, and build the paper's."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn
from rich.table import Table

from crowdfl.cli.output import Json, marked, show, waiting
from crowdfl.errors import DataAltered, DataMissing, SettingsError
from crowdfl.learning.datasets import wisdm_set
from crowdfl.learning.datasets.data import UNLABELLED, Source
from crowdfl.learning.datasets.download import WISDM_FILE, WISDM_URL, fetch, unpack_one
from crowdfl.learning.datasets.sources import FORMS, open_person, open_source, parse_spec
from crowdfl.learning.datasets.wisdm_raw import read_wisdm

app = typer.Typer(help="Data sets: look at one, fetch one, build the paper's.", no_args_is_help=True)


@app.command("show")
def show_data(
    data: Annotated[str, typer.Argument(help="; ".join(FORMS.values()) + ". Without a person: everyone.")],
    as_json: Json = False,
) -> None:
    """Show who is in a data set, how many windows of each label they have, and what was wrong with it."""
    spec = parse_spec(data)
    with waiting("reading the data", quiet=as_json):
        if spec.person is None:
            source = open_source(spec)
            rows = [_counts(source, index) for index in range(len(source.people))]
        else:
            source, index = open_person(data)
            rows = [_counts(source, index)]
    about = {"people": list(source.people), "labels": list(source.label_names), "notes": list(source.notes)}
    table = Table("person", "window", *map(escape, source.label_names), title="windows to train on + held out")
    for row in rows:
        cells = (f"{train} + {held}" for train, held in zip(row["train"], row["held_out"], strict=True))
        table.add_row(escape(row["person"]), "x".join(map(str, row["window"])), *cells)
    show({**about, "windows": rows}, table, *marked(source.notes), _for_a_task(source, rows), as_json=as_json)


@app.command()
def fetch_wisdm(
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
    words = f"{archive}: {size:,} bytes\nSHA-256 {digest}\n{text}\nnext: crowdfl data build-wisdm {text} {folder}"
    show(facts, words, as_json=as_json)


@app.command()
def build_wisdm(
    raw: Annotated[Path, typer.Argument(help=f"WISDM's {WISDM_FILE}, as `fetch-wisdm` takes it out of its archive.")],
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


def _for_a_task(source: Source, rows: Sequence[Mapping[str, Any]]) -> str:
    """What a task file says to take this data as it is."""
    length, channels = rows[0]["window"]
    values = source.load_person(0).train.value_names if source.label_names == (UNLABELLED,) else ()
    target = 'target = "value", ' if values else ""
    labels = json.dumps(list(values or source.label_names), ensure_ascii=False)
    return f"in a task file's [training]: {target}window = {length}, channels = {channels}, labels = {labels}"


def _counts(source: Source, index: int) -> dict[str, Any]:
    split, labels = source.load_person(index), len(source.label_names)
    return {
        "person": split.train.name,
        "window": list(split.train.windows.shape[1:]),
        "train": np.bincount(split.train.labels, minlength=labels).tolist(),
        "held_out": np.bincount(split.held_out.labels, minlength=labels).tolist(),
    }
