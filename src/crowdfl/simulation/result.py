"""What a simulation gives back: the model, a history by round, rewards, costs; as text, in notebooks, as pictures and files.

And how it shows that it goes on: a bar on a terminal, lines elsewhere, a line that changes in a notebook.
"""

import html
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from crowdfl.protocols.party import Costs
from crowdfl.results import RunResult
from crowdfl.settings import TaskSettings
from crowdfl.text import html_table, in_notebook, text_table

if TYPE_CHECKING:
    from crowdfl.simulation.checkpoint import Checkpoint


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
        return {"round": self.number} | counted | self.numbers | sizes

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


@dataclass(frozen=True, eq=False, repr=False)
class SimulationResult(RunResult):
    """What `crowdfl.simulate` returns. Printed, or as the last line of a notebook's cell, it is a table of the rounds.

    Attributes:
        model: The last average, or what the task's server step made of it, in the form of the initial model.
        history: The rounds, in order.
        rewards: By person, what was claimed and paid in all; empty without a `budget`.
        costs: By role, counters of operations, messages and bytes.
        notes: What you should know, such as weights that were clipped.
        settings: The task's settings, those that followed from the data included.
        personal: By person, the layers that stayed with it (`personalize`), as its last training left them.
        checkpoint: What `simulate(..., resume=result)` goes on from.
    """

    counted: ClassVar[str] = "participants"
    model: Any
    history: tuple[SimulatedRound, ...]
    rewards: Mapping[str, Decimal]
    costs: Mapping[str, Costs]
    notes: tuple[str, ...]
    settings: TaskSettings
    checkpoint: "Checkpoint"
    personal: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model's arrays under their names; or all that `simulate(..., resume=path)` needs, as a folder.

        Args:
            path: A model ends with `.npz` or `.safetensors`, which keeps bfloat16 (NumPy has none: it becomes float32). A path
                without an ending is a folder for the whole campaign: history, settings, and what a server step carries.
        """
        if Path(path).suffix:
            return super().save(path)
        self.checkpoint.write(Path(path))
        return Path(path)

    def person_rows(self) -> list[dict[str, float | str]]:
        """Everyone's own metrics, a flat row for each round and person: `pandas.DataFrame(result.person_rows())`."""
        return [row for one in self.history for row in one.person_rows()]

    def _metric_names(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.history for name in one.numbers))

    def __str__(self) -> str:
        columns, rows = history_table(self.history)
        lines = text_table(columns, rows).splitlines()
        paid = sum(self.rewards.values(), Decimal(0))
        people = sum(amount > 0 for amount in self.rewards.values())
        lines += [f"rewards: {paid:f} in all to {people} people"] if self.rewards else []
        lines.append(self._precision())
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def _precision(self) -> str:
        return f"averages are exact to {self.settings.decimals} decimals"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.history)} rounds>\n{self}"

    def _repr_html_(self) -> str:
        columns, rows = history_table(self.history)
        return html_table(columns, rows) + "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)


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
    columns = ["round", "participants", *told, *metrics, "seconds", "bytes_up", "bytes_down"]
    shown = [name.replace("bytes_", "") for name in columns]
    return shown, [[_cell(name, row.get(name)) for name in columns] for row in rows]


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name.startswith("bytes_"):
        return decimal(int(value))
    return f"{value:.2f}" if name == "seconds" else str(value) if isinstance(value, int) else f"{value:.4g}"


class Shown(ExitStack):
    """Who is told how far a simulation is; this one shows nothing."""

    def trained(self, number: int, done: int) -> None:
        """So many people have trained in a round."""

    def finished(self, round_: SimulatedRound) -> None: ...


class Lines(Shown):
    """A line for each round, on standard error."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._rounds = rounds

    def finished(self, round_: SimulatedRound) -> None:
        sys.stderr.write(round_words(round_, self._rounds) + "\n")
        sys.stderr.flush()


class Bar(Shown):
    """A bar of everyone's trainings, and a line for each round that is over."""

    def __init__(self, people: int, rounds: int) -> None:
        super().__init__()
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
        self._rounds, self._task = rounds, self._bar.add_task(f"round 1 of {rounds}", total=people)

    def __enter__(self) -> Self:
        self.enter_context(self._bar)
        return self

    def trained(self, number: int, done: int) -> None:
        self._bar.update(self._task, description=f"round {number} of {self._rounds}: trained", completed=done)

    def finished(self, round_: SimulatedRound) -> None:
        self._bar.console.print(round_words(round_, self._rounds), markup=False)


class Cell(Shown):
    """One line below a notebook's cell, which changes."""

    def __init__(self, people: int, rounds: int) -> None:
        super().__init__()
        module: Any = importlib.import_module("IPython.display")  # there, where a notebook is
        self._handle = module.display({"text/plain": "round 1"}, raw=True, display_id=True)
        self._people, self._rounds, self._last = people, rounds, ""

    def _show(self, text: str) -> None:
        if self._handle is not None and text != self._last:
            self._last = text
            self._handle.update({"text/plain": text}, raw=True)

    def trained(self, number: int, done: int) -> None:
        self._show(f"round {number} of {self._rounds}: {done} of {self._people} have trained")

    def finished(self, round_: SimulatedRound) -> None:
        self._show(round_words(round_, self._rounds))


def shown(progress: bool | None, people: int, rounds: int) -> Shown:
    """As asked for: None shows where somebody looks, and nothing in a pipe or a log."""
    if progress is False:
        return Shown()
    if in_notebook():
        return Cell(people, rounds)
    if sys.stderr is not None and sys.stderr.isatty():
        return Bar(people, rounds)
    return Lines(rounds) if progress else Shown()


def round_words(round_: SimulatedRound, rounds: int) -> str:
    """A round in one line, and how long the rest takes if each round takes as long."""
    left = f", about {round_.seconds * (rounds - round_.number):.0f} s left" if round_.number < rounds else ""
    if not round_.is_averaged:
        return f"round {round_.number} of {rounds}: given up, too few took part"
    away = f", {len(round_.dropped)} dropped" if round_.dropped else ""
    metrics = "".join(f", {name} {value:.4g}" for name, value in round_.numbers.items())
    took_part = f"{len(round_.participants)} took part{away}{metrics}"
    return f"round {round_.number} of {rounds}: {took_part}, {round_.seconds:.1f} s{left}"
