"""What a notebook shows while something runs: a line, and a picture of how far it is, which change in place."""

import html
import importlib
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_WIDE, _HIGH, _APART = 150, 60, 14  # of one curve, in pixels
_BAR = 10
_DONE, _UNDER_WAY, _LEFT, _LINE = "#2a7f62", "#a8d5c2", "#dddddd", "#1f5fa8"


def in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class Cell:
    """Below a notebook's cell."""

    def __init__(self) -> None:
        module: Any = importlib.import_module("IPython.display")  # there, where a notebook is
        self._last: dict[str, str] = {"text/plain": ""}
        self._handle = module.display(self._last, raw=True, display_id=True)

    def show(self, text: str, picture: str = "") -> None:
        shown = {"text/plain": text}
        shown |= {"text/html": f"{picture}<pre>{html.escape(text)}</pre>"} if picture else {}
        if self._handle is not None and shown != self._last:
            self._last = shown
            self._handle.update(shown, raw=True)


def picture_of(rounds: int, done: int, part: float, curves: Mapping[str, Sequence[float]]) -> str:
    """A bar with a piece for each round, and below it a curve for each metric, as SVG.

    Args:
        rounds: How many there are.
        done: How many of them are over.
        part: How much of the next one is done, 0 to 1.
        curves: A number for each round that is over, by the metric's name.
    """
    shown = {name: [value for value in values if math.isfinite(value)] for name, values in curves.items()}
    width = max(2, len(shown)) * (_WIDE + _APART)
    height = _BAR + (_HIGH + 2 * _APART if shown else 0)
    parts = [_bar(width, rounds, done, part)]
    parts += [_curve(name, values, place * (_WIDE + _APART)) for place, (name, values) in enumerate(shown.items())]
    label = f"{done} of {rounds} rounds are over"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _bar(width: float, rounds: int, done: int, part: float) -> str:
    """One piece for all that is done, one for what is under way: a task may have a thousand rounds."""
    each = width / rounds
    pieces = ((0.0, float(width), _LEFT), (done * each, part * each, _UNDER_WAY), (0.0, done * each, _DONE))
    rects = [
        f'<rect x="{x:.1f}" y="0" width="{length:.1f}" height="{_BAR}" fill="{colour}"/>'
        for x, length, colour in pieces
    ]
    return "".join(rects)


def _curve(name: str, values: Sequence[float], left: float) -> str:
    top = _BAR + _APART
    lowest, highest = min(values, default=0.0), max(values, default=0.0)
    step, room = _WIDE / max(1, len(values) - 1), (highest - lowest) or 1.0
    points = [
        (left + number * step, top + _HIGH * (highest - value) / room if highest > lowest else top + _HIGH / 2)
        for number, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1] if points else (left, top)
    last = f" {values[-1]:.4g}" if values else ""
    return (
        f'<polyline points="{line}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{_LINE}"/>'
        f'<text x="{left:.1f}" y="{top + _HIGH + _APART - 1}" font-size="11" fill="currentColor">'
        f"{html.escape(name)}{last}</text>"
    )
