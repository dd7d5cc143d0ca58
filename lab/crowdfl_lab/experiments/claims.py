"""The page of claims: whatever the paper prints in section 8, what was measured here, and whether it holds.

It is made from stored results alone, those of `crowdfl reproduce` in one folder: code decides by their numbers. Words for
bounds are the same everywhere: a printed score holds within 0.02; "about" is within a quarter; "almost", within a tenth; "far
less" is at most a third.
"""

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from crowdfl_lab.experiments.experiment import CLAIMS, TABLE3, Printed
from crowdfl_lab.timing import Disturbance

Rows = list[dict[str, str]]
PAGE = "claims.md"
_SCORES = ("accuracy", "precision", "recall", "f1", "mad")
_NEAR, _ABOUT, _SAME, _FAR = 0.02, (0.75, 1.25), 1.1, 1 / 3
_TITLES = {
    "table2": "Table 2: the data",
    "table3": "Table 3: NN, FedAvg and PriFedAvg",
    "fig3": "Figure 3: dropouts",
    "fig4": "Figure 4: weights and rewards",
    "table4": "Table 4: computation",
    "table5": "Table 5: communication",
    "table6": "Table 6: what a dropout costs",
    "fig5": "Figure 5: training and encrypting",
    "fig6": "Figure 6: averaging and decrypting",
    "fig7a": "Figure 7(a): rewards",
    "fig7b": "Figure 7(b): the time of rewards",
}
_TABLE2 = {"Jogging": 518, "Walking": 693, "Upstairs": 200, "Downstairs": 176, "Sitting": 92, "Standing": 85}
_TIMED = ("fig5", "fig6", "fig7", "table6")
_NO_TRAINING = ("echo", "faint echo", "replay", "older replay", "noise", "fading noise")  # cheats of audit incentives
_STAGES = {  # of a whole round of `paper`: what its figure has
    "encrypt": ("5(b)", "everyone encrypts"),
    "average": ("6(a)", "uploads are checked and added, SP and CSP average"),
    "read": ("6(b)", "SP opens its half, one participant decrypts"),
    "distances": ("7(b)", "PriRwd, lines 2 to 4: everyone's distance"),
    "pay": ("7(b)", "the rest of PriRwd, and everyone opens a reward"),
}
_OPEN_SIZES = (
    "`paper` with 277,006 parameters and 36 participants, |N| = 2048, over five rounds (table 3, figures 3, 4 and 7(a)), and a "
    "late upload there (table 6). Five rounds take a GPU most of an hour. Its rows above are as small as they say.",
    "`hardened` in figures 5, 6 and 7(b) beyond 13,856 parameters, and PPFDL beyond 8: by slopes alone.",
)


class Missing(Exception):
    """A result is not stored."""


@dataclass(frozen=True)
class Stored:
    """What `crowdfl reproduce` has left in a folder."""

    folder: Path
    _read: dict[str, Rows] = field(default_factory=dict, compare=False, repr=False)

    def rows(self, name: str, **where: str) -> Rows:
        found = [row for row in self._table(name) if all(row.get(key) == value for key, value in where.items())]
        if not found:
            raise Missing(name)
        return found

    def _table(self, name: str) -> Rows:
        if name in self._read:
            return self._read[name]
        path = self.folder / name / f"{name}.csv" if name != "incentives" else self.folder.parent / "incentives.csv"
        if not path.exists():
            raise Missing(name)
        with path.open(encoding="utf-8", newline="") as stream:
            self._read[name] = list(csv.DictReader(stream))
        return self._read[name]

    def made(self, name: str) -> dict[str, Any]:
        path = self.folder / name / "made.json"
        if not path.exists():
            raise Missing(name)
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def busy(self, name: str) -> str:
        """What must be said with the times of this experiment, if anything."""
        if not (self.folder / name / "made.json").exists():
            return ""
        others = self.made(name).get("others")
        if others is None:
            load = self.made(name)["machine"]["load_before"]
            return f"Timed on a machine whose load was {load} before; what others used meanwhile was not measured."
        return f"Others used {others:.2g} of a core while this was timed." if others > Disturbance.QUIET else ""


@dataclass(frozen=True)
class Found:
    """What was measured, and whether the claim holds; None where nothing decides it."""

    text: str
    holds: bool | None
    why: str = ""
    is_stored: bool = True


Decide = Callable[[Stored], Found]
_DECIDED: dict[str, Decide] = {}


