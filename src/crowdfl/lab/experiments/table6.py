"""Table 6: what a dropout costs under CrowdFL-D, CrowdFL-R and (3, 5) secret sharing of the model.

The sharing is Shamir's from pycryptodome, over GF(2^128), 16 bytes at a time; the paper's was over GF(256). It is pure Python,
as the paper's was Java: neither says what sharing must cost.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crowdfl.errors import ExperimentUnavailable, ProtocolError
from crowdfl.lab.experiments.counted import made_up_models
from crowdfl.lab.experiments.experiment import Bench, Experiment, ExperimentPoint, Part, Record, Records, number
from crowdfl.lab.experiments.published import FULL_PARAMETERS, TABLE6
from crowdfl.lab.observe import RoundRecorder
from crowdfl.lab.parties import LocalParties
from crowdfl.lab.report.plots import Picture, bars, panels
from crowdfl.lab.report.results import ResultTable
from crowdfl.protocols.profile import TaskSpec, Tools
from crowdfl.settings import TaskSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TABLE_6", "DropoutSettings"]

_THRESHOLD, _SHARES, _CHUNK = 3, 5, 16


@dataclass(frozen=True)
class DropoutSettings:
    """Sizes of the samples. `paper` divides once per parameter, so that its sample is small."""

    participants: int = 5
    paper_parameters: int = 40
    hardened_parameters: int = 13_856
    shared_parameters: int = 13_856
    key_bits: int = 2048
    insecure_test_key: bool = False
    seed: int = 2021


def _points(settings: DropoutSettings) -> list[ExperimentPoint]:
    sizes = {"paper": settings.paper_parameters, "hardened": settings.hardened_parameters}
    points = [_late_point(settings, profile, parameters) for profile, parameters in sizes.items()]
    facts = {
        "parameters": settings.shared_parameters,
        "threshold": _THRESHOLD,
        "shares": _SHARES,
        "seed": settings.seed,
    }
    return [*points, ExperimentPoint("shared model", facts, lambda bench: _share_model(settings, bench))]


def _late_point(settings: DropoutSettings, profile: str, parameters: int) -> ExperimentPoint:
    facts: Record = {
        "profile": profile,
        "parameters": parameters,
        "participants": settings.participants,
        "key_bits": settings.key_bits,
        "seed": settings.seed,
    }
    return ExperimentPoint("late upload", facts, lambda bench: _late_upload(settings, profile, parameters, bench))


def _late_upload(settings: DropoutSettings, profile: str, parameters: int, bench: Bench) -> Records:
    """Everyone but one is in; the last one's bytes come again. `paper` has published by then and divides anew."""
    task = TaskSettings(
        profile=profile,
        max_participants=settings.participants,
        key_bits=settings.key_bits,
        lanes=0,
        strategy="retransmit",
    )
    heard = RoundRecorder()
    tools = Tools(bench.backend, insecure_test_key=settings.insecure_test_key, observer=heard)
    parties = LocalParties(TaskSpec("dropout", task, parameters), tools)
    models = made_up_models(settings.participants, parameters, settings.seed)
    uploads = parties.encrypt({f"p{i}": (model, 10 + i) for i, model in enumerate(models)})
    *early, late = uploads
    round_ = parties.open(1)
    round_.collect({who: uploads[who] for who in early})
    again = profile == "paper"
    if again:
        round_.average()
    before = parties.sp.party.costs.counts.copy()
    heard.reset()
    round_.collect({late: uploads[late]})
    publication = round_.average() if again else b""
    seconds, exchanged = sum(lap.seconds for lap in heard.laps), sum(heard.sent.values())
    did = parties.sp.party.costs.counts - before
    average = parties.read(publication or round_.average(), 1, early[:1]).weights
    samples = np.arange(10, 10 + settings.participants)
    _expect(bool(np.allclose(average, np.average(models, axis=0, weights=samples), atol=1e-5)), "the late average")
    row: Record = {
        "scheme": "CrowdFL-R",
        "profile": profile,
        "parameters": parameters,
        "seconds": seconds,
        "PAdd": did["", "PAdd"],
        "SDIV": did["", "SDIV"],
        "participant messages": 1,
        "SP messages": exchanged,
        "CSP messages": exchanged,
        "participant bytes": len(uploads[late]),
    }
    return [row]


