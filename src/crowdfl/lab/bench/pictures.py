"""Pictures of benchmarks, as PNG and SVG, where Matplotlib is installed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bars", "lines", "save"]

_INCHES = (14, 5)
_COLOURS = {True: "#1b6ca8", False: "#9a9a9a"}


def save(draw: "Callable[[Figure], None]", folder: Path, name: str) -> tuple[Path, ...]:
    """Both files, or none without Matplotlib."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        return ()
    figure = Figure(figsize=_INCHES, layout="constrained")
    draw(figure)
    paths = tuple(folder / f"{name}.{kind}" for kind in ("png", "svg"))
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):  # the same picture gives the same, small file
        for path in paths:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def bars(figure: "Figure", names: Sequence[str], ours: Sequence[bool], panels: Mapping[str, Sequence[float]]) -> None:
    """A panel of horizontal bars on a logarithmic scale for each quantity; CrowdFL's in colour."""
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        axis.barh(range(len(names)), values, color=[_COLOURS[own] for own in ours])
        axis.set_xscale("log")
        axis.set_title(title, fontsize=10)
        axis.grid(visible=True, axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(names)), names, fontsize=8)
    axes[0].invert_yaxis()


def lines(
    figure: "Figure", panels: Mapping[str, tuple[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]]]
) -> None:
    """A panel of points on two logarithmic scales for each: its title, its x label, and its series of x and y."""
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, (label, series)) in zip(axes, panels.items(), strict=True):
        for name, (x, y) in series.items():
            axis.plot(x, y, marker="o", label=name)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(label)
        axis.grid(visible=True, alpha=0.3)
        axis.legend(fontsize=7)