def _decides(*names: str) -> Callable[[Callable[..., Found]], Callable[..., Found]]:
    """A function for one claim, or for several, which is then told the last word of each name."""

    def keep(function: Callable[..., Found]) -> Callable[..., Found]:
        for name in names:
            _DECIDED[name] = function if len(names) == 1 else partial(function, what=name.split(" ", 1)[1])
        return function

    return keep


def _f(row: Mapping[str, str], name: str) -> float:
    return float(row[name])


def _mean(rows: Iterable[Mapping[str, str]], name: str) -> float:
    return fmean(_f(row, name) for row in rows)


# Tables 2 and 3.


@_decides("table2")
def _table2(stored: Stored) -> Found:
    made = stored.made("table3")
    if (windows := made.get("windows")) is None:
        raise Missing("table3")
    people = made["settings"]["learn"]["people"]
    text = ", ".join(f"{name} {windows.get(name, 0)}" for name in _TABLE2)
    same = {name.casefold(): count for name, count in windows.items()} == {k.casefold(): v for k, v in _TABLE2.items()}
    return Found(f"{text}; {sum(windows.values()) / people:g} of each of {people}", same and people == 36)


def _clear(stored: Stored, scheme: str, split: str = "user") -> Rows:
    split = "-" if scheme == "NN" else split
    return stored.rows("table3", scheme=scheme, split=split, of="", recipe="")


def _pair(stored: Stored, profile: str) -> Rows:
    return stored.rows("table3", of="pair", profile=profile)


@_decides(*(f"table3 {scheme}" for scheme in TABLE3))
def _scores(stored: Stored, what: str) -> Found:
    if what == "PriFedAvg":
        rows = [row for row in _pair(stored, "shares") if row["scheme"] == "PriFedAvg"]
        where = f"`shares`, {int(rows[0]['hidden']):,} hidden units, one seed: "
    else:
        rows = _clear(stored, what)
        where = f"mean of {len(rows)} seeds, by real user: "
    pairs = [(name, _mean(rows, name), printed) for name, printed in zip(_SCORES, TABLE3[what], strict=True) if printed]
    name, ours, printed = max(pairs, key=lambda pair: abs(pair[1] - pair[2]))
    shown = ", ".join(f"{mine:.4f} ({theirs:.4f})" for _, mine, theirs in pairs)
    label = {"f1": "F1", "mad": "MAD"}.get(name, name)
    text = f"{where}{shown}; furthest off: {label}, by {abs(ours - printed):.4f}"
    return Found(text, abs(ours - printed) <= _NEAR)


@_decides("table3 narrows")
def _narrows(stored: Stored) -> Found:
    mads = [_mean(_clear(stored, f"FedAvg_{n}"), "mad") for n in range(1, 6)]
    return Found("MAD " + ", ".join(f"{each:.4f}" for each in mads), all(a > b for a, b in pairwise(mads)))


@_decides("table3 accuracy", "table3 recall")
def _behind(stored: Stored, what: str) -> Found:
    bound = {"accuracy": 0.01, "recall": 0.03}[what]
    nn = _mean(_clear(stored, "NN"), what)
    user, dealt = (abs(nn - _mean(_clear(stored, "FedAvg_5", split), what)) for split in ("user", "random"))
    return Found(f"{user:.4f} by real user, {dealt:.4f} with windows dealt at random", max(user, dealt) < bound)


@_decides("table3 mad")
def _mad(stored: Stored) -> Found:
    user, dealt = (_mean(_clear(stored, "FedAvg_5", split), "mad") for split in ("user", "random"))
    return Found(f"{user:.4f} by real user, {dealt:.4f} with windows dealt at random", max(user, dealt) < 0.03)


@_decides("table3 equal paper", "table3 equal hardened", "table3 equal shares")
def _equal(stored: Stored, what: str) -> Found:
    """In every printed digit; and how far any weight of an average was from FedAvg's, where that was measured."""
    profile = what.rpartition(" ")[2]
    rows = {row["scheme"]: row for row in _pair(stored, profile)}
    plain, ours = rows["FedAvg_5"], rows["PriFedAvg"]
    same = all(f"{_f(plain, name):.4f}" == f"{_f(ours, name):.4f}" for name in _SCORES)
    shown = ", ".join(f"{_f(ours, name):.4f}" for name in _SCORES)
    off = ours.get("off by")
    weights = f"no weight off by more than {float(off):.2g}" if off else "weights not compared in this run"
    size = f"{int(ours['hidden']):,} hidden units" + (f", {ours['people']} people" if ours.get("people") else "")
    words = "equal to FedAvg_5 in every printed digit" if same else "NOT equal to FedAvg_5"
    return Found(f"{size}: {shown}; {words}; {weights}", same)


