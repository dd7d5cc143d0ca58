"""From measured points to a million participants, on paper: each number with its formula."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from crowdfl.lab.bench.protocols.setting import SIGMA
from crowdfl.lab.bench.rows import Figure
from crowdfl.lab.bench.scale.point import Point
from crowdfl.lab.bench.tables import TextTable
from crowdfl.protocols.profile import width_budget
from crowdfl.settings import TaskSettings

__all__ = ["REQUEST_LIMIT", "RESPONSE_LIMIT", "Rates", "plan_table"]

REQUEST_LIMIT = 256 * 1024 * 1024  # what CSP's service takes in one request
RESPONSE_LIMIT = 1024 * 1024 * 1024  # what SP takes in one answer
_PEOPLE, _PARAMETERS, _LANES, _HOUR = 1_000_000, 277_006, 1024, 3600


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
    def of(cls, points: Sequence[Point]) -> "Rates":
        """The largest points give the rates: there the fixed costs weigh least."""
        on = {axis: [p for p in points if p.axis == axis] for axis in ("parameters", "rewarded", "lanes")}
        large, few, wide, many = on["parameters"][-1], on["rewarded"][0], on["lanes"][0], on["rewarded"][-1]
        rows = large.counts["ciphertexts"]
        lane, person = {}, {}
        for role in ("SP", "CSP"):
            narrow_each, wide_each, many_each = (
                p.figures[f"{role}: reward"].value / p.crowd for p in (few, wide, many)
            )
            lane[role] = (wide_each - narrow_each) / (wide.counts["buckets"] - few.counts["buckets"])
            person[role] = many_each - many.counts["buckets"] * lane[role]
        return cls(
            large.figure("SP: add, one upload").value / rows,
            {role: large.figures[f"{role}: publish"].value / rows for role in ("SP", "CSP")},
            lane,
            person,
            many.counts["division"] / many.crowd,
            many.counts["lanes"] / (many.crowd * many.counts["buckets"] * many.counts["slots"]),
        )


def plan_table(points: Sequence[Point]) -> TextTable:
    """One round of a million participants: seconds of one core, bytes, and what does not fit."""
    rates = Rates.of(points)
    rows = [*_uploads(rates, lanes=0), *_uploads(rates, lanes=_LANES), *_rewards(rates), *_cores(rates)]
    title = f"A round of {_PEOPLE:,} participants and {_PARAMETERS:,} parameters, on paper, from the figures above"
    return TextTable(title, ("quantity", "formula", "value"), tuple(rows))


def _uploads(rates: Rates, *, lanes: int) -> list[tuple[str, str, str]]:
    budget = width_budget(TaskSettings(max_participants=_PEOPLE, lanes=lanes), _PARAMETERS, SIGMA)
    rows = budget.ciphertexts + 1
    size = rows * 512
    which = f"rewards {'on' if lanes else 'off'}"
    add = _PEOPLE * rows * rates.add
    publish = {role: rows * rates.publish[role] for role in ("SP", "CSP")}
    each = {role: Figure(rates.publish[role], "s") for role in ("SP", "CSP")}
    return [
        (f"ciphertexts of an upload, {which}", f"{_PARAMETERS:,} / {budget.slots} slots, and the total's", f"{rows:,}"),
        (f"uploads stored and received, {which}", f"{_PEOPLE:,} * {rows:,} * 512 B", f"{_PEOPLE * size / 1e12:.3g} TB"),
        (f"averages sent out, {which}", f"{_PEOPLE:,} * {rows:,} * 256 B", f"{_PEOPLE * size / 2e12:.3g} TB"),
        (
            f"received within an hour, {which}",
            f"{_PEOPLE * size / 1e12:.3g} TB * 8 / {_HOUR:,} s",
            f"{_PEOPLE * size * 8 / _HOUR / 1e9:.3g} Gbit/s",
        ),
        (f"SP checks and adds, {which}", f"{_PEOPLE:,} * {rows:,} * {Figure(rates.add, 's')}", _core_time(add)),
        (f"SP averages, {which}", f"{rows:,} * {each['SP']}", _core_time(publish["SP"])),
        (f"CSP averages, {which}", f"{rows:,} * {each['CSP']}", _core_time(publish["CSP"])),
    ]


def _rewards(rates: Rates) -> list[tuple[str, str, str]]:
    budget = width_budget(TaskSettings(max_participants=_PEOPLE, lanes=_LANES), _PARAMETERS, SIGMA)
    buckets, slots = budget.buckets, budget.slots
    rows = []
    for role in ("SP", "CSP"):
        each = rates.person[role] + buckets * rates.lane[role]
        formula = f"{_PEOPLE:,} * ({Figure(rates.person[role], 's')} + {buckets} * {Figure(rates.lane[role], 's')})"
        rows.append((f"{role} rewards", formula, _core_time(_PEOPLE * each)))
    reply = slots * rates.lane_reply  # of one bucket: the least that one message holds of everyone
    return [
        *rows,
        ("SP's memory for the lanes", f"{_PEOPLE:,} * {buckets} * 512 B", f"{buckets * 512 * _PEOPLE / 1e9:.3g} GB"),
        (
            "one answer with lanes",
            f"{_PEOPLE:,} * {slots} * {rates.lane_reply:,.0f} B",
            f"{reply * _PEOPLE / 1e9:.3g} GB",
        ),
        (
            "participants whose lanes fit one answer",
            f"{RESPONSE_LIMIT:,} B / ({slots} * {rates.lane_reply:,.0f} B)",
            f"{int(RESPONSE_LIMIT / reply):,}",
        ),
        (
            "participants whose divisions fit one request",
            f"{REQUEST_LIMIT:,} B / {rates.division:,.0f} B",
            f"{int(REQUEST_LIMIT / rates.division):,}",
        ),
    ]


def _cores(rates: Rates) -> list[tuple[str, str, str]]:
    """All of a server's work; sketching takes a multiplication a ciphertext and no check, so at most what adding took."""
    found = []
    for lanes in (0, _LANES):
        budget = width_budget(TaskSettings(max_participants=_PEOPLE, lanes=lanes), _PARAMETERS, SIGMA)
        rows = budget.ciphertexts + 1
        add = _PEOPLE * rows * rates.add
        reward = {role: _PEOPLE * (rates.person[role] + budget.buckets * rates.lane[role]) for role in ("SP", "CSP")}
        seconds = {role: rows * rates.publish[role] + (reward[role] if lanes else 0) for role in ("SP", "CSP")}
        seconds["SP"] += 2 * add if lanes else add
        formulas = {"SP": "adding, averaging", "CSP": "averaging"}
        if lanes:
            formulas = {
                "SP": "adding twice (the second time to sketch, at most), averaging, rewards",
                "CSP": "averaging, rewards",
            }
        which = f"rewards {'on' if lanes else 'off'}"
        found += [
            (f"{role}'s cores within an hour, {which}", formulas[role], f"{math.ceil(seconds[role] / _HOUR):,}")
            for role in ("SP", "CSP")
        ]
    return found


def _core_time(seconds: float) -> str:
    """Core hours: as many cores do it within an hour."""
    hours = seconds / _HOUR
    return f"{hours:,.0f} core hours" if hours >= 100 else f"{hours:.3g} core hours"
