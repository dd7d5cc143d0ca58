"""One style for every diagram, the few kinds that there are, and their PNG and SVG.

A kind draws on axes that it is given; `panels` makes them. `Picture` holds how to draw, so that nothing is drawn, nor
Matplotlib loaded, before a file is asked for.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib import axes, figure

    Axes = axes.Axes
    Canvas = figure.Figure
else:
    Axes = Canvas = object

_OURS, _OTHERS = "#0b5d66", "#8a8f96"  # as the pages have them
_DPI = 160  # readable at half size
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "legend.fontsize": 8,
    "svg.fonttype": "none",  # text stays text: a small file
}


@dataclass(frozen=True)
class Picture:
    """How to draw a figure, and what it shows."""

    name: str
    caption: str
    draw: Callable[[Canvas], None] = field(repr=False)
    inches: tuple[float, float] = (9.0, 4.0)


@dataclass(frozen=True)
class Series:
    """Points of one line; `spread` is the length of an error bar to either side, `style` Matplotlib's format."""

    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    style: str = "o-"
    colour: str | None = None


def panels(canvas: Canvas, count: int, rows: int = 1) -> list[Axes]:
    return list(canvas.subplots(rows, count // rows, squeeze=False).flat)


def lines(axes: Axes, series: Mapping[str, Series], *, log: bool = False, **labels: str) -> None:
    """Lines with a mark at each point, and error bars where a series has a spread; without a line, marks are hollow.

    `labels` as of `Axes.set`.
    """
    for name, one in series.items():
        fill = "full" if {"-", ":"} & set(one.style) else "none"
        axes.errorbar(one.x, one.y, one.spread, fmt=one.style, color=one.colour, capsize=3, label=name, fillstyle=fill)
    axes.set(**labels, **({"xscale": "log", "yscale": "log"} if log else {}))
    if any(series):
        axes.legend()


def bars(
    axes: Axes, groups: Sequence[str], series: Mapping[str, Sequence[float]], *, stacked: bool = False, **labels: str
) -> None:
    places, bottom = np.arange(len(groups)), np.zeros(len(groups))
    width = 0.8 if stacked else 0.8 / len(series)
    for i, (name, values) in enumerate(series.items()):
        heights = np.asarray(values, dtype=np.float64)
        shift = 0.0 if stacked else (i - (len(series) - 1) / 2) * width
        drawn = axes.bar(places + shift, heights, width, bottom=bottom if stacked else None, label=name)
        if stacked:
            bottom += heights
        else:
            axes.bar_label(drawn, fmt="%g", fontsize=8)
    axes.set_xticks(places, groups)
    axes.grid(visible=False, axis="x")
    axes.set(**labels)
    if any(series):
        axes.legend()


def ranked_bars(
    axes: list[Axes], names: Sequence[str], ours: Sequence[bool], values: Mapping[str, Sequence[float]]
) -> None:
    """Horizontal bars on logarithmic scales, one panel for each quantity; CrowdFL's own in colour."""
    for panel, (title, lengths) in zip(axes, values.items(), strict=True):
        panel.barh(range(len(names)), lengths, color=[_OURS if own else _OTHERS for own in ours])
        panel.set(xscale="log", title=title)
        panel.set_yticks(range(len(names)), names if panel is axes[0] else [""] * len(names), fontsize=8)
        panel.grid(visible=False, axis="y")
        panel.invert_yaxis()


def save_picture(picture: Picture, folder: Path) -> tuple[Path, ...]:
    paths = folder / f"{picture.name}.png", folder / f"{picture.name}.svg"
    with _drawn(picture) as canvas:
        canvas.savefig(paths[0], dpi=_DPI)
        canvas.savefig(paths[1], metadata={"Date": None})
    return paths


def draw_png(picture: Picture) -> bytes:
    buffer = io.BytesIO()
    with _drawn(picture) as canvas:
        canvas.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


@contextmanager
def _drawn(picture: Picture) -> Iterator[Canvas]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # A fixed salt and no date: the same numbers give the same SVG.
    with mpl.rc_context(_STYLE | {"svg.hashsalt": picture.name}):
        canvas = Figure(figsize=picture.inches, layout="constrained")
        picture.draw(canvas)
        yield canvas