# Figure 3.


def _drops(stored: Stored) -> tuple[float, float, dict[str, dict[float, tuple[float, float]]]]:
    """NN's accuracy and F1, then those of each strategy by dropout rate, means over the seeds."""
    rows = stored.rows("fig3", how="clear")
    nn = [row for row in rows if row["scheme"] == "NN"]
    rates = sorted({float(row["rate"]) for row in rows if row["rate"]})
    found = {
        scheme: {
            rate: (_mean(chosen, "accuracy"), _mean(chosen, "f1"))
            for rate in rates
            if (chosen := [row for row in rows if row["scheme"] == scheme and row["rate"] == str(rate)])
        }
        for scheme in ("CrowdFL-D", "CrowdFL-R")
    }
    return _mean(nn, "accuracy"), _mean(nn, "f1"), found


@_decides("fig3 nn")
def _above_nn(stored: Stored) -> Found:
    accuracy, f1, schemes = _drops(stored)
    points = [point for rates in schemes.values() for point in rates.values()]
    above = sum(point[0] > accuracy and point[1] > f1 for point in points)
    best, best_f1 = (max(point[place] for point in points) for place in (0, 1))
    text = (
        f"{above} of {len(points)} points are above NN: accuracy at most {best:.4f} against {accuracy:.4f}, F1 at most "
    )
    return Found(f"{text}{best_f1:.4f} against {f1:.4f}", above == len(points))


def _again(stored: Stored, place: int) -> Found:
    """`generally`: at more than half of the rates at which anybody drops out."""
    _, _, schemes = _drops(stored)
    drop, again = schemes["CrowdFL-D"], schemes["CrowdFL-R"]
    rates = [rate for rate in drop if rate and rate in again]
    better = sum(again[rate][place] > drop[rate][place] for rate in rates)
    return Found(f"at {better} of {len(rates)} rates", 2 * better > len(rates))


@_decides("fig3 r")
def _again_accuracy(stored: Stored) -> Found:
    return _again(stored, 0)


@_decides("fig3 r f1")
def _again_f1(stored: Stored) -> Found:
    return _again(stored, 1)


@_decides("fig3 robust")
def _robust(stored: Stored) -> Found:
    _, _, schemes = _drops(stored)
    rate = max(schemes["CrowdFL-D"])
    lost = {scheme: points[min(points)][0] - points[rate][0] for scheme, points in schemes.items()}
    text = ", ".join(f"{scheme} loses {loss:.4f}" for scheme, loss in lost.items())
    return Found(f"at {rate:.0%} dropouts {text} of accuracy", lost["CrowdFL-R"] < lost["CrowdFL-D"])


@_decides("fig3 feasible")
def _feasible(stored: Stored) -> Found:
    runs: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for row in stored.rows("fig3"):
        if row["how"].startswith("check"):
            runs.setdefault((row["profile"], row["scheme"]), {})[row["how"]] = row
    same = {
        key: [f"{_f(pair['check, clear'], n):.4f}" == f"{_f(pair['check, encrypted'], n):.4f}" for n in _SCORES[:4]]
        for key, pair in runs.items()
    }
    profiles = ", ".join(f"`{profile}`" for profile in dict.fromkeys(profile for profile, _ in same))
    accurate, equal = (sum(map(test, same.values())) for test in (lambda scores: scores[0], all))
    text = f"of {len(same)} encrypted runs ({profiles}) {accurate} have the accuracy of the run in the clear, {equal} all four "
    why = "Averages are rounded at 10^-6: a window may go to another class." if equal < len(same) else ""
    return Found(f"{text}scores, in every printed digit", accurate == len(same), why)


# Figures 4 and 7(a).


def _paid(stored: Stored, profile: str, name: str = "fig4") -> tuple[str, dict[int, Rows]]:
    """The size of the run, and its rows by round."""
    rows = [row for row in stored.rows(name, profile=profile) if row["participant"]]
    people = len({row["participant"] for row in rows})
    run = next(each for each in _runs(stored, name) if each["profile"] == profile)
    rounds = {int(row["round"]): [other for other in rows if other["round"] == row["round"]] for row in rows}
    return f"{run['hidden']:,} hidden units, {people} people", rounds


