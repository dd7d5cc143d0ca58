"""A round of `shares` with a million participants, on paper, from the points of a run: what it takes, and what does not fit."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crowdfl.errors import WidthBudgetExceeded
from crowdfl.protocols.registry import profile_named
from crowdfl.protocols.shares.widths import SharesWidths
from crowdfl.settings import TaskSettings
from crowdfl_lab.bench.scale.growth import REQUEST_LIMIT, RESPONSE_LIMIT, ScalePoint
from crowdfl_lab.report.results import Figure, ResultTable

_PEOPLE, _PARAMETERS, _LANES, _HOUR = 1_000_000, 277_006, 1024, 3600
_NORMS = (5.0, 2.0, 1.0, 0.5, 0.25, 0.125)

_Line = tuple[str, str, str]  # quantity, formula, value


@dataclass(frozen=True)
class ShareRates:
    """Seconds of one core, and bytes, read off the largest points: there the fixed costs weigh least."""

    entry: dict[str, float]  # of one parameter of one upload
    person: dict[str, float]  # of an upload, whatever its length: signature, seal, manifest
    reward: dict[str, float]  # of checks and rewards of one participant, in lanes of the measured task
    sketch: dict[str, float]  # of one parameter of one upload, for its lanes
    listed: float  # bytes of one participant in the longest message of a round without checks
    memory: dict[str, float]  # bytes of one participant, without checks

    @classmethod
    def of(cls, points: Sequence[ScalePoint]) -> "ShareRates":
        axes = ("parameters", "participants", "rewarded", "sketched")
        long, many, paid, sketched = ([p for p in points if p.axis == axis][-1] for axis in axes)
        work = {"SP": ("SP: add", "SP: publish"), "CSP": ("CSP: round",)}

        def each(point: ScalePoint, role: str) -> float:
            return sum(point.figures[name].value for name in work[role]) / point.crowd

        entry = {role: each(long, role) / long.x for role in work}
        smaller = many.counts["parameters"]
        person = {role: max(0.0, each(many, role) - entry[role] * smaller) for role in work}
        reward = {"SP": paid.figures["SP: reward"].value / paid.crowd, "CSP": each(paid, "CSP") - each(many, "CSP")}
        lanes = {
            "SP": sketched.figures["SP: reward"].value / sketched.crowd,
            "CSP": each(sketched, "CSP") - each(long, "CSP"),
        }
        sketch = {role: max(0.0, lanes[role] - reward[role]) / sketched.x for role in work}
        memory = {role: many.figures[f"{role}: memory, working"].value / many.crowd for role in work}
        return cls(entry, person, reward, sketch, many.counts["longest"] / many.crowd, memory)


def plan_table(points: Sequence[ScalePoint]) -> ResultTable:
    """One round of a million: bytes, seconds of one core, and the sizes at which something ends."""
    rates = ShareRates.of(points)
    rows = [*_uploads(), *_work(rates), *_limits(rates), *_checks(rates)]
    title = f"A round of {_PEOPLE:,} participants and {_PARAMETERS:,} parameters, on paper, from the figures above"
    return ResultTable(title, ("quantity", "formula", "value"), tuple(rows))


def _uploads() -> Iterator[_Line]:
    widths = SharesWidths.of(bare_task(), _PARAMETERS)
    upload = _PARAMETERS * widths.ring_bytes
    whole, formula = _PEOPLE * upload, f"{_PARAMETERS:,} * {widths.ring_bytes} B"
    yield "an upload, no checks", formula, f"{upload / 1e6:.3g} MB"
    yield "uploads stored and received", f"{_PEOPLE:,} * {formula}", f"{whole / 1e12:.3g} TB"
    yield "received within an hour", f"{whole / 1e12:.3g} TB * 8 / {_HOUR:,} s", f"{whole * 8 / _HOUR / 1e9:.3g} Gbit/s"
    yield "averages sent out", "as much again, the same bytes to everyone", f"{whole / 1e12:.3g} TB"


def _work(rates: ShareRates) -> Iterator[_Line]:
    for role, entry in rates.entry.items():
        person, each = rates.person[role], _PARAMETERS * entry + rates.person[role]
        formula = f"{_PEOPLE:,} * ({_PARAMETERS:,} * {Figure(entry, 's')} + {Figure(person, 's')})"
        yield f"{role}, average", formula, f"{_PEOPLE * each / _HOUR:.3g} core hours"
        yield f"{role}'s cores within an hour, average", "the same", f"{math.ceil(_PEOPLE * each / _HOUR):,}"


def _limits(rates: ShareRates) -> Iterator[_Line]:
    formula = f"{_PEOPLE:,} * {rates.listed:,.0f} B"
    yield "the manifest", formula, f"{_PEOPLE * rates.listed / 1e6:,.0f} MB"
    fit = f"{int(REQUEST_LIMIT / rates.listed):,}"
    yield "participants whose manifest fits one request", f"{REQUEST_LIMIT:,} B / {rates.listed:,.0f} B", fit
    for role, memory in rates.memory.items():
        whole = f"{_PEOPLE * memory / 1e9:.3g} GB"
        yield f"{role}'s memory for those in a round", f"{_PEOPLE:,} * {memory:,.0f} B", whole


def _checks(rates: ShareRates) -> Iterator[_Line]:
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
    dealt = profile_named("shares").dealt_bytes(paying_task(_PEOPLE, norm), _PARAMETERS)
    for role, size in dealt.items():
        yield f"dealt to {role.upper()}, a round", f"{_PEOPLE:,} * {size / _PEOPLE:,.0f} B", f"{size / 1e9:.3g} GB"
    largest = max(dealt.values()) / _PEOPLE
    fit = f"{int(RESPONSE_LIMIT / largest):,}"
    yield "participants whose file fits one answer of KGC", f"{RESPONSE_LIMIT:,} B / {largest:,.0f} B", fit


def bare_task(people: int = _PEOPLE) -> TaskSettings:
    return TaskSettings.of(profile="shares", max_participants=people, check="none", rule="none", lanes=0)


def paying_task(people: int, norm: float) -> TaskSettings:
    sizes = {"max_participants": people, "lanes": _LANES, "max_norm": norm, "budget": str(min(people, 10**6))}
    return TaskSettings.of(profile="shares", **sizes)


def fits(people: int, norm: float) -> bool:
    try:
        SharesWidths.of(paying_task(people, norm), _PARAMETERS)
    except WidthBudgetExceeded:
        return False
    return True
