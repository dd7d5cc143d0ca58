"""What the rules would pay in such campaigns: the cheaters' part of the budget, and the honest people who get nothing.

The audit of incentives as tables, a picture and a conclusion that follows from the figures.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from crowdfl.learning.oracle import agreement_weights, count_weights, distance_weights, gate_weights, rewards_from
from crowdfl_lab.audit.incentives.campaign import (
    MADE_UP,
    RAW,
    SPECTRAL,
    Cheat,
    CheatedCampaign,
    CrowdData,
    Flat,
    IncentiveSettings,
    RoundUploads,
    load_crowds,
)
from crowdfl_lab.report.plots import Axes, Canvas, Picture, panels
from crowdfl_lab.report.results import Result, ResultTable
from crowdfl_lab.timing import machine

REFERENCE = "count"  # pay by declared samples: no rule of the protocol, but what the others are measured by
RULES: Mapping[str, Callable[[RoundUploads, int], Flat]] = MappingProxyType(
    {
        REFERENCE: lambda uploads, _: count_weights(uploads.samples),
        "distance": lambda uploads, _: distance_weights(uploads.updates, uploads.samples),
        "agreement": lambda uploads, _: agreement_weights(uploads.updates),
        "gate": lambda uploads, lanes: gate_weights(uploads.updates, uploads.samples, uploads.previous_sum, lanes),
    }
)
NOBODY = "nobody cheats"


@dataclass(frozen=True)
class Outcome:
    """Of one cheat by one group under one rule, over all rounds and draws; all values are parts of one.

    `share` is the cheaters' part of the budget of all rounds, `least` and `most` that of single draws. `unpaid` is how often an
    honest person got nothing in a round. `paid` is how much of the budget was paid at all.
    """

    source: str
    inputs: str
    cheat: str
    group: int
    rule: str
    share: float
    least: float
    most: float
    unpaid: float
    paid: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def outcomes(crowd: CrowdData, settings: IncentiveSettings, say: Callable[[str], None]) -> Iterator[Outcome]:
    """First without cheaters, then each cheat with each size of group."""
    campaigns = []
    for draw in range(settings.draws):
        say(f"{crowd.name}: people drawn, {draw + 1} of {settings.draws}")
        campaigns.append(CheatedCampaign(crowd, settings, draw))
    yield from _judged(crowd, settings, None, 0, [campaign.play(None) for campaign in campaigns])
    for cheat in settings.cheats:
        say(f"{crowd.name}: {cheat.name}")
        for group in (size for size in settings.groups if size >= cheat.least):
            played = [campaign.play(cheat, group) for campaign in campaigns]
            yield from _judged(crowd, settings, cheat, group, played)


def _judged(
    crowd: CrowdData,
    settings: IncentiveSettings,
    cheat: Cheat | None,
    group: int,
    played: Sequence[Sequence[RoundUploads]],
) -> Iterator[Outcome]:
    name = NOBODY if cheat is None else cheat.name
    for rule in RULES:
        pay = [[rewards_from(RULES[rule](one, settings.lanes), 1.0) for one in rounds] for rounds in played]
        earned = np.array(pay)  # draw, round, participant
        honest, cheating = earned[..., : settings.honest], earned[..., settings.honest :]
        shares = cheating.sum(axis=2).mean(axis=1)
        ends = float(shares.min()), float(shares.max())
        unpaid, paid = float((honest == 0).mean()), float(earned.sum(axis=2).mean())
        yield Outcome(crowd.source, crowd.inputs, name, group, rule, float(shares.mean()), *ends, unpaid, paid)


@dataclass(frozen=True)
class PaceOutcome:
    """Honest people whom the gate leaves unpaid although nobody cheats, by how much is trained in a round.

    `aside`: they do not go where the others go. `again`: they go where the last round went, as a replay does.
    """

    source: str
    inputs: str
    pace: str
    epochs: int
    rate: float
    aside: float
    again: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paces(crowd: CrowdData, settings: IncentiveSettings) -> Iterator[PaceOutcome]:
    """A tenth of the rate and one epoch; as in all other campaigns; four times the epochs."""
    slow = replace(settings, epochs=1, rate=settings.rate / 10)
    long = replace(settings, epochs=4 * settings.epochs)
    for pace, chosen in {"little": slow, "as elsewhere": settings, "much": long}.items():
        played = [one for draw in range(chosen.draws) for one in CheatedCampaign(crowd, chosen, draw).play(None)]
        aside = [gate_weights(one.updates, one.samples, None, chosen.lanes) == 0 for one in played]
        unpaid = [RULES["gate"](one, chosen.lanes) == 0 for one in played]
        both = float(np.mean(aside)), float(np.mean(unpaid))
        yield PaceOutcome(crowd.source, crowd.inputs, pace, chosen.epochs, chosen.rate, both[0], both[1] - both[0])


_WITHHOLDING = ("agreement", "gate")  # the rules that can leave people unpaid
_PAID = [rule for rule in RULES if rule != REFERENCE]
_WORSE = 1.5
_TOO_LITTLE = "honest updates have too little in common here for a rule to tell them from others"
_Crowds = Mapping[tuple[str, str], Sequence[Outcome]]


def audit_incentives(
    settings: IncentiveSettings, folder: Path | None, say: Callable[[str], None], notes: Sequence[str], command: str
) -> Result:
    """Without a folder of data sets, on made-up people."""
    where, found, trained, crowds = machine(), list[Outcome](), list[PaceOutcome](), list[CrowdData]()
    for crowd in load_crowds(settings, folder):
        crowds.append(crowd)
        found += outcomes(crowd, settings, say)
        say(f"{crowd.name}: trained little and much")
        trained += paces(crowd, settings)
    said = tuple(dict.fromkeys(note for crowd in crowds for note in crowd.notes))
    name = "incentives-network" if settings.hidden else "incentives"
    return Result(
        name,
        "What cheaters earn",
        where,
        asdict(settings),
        tables=(_summary(found), *_details(found, settings), _pace_table(trained)),
        notes=(*notes, *said, *conclusions(found), *(f"{cheat.name}: {cheat.does}" for cheat in settings.cheats)),
        pictures=(_picture(name, found),),
        data={"outcomes": [one.to_dict() for one in found], "paces": [one.to_dict() for one in trained]},
        command=command,
    )


def conclusions(found: Sequence[Outcome]) -> Iterator[str]:
    """Which rule the figures speak for, with each kind of inputs, and what it costs honest people."""
    if any(one.source == MADE_UP for one in found):
        yield "made-up people show that the audit runs; no rule follows from them"
        return
    for inputs in (SPECTRAL, RAW):
        of = [one for one in found if one.inputs == inputs]
        worst = {rule: max(one.share for one in of if one.rule == rule) for rule in RULES}
        best = min(_PAID, key=lambda rule: worst[rule])
        unpaid = [one.unpaid for one in of if (one.rule, one.cheat) == (best, NOBODY)]
        figures = ", ".join(f"{rule} {percent(share)}%" for rule, share in worst.items())
        yield f"{inputs}: the most that cheaters take is {figures}"
        yield (
            f"{inputs}: {best} has the least worst case of the rules that look at uploads;"
            f" with it {percent(min(unpaid))} to {percent(max(unpaid))}% of honest people go unpaid where nobody cheats"
        )
        if worst[best] > _WORSE * worst[REFERENCE]:
            yield f"{inputs}: pay by declared count has a better worst case than any rule: {_TOO_LITTLE}"


def percent(part: float) -> str:
    """Of a hundred, in two digits at most: 0, 0.4, 5.9, 47."""
    value = 100 * part
    return f"{value:.0f}" if value >= 9.95 or value == 0 else f"{value:.1f}"


def _by_crowd(found: Sequence[Outcome]) -> _Crowds:
    names = dict.fromkeys((one.source, one.inputs) for one in found)
    return {name: [one for one in found if (one.source, one.inputs) == name] for name in names}


def _summary(found: Sequence[Outcome]) -> ResultTable:
    columns = (
        "data",
        "rule",
        "most",
        "by",
        "mean over cheats",
        "honest unpaid, nobody cheats",
        "honest unpaid, at most",
    )
    rows = [
        (", ".join(name), rule, *_summed([one for one in of if one.rule == rule]))
        for name, of in _by_crowd(found).items()
        for rule in RULES
    ]
    title = "Cheaters' part of the budget, and honest people who get nothing in a round, in percent"
    return ResultTable(title, columns, tuple(rows))


def _summed(found: Sequence[Outcome]) -> tuple[str, ...]:
    cheated = [one for one in found if one.group]
    worst = max(cheated, key=lambda one: one.share)
    by = f"{worst.cheat}, {worst.group}" if worst.rule != REFERENCE else f"any {worst.group}"
    mean = float(np.mean([one.share for one in cheated]))
    calm, most = found[0].unpaid, max(one.unpaid for one in found)
    return percent(worst.share), by, percent(mean), percent(calm), percent(most)


def _details(found: Sequence[Outcome], settings: IncentiveSettings) -> Iterator[ResultTable]:
    sizes = ", ".join(map(str, settings.groups))
    columns = ("cheat", *RULES, *(f"honest unpaid, {rule}" for rule in _WITHHOLDING))
    for name, of in _by_crowd(found).items():
        shares = {(one.cheat, one.rule, one.group): one.share for one in of}
        unpaid = {(one.cheat, one.rule, one.group): one.unpaid for one in of}
        calm = ["-"] * len(RULES) + [percent(unpaid[NOBODY, rule, 0]) for rule in _WITHHOLDING]
        rows = [(NOBODY, *calm)]
        for cheat in settings.cheats:
            earned = [_cell(shares.get((cheat.name, rule, size)) for size in settings.groups) for rule in RULES]
            lost = [_cell(unpaid.get((cheat.name, rule, size)) for size in settings.groups) for rule in _WITHHOLDING]
            rows.append((cheat.name, *earned, *lost))
        title = f"{', '.join(name)}: percent with {sizes} cheaters beside {settings.honest} honest people"
        yield ResultTable(title, columns, tuple(rows))


def _cell(parts: Iterable[float | None]) -> str:
    return " / ".join("-" if part is None else percent(part) for part in parts)


def _pace_table(found: Sequence[PaceOutcome]) -> ResultTable:
    columns = ("data", "trained in a round", "epochs", "rate", "aside", "as a replay")
    rows = tuple(
        (f"{one.source}, {one.inputs}", one.pace, one.epochs, one.rate, percent(one.aside), percent(one.again))
        for one in found
    )
    note = "aside: no direction in common with the others; as a replay: too much the direction of the last round"
    return ResultTable("Honest people unpaid under gate, in percent, nobody cheats", columns, rows, note)


def _picture(name: str, found: Sequence[Outcome]) -> Picture:
    crowds = _by_crowd(found)
    caption = "Percent of the budget that cheaters take, and of honest people who get nothing"

    def draw(canvas: Canvas) -> None:
        for place, (axes, (crowd, of)) in enumerate(zip(panels(canvas, len(crowds)), crowds.items(), strict=True)):
            _heat(axes, of, named=place == 0)
            axes.set_title("\n".join(crowd))

    return Picture(name, caption, draw, (3.2 + 2.7 * len(crowds), 8.0))


def _heat(axes: Axes, found: Sequence[Outcome], *, named: bool) -> None:
    """A row for each cheat and size of group; a column for each rule, then for each that leaves people unpaid."""
    lines = list(dict.fromkeys((one.cheat, one.group) for one in found))
    known = {(one.cheat, one.group, one.rule): one for one in found}
    shares = [[known[*line, rule].share for rule in RULES] for line in lines]
    unpaid = [[known[*line, rule].unpaid for rule in _WITHHOLDING] for line in lines]
    values = 100 * np.hstack([shares, unpaid])
    axes.imshow(values, cmap="OrRd", vmin=0, vmax=100, aspect="auto", interpolation="none")
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > 60 else "black"
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour)
    axes.axvline(len(RULES) - 0.5, color="black")
    columns = [*RULES, *(f"unpaid, {rule}" for rule in _WITHHOLDING)]
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", fontsize=8)
    names = [f"{cheat}, {group}" if group else cheat for cheat, group in lines]
    axes.set_yticks(range(len(lines)), names if named else [""] * len(lines), fontsize=8)
    axes.grid(visible=False)