def _runs(stored: Stored, name: str) -> list[dict[str, Any]]:
    settings = stored.made(name)["settings"]
    found: list[dict[str, Any]] = settings.get("paid", settings)["runs"]
    return found


def _ordered(rows: Rows, name: str, by: str, sign: int) -> int:
    """How many neighbours, in the order of `by`, are in the wrong order."""
    values = [_f(row, name) for row in sorted(rows, key=lambda row: _f(row, by))]
    return sum(sign * (b - a) < 0 for a, b in pairwise(values))


@_decides(*(f"fig4 {what} {profile}" for what in ("weight", "reward") for profile in ("paper", "hardened", "shares")))
def _orders(stored: Stored, what: str) -> Found:
    what, profile = what.split()
    size, rounds = _paid(stored, profile)
    by, sign = {"weight": ("distance", -1), "reward": ("weight", 1)}[what]
    wrong = sum(_ordered(rows, what, by, sign) for rows in rounds.values())
    pairs = sum(len(rows) - 1 for rows in rounds.values())
    shown = " and ".join(map(str, rounds))
    return Found(f"{size}: {pairs - wrong} of {pairs} neighbours are in order in rounds {shown}", wrong == 0)


@_decides(*(f"fig4 shrink {profile}" for profile in ("paper", "hardened", "shares")))
def _shrinks(stored: Stored, what: str) -> Found:
    size, rounds = _paid(stored, what.rpartition(" ")[2])
    first, last = (_mean(rounds[n], "distance") for n in (min(rounds), max(rounds)))
    return Found(f"{size}: mean {first:.4g}, then {last:.4g}", last < first)


@_decides("fig4 motivate")
def _motivates(stored: Stored) -> Found:
    rows = stored.rows("incentives")
    least = {row["cheat"]: float(row["distance"].split(" / ")[0]) for row in rows if row["cheat"] in _NO_TRAINING}
    cheat = max(least, key=least.__getitem__)
    fair = float(next(row for row in rows if row["cheat"] == cheat)["equal"].split(" / ")[0])
    text = f"one of 17 who trains nothing and sends a `{cheat}` takes {least[cheat]:g}% of the budget, where {fair:g}% is even"
    return Found(text, least[cheat] <= fair)


@_decides("fig7a paper", "fig7a hardened", "fig7a shares")
def _earns(stored: Stored, what: str) -> Found:
    size, rounds = _paid(stored, what, "fig7")
    earned: dict[str, list[float]] = {}
    for number in sorted(rounds):
        for row in rounds[number]:
            earned.setdefault(row["participant"], []).append(_f(row, "reward"))
    even = fmean(values[0] for values in earned.values())
    above = [values for values in earned.values() if values[0] > even]
    below = [values for values in earned.values() if values[0] <= even]
    grew, shrank = sum(v[-1] > v[0] for v in above), sum(v[-1] < v[0] for v in below)
    every = sum(all(a < b for a, b in pairwise(values)) for values in above)
    text = (
        f"{size}: of {len(above)} above the mean in round 1, {grew} earn more in round {max(rounds)} ({every} in every "
    )
    return Found(
        f"{text}round); of {len(below)} below, {shrank} earn less", grew == len(above) and shrank == len(below)
    )


# Tables 4, 5 and 6.

_PLACES = tuple(
    f"{phase} {role}" for phase in ("PriFedAvg", "PriRwd", "PPFDL") for role in ("SP", "CSP", "participant")
)


def _formulas(rows: Rows, name: str) -> Found:
    """Whether what has a formula was counted as printed, for every number of participants; and what has none."""
    wrong, missing, why = dict[str, str](), dict[str, str](), dict[str, None]()
    for row in rows:
        if row["paper"] and row["counted"] != row["paper"]:
            wrong[row[name]] = f"{row[name]} {row['counted']} for {row['paper']} at n = {row['participants']}"
        elif not row["paper"] and row["counted"] != "0" and row[name] != "bytes":
            missing[row[name]] = f"{row['counted']} {row[name]}"
        if row["why"]:
            why[row["why"]] = None
    crowds = ", ".join(dict.fromkeys(row["participants"] for row in rows))
    text = "; ".join(wrong.values()) if wrong else f"as printed, counted at n = {crowds}"
    text += f"; without a formula, at n = {rows[-1]['participants']}: {', '.join(missing.values())}" if missing else ""
    return Found(text, not wrong, "; ".join(why))


