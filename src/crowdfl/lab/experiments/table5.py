"""Table 5: numbers, bytes and messages counted on the wire, beside the paper's formulas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crowdfl.lab.experiments.counted import ROLES, CountSettings, count_points
from crowdfl.lab.experiments.frame import Experiment, Part, Picture, Table
from crowdfl.lab.experiments.pictures import grouped_bars
from crowdfl.lab.experiments.points import Rows
from crowdfl.lab.experiments.published import TABLE5

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TABLE_5"]

_QUANTITIES = ("L", "messages", "bytes")
_BATCHES = "each exchange with CSP carries all participants at once"
_WHY = {
    (
        "PPFDL",
        "SP",
        "L",
    ): "SMUL and SDIV under split keys send 5 numbers each, SP's halves among them; garbled circuits not counted",
    ("PPFDL", "CSP", "L"): "SMUL and SDIV under split keys send 5 numbers each; garbled circuits not counted",
    ("PPFDL", "SP", "messages"): _BATCHES,
    ("PPFDL", "CSP", "messages"): _BATCHES,
    ("PriRwd", "SP", "L"): "2n deliver the rewards, which the table leaves out",
    ("PriRwd", "SP", "messages"): f"{_BATCHES}; the second [[w_i]] travels with the upload; n deliver the rewards",
    ("PriRwd", "CSP", "messages"): _BATCHES,
    ("PriRwd", "participant", "L"): "2 more bring the reward",
}


def _compared(settings: CountSettings, results: Sequence[Rows]) -> Rows:
    found = {
        (str(r["scheme"]), str(r["phase"]), str(r["role"]), str(r["quantity"]), r["participants"]): r["count"]
        for rows in results
        for r in rows
    }
    rows: Rows = []
    for scheme, phases in (("PPFDL", ("PPFDL",)), ("paper", ("PriFedAvg", "PriRwd"))):
        for phase in phases:
            for role in ROLES:
                for quantity in _QUANTITIES:
                    formula = TABLE5.get((phase, role, quantity))
                    for n in settings.crowds:
                        count = found[scheme, phase, role, quantity, n]
                        printed = formula.at(n) if formula else None
                        rows.append(
                            {
                                "phase": phase,
                                "role": role,
                                "quantity": quantity,
                                "participants": n,
                                "formula": formula.text if formula else "",
                                "paper": printed,
                                "counted": count,
                                "hardened": found.get(("hardened", phase, role, quantity, n))
                                if quantity != "L"
                                else None,
                                "why": _WHY.get((phase, role, quantity), "") if count != printed else "",
                            }
                        )
    return rows


def _present(settings: CountSettings, results: Sequence[Rows]) -> Part:
    rows = _compared(settings, results)
    columns = ("phase", "role", "quantity", "participants", "formula", "paper", "counted", "hardened", "why")
    cells = tuple(tuple("-" if row[c] is None else str(row[c]) for c in columns) for row in rows)
    table = Table("Sent and received by each role, for one parameter", columns, cells)
    picture = Picture("table5", "Bytes that each role sends and receives", lambda f: _draw(f, settings, rows))
    remarks = (
        f"L is the length of a ciphertext: {settings.key_bits // 4:,} bytes at |N| = {settings.key_bits}.",
        "`counted` is the profile `paper` (and PPFDL with K = 1, SDIV for SecDiv); bytes include every header, L does not.",
        "`hardened` carries masked, packed and sealed numbers of other lengths, so only its bytes and messages are given. One "
        "parameter does not show packing: one ciphertext of it carries dozens of parameters.",
    )
    return Part(rows, (table,), (picture,), remarks)


def _draw(figure: "Figure", settings: CountSettings, rows: Rows) -> None:
    n = max(settings.crowds)
    chosen = [r for r in rows if r["participants"] == n and r["quantity"] == "bytes" and r["phase"] != "PPFDL"]
    groups = [f"{r['phase']}\n{r['role']}" for r in chosen]
    series = {
        name: [float(r[key] or 0) / 1000 for r in chosen] for name, key in (("paper", "counted"), ("hardened",) * 2)
    }
    grouped_bars(figure, groups, series, f"kB sent and received, {n} participants")


TABLE_5 = Experiment(
    "table5",
    "Table 5: communication, counted",
    CountSettings(),
    CountSettings(crowds=(5, 10)),
    "full",
    count_points,
    _present,
)
