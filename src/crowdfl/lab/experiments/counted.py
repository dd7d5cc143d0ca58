"""Tables 4 and 5: operations, messages, bytes and numbers modulo N^2, counted in real rounds beside the paper's formulas.

Participants' figures are one participant's. Sent and received are added, as the paper's table 5 does.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from crowdfl.crypto.pctd import PublicKey
from crowdfl.crypto.vector import CipherVector, PartialVector, Unchecked
from crowdfl.errors import FormatError
from crowdfl.lab.experiments.experiment import Bench, Experiment, ExperimentPoint, Part, Record, Records, Value, number
from crowdfl.lab.experiments.ppfdl import Ppfdl
from crowdfl.lab.experiments.published import TABLE4, TABLE5, Formula
from crowdfl.lab.observe import RoundRecorder
from crowdfl.lab.parties import LocalParties
from crowdfl.lab.report.plots import Picture, bars, panels
from crowdfl.lab.report.results import ResultTable
from crowdfl.protocols.exchange import ask_directly, run_exchange
from crowdfl.protocols.messages import Limits, Message
from crowdfl.protocols.paper.profile import PaperPublication, PaperReward
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.protocols.sdiv import SdivReply, SdivRequest
from crowdfl.protocols.smul import SmulReply, SmulRequest
from crowdfl.settings import MILLION, TaskSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TABLE_4", "TABLE_5", "CountSettings", "made_up_models"]

_ROLES = ("SP", "CSP", "participant")
_PHASES = {"PPFDL": ("PPFDL",), "paper": ("PriFedAvg", "PriRwd"), "hardened": ("PriFedAvg", "PriRwd")}
_SCHEMES = tuple(_PHASES)
_WIRE = ("L", "messages", "bytes")
_MOST = 1_000_000  # numbers in a message
_KINDS: dict[int, type[Message]] = {
    message.kind: message for message in (SdivRequest, SdivReply, SmulRequest, SmulReply, PaperPublication, PaperReward)
}
_Sent = Sequence[tuple[str, str, bytes]]
_WHY_OPERATIONS = {
    ("PPFDL", "SP", "inverse"): "one inverse for all users in place of a power of N-1 each (D4)",
    ("PriFedAvg", "SP", "PDec"): "Alg. 3, line 11; printed in the algorithm, left out of the table",
    ("PriRwd", "SP", "PAdd"): "the n-1 of W, line 10, are not in the table",
    ("PriRwd", "SP", "PMul"): "the table's n are powers of N-1, here one inverse (D4); ours is W's, line 10",
    ("PriRwd", "SP", "inverse"): "in place of n powers of N-1 (D4)",
    ("PriRwd", "SP", "Enc"): "[[1]] of line 4 for each participant, and [[b]]",
    ("PriRwd", "SP", "PDec"): "delivers each reward",
    ("PriRwd", "participant", "PDec"): "reading the reward is not in the table",
    ("PriRwd", "participant", "TDec"): "reading the reward is not in the table",
}
_BATCHES = "each exchange with CSP carries all participants at once"
_SPLIT = "SMUL and SDIV under split keys send 5 numbers each"
_WHY_WIRE = {
    ("PPFDL", "SP", "L"): f"{_SPLIT}, SP's halves among them; garbled circuits not counted",
    ("PPFDL", "CSP", "L"): f"{_SPLIT}; garbled circuits not counted",
    ("PPFDL", "SP", "messages"): _BATCHES,
    ("PPFDL", "CSP", "messages"): _BATCHES,
    ("PriRwd", "SP", "L"): "2n deliver the rewards, which the table leaves out",
    ("PriRwd", "SP", "messages"): f"{_BATCHES}; the second [[w_i]] travels with the upload; n deliver the rewards",
    ("PriRwd", "CSP", "messages"): _BATCHES,
    ("PriRwd", "participant", "L"): "2 more bring the reward",
}


@dataclass(frozen=True)
class CountSettings:
    """Sizes of the counted rounds. The paper's tables are for one parameter."""

    crowds: tuple[int, ...] = (5, 10, 36)
    parameters: int = 1
    key_bits: int = 2048
    insecure_test_key: bool = False
    seed: int = 2021


def made_up_models(count: int, parameters: int, seed: int) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Weights like a trained network's, all different, the same for the same seed."""
    generator = np.random.default_rng(seed)
    return [generator.normal(0, 0.5, parameters) for _ in range(count)]


