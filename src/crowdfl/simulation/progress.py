"""How a simulation shows that it goes on: a bar on a terminal, lines elsewhere, a line that changes in a notebook."""

import importlib
import sys
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from crowdfl.display import in_notebook
from crowdfl.simulation.result import SimulatedRound


class Shown(Protocol):
    """Somebody who is told how far a simulation is."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None: ...
    def trained(self, number: int, done: int) -> None: ...  # so many people have trained in a round
    def finished(self, round_: SimulatedRound) -> None: ...


class Quiet:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def trained(self, number: int, done: int) -> None: ...

    def finished(self, round_: SimulatedRound) -> None: ...


class Lines(Quiet):
    """A line for each round, on standard error."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def finished(self, round_: SimulatedRound) -> None:
        sys.stderr.write(round_words(round_, self._rounds) + "\n")
        sys.stderr.flush()


class Bar(Quiet):
    """A bar of everyone's trainings, and a line for each round that is over."""

    def __init__(self, people: int, rounds: int) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
        self._people, self._rounds = people, rounds
        self._task = self._bar.add_task(f"round 1 of {rounds}", total=people)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def trained(self, number: int, done: int) -> None:
        self._bar.update(self._task, description=f"round {number} of {self._rounds}: trained", completed=done)

    def finished(self, round_: SimulatedRound) -> None:
        self._bar.console.print(round_words(round_, self._rounds), markup=False)


class Cell(Quiet):
    """One line below a notebook's cell, which changes."""

    def __init__(self, people: int, rounds: int) -> None:
        self._people, self._rounds, self._handle, self._last = people, rounds, _display(), ""

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
        return Quiet()
    if in_notebook():
        return Cell(people, rounds)
    if sys.stderr is not None and sys.stderr.isatty():
        return Bar(people, rounds)
    return Lines(rounds) if progress else Quiet()


def round_words(round_: SimulatedRound, rounds: int) -> str:
    """A round in one line."""
    if not round_.is_averaged:
        return f"round {round_.number} of {rounds}: given up, too few took part"
    away = f", {len(round_.dropped)} dropped" if round_.dropped else ""
    metrics = "".join(f", {name} {value:.4g}" for name, value in round_.metrics.items())
    return f"round {round_.number} of {rounds}: {len(round_.participants)} took part{away}{metrics}, {round_.seconds:.1f} s"


def _display() -> Any:  # noqa: ANN401
    module: Any = importlib.import_module("IPython.display")  # there, where a notebook is
    return module.display({"text/plain": "round 1"}, raw=True, display_id=True)