@_decides(*(f"table4 {place}" for place in _PLACES))
def _operations(stored: Stored, what: str) -> Found:
    phase, role = what.split()
    scheme = "PPFDL" if phase == "PPFDL" else "paper"
    return _formulas(stored.rows("table4", implementation=scheme, phase=phase, role=role), "operation")


@_decides(*(f"table5 {place}" for place in _PLACES))
def _traffic(stored: Stored, what: str) -> Found:
    phase, role = what.split()
    return _formulas(stored.rows("table5", phase=phase, role=role), "quantity")


def _count(stored: Stored, phase: str, role: str, what: str, table: str = "table4") -> int:
    """At the largest number of participants."""
    where = {"implementation": "PPFDL" if phase == "PPFDL" else "paper"} if table == "table4" else {}
    name = "operation" if table == "table4" else "quantity"
    try:
        return int(stored.rows(table, phase=phase, role=role, **{name: what}, **where)[-1]["counted"])
    except Missing:
        stored.rows(table)
        return 0


@_decides("table4 no smul")
def _no_smul(stored: Stored) -> Found:
    counts = {phase: _count(stored, phase, "SP", "SMUL") for phase in ("PriFedAvg", "PPFDL")}
    return Found(f"{counts['PriFedAvg']} SMUL against {counts['PPFDL']} at n = 36", not counts["PriFedAvg"])


@_decides("table4 one division")
def _one_division(stored: Stored) -> Found:
    ours, theirs = (_count(stored, phase, "SP", "SDIV") for phase in ("PriFedAvg", "PPFDL"))
    return Found(f"{ours} SDIV a parameter against {theirs} at n = 36 and one parameter", ours == 1 < theirs)


@_decides("table4 participant")
def _participant(stored: Stored) -> Found:
    encrypting, decrypting = (
        _slopes(stored, "fig6", [("paper", phase)], ("PPFDL", phase)) for phase in ("encrypt", "decrypt")
    )
    text = (
        f"encrypting takes {encrypting:.3g} times as long, decrypting {decrypting:.3g} times, by slopes over parameters"
    )
    return Found(text, 1 <= max(encrypting, decrypting) <= _ABOUT[1])


@_decides("table4 garbled")
def _garbled(stored: Stored) -> Found:
    del stored
    return Found("not measured", None)


