"""What the commands share: the option --json and what it prints, and a moving line while something is waited for."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from crowdfl.text import printable

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON lines and nothing else.")]


def show(value: object, *told: str | Text | Table, as_json: bool) -> None:
    """A value as JSON, or what it says in words and tables."""
    if as_json:
        typer.echo(json.dumps(value, allow_nan=False))
        return
    for part in told:
        if isinstance(part, str):
            typer.echo(clean(part))
        else:
            Console(highlight=False).print(_Clean(part), soft_wrap=isinstance(part, Text))


def clean(text: str) -> str:
    """Lines that may repeat what another party said: nothing in them steers the terminal."""
    kept = re.compile(r"[^\n\t]+")  # lines, and the columns of a list
    return kept.sub(lambda part: printable(part[0], len(part[0])), text)


@dataclass(frozen=True)
class _Clean:
    """The same of a text or a table; rich adds its own colours after this."""

    part: Text | Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.part, options):
            yield segment if segment.control else Segment(clean(segment.text), segment.style)


def short_state(digest: str) -> str:
    """Enough of a state's digest for two people to compare."""
    return digest[:16]


def marked(notes: Iterable[str]) -> list[Text]:
    return [Text.assemble(("Note:", "yellow"), f" {note}") for note in notes]


def show_event(what: str, details: Mapping[str, Any]) -> None:
    typer.echo(json.dumps({"event": what, **details}))


@contextmanager
def waiting(what: str, *, quiet: bool = False) -> Iterator[None]:
    """A moving line on stderr; nothing in a pipe, a log, or beside JSON."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
