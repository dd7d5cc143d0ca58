"""A data set by what `--data` says: a folder with the paper's set in it, an .npz file, or a data spec of several people.

Results are kept under a label that names the contents, never the place: the kind, the file's name and a hash of its bytes.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from crowdfl.errors import DataMissing, SettingsError
from crowdfl.learning.datasets.data import Source
from crowdfl.learning.datasets.npz_files import WindowFile
from crowdfl.learning.datasets.sources import open_crowd
from crowdfl_lab.wisdm_set import HOW_TO_GET, SET_FILE

_FEWEST = 3


@dataclass(frozen=True)
class NamedData:
    """A data set, and what it is called in results."""

    label: str
    source: Source


def named_data(text: str) -> NamedData:
    """What `text` names, or in one line what to download and which command to run."""
    path = Path(text).expanduser()
    if path.is_dir() or ":" not in text:
        file = path if path.suffix == ".npz" else path / SET_FILE
        if not file.exists():
            raise DataMissing(f"there is no {file}: {HOW_TO_GET}")
        return NamedData(_label("npz", file), WindowFile(file))
    kind, _, rest = text.partition(":")
    source, file = open_crowd(text), Path(rest).expanduser()
    if len(source.people) < _FEWEST:
        raise SettingsError(f"--data {text} has {len(source.people)} people; experiments need at least {_FEWEST}")
    return NamedData(_label(kind, file) if rest else kind, source)


def _label(kind: str, path: Path) -> str:
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return f"{kind}:{path.name} {digest.hexdigest()[:16]}"
