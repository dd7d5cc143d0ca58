"""A campaign's history: what happened in each round."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rich.filesize import decimal

from crowdfl.privacy import RoundPrivacy
from crowdfl.protocols.party import Costs

_LISTED = 5  # people that a note names
_NOISE = {  # of a row with noise, what a table shows, and under which name
    "epsilon": "epsilon",
    "noise_length": "noise",
    "update_length": "usual update",
    "change_length": "change",
    "noise_share": "of it noise",
}


@dataclass(frozen=True)
class SimulatedRound:
    """One round of a simulation.

    Attributes:
        number: From 1.
        metrics: The weighted mean of each metric that `evaluate` returned, over everyone who read this round's average; the
            last average is evaluated on everyone's data. People count by their samples.
        by_person: What `evaluate` returned, by person.
        central: What `evaluate_central` returned.
        training: The weighted mean of each metric that `train` returned, over whoever trained.
        training_by_person: What `train` returned, by person. Only a simulation shows it: in a campaign it stays on the device.
        participants: Whose updates are in the average.
        sampled: Who was drawn for the round, with `per_round` or `fraction`; empty where everyone is in it.
        dropped: Who was away, though in the round, and is not in the average.
        late: Whose updates came after the window and were taken.
        rejected: Whose updates the servers left out, and why.
        clipped: How many weights of somebody's update were clipped to the task's `clip`.
        scaled: What somebody's update was scaled down by, to the task's `max_norm`.
        rewards: What each participant earned; empty without a `budget`.
        seconds: How long the round took on this machine, training and evaluating included.
        bytes_up: What participants sent, all together.
        bytes_down: What they received.
        is_averaged: False for a round that found too few participants and was given up.
        privacy: With `epsilon`, what the round has cost whom, and what noise did to the average.
    """

    number: int
    metrics: Mapping[str, float]
    participants: tuple[str, ...]
    sampled: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    rejected: Mapping[str, str] = field(default_factory=dict)
    clipped: Mapping[str, int] = field(default_factory=dict)
    scaled: Mapping[str, float] = field(default_factory=dict)
    rewards: Mapping[str, Decimal] = field(default_factory=dict)
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    is_averaged: bool = True
    by_person: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    central: Mapping[str, float] = field(default_factory=dict)
    training: Mapping[str, float] = field(default_factory=dict)
    training_by_person: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    privacy: RoundPrivacy | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """All metrics of the round by name: `loss` of `evaluate`, `central_loss`, `training_loss`."""
        return {**self.metrics, **_prefixed("central", self.central), **_prefixed("training", self.training)}

    def row(self) -> dict[str, float]:
        """The round as one flat row of numbers, for a data frame; lists of people are counted."""
        counted = {
            "participants": len(self.participants),
            "sampled": len(self.sampled),
            "dropped": len(self.dropped),
            "late": len(self.late),
            "rejected": len(self.rejected),
            "clipped": sum(self.clipped.values()),
        }
        sizes = {"seconds": self.seconds, "bytes_up": self.bytes_up, "bytes_down": self.bytes_down}
        cost = {} if self.privacy is None else self.privacy.row()
        return {"round": self.number} | counted | self.numbers | cost | sizes

    def person_rows(self) -> list[dict[str, float | str]]:
        """Everyone's own metrics of the round: a flat row for each person."""
        rows: dict[str, dict[str, float | str]] = {}
        for prefix, found in (("", self.by_person), ("training_", self.training_by_person)):
            for name, metrics in found.items():
                row = rows.setdefault(name, {"round": self.number, "person": name})
                row |= {f"{prefix}{key}": value for key, value in metrics.items()}
        return list(rows.values())


def _prefixed(kind: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{kind}_{name}": value for name, value in metrics.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class FinishedRound(SimulatedRound):
    """What `on_round` is called with: a round that is over and read, and what there is after it.

    Attributes:
        model: What the next round starts from, in the form of the initial model; yours to keep.
        costs: By role, counters of operations, messages and bytes since the campaign began.
    """

    model: Any = field(repr=False)
    costs: Mapping[str, Costs] = field(repr=False)


def earned(history: Sequence[SimulatedRound]) -> dict[str, Decimal]:
    """By person, over all rounds."""
    total: dict[str, Decimal] = {}
    for name, amount in (pair for one in history for pair in one.rewards.items()):
        total[name] = total.get(name, Decimal(0)) + amount
    return total


def history_table(history: Sequence[SimulatedRound]) -> tuple[list[str], list[list[str]]]:
    """Columns and cells for people: what did not happen in any round has no column."""
    metrics = list(dict.fromkeys(name for one in history for name in one.numbers))
    rows = [one.row() for one in history]
    told = [name for name in ("sampled", "dropped", "late", "rejected", "clipped") if any(row[name] for row in rows)]
    noise = [name for name in _NOISE if any(name in row for row in rows)]
    columns = ["round", "participants", *told, *metrics, *noise, "seconds", "bytes_up", "bytes_down"]
    shown = [_NOISE.get(name, name.replace("bytes_", "")) for name in columns]
    return shown, [[_cell(name, row.get(name)) for name in columns] for row in rows]


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name.startswith("bytes_"):
        return decimal(int(value))
    if name == "noise_share":
        return f"{100 * value:.0f} %"
    return f"{value:.2f}" if name == "seconds" else str(value) if isinstance(value, int) else f"{value:.4g}"


def unusable_metrics(history: Sequence[SimulatedRound]) -> list[str]:
    """A note for each metric that was NaN or infinite: then so is its mean, and no stop by it happens."""
    found: dict[str, dict[str, list[int]]] = {}
    for one in history:
        kinds = {"": one.by_person, "training_": one.training_by_person, "central_": {"the test set": one.central}}
        for prefix, who, name, value in (
            (prefix, who, name, value)
            for prefix, people in kinds.items()
            for who, metrics in people.items()
            for name, value in metrics.items()
        ):
            if not math.isfinite(value):
                found.setdefault(prefix + name, {}).setdefault(who, []).append(one.number)
    return [
        f"`{name}` is NaN or infinite, and so is its mean, for "
        + ", ".join(f"{who} (round {', '.join(map(str, rounds))})" for who, rounds in list(people.items())[:_LISTED])
        + (f" and {len(people) - _LISTED} others" if len(people) > _LISTED else "")
        for name, people in found.items()
    ]
