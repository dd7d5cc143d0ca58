"""From measured points to a million participants, on paper: each number with its formula."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crowdfl.crypto.budget import WidthBudget
from crowdfl.lab.bench.scale.growth import ScalePoint
from crowdfl.lab.bench.workload import SERVERS, SIGMA
from crowdfl.lab.report.results import Figure, ResultTable
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import TaskSettings

__all__ = ["REQUEST_LIMIT", "RESPONSE_LIMIT", "Rates", "plan_table"]

REQUEST_LIMIT = 256 * 1024 * 1024  # what CSP's service takes in one request
RESPONSE_LIMIT = 1024 * 1024 * 1024  # what SP takes in one answer
_PEOPLE, _PARAMETERS, _LANES, _HOUR = 1_000_000, 277_006, 1024, 3600
_BYTES = 512  # of a ciphertext
_WORK = {  # of each server within an hour; sketching takes a multiplication a ciphertext and no check: at most what adding took
    ("SP", "off"): "adding, averaging",
    ("CSP", "off"): "averaging",
    ("SP", "on"): "adding twice (the second time to sketch, at most), averaging, rewards",
    ("CSP", "on"): "averaging, rewards",
}

_Line = tuple[str, str, str]  # quantity, formula, value


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
    whole = _PEOPLE * rows * _BYTES
    everything, bytes_ = f"{_PEOPLE:,} * {rows:,}", f"{whole / 1e12:.3g} TB"
    speed = f"{whole * 8 / _HOUR / 1e9:.3g} Gbit/s"
    yield f"ciphertexts of an upload, {which}", f"{_PARAMETERS:,} / {budget.slots} slots, and the total's", f"{rows:,}"
    yield f"uploads stored and received, {which}", f"{everything} * {_BYTES} B", bytes_
    yield f"averages sent out, {which}", f"{everything} * {_BYTES // 2} B", f"{whole / 2 / 1e12:.3g} TB"
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
    lanes, reply = buckets * _BYTES * _PEOPLE, slots * rates.lane_reply
    each = f"{slots} * {rates.lane_reply:,.0f} B"  # of one bucket: the least that one message holds of everyone
    yield "SP's memory for the lanes", f"{_PEOPLE:,} * {buckets} * {_BYTES} B", f"{lanes / 1e9:.3g} GB"
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
    """Core hours: as many cores do it within an hour."""
    hours = seconds / _HOUR
    return f"{hours:,.0f} core hours" if hours >= 100 else f"{hours:.3g} core hours"
