"""Tables 4 and 5: operations, messages, bytes and numbers modulo N^2, counted in real rounds beside the paper's formulas.

Participants' figures are one participant's. Sent and received are added, as the paper's table 5 does.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector, Unchecked
from crowdfl.errors import FormatError
from crowdfl.protocols.common.sdiv import SdivReply, SdivRequest
from crowdfl.protocols.common.smul import SmulReply, SmulRequest
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper.profile import PaperPublication, PaperReward
from crowdfl.settings import MILLION
from crowdfl_lab.experiments.experiment import Bench, Experiment, ExperimentPoint, Part
from crowdfl_lab.experiments.made_up import MadeUpSettings, MadeUpTask, made_up_models
from crowdfl_lab.experiments.ppfdl import Ppfdl
from crowdfl_lab.experiments.published import TABLE4, TABLE5, Formula, remarks
from crowdfl_lab.experiments.records import Record, Records, joined, number
from crowdfl_lab.observe import RoundRecorder
from crowdfl_lab.report.plots import Canvas, Picture, bars, panels
from crowdfl_lab.report.results import ResultTable

_ROLES = ("SP", "CSP", "participant")
_PHASES = {"PPFDL": ("PPFDL",), "paper": ("PriFedAvg", "PriRwd"), "hardened": ("PriFedAvg", "PriRwd")}
_TITLES = {
    "PPFDL": "PPFDL's averaging (K = 1, SDIV for SecDiv)",
    "paper": "Profile `paper`",
    "hardened": "Profile `hardened`, which no formula of the paper speaks of",
}
_WIRE = ("L", "messages", "bytes")
_MOST = 1_000_000  # numbers in a message
_KINDS: dict[int, type[Message]] = {
    message.kind: message for message in (SdivRequest, SdivReply, SmulRequest, SmulReply, PaperPublication, PaperReward)
}
_Sent = Sequence[tuple[str, str, bytes]]
_Place = tuple[str, str, str]  # phase, role, and what is counted
_Counts = dict[tuple[Any, ...], Any]  # by scheme, phase, role, quantity and participants


@dataclass(frozen=True)
class CountSettings(MadeUpSettings):
    """Sizes of the counted rounds. The paper's tables are for one parameter."""

    crowds: tuple[int, ...] = (5, 10, 36)
    parameters: int = 1


def _points(settings: CountSettings) -> list[ExperimentPoint]:
    return [_point(scheme, settings, n) for n in settings.crowds for scheme in _PHASES]


def _point(scheme: str, settings: CountSettings, n: int) -> ExperimentPoint:
    facts = settings.facts(scheme=scheme, participants=n, parameters=settings.parameters)
    count = _count_ppfdl if scheme == "PPFDL" else partial(_count_profile, scheme)
    return ExperimentPoint("counted round", facts, lambda bench: count(settings, n, bench))


def _count_profile(profile: str, settings: CountSettings, n: int, bench: Bench) -> Records:
    """A whole round: everyone uploads, reads and opens; one participant's share is counted on its own."""
    heard = RoundRecorder(keep_messages=True)
    task = MadeUpTask(settings, bench, n, settings.parameters, heard, profile=profile, lanes=None)
    parties, round_ = task.parties, task.parties.open(1)
    for who, upload in task.uploads.items():
        round_.collect({who: upload})
    parties.read(round_.average(), 1, list(task.uploads))
    sides = {"SP": parties.sp.party, "CSP": parties.csp.party, "participant": parties.people["p00"].party}
    averaging, counted = list(heard.messages), {role: Counter(side.costs.counts) for role, side in sides.items()}
    heard.reset()
    parties.open_rewards(round_.reward(n * MILLION), 1)
    rewarding = {role: Counter(side.costs.counts) for role, side in sides.items()}
    # The second [[w_i]] of `paper` travels with the upload; the tables count it with PriRwd.
    second = settings.parameters if profile == "paper" else 0
    counted["participant"]["", "Enc"] -= second
    rows: Records = []
    public = parties.dealer.task.public
    for role in _ROLES:
        rewarding[role].subtract(counted[role])
        moved = second * {"SP": n, "participant": 1}.get(role, 0)
        phases = (("PriFedAvg", counted, averaging, -moved), ("PriRwd", rewarding, heard.messages, moved))
        for phase, counts, messages, more in phases:
            wire = _traffic(role, messages, public, more)
            rows += _rows({"scheme": profile, "participants": n, "phase": phase, "role": role}, counts[role], wire)
    return rows