def _share_model(settings: DropoutSettings, bench: Bench) -> Records:
    """Split a model of 4 bytes a parameter into five shares, and join three."""
    try:
        from Crypto.Protocol.SecretSharing import Shamir
    except ModuleNotFoundError as error:
        raise ExperimentUnavailable("table 6 needs pycryptodome: `pip install 'crowdfl[experiments]'`") from error
    model = made_up_models(1, settings.shared_parameters, settings.seed)[0].astype(np.float32).tobytes()
    padded = model + bytes(-len(model) % _CHUNK)
    chunks = [padded[i : i + _CHUNK] for i in range(0, len(padded), _CHUNK)]
    start = time.perf_counter()
    shares = []
    for i, chunk in enumerate(chunks):
        shares.append(Shamir.split(_THRESHOLD, _SHARES, chunk))
        bench.progress(i + 1, 2 * len(chunks))
    split = time.perf_counter() - start
    keep = sorted(secrets.SystemRandom().sample(range(_SHARES), _THRESHOLD))
    start = time.perf_counter()
    joined = []
    for i, each in enumerate(shares):
        joined.append(Shamir.combine([each[k] for k in keep]))
        bench.progress(len(chunks) + i + 1, 2 * len(chunks))
    join = time.perf_counter() - start
    _expect(b"".join(joined)[: len(model)] == model, "the shared model")
    row: Record = {
        "scheme": "secret sharing",
        "profile": "(3, 5) over GF(2^128)",
        "parameters": settings.shared_parameters,
        "seconds": split + join,
        "split seconds": split,
        "join seconds": join,
        "participant messages": _SHARES + 1,
        "SP messages": _THRESHOLD,
        "participant bytes": _SHARES * len(padded),
    }
    return [row]


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ProtocolError(f"{what} came out wrong")


def _present(settings: DropoutSettings, results: Sequence[Records]) -> Part:
    nothing: Record = {"scheme": "CrowdFL-D", "profile": "both", "parameters": FULL_PARAMETERS, "seconds": 0.0}
    nothing |= {f"{who} messages": 0 for who in ("participant", "SP", "CSP")} | {"participant bytes": 0}
    rows = [nothing, *(row for rows in results for row in rows)]
    for row in rows:
        row["seconds at 277,006 (extrapolated)"] = number(row, "seconds") * FULL_PARAMETERS / number(row, "parameters")
    columns = (
        "scheme",
        "profile",
        "parameters",
        "seconds",
        "seconds at 277,006 (extrapolated)",
        "messages: participant, SP, CSP",
        "participant's bytes",
        "paper: seconds",
        "paper: messages",
    )
    cells = tuple(_cells(row) for row in rows)
    picture = Picture("table6", "Seconds that one dropout costs, per 1,000 parameters", lambda f: _draw(f, rows))
    remarks = (
        "CrowdFL-D leaves the dropped model out: nothing is computed or sent for it.",
        "CrowdFL-R in `paper` multiplies the late upload in and divides again, as section 5.2 says; in `hardened` the round's "
        "grace period ends before the one division, so that a late upload costs its multiplications alone.",
        "Shamir's sharing here is pycryptodome's, pure Python over GF(2^128); the paper used a Java library over GF(256). "
        "Split and join of 4-byte parameters together; sharing protects the model from a dropout only if it was done before.",
        "The paper gives 12.3 s and 3.4 s without saying for how many parameters.",
        "Extrapolated figures are proportional to the number of parameters, and starred.",
    )
    return Part(rows, (ResultTable("Cost of one dropout", columns, cells),), (picture,), remarks)


def _cells(row: Record) -> tuple[str, ...]:
    whole = row["seconds at 277,006 (extrapolated)"]
    star = "" if row["parameters"] == FULL_PARAMETERS else " *"
    printed = TABLE6[str(row["scheme"])]
    messages = [str(row.get(f"{who} messages", "-")) for who in ("participant", "SP", "CSP")]
    return (
        str(row["scheme"]),
        str(row["profile"]),
        f"{row['parameters']:,}",
        f"{number(row, 'seconds'):.3g}",
        f"{whole:,.3g}{star}",
        ", ".join(messages),
        f"{row['participant bytes']:,}",
        printed[0],
        ", ".join(printed[1:]),
    )


def _draw(figure: "Figure", rows: Records) -> None:
    groups = [f"{row['scheme']}\n{row['profile']}" for row in rows]
    values = [round(1000 * number(row, "seconds") / number(row, "parameters"), 4) for row in rows]
    bars(panels(figure, 1)[0], groups, {"measured": values}, ylabel="seconds per 1,000 parameters")
    figure.axes[0].set_yscale("symlog", linthresh=1e-3)


TABLE_6 = Experiment(
    "table6",
    "Table 6: what a dropout costs",
    DropoutSettings(),
    DropoutSettings(paper_parameters=5, hardened_parameters=2_776, shared_parameters=2_776),
    "full",
    _points,
    _present,
)
