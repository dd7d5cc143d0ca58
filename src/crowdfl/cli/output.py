"""What the commands share: the option --json and what it prints, and a moving line while something is waited for."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console

__all__ = ["Json", "JsonLines", "show", "show_event", "waiting"]

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON lines and nothing else.")]


def show(value: object, text: str, *, as_json: bool) -> None:
    """A value as JSON, or what it says in words."""
    typer.echo(json.dumps(value) if as_json else text)


def show_event(what: str, details: Mapping[str, Any]) -> None:
    """An event of a role as a JSON line."""
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
