"""The points of a `bench scale` run, how each cost grows, and from there to a million participants, on paper."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import TaskSettings
from crowdfl_lab.bench.workload import SERVERS, SIGMA
from crowdfl_lab.report.plots import Picture, Series, lines, panels
from crowdfl_lab.report.results import Cell, Figure, ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_ALL = "participant: encrypt", "participant: read", "SP: add, one upload", "SP: publish", "CSP: publish"
Axes = Mapping[str, tuple[str, tuple[str, ...]]]  # by name: what grows, and the quantities
Panels = Mapping[str, tuple[str, tuple[str, ...]]]  # by title: an axis, and the quantities
_MEMORY = "participant: memory, working", "participant: memory, reading", "SP: memory, working", "CSP: memory, working"
AXES: Axes = {
    "parameters": ("parameters, 3 uploads", (*_ALL, *_MEMORY, "upload", "publication", "SP to CSP", "CSP to SP")),
    "participants": (
        "participants, {crowd_parameters:,} parameters",
        ("SP: add", "SP: publish", "CSP: publish", "SP: memory, working", "CSP: memory, working", "stored uploads"),
    ),
    "rewarded": (
        "participants with rewards, {crowd_parameters:,} parameters, {rewarded_lanes[0]} lanes",
        ("SP: reward", "CSP: reward", "SP: memory, working", "CSP: memory, working", "SP to CSP", "CSP to SP"),
    ),
    "key": ("bits of N, 3 uploads, {key_parameters:,} parameters", (*_ALL, *_MEMORY, "upload", "publication")),
}
_PANELS: Panels = {
    "seconds of one core": ("parameters", _ALL),
    "memory (bytes)": ("parameters", _MEMORY),
    "seconds of one core, uploads": ("participants", ("SP: add", "SP: publish", "CSP: publish")),
    "seconds of one core, rewards": ("rewarded", ("SP: reward", "CSP: reward")),
}
_BYTES = {"SP to CSP": "to_csp", "CSP to SP": "to_sp"}
_HOW = (
    "Processor time of each role in a fresh process on one core; memory is what its peak (VmHWM) grew by after everything "
    "was built. Exponents are fitted by least squares of the logarithms: 1 is proportional."
)
REQUEST_LIMIT = 256 * 1024 * 1024  # what CSP's service takes in one request
RESPONSE_LIMIT = 1024 * 1024 * 1024  # what SP takes in one answer
_PEOPLE, _PARAMETERS, _LANES, _HOUR = 1_000_000, 277_006, 1024, 3600
_CIPHERTEXT = 512  # bytes
_WORK = {  # of each server within an hour; sketching takes a multiplication a ciphertext and no check: at most what adding took
    ("SP", "off"): "adding, averaging",
    ("CSP", "off"): "averaging",
    ("SP", "on"): "adding twice (the second time to sketch, at most), averaging, rewards",
    ("CSP", "on"): "averaging, rewards",
}

_Line = tuple[str, str, str]  # quantity, formula, value


@dataclass(frozen=True)
class ScalePoint:
    """What was measured at `x` of an axis, with so many uploads."""

    axis: str
    x: int
    crowd: int
    counts: Mapping[str, int]
    figures: Mapping[str, Figure]

    def figure(self, name: str) -> Figure:
        if name in _BYTES:
            return Figure(self.counts[_BYTES[name]], "B")
        if name == "SP: add, one upload":
            whole = self.figures["SP: add"]
            return Figure(whole.value / self.crowd, "s", whole.sample)
        if name == "stored uploads":
            return Figure(self.crowd * self.figures["upload"].value, "B")
        return self.figures[name]


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """b of y = a x^b, by least squares of the logarithms: 1 is proportional, 0 does not grow."""
    slope, _ = np.polyfit(np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64)), 1)
    return float(slope)


def exponents(points: Iterable[ScalePoint], axis: str, axes: Axes = AXES) -> dict[str, float]:
    """Of every quantity on an axis that is positive everywhere."""
    series = _series(points, axis, axes[axis][1])
    return {name: exponent(s.x, s.y) for name, s in series.items() if min(s.y) > 0 and len(s.y) > 1}


def _series(points: Iterable[ScalePoint], axis: str, names: Iterable[str]) -> dict[str, Series]:
    on = [point for point in points if point.axis == axis]
    return {name: Series([float(p.x) for p in on], [p.figure(name).value for p in on]) for name in names}


def table(
    points: Sequence[ScalePoint], axis: str, title: str, settings: Mapping[str, Any], axes: Axes = AXES
) -> ResultTable:
    label, names = axes[axis]
    on, found = [point for point in points if point.axis == axis], exponents(points, axis, axes)

    def row(name: str) -> tuple[Cell, ...]:
        return name, *(point.figure(name) for point in on), f"{found[name]:.2f}" if name in found else None

    columns = ("one core", *(f"{point.x:,}" for point in on), "exponent")
    return ResultTable(f"Against {label.format(**settings)}; {title}", columns, tuple(map(row, names)))


def notes(points: Iterable[ScalePoint]) -> tuple[str, ...]:
    samples = dict.fromkeys(figure.sample for point in points for figure in point.figures.values() if figure.sample)
    rest = "of each batch, the rest by proportion; everything else is done in full"
    return (_HOW, *(f"* from {sample} {rest}" for sample in samples))


def picture(points: Sequence[ScalePoint], name: str = "scale", shown: Panels = _PANELS, axes: Axes = AXES) -> Picture:
    def draw(canvas: "Canvas") -> None:
        for panel, (title, (axis, names)) in zip(panels(canvas, len(shown)), shown.items(), strict=True):
            lines(panel, _series(points, axis, names), log=True, title=title, xlabel=axes[axis][0].partition(",")[0])

    return Picture(name, "Time and memory of each role against parameters and participants", draw, (14, 5))


@dataclass(frozen=True)
class Rates:
    """Seconds of one core, read off the measured points."""

    add: float  # a ciphertext of an upload
    publish: dict[str, float]  # a ciphertext of the sum, by server
    lane: dict[str, float]  # a participant's bucket of lanes
    person: dict[str, float]  # a participant's part of PriRwd, whatever the lanes
    division: float  # bytes a participant of the longest request that cannot be cut
    lane_reply: float  # bytes of one lane of one participant in CSP's answer

    @classmethod
    def of(cls, points: Sequence[ScalePoint]) -> "Rates":
        """The largest points give the rates: there the fixed costs weigh least."""
        on = {axis: [p for p in points if p.axis == axis] for axis in ("parameters", "rewarded", "lanes")}
        large, few, wide, many = on["parameters"][-1], on["rewarded"][0], on["lanes"][0], on["rewarded"][-1]
        rows = large.counts["ciphertexts"]
        lane, person = {}, {}
        for role in SERVERS:
            each = [p.figures[f"{role}: reward"].value / p.crowd for p in (few, wide, many)]
            lane[role] = (each[1] - each[0]) / (wide.counts["buckets"] - few.counts["buckets"])
            person[role] = each[2] - many.counts["buckets"] * lane[role]
        return cls(
            large.figure("SP: add, one upload").value / rows,
            {role: large.figures[f"{role}: publish"].value / rows for role in SERVERS},
            lane,
            person,
            many.counts["division"] / many.crowd,
            many.counts["lanes"] / (many.crowd * many.counts["buckets"] * many.counts["slots"]),
        )


def plan_table(points: Sequence[ScalePoint]) -> ResultTable:
    """One round of a million participants: seconds of one core, bytes, and what does not fit."""
    rates, tasks = Rates.of(points), {"off": 0, "on": _LANES}
    settings = {which: TaskSettings(max_participants=_PEOPLE, lanes=lanes) for which, lanes in tasks.items()}
    budgets = {which: width_budget(task, _PARAMETERS, SIGMA) for which, task in settings.items()}
    rows = [line for which, budget in budgets.items() for line in _uploads(rates, budget, f"rewards {which}")]
    rows += _rewards(rates, budgets["on"])
    rows += [line for which, budget in budgets.items() for line in _cores(rates, budget, which)]
    title = f"A round of {_PEOPLE:,} participants and {_PARAMETERS:,} parameters, on paper, from the figures above"
    return ResultTable(title, ("quantity", "formula", "value"), tuple(rows))


def _uploads(rates: Rates, budget: WidthBudget, which: str) -> Iterator[_Line]:
    rows = budget.ciphertexts + 1
    whole = _PEOPLE * rows * _CIPHERTEXT
    everything, bytes_ = f"{_PEOPLE:,} * {rows:,}", f"{whole / 1e12:.3g} TB"
    speed = f"{whole * 8 / _HOUR / 1e9:.3g} Gbit/s"
    yield f"ciphertexts of an upload, {which}", f"{_PARAMETERS:,} / {budget.slots} slots, and the total's", f"{rows:,}"
    yield f"uploads stored and received, {which}", f"{everything} * {_CIPHERTEXT} B", bytes_
    yield f"averages sent out, {which}", f"{everything} * {_CIPHERTEXT // 2} B", f"{whole / 2 / 1e12:.3g} TB"
    yield f"received within an hour, {which}", f"{bytes_} * 8 / {_HOUR:,} s", speed
    adding = _core_time(_PEOPLE * rows * rates.add)
    yield f"SP checks and adds, {which}", f"{everything} * {Figure(rates.add, 's')}", adding
    for role, seconds in rates.publish.items():
        yield f"{role} averages, {which}", f"{rows:,} * {Figure(seconds, 's')}", _core_time(rows * seconds)


def _rewards(rates: Rates, budget: WidthBudget) -> Iterator[_Line]:
    buckets, slots = budget.buckets, budget.slots
    for role in SERVERS:
        person, lane = rates.person[role], rates.lane[role]
        formula = f"{_PEOPLE:,} * ({Figure(person, 's')} + {buckets} * {Figure(lane, 's')})"
        yield f"{role} rewards", formula, _core_time(_PEOPLE * (person + buckets * lane))
    lanes, reply = buckets * _CIPHERTEXT * _PEOPLE, slots * rates.lane_reply
    each = f"{slots} * {rates.lane_reply:,.0f} B"  # of one bucket: the least that one message holds of everyone
    yield "SP's memory for the lanes", f"{_PEOPLE:,} * {buckets} * {_CIPHERTEXT} B", f"{lanes / 1e9:.3g} GB"
    yield "one answer with lanes", f"{_PEOPLE:,} * {each}", f"{reply * _PEOPLE / 1e9:.3g} GB"
    fitting = f"{int(RESPONSE_LIMIT / reply):,}"
    yield "participants whose lanes fit one answer", f"{RESPONSE_LIMIT:,} B / ({each})", fitting
    formula, fitting = f"{REQUEST_LIMIT:,} B / {rates.division:,.0f} B", f"{int(REQUEST_LIMIT / rates.division):,}"
    yield "participants whose divisions fit one request", formula, fitting


def _cores(rates: Rates, budget: WidthBudget, which: str) -> Iterator[_Line]:
    rows = budget.ciphertexts + 1
    adding = {"SP": _PEOPLE * rows * rates.add * (2 if which == "on" else 1), "CSP": 0}
    for role in SERVERS:
        rewards = _PEOPLE * (rates.person[role] + budget.buckets * rates.lane[role]) if which == "on" else 0
        cores = math.ceil((rows * rates.publish[role] + rewards + adding[role]) / _HOUR)
        yield f"{role}'s cores within an hour, rewards {which}", _WORK[role, which], f"{cores:,}"


def _core_time(seconds: float) -> str:
    hours = seconds / _HOUR
    return f"{hours:,.0f} core hours" if hours >= 100 else f"{hours:.3g} core hours"
