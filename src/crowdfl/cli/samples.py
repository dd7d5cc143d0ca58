"""Windows to evaluate or predict on: a person of the watch data, or a CSV file in the same form and units."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crowdfl.cli.training import load_person
from crowdfl.errors import DataMalformed, DataMissing
from crowdfl.learning import watch
from crowdfl.learning.data import Labels, Windows, windows_of

__all__ = ["Samples", "load_samples"]

_CHANNELS = len(watch.UNITS)
_LONGEST = 64 * 2**20


@dataclass(frozen=True, eq=False)
class Samples:
    """Windows, where each begins, and their labels where they are known."""

    windows: Windows
    starts: npt.NDArray[np.int64]
    labels: Labels | None


def load_samples(spec: str, names: list[str]) -> Samples:
    """`watch:N`, or the path of a CSV file."""
    if spec.startswith("watch:"):
        held_out = load_person(spec).held_out
        starts = np.arange(len(held_out), dtype=np.int64) * watch.CUT.step
        return Samples(held_out.windows, starts, held_out.labels)
    return _from_csv(Path(spec), names)


def _from_csv(path: Path, names: list[str]) -> Samples:
    """One sample a line: acceleration (g) and rotation (rad/s), three axes each, 50 a second; a column `label` may follow."""
    try:
        if path.stat().st_size > _LONGEST:
            raise DataMalformed(f"{path} is longer than {_LONGEST:,} bytes: cut it into parts")
        rows = list(csv.reader(path.read_text().splitlines()))
    except (FileNotFoundError, IsADirectoryError):
        raise DataMissing(f"data is watch:0 to watch:9 or a CSV file; there is no {path}") from None
    except (UnicodeDecodeError, csv.Error) as wrong:
        raise DataMalformed(f"{path} is no CSV: {wrong}") from None
    header = [cell.strip() for cell in rows[0]] if rows and not _numeric(rows[0][0]) else None
    column = header.index("label") if header is not None and "label" in header else None
    signal, labels = _parsed(path, rows[header is not None :], column, names)
    length, step = watch.CUT.length, watch.CUT.step
    windows = windows_of(signal / watch.UNITS, length, step)
    starts = np.arange(len(windows), dtype=np.int64) * step
    if not len(windows):
        raise DataMalformed(f"{path} has {len(signal)} samples; one window takes {length}")
    if labels is None:
        return Samples(windows, starts, None)
    same = np.array(
        [len(set(labels[start : start + length])) == 1 for start in starts]
    )  # across a change: neither label
    if not same.any():
        raise DataMalformed(f"{path}: no {length} samples in a row have one label")
    return Samples(windows[same], starts[same], labels[starts[same]])


def _parsed(
    path: Path, rows: list[list[str]], column: int | None, names: list[str]
) -> tuple[npt.NDArray[np.float64], Labels | None]:
    signal, labels = np.zeros((len(rows), _CHANNELS)), np.zeros(len(rows), dtype=np.int64)
    for line, row in enumerate(rows):
        cells = list(row)
        try:
            if column is not None:
                labels[line] = names.index(cells.pop(column).strip())
            signal[line] = [float(cell) for cell in cells]
        except (ValueError, IndexError):
            wanted = f"{_CHANNELS} numbers" + (f" and a label of {', '.join(names)}" if column is not None else "")
            raise DataMalformed(f"{path}, sample {line + 1}: {','.join(row)[:80]!r} is not {wanted}") from None
    if not np.isfinite(signal).all():
        raise DataMalformed(f"{path} holds NaN or infinity")
    return signal, labels if column is not None else None


def _numeric(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
