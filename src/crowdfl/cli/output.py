"""What the commands share: the option --json and what it prints, and a moving line while something is waited for."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON lines and nothing else.")]


def show(value: object, *told: str | Text | Table, as_json: bool) -> None:
    """A value as JSON, or what it says in words and tables."""
    if as_json:
        typer.echo(json.dumps(value, allow_nan=False))
        return
    for part in told:
        if isinstance(part, str):
            typer.echo(part)
        else:
            Console(highlight=False).print(part, soft_wrap=isinstance(part, Text))


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