def _count_ppfdl(settings: CountSettings, n: int, bench: Bench) -> Records:
    world = Ppfdl(n, settings.parameters, settings.key_bits, bench.backend, settings.insecure_test_key)
    heard = RoundRecorder(keep_messages=True)
    uploads = [world.encrypt(model) for model in made_up_models(n, settings.parameters, settings.seed)]
    for upload in uploads:
        heard.message("participant", "SP", upload.to_bytes())
    average = run_exchange(world.average(uploads), ask_directly(world.answer, heard), heard)
    for _ in range(n):
        heard.message("SP", "participant", average.to_bytes())
    world.decrypt(average)
    one = Counter({key: times // n if key[1] == "Enc" else times for key, times in world.user.costs.counts.items()})
    counts = {"SP": world.sp.costs.counts, "CSP": world.csp.costs.counts, "participant": one}
    rows: Records = []
    for role in _ROLES:
        facts: Record = {"scheme": "PPFDL", "participants": n, "phase": "PPFDL", "role": role}
        rows += _rows(facts, Counter(counts[role]), _traffic(role, heard.messages, world.public))
    return rows


def _traffic(role: str, sent: _Sent, public: PublicKey, more: int = 0) -> Record:
    """What a role sent and received: of participants the first, and `more` numbers that are counted in this phase."""
    first = {tuple(ends): message for *ends, message in reversed(sent)}
    every = first.items() if role == "participant" else [(ends, message) for *ends, message in sent]
    own = [message for ends, message in every if role in ends]
    numbers = sum(_numbers(message, public) for message in own)
    size = sum(len(message) for message in own) + more * public.ciphertext_bytes
    return {"messages": len(own), "L": numbers + more, "bytes": size}


def _numbers(message: bytes, public: PublicKey) -> int:
    """How many numbers modulo N^2 a message carries: of `paper`'s or PPFDL's, or an upload's; 0 for others."""
    try:
        return len(Unchecked.parse(message, public, max_count=_MOST))
    except FormatError:  # not a vector alone, as an upload is
        kind = _KINDS.get(Message.kind_of(message))
    if kind is None:
        return 0
    opened = kind.from_bytes(message, Limits(public, _MOST))
    values = [getattr(opened, each.name) for each in fields(opened)]
    return sum(len(value) for value in values if isinstance(value, CipherVector | PartialVector))


def _rows(facts: Record, counts: Counter[tuple[str, str]], wire: Record) -> Records:
    outside = {name: times for (scope, name), times in sorted(counts.items()) if not scope and times}
    quantities = {name: times for name, times in outside.items() if name != "check"} | wire
    return [facts | {"quantity": name, "count": value} for name, value in quantities.items()]


def _counts(results: Sequence[Records]) -> _Counts:
    names = ("scheme", "phase", "role", "quantity", "participants")
    return {tuple(row[name] for name in names): row["count"] for row in joined(results)}


def _compare(
    counts: _Counts, crowds: Sequence[int], scheme: str, place: _Place, formula: Formula, label: str
) -> Records:
    """What was counted beside what the paper prints, for each number of participants; `label` heads the name of what it is."""
    rows: Records = []
    for n in crowds:
        counted, printed = counts.get((scheme, *place, n), 0), formula.at(n)
        row: Record = {"phase": place[0], "role": place[1], label: place[2], "participants": n}
        row |= {"formula": formula.text, "paper": printed, "counted": counted}
        if label == "quantity":
            row["hardened"] = None if place[2] == "L" else counts.get(("hardened", *place, n))
        rows.append(row | {"why": formula.why if counted != printed else ""})
    return rows


def _operations(settings: CountSettings, counts: _Counts, scheme: str) -> Records:
    """Of one implementation; no formula of the paper speaks of `hardened`."""
    formulas = {} if scheme == "hardened" else {place: TABLE4[place] for place in TABLE4 if place[0] in _PHASES[scheme]}
    known = {key[1:4] for key in counts if key[0] == scheme} | set(formulas)
    places = sorted(known, key=lambda place: (place[0], _ROLES.index(place[1]), place[2]))
    found: Records = []
    for place in places:
        if place[2] not in ("randomizer", *_WIRE):
            found += _compare(counts, settings.crowds, scheme, place, formulas.get(place, Formula()), "operation")
    return found


def _present_table4(settings: CountSettings, results: Sequence[Records]) -> Part:
    counts, tables, records = _counts(results), [], list[Record]()
    for scheme, title in _TITLES.items():
        rows = _operations(settings, counts, scheme)
        tables.append(ResultTable.of_records(f"{title}, counted outside SMUL and SDIV", rows))
        records += [Record(implementation=scheme) | row for row in rows]
    n = max(settings.crowds)
    divided = [r for r in records if r["operation"] in ("SMUL", "SDIV") and r["role"] == "SP"]
    chosen = [r for r in divided if r["participants"] == n and r["paper"]]
    series = {name: [number(row, name) for row in chosen] for name in ("paper", "counted")}
    draw = _bars(chosen, "operation", series, f"runs at SP, {n} participants")
    picture = Picture("table4", "SMUL and SDIV at SP for one parameter, printed and counted", draw)
    return Part(records, tuple(tables), (picture,), remarks("table4", settings))


def _bars(rows: Records, name: str, series: Mapping[str, Sequence[float]], ylabel: str) -> Callable[[Canvas], None]:
    groups = [f"{row['phase']}\n{row[name]}" for row in rows]
    return lambda canvas: bars(panels(canvas, 1)[0], groups, series, ylabel=ylabel)


def _present_table5(settings: CountSettings, results: Sequence[Records]) -> Part:
    counts, rows = _counts(results), list[Record]()
    for scheme in ("PPFDL", "paper"):
        for place in ((phase, role, name) for phase in _PHASES[scheme] for role in _ROLES for name in _WIRE):
            rows += _compare(counts, settings.crowds, scheme, place, TABLE5.get(place, Formula()), "quantity")
    n = max(settings.crowds)
    chosen = [r for r in rows if r["participants"] == n and r["quantity"] == "bytes" and r["phase"] != "PPFDL"]
    named = {"paper": "counted", "hardened": "hardened"}
    series = {name: [number(row, key) / 1000 for row in chosen] for name, key in named.items()}
    draw = _bars(chosen, "role", series, f"kB sent and received, {n} participants")
    picture = Picture("table5", "Bytes that each role sends and receives", draw)
    table = ResultTable.of_records("Sent and received by each role, for one parameter", rows)
    said = remarks("table5", settings, length=settings.key_bits // 4)
    return Part(rows, (table,), (picture,), said)


_FULL, _QUICK = CountSettings(), CountSettings(crowds=(5, 10))
TABLE_4 = Experiment("table4", "Table 4: computation, counted", _points, _present_table4, _FULL, _QUICK)
TABLE_5 = Experiment("table5", "Table 5: communication, counted", _points, _present_table5, _FULL, _QUICK)
