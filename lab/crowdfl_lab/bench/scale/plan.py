"""A round with a million participants, on paper, from the points of a run: what it takes, and what does not fit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crowdfl.crypto.paillier.budget import WidthBudget
from crowdfl.errors import WidthBudgetExceeded
from crowdfl.protocols.profile import width_budget
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.shares.widths import SharesWidths
from crowdfl.settings import TaskSettings
from crowdfl_lab.bench.scale.growth import ScalePoint
from crowdfl_lab.bench.workload import SERVERS, SIGMA
from crowdfl_lab.report.results import Figure, ResultTable

REQUEST_LIMIT = 256 * 1024 * 1024  # what CSP's service takes in one request
RESPONSE_LIMIT = 1024 * 1024 * 1024  # what SP takes in one answer
_PEOPLE, _PARAMETERS, _LANES, _HOUR = 1_000_000, 277_006, 1024, 3600
_TITLE = f"A round of {_PEOPLE:,} participants and {_PARAMETERS:,} parameters, on paper, from the figures above"
_CIPHERTEXT = 512  # bytes
_WORK = {  # of each server within an hour; sketching takes a multiplication a ciphertext and no check: at most what adding took
    ("SP", "off"): "adding, averaging",
    ("CSP", "off"): "averaging",
    ("SP", "on"): "adding twice (the second time to sketch, at most), averaging, rewards",
    ("CSP", "on"): "averaging, rewards",
}
_NORMS = (5.0, 2.0, 1.0, 0.5, 0.25, 0.125)
_SHARED_WORK = {"SP": ("SP: add", "SP: publish"), "CSP": ("CSP: round",)}

_Line = tuple[str, str, str]  # quantity, formula, value


def _of_axes(points: Sequence[ScalePoint], *axes: str) -> list[list[ScalePoint]]:
    return [[point for point in points if point.axis == axis] for axis in axes]


@dataclass(frozen=True)
class Rates:
    """Of `hardened`: seconds of one core, read off the largest points, where the fixed costs weigh least."""

    add: float  # a ciphertext of an upload
    publish: dict[str, float]  # a ciphertext of the sum, by server
    lane: dict[str, float]  # a participant's bucket of lanes
    person: dict[str, float]  # a participant's part of PriRwd, whatever the lanes
    division: float  # bytes a participant of the longest request that cannot be cut
    lane_reply: float  # bytes of one lane of one participant in CSP's answer

    @classmethod
    def of(cls, points: Sequence[ScalePoint]) -> "Rates":
        parameters, rewarded, (wide, *_) = _of_axes(points, "parameters", "rewarded", "lanes")
        large, few, many = parameters[-1], rewarded[0], rewarded[-1]
        rows, lane, person = large.counts["ciphertexts"], {}, {}
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


def hardened_plan(points: Sequence[ScalePoint]) -> ResultTable:
    """Seconds of one core, bytes, and what does not fit."""
    rates, tasks = Rates.of(points), {"off": 0, "on": _LANES}
    settings = {which: TaskSettings(max_participants=_PEOPLE, lanes=lanes) for which, lanes in tasks.items()}
    budgets = {which: width_budget(task, _PARAMETERS, SIGMA) for which, task in settings.items()}
    rows = [line for which, budget in budgets.items() for line in _uploads(rates, budget, f"rewards {which}")]
    rows += _rewards(rates, budgets["on"])
    rows += [line for which, budget in budgets.items() for line in _cores(rates, budget, which)]
    return ResultTable(_TITLE, ("quantity", "formula", "value"), tuple(rows))


def _uploads(rates: Rates, budget: WidthBudget, which: str) -> Iterator[_Line]:
    rows = budget.ciphertexts + 1
    whole = _PEOPLE * rows * _CIPHERTEXT
    everything, size = f"{_PEOPLE:,} * {rows:,}", f"{whole / 1e12:.3g} TB"
    yield f"ciphertexts of an upload, {which}", f"{_PARAMETERS:,} / {budget.slots} slots, and the total's", f"{rows:,}"
    yield f"uploads stored and received, {which}", f"{everything} * {_CIPHERTEXT} B", size
    yield f"averages sent out, {which}", f"{everything} * {_CIPHERTEXT // 2} B", f"{whole / 2 / 1e12:.3g} TB"
    yield f"received within an hour, {which}", f"{size} * 8 / {_HOUR:,} s", f"{whole * 8 / _HOUR / 1e9:.3g} Gbit/s"
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


@dataclass(frozen=True)
class ShareRates:
    """Of `shares`: seconds of one core, and bytes, read off the largest points."""

    entry: dict[str, float]  # of one parameter of one upload
    person: dict[str, float]  # of an upload, whatever its length: signature, seal, manifest
    reward: dict[str, float]  # of checks and rewards of one participant, in lanes of the measured task
    sketch: dict[str, float]  # of one parameter of one upload, for its lanes
    listed: float  # bytes of one participant in the longest message of a round without checks
    memory: dict[str, float]  # bytes of one participant, without checks

    @classmethod
    def of(cls, points: Sequence[ScalePoint]) -> "ShareRates":
        found = _of_axes(points, "parameters", "participants", "rewarded", "sketched")
        long, many, paid, sketched = (on[-1] for on in found)

        def each(point: ScalePoint, role: str) -> float:
            return sum(point.figures[name].value for name in _SHARED_WORK[role]) / point.crowd

        def paying(point: ScalePoint, beside: ScalePoint) -> dict[str, float]:
            sp = point.figures["SP: reward"].value / point.crowd
            return {"SP": sp, "CSP": each(point, "CSP") - each(beside, "CSP")}

        entry = {role: each(long, role) / long.x for role in SERVERS}
        person = {role: max(0.0, each(many, role) - entry[role] * many.counts["parameters"]) for role in SERVERS}
        reward, lanes = paying(paid, many), paying(sketched, long)
        sketch = {role: max(0.0, lanes[role] - reward[role]) / sketched.x for role in SERVERS}
        memory = {role: many.figures[f"{role}: memory, working"].value / many.crowd for role in SERVERS}
        return cls(entry, person, reward, sketch, many.counts["longest"] / many.crowd, memory)


def shares_plan(points: Sequence[ScalePoint]) -> ResultTable:
    """Bytes, seconds of one core, and the sizes at which something ends."""
    rates = ShareRates.of(points)
    rows = [*_shared_uploads(), *_shared_work(rates), *_shared_checks(rates)]
    return ResultTable(_TITLE, ("quantity", "formula", "value"), tuple(rows))


def _shared_uploads() -> Iterator[_Line]:
    width = SharesWidths.of(bare_task(_PEOPLE), _PARAMETERS).ring_bytes
    upload, formula = _PARAMETERS * width, f"{_PARAMETERS:,} * {width} B"
    whole = _PEOPLE * upload
    yield "an upload, no checks", formula, f"{upload / 1e6:.3g} MB"
    yield "uploads stored and received", f"{_PEOPLE:,} * {formula}", f"{whole / 1e12:.3g} TB"
    yield "received within an hour", f"{whole / 1e12:.3g} TB * 8 / {_HOUR:,} s", f"{whole * 8 / _HOUR / 1e9:.3g} Gbit/s"
    yield "averages sent out", "as much again, the same bytes to everyone", f"{whole / 1e12:.3g} TB"


def _shared_work(rates: ShareRates) -> Iterator[_Line]:
    for role, entry in rates.entry.items():
        person, each = rates.person[role], _PARAMETERS * entry + rates.person[role]
        formula = f"{_PEOPLE:,} * ({_PARAMETERS:,} * {Figure(entry, 's')} + {Figure(person, 's')})"
        yield f"{role}, average", formula, f"{_PEOPLE * each / _HOUR:.3g} core hours"
        yield f"{role}'s cores within an hour, average", "the same", f"{math.ceil(_PEOPLE * each / _HOUR):,}"
    listed, fit = f"{rates.listed:,.0f} B", f"{int(REQUEST_LIMIT / rates.listed):,}"
    yield "the manifest", f"{_PEOPLE:,} * {listed}", f"{_PEOPLE * rates.listed / 1e6:,.0f} MB"
    yield "participants whose manifest fits one request", f"{REQUEST_LIMIT:,} B / {listed}", fit
    for role, memory in rates.memory.items():
        whole = f"{_PEOPLE * memory / 1e9:.3g} GB"
        yield f"{role}'s memory for those in a round", f"{_PEOPLE:,} * {memory:,.0f} B", whole


def _shared_checks(rates: ShareRates) -> Iterator[_Line]:
    for role, seconds in rates.reward.items():
        sketch = rates.sketch[role]
        spent = _PEOPLE * (_PARAMETERS * sketch + seconds) / _HOUR
        formula = f"{_PEOPLE:,} * ({_PARAMETERS:,} * {Figure(sketch, 's')} + {Figure(seconds, 's')})"
        yield f"{role}, checks and rewards on top, at the lanes measured", formula, f"{spent:.3g} core hours"
    norm = next((norm for norm in _NORMS if fits(_PEOPLE, norm)), None)
    most = f"of {', '.join(f'{n:g}' for n in _NORMS)}; samples at most {TaskSettings().max_samples}"
    yield f"the largest max_norm that fits 64 bits, {_LANES:,} lanes", most, "none" if norm is None else f"{norm:g}"
    if norm is None:
        return
    dealt = profile_named("shares").dealt_bytes(paying_task(_PEOPLE, _LANES, norm), _PARAMETERS)
    for role, size in dealt.items():
        yield f"dealt to {role.upper()}, a round", f"{_PEOPLE:,} * {size / _PEOPLE:,.0f} B", f"{size / 1e9:.3g} GB"
    largest = max(dealt.values()) / _PEOPLE
    fit = f"{int(RESPONSE_LIMIT / largest):,}"
    yield "participants whose file fits one answer of KGC", f"{RESPONSE_LIMIT:,} B / {largest:,.0f} B", fit


def bare_task(people: int, rounds: int = 5) -> TaskSettings:
    """Without checks and rewards."""
    sizes = {"max_participants": people, "rounds": rounds, "lanes": 0}
    return TaskSettings.of(profile="shares", check="none", pay="none", **sizes)


def paying_task(people: int, lanes: int, norm: float, **others: str | int) -> TaskSettings:
    sizes = {"max_participants": people, "lanes": lanes, "max_norm": norm, "budget": str(min(people, 10**6))}
    return TaskSettings.of(profile="shares", **sizes, **others)


def fits(people: int, norm: float) -> bool:
    try:
        SharesWidths.of(paying_task(people, _LANES, norm), _PARAMETERS)
    except WidthBudgetExceeded:
        return False
    return True
