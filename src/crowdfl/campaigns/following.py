"""How a program that follows a task shows where it stands: a line that changes, or a picture in a notebook."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from rich.console import Console
from rich.status import Status

from crowdfl.notebook import Cell, in_notebook, picture_of


class Followed(ExitStack):
    """Who is told where a task stands; this one shows nothing."""

    def tell(self, words: str, status: Mapping[str, Any], curves: Mapping[str, list[float]]) -> None: ...


class FollowedLines(Followed):
    """A line for each change, on standard error."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def tell(self, words: str, status: Mapping[str, Any], curves: Mapping[str, list[float]]) -> None:
        if words != self._last:
            self._last = words
            sys.stderr.write(f"{words}\n")
            sys.stderr.flush()


class FollowedStatus(Followed):
    """One line on a terminal, which changes."""

    def __init__(self) -> None:
        super().__init__()
        self._status = Status("", console=Console(stderr=True, highlight=False))

    def __enter__(self) -> Self:
        self.enter_context(self._status)
        return self

    def tell(self, words: str, status: Mapping[str, Any], curves: Mapping[str, list[float]]) -> None:
        self._status.update(words.replace("[", r"\["))


class FollowedCell(Followed):
    """A line and a picture below a notebook's cell."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._cell, self._rounds = Cell(), rounds

    def tell(self, words: str, status: Mapping[str, Any], curves: Mapping[str, list[float]]) -> None:
        done = sum(one["state"] in ("rewarded", "aborted") for one in status["rounds"])
        last = status["rounds"][-1] if status["rounds"] else {"state": "", "uploads": 0}
        part = (
            min(1.0, last["uploads"] / max(1, status["enrolled"]))
            if last["state"] not in ("rewarded", "aborted")
            else 0
        )
        self._cell.show(words, picture_of(self._rounds, done, part, curves))


def followed(progress: bool | None, rounds: int) -> Followed:
    """As asked for: None shows where somebody looks, and nothing in a pipe or a log."""
    if progress is False:
        return Followed()
    if in_notebook():
        return FollowedCell(rounds)
    if sys.stderr is not None and sys.stderr.isatty():
        return FollowedStatus()
    return FollowedLines() if progress else Followed()


def state_words(status: Mapping[str, Any]) -> str:
    """Where a task stands, and what it waits for, in one line."""
    rounds = status["rounds"]
    people = "1 person" if status["enrolled"] == 1 else f"{status['enrolled']} people"
    last = f", round {rounds[-1]['number']} {rounds[-1]['state']}" if rounds else ""
    waits = "; waits for " + "; ".join(status["waits"]) if status.get("waits") else ""
    return f"{status['state']}: {people}{last}{waits}"
