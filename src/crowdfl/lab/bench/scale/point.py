"""One point of a `bench scale` run."""

from collections.abc import Mapping
from dataclasses import dataclass

from crowdfl.lab.bench.rows import Figure

__all__ = ["Point"]

_BYTES = {"SP to CSP": "to_csp", "CSP to SP": "to_sp"}


@dataclass(frozen=True)
class Point:
    """What was measured at `x` of an axis, with so many uploads."""

    axis: str
    x: int
    crowd: int
    counts: Mapping[str, int]
    figures: Mapping[str, Figure]

    def figure(self, name: str) -> Figure:
        """A measured figure, or one that follows from it."""
        if name in _BYTES:
            return Figure(self.counts[_BYTES[name]], "B")
        if name == "SP: add, one upload":
            whole = self.figures["SP: add"]
            return Figure(whole.value / self.crowd, "s", whole.sample)
        if name == "stored uploads":
            return Figure(self.crowd * self.figures["upload"].value, "B")
        return self.figures[name]
