"""Runs experiments by name: every point that is not there yet, then the presentation."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from crowdfl.lab.experiments.frame import Experiment, Size
from crowdfl.lab.experiments.points import Bench, Notebook
from crowdfl.lab.experiments.report import Made, assemble, write_part

__all__ = ["Listener", "reproduce"]


class Listener(Protocol):
    """Hears how far things are."""

    def begin(self, name: str, points: int) -> None:
        """An experiment starts."""

    def at(self, label: str) -> None:
        """A point starts."""

    def inside(self, done: int, total: int) -> None:
        """How far a long batch within the point is."""

    def done(self) -> None:
        """A point is finished, now or in an earlier run."""


def reproduce(
    experiments: Sequence[Experiment[Any]],
    out: Path,
    bench: Bench,
    listener: Listener,
    *,
    size: Size | None = None,
    catalog: Sequence[Experiment[Any]] | None = None,
    command: str = "crowdfl reproduce {name}",
) -> Path:
    """Run them one after the other into `out`; the page shows all that were ever run there."""
    notebook = Notebook(out / "points")
    for experiment in experiments:
        chosen = size or experiment.default
        settings = experiment.settings(chosen)
        points = experiment.points(settings)
        listener.begin(experiment.name, len(points))
        results = []
        for point in points:
            listener.at(point.label)
            results.append(notebook.take(point, replace(bench, progress=listener.inside)))
            listener.done()
        made = Made(chosen, command.format(name=experiment.name), asdict(settings), bench.backend.name)
        write_part(out, experiment, experiment.present(settings, results), made)
    return assemble(out, catalog or experiments)
