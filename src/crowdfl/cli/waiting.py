"""Something to look at while a command waits: a moving line on stderr, and only where somebody looks."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["waiting"]


@contextmanager
def waiting(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show what is waited for; nothing in a pipe, a log, or beside JSON."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
