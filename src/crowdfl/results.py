"""What `simulate` and `join` give back has in common: rows for a data frame, a picture of the rounds, the model in a file."""

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from crowdfl.errors import PackageMissing, SettingsError
from crowdfl.learning.models.forms import model_npz, model_safetensors
from crowdfl.storage.atomic import write_private

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_WRITERS: Mapping[str, Callable[[object], bytes]] = {".npz": model_npz, ".safetensors": model_safetensors}


class RoundOfResult(Protocol):
    """One round, as a row and as points of a curve."""

    @property
    def number(self) -> int: ...

    @property
    def metrics(self) -> Mapping[str, float]: ...

    def row(self) -> dict[str, float]: ...


class RunResult:
    """A model, and the rounds that led to it."""

    counted: ClassVar[str]  # the column that a picture shows as bars
    model: Any
    history: Sequence[RoundOfResult]

    def rows(self) -> list[dict[str, float]]:
        """The history as flat rows of numbers; `frame` has them as a table of pandas."""
        return [one.row() for one in self.history]

    def frame(self) -> "DataFrame":
        """The rows as a DataFrame, a line for each round. Needs pandas: `pip install 'crowdfl[pandas]'`."""
        return new_frame(self.rows())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model's arrays under their names; `crowdfl task create --initial` takes such a file.

        Args:
            path: Ends with `.npz` or `.safetensors`, which keeps bfloat16 (NumPy has none: it becomes float32).
        """
        place = Path(path)
        if place.suffix not in _WRITERS:
            raise SettingsError(f"a model is written as {' or '.join(_WRITERS)}, not {place.suffix!r}")
        write_private(place, _WRITERS[place.suffix](self.model), overwrite=True)
        return place

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Draw each metric over the rounds, and how many took part. Needs Matplotlib: `pip install 'crowdfl[plots]'`.

        Args:
            path: Where to write the picture, such as `history.png`; without one it is only returned.

        Returns:
            Matplotlib's figure.
        """
        names = self._metric_names()
        figure = new_figure(4.2 * (len(names) + 1), 3.4)
        from matplotlib.ticker import MaxNLocator

        rounds = [one.number for one in self.history]
        *places, bars = figure.subplots(1, len(names) + 1, squeeze=False)[0]
        for axes, name in zip(places, names, strict=True):
            axes.plot(rounds, [one.row().get(name, np.nan) for one in self.history], marker="o")
            axes.set(xlabel="round", ylabel=name)
        bars.bar(rounds, [one.row().get(self.counted, 0) for one in self.history])
        bars.set(xlabel="round", ylabel=self.counted)
        for axes in (*places, bars):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return written(figure, path)

    def _metric_names(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.history for name in one.metrics))


def new_frame(rows: Sequence[Mapping[str, Any]]) -> "DataFrame":
    try:
        from pandas import DataFrame
    except ModuleNotFoundError as missing:
        if missing.name != "pandas":
            raise
        raise PackageMissing(
            "a DataFrame needs pandas: `pip install 'crowdfl[pandas]'`; `rows()` needs nothing"
        ) from None
    return DataFrame(rows)


def new_figure(width: float, height: float) -> "Figure":
    """One that a notebook shows as it is: Matplotlib's own needs pyplot for that."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise PackageMissing("a picture needs Matplotlib: `pip install 'crowdfl[plots]'`") from None

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png", dpi=96)
            return stream.getvalue()

    return ShownFigure(figsize=(width, height), layout="constrained")


def written(figure: "Figure", path: str | os.PathLike[str] | None) -> "Figure":
    """A figure, in a file too if one is named."""
    if path is not None:
        try:
            figure.savefig(path, dpi=120)
        except (ValueError, OSError) as wrong:
            raise SettingsError(f"{path} cannot be written: {wrong}") from wrong
    return figure
