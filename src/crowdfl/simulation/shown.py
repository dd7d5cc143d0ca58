"""How a simulation shows that it goes on: a bar on a terminal, lines elsewhere, a line and a picture in a notebook."""

import sys
from contextlib import ExitStack
from typing import Self

from crowdfl.notebook import Cell, in_notebook, picture_of
from crowdfl.simulation.history import SimulatedRound


class Shown(ExitStack):
    """Who is told how far a simulation is; this one shows nothing."""

    def trained(self, number: int, done: int) -> None:
        """So many people have trained in a round."""

    def finished(self, round_: SimulatedRound) -> None: ...

    def noted(self, words: str) -> None:
        """What is known before anybody trains."""


class Lines(Shown):
    """A line for each round, on standard error."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._rounds = rounds

    def finished(self, round_: SimulatedRound) -> None:
        self.noted(round_words(round_, self._rounds))

    def noted(self, words: str) -> None:
        sys.stderr.write(words + "\n")
        sys.stderr.flush()


class Bar(Shown):
    """A bar of everyone's trainings, and a line for each round that is over."""

    def __init__(self, people: int, rounds: int) -> None:
        from rich.console import Console  # late: most simulations show no bar
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        super().__init__()
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
        self._rounds = rounds
        self._task = self._bar.add_task(f"round 1 of {rounds}", total=people)

    def __enter__(self) -> Self:
        self.enter_context(self._bar)
        return self

    def trained(self, number: int, done: int) -> None:
        self._bar.update(self._task, description=f"round {number} of {self._rounds}: trained", completed=done)

    def finished(self, round_: SimulatedRound) -> None:
        self.noted(round_words(round_, self._rounds))

    def noted(self, words: str) -> None:
        self._bar.console.print(words, markup=False)


class Pictured(Shown):
    """A line and a picture below a notebook's cell, which change."""

    def __init__(self, people: int, rounds: int) -> None:
        super().__init__()
        self._cell = Cell()
        self._people = people
        self._rounds = rounds
        self._curves: dict[str, list[float]] = {}
        self._line, self._done = "round 1", 0

    def _show(self, part: float) -> None:
        self._cell.show(self._line, picture_of(self._rounds, self._done, part, self._curves))

    def trained(self, number: int, done: int) -> None:
        self._line = f"round {number} of {self._rounds}: {done} of {self._people} have trained"
        self._done = number - 1
        self._show(done / self._people)

    def finished(self, round_: SimulatedRound) -> None:
        self._line, self._done = round_words(round_, self._rounds), round_.number
        for name, value in round_.numbers.items():
            self._curves.setdefault(name, []).append(value)
        self._show(0.0)

    def noted(self, words: str) -> None:
        self._line = words
        self._show(0.0)


def shown(progress: bool | None, people: int, rounds: int) -> Shown:
    """As asked for: None shows where somebody looks, and nothing in a pipe or a log."""
    if progress is False:
        return Shown()
    if in_notebook():
        return Pictured(people, rounds)
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
