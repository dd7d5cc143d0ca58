"""Tables 4 and 5: operations, messages, bytes and numbers modulo N^2, counted in real rounds beside the paper's formulas.

Participants' figures are one participant's. Sent and received are added, as the paper's table 5 does.

Table 6: what a dropout costs under CrowdFL-D, CrowdFL-R and (3, 5) secret sharing of the model.

The sharing is Shamir's from pycryptodome, over GF(2^128), 16 bytes at a time; the paper's was over GF(256). It is pure Python,
as the paper's was Java: neither says what sharing must cost.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir

from crowdfl.crypto.paillier.pctd import PublicKey
from crowdfl.crypto.paillier.vector import CipherVector, PartialVector, Unchecked
from crowdfl.errors import FormatError, ProtocolError
from crowdfl.protocols.common.sdiv import SdivReply, SdivRequest
from crowdfl.protocols.common.smul import SmulReply, SmulRequest
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper.profile import PaperPublication, PaperReward
from crowdfl.settings import MILLION
from crowdfl_lab.experiments.experiment import (
    FULL_PARAMETERS,
    TABLE4,
    TABLE5,
    TABLE6,
    Bench,
    Experiment,
    ExperimentPoint,
    Formula,
    Found,
    Part,
    Points,
    Record,
    Records,
    joined,
    number,
    remarks,
    table_of,
)
from crowdfl_lab.experiments.made_up import MadeUpSettings, MadeUpTask, made_up_models
from crowdfl_lab.experiments.ppfdl import Ppfdl
from crowdfl_lab.recorder import RoundRecorder
from crowdfl_lab.report.plots import Canvas, Picture, bars, panels
from crowdfl_lab.report.results import ResultTable
from crowdfl_lab.timing import timed_call
from crowdfl_lab.uploads import ciphertexts_in

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


def _points(settings: CountSettings) -> Points:
    points: dict[Hashable, ExperimentPoint] = {}
    for scheme, n in product(_PHASES, settings.crowds):
        facts = settings.facts(scheme=scheme, participants=n, parameters=settings.parameters)
        count = partial(_count_ppfdl if scheme == "PPFDL" else partial(_count_profile, scheme), settings, n)
        points[scheme, n] = ExperimentPoint("counted round", facts, count)
    return points


def _count_profile(profile: str, settings: CountSettings, n: int, bench: Bench) -> Records:
    """A whole round: everyone uploads, reads and opens; one participant's share is counted on its own."""
    heard = RoundRecorder(keep_messages=True)
    task = MadeUpTask(settings, bench, n, settings.parameters, heard, profile=profile, lanes=None)
    parties, round_ = task.parties, task.parties.open(1)
    for who, upload in task.uploads.items():
        round_.collect({who: upload})
    sides = {"SP": parties.sp.party, "CSP": parties.csp.party, "participant": parties.people["p00"].party}
    steps: dict[str, Callable[[], object]] = {
        "average": lambda: parties.read(round_.average(), 1, list(task.uploads)),
        "reward": lambda: parties.open_rewards(round_.reward(n * MILLION), 1),
    }
    averaging, rewarding = [*heard.messages], list[tuple[str, str, bytes]]()
    counted = {role: Counter(side.costs.counts) for role, side in sides.items()}
    earned = {role: Counter[tuple[str, str]]() for role in sides}
    for stage in parties.sp.stages:
        before = {role: Counter(side.costs.counts) for role, side in sides.items()}
        heard.reset()
        steps[stage]()
        (averaging if stage == "average" else rewarding).extend(heard.messages)
        for role, side in sides.items():
            (counted if stage == "average" else earned)[role].update(side.costs.counts - before[role])
    # The second [[w_i]] of `paper` travels with the upload; the tables count it with PriRwd.
    second = settings.parameters if profile == "paper" else 0
    counted["participant"]["", "Enc"] -= second
    earned["participant"]["", "Enc"] += second
    rows: Records = []
    public = parties.task.public
    for role in _ROLES:
        moved = second * {"SP": n, "participant": 1}.get(role, 0)
        phases = (("PriFedAvg", counted, averaging, -moved), ("PriRwd", earned, rewarding, moved))
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
        return len(Unchecked.parse(ciphertexts_in(message), public, max_count=_MOST))
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


def _counts(found: Found) -> _Counts:
    names = ("scheme", "phase", "role", "quantity", "participants")
    return {tuple(row[name] for name in names): row["count"] for row in joined(found.values())}


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


def _present_table4(settings: CountSettings, found: Found) -> Part:
    counts = _counts(found)
    tables = []
    records = list[Record]()
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


def _present_table5(settings: CountSettings, found: Found) -> Part:
    counts, rows = _counts(found), list[Record]()
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

_THRESHOLD, _SHARES, _CHUNK = 3, 5, 16
_DROPOUT_ROLES = ("participant", "SP", "CSP")
_WHOLE = "seconds at 277,006 (extrapolated)"
_COLUMNS = {
    **{name: name for name in ("scheme", "profile", "parameters", "seconds")},
    _WHOLE: "whole",
    "messages: participant, SP, CSP": "messages",
    "participant's bytes": "participant bytes",
    "paper: seconds": "printed seconds",
    "paper: messages": "printed messages",
}


