"""Finished pieces of work, kept as they finish: an interrupted experiment goes on where it stopped.

One file of JSON lines per kind of measurement. A line holds the settings it was measured under, so that a point is taken again
only when its settings, and the version of the program, are the same; figures that need the same point share it.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crowdfl.crypto.compute import Backend
from crowdfl.lab.timing import machine
from crowdfl.version import __version__

__all__ = ["Bench", "Notebook", "Point", "Row", "Rows", "Value"]

Value = str | int | float | bool | None
Row = dict[str, Value]
Rows = list[Row]


@dataclass(frozen=True)
class Bench:
    """What a measurement works with: where batches run, where data lies, whom to tell how far it is."""

    backend: Backend
    data: Path | None = None
    progress: Callable[[int, int], None] = lambda done, total: None


@dataclass(frozen=True)
class Point:
    """One piece of work. Equal kinds and settings are the same point, whichever experiment asks."""

    kind: str
    settings: Mapping[str, Value]
    measure: Callable[[Bench], Rows] = field(compare=False, repr=False)

    def key(self, compute: str) -> str:
        """Canonical, for comparison; where it was computed counts too, for what is measured is often time."""
        return json.dumps([self.kind, __version__, compute, dict(self.settings)], sort_keys=True)

    @property
    def label(self) -> str:
        """For a progress bar."""
        return f"{self.kind}: " + ", ".join(f"{name} {value}" for name, value in self.settings.items())


class Notebook:
    """The points finished so far, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Rows] = {}
        for path in sorted(folder.glob("*.jsonl")):
            self._read(path)

    def take(self, point: Point, bench: Bench) -> Rows:
        """Measure, unless that was done before; on disk when this returns."""
        key = point.key(bench.backend.name)
        if key not in self._known:
            where, start = machine(), time.perf_counter()
            rows = point.measure(bench)
            seconds = time.perf_counter() - start
            self._write(point.kind, {"key": key, "rows": rows, "seconds": seconds, "machine": where})
            # As read back: the same values whether a point was measured now or before.
            self._known[key] = json.loads(json.dumps(rows))
        return self._known[key]

    def _read(self, path: Path) -> None:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
                self._known[entry["key"]] = entry["rows"]
            except (ValueError, KeyError, TypeError):
                continue  # the line that was being written when the program was killed: measured again

    def _write(self, kind: str, entry: Mapping[str, object]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{kind.replace(' ', '-')}.jsonl"
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        # Every line starts anew, also after half a line.
        line = ("\n" if torn else "") + json.dumps(entry, allow_nan=False) + "\n"
        with path.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
