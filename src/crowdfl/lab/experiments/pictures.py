"""Kinds of diagram that several figures share."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["fitted_line", "grouped_bars", "panels"]


def panels(figure: "Figure", count: int) -> "list[Axes]":
    """So many diagrams side by side."""
    axes = figure.subplots(1, count, squeeze=False)
    return list(axes[0])


def grouped_bars(figure: "Figure", groups: Sequence[str], series: Mapping[str, Sequence[float]], label: str) -> None:
    """Bars side by side, each with its value on top."""
    (axes,) = panels(figure, 1)
    places, width = np.arange(len(groups)), 0.8 / len(series)
    for i, (name, values) in enumerate(series.items()):
        bars = axes.bar(places + (i - (len(series) - 1) / 2) * width, values, width, label=name)
        axes.bar_label(bars, fmt="%g", fontsize=9)
    axes.set_xticks(places, groups)
    axes.set_ylabel(label)
    axes.legend()


def fitted_line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope by least squares."""
    slope, intercept = np.polyfit(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), 1)
    return float(intercept), float(slope)