@dataclass(frozen=True)
class DropoutSettings(MadeUpSettings):
    """Sizes of the samples. `paper` divides once per parameter, so that its sample is small."""

    participants: int = 5
    paper_parameters: int = 40
    hardened_parameters: int = 13_856
    shared_parameters: int = 13_856


def _dropout_points(settings: DropoutSettings) -> Points:
    points: dict[Hashable, ExperimentPoint] = {}
    for profile, parameters in (("paper", settings.paper_parameters), ("hardened", settings.hardened_parameters)):
        facts = settings.facts(profile=profile, parameters=parameters, participants=settings.participants)
        late = partial(_late_upload, settings, profile, parameters)
        points[profile] = ExperimentPoint("late upload", facts, late)
    facts = {"parameters": settings.shared_parameters, "threshold": _THRESHOLD, "shares": _SHARES}
    shared = ExperimentPoint("shared model", facts | {"seed": settings.seed}, lambda _: _share_model(settings))
    return points | {"sharing": shared}


def _late_upload(settings: DropoutSettings, profile: str, parameters: int, bench: Bench) -> Records:
    """Everyone but one is in; the last one's bytes come again. `paper` has published by then and divides anew."""
    heard, people = RoundRecorder(), settings.participants
    task = MadeUpTask(settings, bench, people, parameters, heard, profile=profile, lanes=0)
    uploads, costs = task.uploads, task.parties.sp.party.costs
    *early, late = uploads
    round_ = task.parties.open(1)
    round_.collect({who: uploads[who] for who in early})
    again = profile == "paper"
    if again:
        round_.average()
    before = costs.counts.copy()
    heard.reset()
    round_.collect({late: uploads[late]})
    publication = round_.average() if again else b""
    seconds, exchanged = sum(lap.seconds for lap in heard.laps), sum(heard.sent.values())
    did = costs.counts - before
    task.check(task.parties.read(publication or round_.average(), 1, early[:1]).weights)
    row: Record = {"scheme": "CrowdFL-R", "profile": profile, "parameters": parameters, "seconds": seconds}
    row |= {name: did["", name] for name in ("PAdd", "SDIV")}
    row |= {"participant messages": 1, "SP messages": exchanged, "CSP messages": exchanged}
    return [row | {"participant bytes": len(uploads[late])}]


def _share_model(settings: DropoutSettings) -> Records:
    model = made_up_models(1, settings.shared_parameters, settings.seed)[0].astype(np.float32).tobytes()
    padded = model + bytes(-len(model) % _CHUNK)
    chunks = [padded[i : i + _CHUNK] for i in range(0, len(padded), _CHUNK)]
    keep = sorted(secrets.SystemRandom().sample(range(_SHARES), _THRESHOLD))

    splitting, shares = timed_call(lambda: [Shamir.split(_THRESHOLD, _SHARES, chunk) for chunk in chunks])
    joining, found = timed_call(lambda: b"".join(Shamir.combine([each[k] for k in keep]) for each in shares))
    if found != padded:
        raise ProtocolError("the shared model came out wrong")
    row: Record = {"scheme": "secret sharing", "profile": "(3, 5) over GF(2^128)"}
    row |= {"parameters": settings.shared_parameters, "seconds": splitting + joining}
    row |= {"split seconds": splitting, "join seconds": joining}
    row |= {"participant messages": _SHARES + 1, "SP messages": _THRESHOLD}
    return [row | {"participant bytes": _SHARES * len(padded)}]


def _present_table6(settings: DropoutSettings, found: Found) -> Part:
    nothing: Record = {"scheme": "CrowdFL-D", "profile": "both", "parameters": FULL_PARAMETERS, "seconds": 0.0}
    nothing |= {f"{who} messages": 0 for who in _DROPOUT_ROLES} | {"participant bytes": 0}
    rows = [nothing, *joined(found.values())]
    for row in rows:
        row[_WHOLE] = number(row, "seconds") * FULL_PARAMETERS / number(row, "parameters")
    table = table_of("Cost of one dropout", [row | _shown(row) for row in rows], _COLUMNS)

    def draw(figure: Canvas) -> None:
        groups = [f"{row['scheme']}\n{row['profile']}" for row in rows]
        values = [round(1000 * number(row, "seconds") / number(row, "parameters"), 4) for row in rows]
        (axes,) = panels(figure, 1)
        bars(axes, groups, {"measured": values}, ylabel="seconds per 1,000 parameters")
        axes.set_yscale("symlog", linthresh=1e-3)

    picture = Picture("table6", "Seconds that one dropout costs, per 1,000 parameters", draw)
    return Part(rows, (table,), (picture,), remarks("table6", settings))


def _shown(row: Record) -> Record:
    seconds, *messages = TABLE6[str(row["scheme"])]
    return {
        "whole": f"{row[_WHOLE]:,.3g}" + ("" if row["parameters"] == FULL_PARAMETERS else " *"),
        "messages": ", ".join(str(row.get(f"{who} messages", "-")) for who in _DROPOUT_ROLES),
        "printed seconds": seconds,
        "printed messages": ", ".join(messages),
    }


_QUICK6 = DropoutSettings(paper_parameters=5, hardened_parameters=2_776, shared_parameters=2_776)
TABLE_6 = Experiment(
    "table6", "Table 6: what a dropout costs", _dropout_points, _present_table6, DropoutSettings(), _QUICK6
)