@_decides("table4 lower")
def _lower(stored: Stored) -> Found:
    needed = 1
    shown = []
    for what in ("SMUL", "SDIV"):
        ours = sum(_count(stored, phase, "SP", what) for phase in ("PriFedAvg", "PriRwd"))
        theirs = _count(stored, "PPFDL", "SP", what)
        needed = max(needed, ours // theirs + 1)
        shown.append(f"{ours} {what} against {theirs} K")
    return Found(f"{' and '.join(shown)} at n = 36: lower from K = {needed} on", needed <= 4)


def _wire(stored: Stored, role: str, what: str, *phases: str) -> int:
    return sum(_count(stored, phase, role, what, "table5") for phase in phases)


@_decides("table5 servers")
def _servers(stored: Stored) -> Found:
    pairs = [
        (f"{role} {what}", _wire(stored, role, what, "PriFedAvg"), _wire(stored, role, what, "PPFDL"))
        for role in ("SP", "CSP")
        for what in ("L", "messages")
    ]
    text = ", ".join(f"{name}: {ours} against {theirs}" for name, ours, theirs in pairs)
    return Found(f"at n = 36, {text}", all(ours < theirs for _, ours, theirs in pairs))


@_decides("table5 participant")
def _sends(stored: Stored) -> Found:
    ours, theirs = (_wire(stored, "participant", "L", phase) for phase in ("PriFedAvg", "PPFDL"))
    return Found(f"{ours} L against {theirs} L", ours > theirs)


@_decides("table5 K")
def _larger(stored: Stored) -> Found:
    pairs = [
        (f"{role} {what}", _wire(stored, role, what, "PriFedAvg", "PriRwd"), 4 * _wire(stored, role, what, "PPFDL"))
        for role in ("SP", "CSP")
        for what in ("L", "messages")
    ]
    text = ", ".join(f"{name}: {theirs} against {ours}" for name, ours, theirs in pairs)
    return Found(f"at n = 36 and K = 4, {text}", all(theirs > ours for _, ours, theirs in pairs))


_MESSAGES = ("participant messages", "SP messages", "CSP messages")


def _dropout(stored: Stored, scheme: str, profile: str = "") -> dict[str, str]:
    return stored.rows("table6", scheme=scheme, **({"profile": profile} if profile else {}))[0]


@_decides("table6 D")
def _discard(stored: Stored) -> Found:
    row = _dropout(stored, "CrowdFL-D")
    nothing = not float(row["seconds"]) and all(row[name] == "0" for name in _MESSAGES)
    return Found("nothing is computed or sent, by definition", nothing)


@_decides("table6 R seconds")
def _late_seconds(stored: Stored) -> Found:
    text = []
    for row in stored.rows("table6", scheme="CrowdFL-R"):
        text.append(f"`{row['profile']}`: {float(row['seconds']):.3g} s for {int(row['parameters']):,} parameters")
    return Found("; ".join(text), None)


@_decides("table6 R messages")
def _late_messages(stored: Stored) -> Found:
    row = _dropout(stored, "CrowdFL-R", "paper")
    return Found(", ".join(row[name] for name in _MESSAGES), [row[name] for name in _MESSAGES] == ["1", "2", "2"])


@_decides("table6 R operations")
def _late_operations(stored: Stored) -> Found:
    row = _dropout(stored, "CrowdFL-R", "paper")
    adds, divisions, size = int(row["PAdd"]), int(row["SDIV"]), int(row["parameters"])
    text = f"{adds} PAdd and {divisions} SDIV for {size} parameters: one of each for a parameter, and one PAdd for the total"
    return Found(text, adds == size + 1 and divisions == size)


@_decides("table6 in time")
def _in_time(stored: Stored) -> Found:
    rows = [row for row in stored.rows("table6", scheme="CrowdFL-R") if row["profile"] != "paper"]
    text = ", ".join(f"`{row['profile']}`: {row['SP messages']} messages more" for row in rows)
    return Found(text, all(row["SP messages"] == "0" for row in rows))


@_decides("table6 sharing")
def _sharing(stored: Stored) -> Found:
    row = _dropout(stored, "secret sharing")
    return Found(f"{float(row['seconds']):.3g} s for {int(row['parameters']):,} parameters, split and joined", None)


@_decides("table6 less")
def _less(stored: Stored) -> Found:
    shared = _dropout(stored, "secret sharing")
    each = _f(shared, "seconds") / _f(shared, "parameters")
    text, less = [f"sharing {1e3 * each:.3g} ms a parameter, {shared['participant messages']} messages"], []
    for row in stored.rows("table6", scheme="CrowdFL-R"):
        own = _f(row, "seconds") / _f(row, "parameters")
        less.append(own < each)
        text.append(f"`{row['profile']}` {1e3 * own:.3g} ms, {row['participant messages']} message")
    return Found("; ".join(text), all(less))


# Figures 5, 6 and 7(b).


def _slopes(stored: Stored, name: str, above: Sequence[tuple[str, str]], below: tuple[str, str]) -> float:
    """Seconds per parameter of some phases together, over those of another."""
    rows = {(row["scheme"], row["phase"]): row for row in stored.rows(name) if row["fit over"] == "parameters"}
    rows |= (
        {(row["scheme"], row["phase"]): row for row in stored.rows("fig5") if row["fit over"] == "parameters"}
        if name == "fig6"
        else {}
    )
    for key in (*above, below):
        if key not in rows or _f(rows[key], "slope") <= 0:
            raise Missing(name)
    return sum(_f(rows[key], "slope") for key in above) / _f(rows[below], "slope")


@_decides("fig5 training")
def _training(stored: Stored) -> Found:
    rows = [row for row in stored.rows("fig5") if row["hidden"]]
    slower = sum(_f(row, "train, again") > _f(row, "train, first") for row in rows)
    return Found(f"training again is slower for {slower} of {len(rows)} sizes", slower == len(rows))


@_decides("fig5 same")
def _same_training(stored: Stored) -> Found:
    del stored
    return Found("one program trains for both: there is nothing to compare", True)


def _ratio(ratio: float, holds: bool) -> Found:
    return Found(f"{ratio:.3g} times, by slopes over parameters with 5 participants", holds)


@_decides("fig5 encrypting")
def _encrypting(stored: Stored) -> Found:
    ratio = _slopes(stored, "fig5", [("paper", "encrypt")], ("PPFDL", "encrypt"))
    return _ratio(ratio, ratio <= _SAME)


@_decides("fig6 averaging")
def _averaging(stored: Stored) -> Found:
    ratio = _slopes(stored, "fig6", [("paper", "average")], ("PPFDL", "average"))
    return _ratio(ratio, ratio <= _FAR)


@_decides("fig6 decrypting")
def _decrypting(stored: Stored) -> Found:
    ratio = _slopes(stored, "fig6", [("paper", "decrypt")], ("PPFDL", "decrypt"))
    return _ratio(ratio, 2 * _ABOUT[0] <= ratio <= 2 * _ABOUT[1])


@_decides("fig6 small")
def _small(stored: Stored) -> Found:
    ratio = _slopes(stored, "fig6", [("paper", "decrypt, small")], ("PPFDL", "decrypt"))
    found = _ratio(ratio, ratio < 1)
    return Found(f"{found.text}; INSECURE: SP then has all but the whole key, and no profile uses it", found.holds)


@_decides("fig7b both")
def _both(stored: Stored) -> Found:
    ratio = _slopes(stored, "fig7", [("paper", "average"), ("paper", "reward")], ("PPFDL", "average"))
    return _ratio(ratio, _ABOUT[0] <= ratio <= _ABOUT[1])


# The page.

_RATIOS = {"fig5", "fig6", "fig7b"}  # all of them are about time
_ABOUT_TIME = {
    "table4 participant": "fig6",
    "table6 R seconds": "table6",
    "table6 sharing": "table6",
    "table6 less": "table6",
}


@dataclass(frozen=True)
class Judged:
    """A printed claim beside what was measured."""

    printed: Printed
    found: Found
    busy: str = ""

    @property
    def verdict(self) -> str:
        word = {True: "holds", False: "**fails**", None: "open"}[self.found.holds]
        return f"{word} (busy machine)" if self.busy and self.found.holds is not None else word


def judged(folder: Path) -> list[Judged]:
    stored = Stored(folder)
    found = []
    for printed in CLAIMS:
        try:
            measured = _DECIDED[printed.name](stored)
        except Missing as missing:
            measured = Found(f"not stored here: `crowdfl reproduce {missing}`", None, is_stored=False)
        source = _ABOUT_TIME.get(printed.name) or {"fig7b": "fig7"}.get(
            printed.of, printed.of if printed.of in _RATIOS else ""
        )
        timed = source in _TIMED and printed.name != "fig5 same"
        found.append(Judged(printed, measured, stored.busy(source) if timed else ""))
    return found


def page(folder: Path, link: Callable[[str], str]) -> str:
    """In Markdown; `link` makes a path to an experiment's CSV."""
    claims = judged(folder)
    counts = {word: sum(one.found.holds is held for one in claims) for word, held in _WORDS.items()}
    lines = [
        "# The paper's claims, one by one",
        "",
        "With this page you can see which statements of the paper's section 8 hold here. `crowdfl reproduce all` makes it, and "
        "`crowdfl reproduce claims` makes it again from results that are stored: code decides by their numbers.",
        "",
        f"Of {len(claims)} claims {counts['hold']} hold, {counts['fail']} fail, {counts['open']} are open. A printed score "
        f'holds within {_NEAR}; "about" is within a quarter, "almost" within a tenth, "far less" at most a third.',
        "",
    ]
    for of, title in _TITLES.items():
        name = {"table2": "table3", "fig7a": "fig7", "fig7b": "fig7"}.get(of, of)
        path = link(name)
        lines += [f"## {title}", "", f"[Measured numbers]({path}).", ""] if path else [f"## {title}", ""]
        mine = [one for one in claims if one.printed.of == of]
        for busy in dict.fromkeys(one.busy for one in mine if one.busy):
            lines += [f"{busy} Its times are to be measured again at a quiet moment.", ""]
        lines += ["| the paper | here | | why |", "|---|---|---|---|"]
        for one in mine:
            why = one.found.why or (one.printed.why if one.found.is_stored and not one.found.holds else "")
            lines.append(
                "| " + " | ".join(_cell(text) for text in (one.printed.says, one.found.text, one.verdict, why)) + " |"
            )
        lines.append("")
    return "\n".join([*lines, *_whole_round(Stored(folder)), *_tried(folder, link), *_not_run()])


_WORDS: Mapping[str, bool | None] = {"hold": True, "fail": False, "open": None}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _tried(folder: Path, link: Callable[[str], str]) -> list[str]:
    """Of figure 3: what was tried to have FedAvg above NN."""
    stored = Stored(folder)
    return ["## What was tried for figure 3", "", *_other_ways(stored, link), *_other_readings(stored, link)]


def _other_ways(stored: Stored, link: Callable[[str], str]) -> list[str]:
    try:
        ways = stored.rows("gap")
    except Missing:
        return ["Other ways to train: not stored here: `crowdfl reproduce gap`.", ""]
    above = sum(_f(row, "accuracy") > _f(row, "nn accuracy") for row in ways)
    return [
        f"Other ways to train ([numbers]({link('gap')})): one seed, by real user, in the clear. In {above} of {len(ways)} ways "
        "FedAvg is above NN.",
        "",
        "| tried | FedAvg_5: accuracy, F1 | NN: accuracy, F1 |",
        "|---|---|---|",
        *(
            f"| {_cell(row['tried'])} | {_two(row, 'accuracy', 'f1')} | {_two(row, 'nn accuracy', 'nn f1')} |"
            for row in ways
        ),
        "",
    ]


def _other_readings(stored: Stored, link: Callable[[str], str]) -> list[str]:
    """\"Non-federated NN\" may have been another network in figure 3 than in table 3."""
    try:
        readings = stored.rows("readings")
    except Missing:
        return ["Other readings of NN: not stored here: `crowdfl reproduce readings`.", ""]
    hidden = stored.made("readings")["settings"]["learn"]["hidden"]
    over = [row for row in readings if _f(row, "beside") > _f(row, "accuracy") and _f(row, "beside f1") > _f(row, "f1")]
    words = "; ".join(row["tried"] for row in over) or "none of these"
    return [
        f"Other readings of NN ([numbers]({link('readings')})), {hidden:,} hidden units. FedAvg is above NN in both scores "
        f"where NN is read as: {words}.",
        "",
        "| NN read as | NN: accuracy, F1 | FedAvg beside it: accuracy, F1 |",
        "|---|---|---|",
        *(
            f"| {_cell(row['tried'])} | {_two(row, 'accuracy', 'f1')} | {_two(row, 'beside', 'beside f1')} |"
            for row in readings
        ),
        "",
    ]


def _two(row: Mapping[str, str], *names: str) -> str:
    return ", ".join("-" if math.isnan(_f(row, name)) else f"{_f(row, name):.4f}" for name in names)


def _whole_round(stored: Stored) -> list[str]:
    """What `bench gpu` measured of one round at the paper's size."""
    path = stored.folder.parent / "gpu-paper.json"
    head = ["## Figures 5(b), 6 and 7(b) at the paper's size", ""]
    if not path.exists():
        return [*head, "Not stored here: `crowdfl bench gpu --profile paper`.", ""]
    found = json.loads(path.read_text(encoding="utf-8"))
    sizes, where = found["settings"], found["machine"]
    seconds = dict.fromkeys(_STAGES, 0.0)
    for part in found["parts"]:
        if part["stage"] in seconds:
            seconds[part["stage"]] += part["wall"]
    return [
        *head,
        f"One round of `paper`, {sizes['parameters']:,} parameters, {sizes['participants']} participants, |N| = "
        f"{2 * sizes['prime_bits']}, on one {where.get('gpu', where['backend'])}, all parties, by the clock. All of it was "
        "measured, nothing extrapolated. PPFDL was not measured at this size.",
        "",
        "| figure | what | seconds |",
        "|---|---|---|",
        *(f"| {figure} | {what} | {seconds[stage]:.1f} |" for stage, (figure, what) in _STAGES.items()),
        f"| | the round | {sum(seconds.values()):.1f} |",
        "",
    ]


def _not_run() -> list[str]:
    return ["## What is open", "", *(f"- {line}" for line in _OPEN_SIZES), ""]


def write_page(folder: Path) -> Path:
    """Into the folder that holds the results."""
    path = folder / PAGE
    text = page(folder, lambda name: f"{name}/{name}.csv" if (folder / name / f"{name}.csv").exists() else "")
    path.write_text(text, encoding="utf-8")
    return path


def publish_page(lab: Path) -> Path:
    """Into the laboratory's docs, of its published results."""
    results, path = lab / "figures" / "experiments", lab / "docs" / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(results, partial(_published, results)), encoding="utf-8")
    return path


def _published(results: Path, name: str) -> str:
    return f"../figures/experiments/{name}/{name}.csv" if (results / name / f"{name}.csv").exists() else ""