def _points(settings: CountSettings) -> list[ExperimentPoint]:
    """Every scheme, for each number of participants."""
    return [_point(scheme, settings, n) for n in settings.crowds for scheme in _SCHEMES]


def _point(scheme: str, settings: CountSettings, n: int) -> ExperimentPoint:
    facts: Record = {
        "scheme": scheme,
        "participants": n,
        "parameters": settings.parameters,
        "key_bits": settings.key_bits,
        "seed": settings.seed,
    }
    count = _count_ppfdl if scheme == "PPFDL" else partial(_count_profile, scheme)
    return ExperimentPoint("counted round", facts, lambda bench: count(settings, n, bench))


def _count_profile(profile: str, settings: CountSettings, n: int, bench: Bench) -> Records:
    """A whole round: everyone uploads, reads and opens; one participant's share is counted on its own."""
    task = TaskSettings(profile=profile, max_participants=n, key_bits=settings.key_bits, lanes=None)
    heard = RoundRecorder(keep_messages=True)
    tools = Tools(bench.backend, insecure_test_key=settings.insecure_test_key, observer=heard)
    parties = LocalParties(TaskSpec("counted", task, settings.parameters), tools)
    models = made_up_models(n, settings.parameters, settings.seed)
    uploads = parties.encrypt({f"p{i:02}": (model, i + 1) for i, model in enumerate(models)})
    round_ = parties.open(1)
    for who, upload in uploads.items():
        round_.collect({who: upload})
    parties.read(round_.average(), 1, list(uploads))
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
        wire = _traffic(role, heard.messages, world.public)
        rows += _rows(
            {"scheme": "PPFDL", "participants": n, "phase": "PPFDL", "role": role}, Counter(counts[role]), wire
        )
    return rows


def _traffic(role: str, sent: _Sent, public: PublicKey, more: int = 0) -> Record:
    """What a role sent and received: of participants the first, and `more` numbers that are counted in this phase."""
    own = list(_own(role, sent))
    numbers = sum(_numbers(message, public) for message in own)
    size = sum(len(message) for message in own) + more * public.ciphertext_bytes
    return {"messages": len(own), "L": numbers + more, "bytes": size}


def _own(role: str, sent: _Sent) -> Iterator[bytes]:
    known = set()
    for *ends, message in sent:
        if role in ends and not (role == "participant" and tuple(ends) in known):
            yield message
        known.add(tuple(ends))


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
    """What a role did outside SMUL and SDIV, and its traffic."""
    outside = {name: times for (scope, name), times in sorted(counts.items()) if not scope and times}
    quantities = {name: times for name, times in outside.items() if name != "check"} | wire
    return [facts | {"quantity": name, "count": value} for name, value in quantities.items()]


def _counts(results: Sequence[Records]) -> dict[tuple[Value, ...], Value]:
    """By scheme, phase, role, quantity and participants."""
    names = ("scheme", "phase", "role", "quantity", "participants")
    return {tuple(row[name] for name in names): row["count"] for rows in results for row in rows}


def _beside(formula: Formula | None, n: int, count: Value) -> Record:
    printed, text = (formula.at(n), formula.text) if formula else (None, "")
    return {"participants": n, "formula": text, "paper": printed, "counted": count}


def _why(reasons: Mapping[tuple[str, str, str], str], place: tuple[str, str, str], row: Record) -> Record:
    return {"why": reasons.get(place, "") if row["counted"] != row["paper"] else ""}


def _operations(settings: CountSettings, results: Sequence[Records], scheme: str) -> Records:
    """Counted and printed, for one implementation; no formula of the paper speaks of `hardened`."""
    counts, rows = _counts(results), []
    formulas, reasons = ({}, {}) if scheme == "hardened" else (TABLE4, _WHY_OPERATIONS)
    for phase in _PHASES[scheme]:
        for role in _ROLES:
            names = {str(key[3]) for key in counts if key[:3] == (scheme, phase, role)}
            names |= {key[2] for key in formulas if key[:2] == (phase, role)}
            for name in sorted(names - {"randomizer", *_WIRE}):
                place = phase, role, name
                for n in settings.crowds:
                    row = _beside(formulas.get(place), n, counts.get((scheme, *place, n), 0))
                    where: Record = {"implementation": scheme, "phase": phase, "role": role, "operation": name}
                    rows.append(where | row | _why(reasons, place, row))
    return rows


