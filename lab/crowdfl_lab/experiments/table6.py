"""Table 6: what a dropout costs under CrowdFL-D, CrowdFL-R and (3, 5) secret sharing of the model.

The sharing is Shamir's from pycryptodome, over GF(2^128), 16 bytes at a time; the paper's was over GF(256). It is pure Python,
as the paper's was Java: neither says what sharing must cost.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from crowdfl.errors import ExperimentUnavailable, ProtocolError
from crowdfl_lab.experiments.experiment import Bench, Experiment, ExperimentPoint, Part
from crowdfl_lab.experiments.made_up import MadeUpSettings, MadeUpTask, made_up_models
from crowdfl_lab.experiments.published import FULL_PARAMETERS, TABLE6, remarks
from crowdfl_lab.experiments.records import Record, Records, joined, number, table_of
from crowdfl_lab.observe import RoundRecorder
from crowdfl_lab.report.plots import Canvas, Picture, bars, panels
from crowdfl_lab.timing import timed_call

_THRESHOLD, _SHARES, _CHUNK = 3, 5, 16
_ROLES = ("participant", "SP", "CSP")
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


def _points(settings: DropoutSettings) -> list[ExperimentPoint]:
    points = []
    for profile, parameters in (("paper", settings.paper_parameters), ("hardened", settings.hardened_parameters)):
        facts = settings.facts(profile=profile, parameters=parameters, participants=settings.participants)
        points.append(ExperimentPoint("late upload", facts, partial(_late_upload, settings, profile, parameters)))
    facts = {
        "parameters": settings.shared_parameters,
        "threshold": _THRESHOLD,
        "shares": _SHARES,
        "seed": settings.seed,
    }
    return [*points, ExperimentPoint("shared model", facts, lambda _: _share_model(settings))]


def _late_upload(settings: DropoutSettings, profile: str, parameters: int, bench: Bench) -> Records:
    """Everyone but one is in; the last one's bytes come again. `paper` has published by then and divides anew."""
    heard, people = RoundRecorder(), settings.participants
    task = MadeUpTask(settings, bench, people, parameters, heard, profile=profile, lanes=0, strategy="retransmit")
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
    try:
        from Crypto.Protocol.SecretSharing import Shamir
    except ModuleNotFoundError as error:
        raise ExperimentUnavailable("table 6 needs pycryptodome: `pip install 'crowdfl[experiments]'`") from error
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


def _present(settings: DropoutSettings, results: Sequence[Records]) -> Part:
    nothing: Record = {"scheme": "CrowdFL-D", "profile": "both", "parameters": FULL_PARAMETERS, "seconds": 0.0}
    nothing |= {f"{who} messages": 0 for who in _ROLES} | {"participant bytes": 0}
    rows = [nothing, *joined(results)]
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
        "messages": ", ".join(str(row.get(f"{who} messages", "-")) for who in _ROLES),
        "printed seconds": seconds,
        "printed messages": ", ".join(messages),
    }


_QUICK = DropoutSettings(paper_parameters=5, hardened_parameters=2_776, shared_parameters=2_776)
TABLE_6 = Experiment("table6", "Table 6: what a dropout costs", _points, _present, DropoutSettings(), _QUICK)
