"""Table 4: operations counted in real runs, beside the paper's formulas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crowdfl.lab.experiments.counted import ROLES, CountSettings, count_points
from crowdfl.lab.experiments.frame import Experiment, Part, Picture, Table
from crowdfl.lab.experiments.pictures import grouped_bars
from crowdfl.lab.experiments.points import Rows
from crowdfl.lab.experiments.published import TABLE4

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["TABLE_4"]

_WIRE = ("messages", "L", "bytes")
_WHY = {
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


def _compared(settings: CountSettings, results: Sequence[Rows], scheme: str) -> Rows:
    """Counted and printed, for one implementation."""
    found = {
        (str(r["phase"]), str(r["role"]), str(r["quantity"]), r["participants"]): r["count"]
        for rows in results
        for r in rows
        if r["scheme"] == scheme and r["quantity"] not in _WIRE
    }
    compared: Rows = []
    phases = ("PPFDL",) if scheme == "PPFDL" else ("PriFedAvg", "PriRwd")
    for phase in phases:
        for role in ROLES:
            names = {key[2] for key in found if key[:2] == (phase, role)}
            if scheme != "hardened":
                names |= {key[2] for key in TABLE4 if key[:2] == (phase, role)}
            for name in sorted(names - {"randomizer"}):
                formula = TABLE4.get((phase, role, name)) if scheme != "hardened" else None
                for n in settings.crowds:
                    count = found.get((phase, role, name, n), 0)
                    printed = formula.at(n) if formula else None
                    why = _WHY.get((phase, role, name), "") if scheme != "hardened" and count != printed else ""
                    compared.append(
                        {
                            "implementation": scheme,
                            "phase": phase,
                            "role": role,
                            "operation": name,
                            "participants": n,
                            "formula": formula.text if formula else "",
                            "paper": printed,
                            "counted": count,
                            "why": why,
                        }
                    )
    return compared


def _present(settings: CountSettings, results: Sequence[Rows]) -> Part:
    rows = [row for scheme in ("PPFDL", "paper", "hardened") for row in _compared(settings, results, scheme)]
    columns = ("phase", "role", "operation", "participants", "formula", "paper", "counted", "why")
    tables = [
        Table(
            f"{title}, counted outside SMUL and SDIV",
            columns,
            tuple(tuple(_cell(row[c]) for c in columns) for row in rows if row["implementation"] == scheme),
        )
        for scheme, title in (
            ("PPFDL", "PPFDL's averaging (K = 1, SDIV for SecDiv)"),
            ("paper", "Profile `paper`"),
            ("hardened", "Profile `hardened`, which no formula of the paper speaks of"),
        )
    ]
    picture = Picture(
        "table4", "SMUL and SDIV at SP for one parameter, printed and counted", lambda f: _draw(f, settings, rows)
    )
    remarks = (
        f"One parameter, as in the paper's table; |N| = {settings.key_bits}.",
        "Operations inside SMUL and SDIV are counted apart: docs/costs.md has them, and the terms for more parameters.",
        "PPFDL's n PMul are powers of N-1 in the table; ours bring the models to the scale of their mean.",
        "`hardened` opens all operands of SMUL packed and divides twice per participant; one PDec opens a packed ciphertext.",
    )
    return Part(rows, tuple(tables), (picture,), remarks)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _draw(figure: "Figure", settings: CountSettings, rows: Rows) -> None:
    groups, paper, counted = [], [], []
    n = max(settings.crowds)
    for row in rows:
        if row["participants"] == n and row["role"] == "SP" and row["operation"] in ("SMUL", "SDIV") and row["paper"]:
            groups.append(f"{row['phase']}\n{row['operation']}")
            paper.append(float(row["paper"] or 0))
            counted.append(float(row["counted"] or 0))
    grouped_bars(figure, groups, {"paper": paper, "counted": counted}, f"runs at SP, {n} participants")


TABLE_4 = Experiment(
    "table4",
    "Table 4: computation, counted",
    CountSettings(),
    CountSettings(crowds=(5, 10)),
    "full",
    count_points,
    _present,
)