def _present_table4(settings: CountSettings, results: Sequence[Records]) -> Part:
    titles = {
        "PPFDL": "PPFDL's averaging (K = 1, SDIV for SecDiv)",
        "paper": "Profile `paper`",
        "hardened": "Profile `hardened`, which no formula of the paper speaks of",
    }
    columns = ("phase", "role", "operation", "participants", "formula", "paper", "counted", "why")
    found = {scheme: _operations(settings, results, scheme) for scheme in _SCHEMES}
    tables = tuple(
        _table(f"{titles[scheme]}, counted outside SMUL and SDIV", columns, rows) for scheme, rows in found.items()
    )
    records = [row for rows in found.values() for row in rows]
    caption = "SMUL and SDIV at SP for one parameter, printed and counted"
    remarks = (
        f"One parameter, as in the paper's table; |N| = {settings.key_bits}.",
        "Operations inside SMUL and SDIV are counted apart: docs/costs.md has them, and the terms for more parameters.",
        "PPFDL's n PMul are powers of N-1 in the table; ours bring the models to the scale of their mean.",
        "`hardened` opens all operands of SMUL packed and divides twice per participant; one PDec opens a packed ciphertext.",
    )
    picture = Picture("table4", caption, lambda f: _draw_operations(f, settings, records))
    return Part(records, tables, (picture,), remarks)


def _table(title: str, columns: tuple[str, ...], rows: Records) -> ResultTable:
    return ResultTable(title, columns, tuple(tuple(row[column] for column in columns) for row in rows))


def _draw_operations(figure: "Figure", settings: CountSettings, rows: Records) -> None:
    n = max(settings.crowds)
    chosen = [
        row
        for row in rows
        if row["participants"] == n and row["role"] == "SP" and row["operation"] in ("SMUL", "SDIV") and row["paper"]
    ]
    groups = [f"{row['phase']}\n{row['operation']}" for row in chosen]
    series = {name: [number(row, name) for row in chosen] for name in ("paper", "counted")}
    bars(panels(figure, 1)[0], groups, series, ylabel=f"runs at SP, {n} participants")


def _wire_records(settings: CountSettings, results: Sequence[Records]) -> Records:
    counts, rows = _counts(results), []
    for scheme in ("PPFDL", "paper"):
        places = [(phase, role, name) for phase in _PHASES[scheme] for role in _ROLES for name in _WIRE]
        for place in places:
            for n in settings.crowds:
                row = _beside(TABLE5.get(place), n, counts[scheme, *place, n])
                hardened = None if place[2] == "L" else counts.get(("hardened", *place, n))
                where: Record = {"phase": place[0], "role": place[1], "quantity": place[2]}
                rows.append(where | row | {"hardened": hardened} | _why(_WHY_WIRE, place, row))
    return rows


def _present_table5(settings: CountSettings, results: Sequence[Records]) -> Part:
    rows = _wire_records(settings, results)
    columns = ("phase", "role", "quantity", "participants", "formula", "paper", "counted", "hardened", "why")
    table = _table("Sent and received by each role, for one parameter", columns, rows)
    picture = Picture("table5", "Bytes that each role sends and receives", lambda f: _draw_bytes(f, settings, rows))
    remarks = (
        f"L is the length of a ciphertext: {settings.key_bits // 4:,} bytes at |N| = {settings.key_bits}.",
        "`counted` is the profile `paper` (and PPFDL with K = 1, SDIV for SecDiv); bytes include every header, L does not.",
        "`hardened` carries masked, packed and sealed numbers of other lengths, so only its bytes and messages are given. One "
        "parameter does not show packing: one ciphertext of it carries dozens of parameters.",
    )
    return Part(rows, (table,), (picture,), remarks)


def _draw_bytes(figure: "Figure", settings: CountSettings, rows: Records) -> None:
    n = max(settings.crowds)
    chosen = [r for r in rows if r["participants"] == n and r["quantity"] == "bytes" and r["phase"] != "PPFDL"]
    groups = [f"{r['phase']}\n{r['role']}" for r in chosen]
    named = {"paper": "counted", "hardened": "hardened"}
    series = {name: [number(r, key) / 1000 for r in chosen] for name, key in named.items()}
    bars(panels(figure, 1)[0], groups, series, ylabel=f"kB sent and received, {n} participants")


_FULL, _QUICK = CountSettings(), CountSettings(crowds=(5, 10))
TABLE_4 = Experiment("table4", "Table 4: computation, counted", _FULL, _QUICK, "full", _points, _present_table4)
TABLE_5 = Experiment("table5", "Table 5: communication, counted", _FULL, _QUICK, "full", _points, _present_table5)
