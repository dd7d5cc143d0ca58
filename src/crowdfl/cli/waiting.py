"""A moving line while something is waited for."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def waiting(what: str, *, quiet: bool = False) -> Iterator[None]:
    """A moving line on stderr; nothing in a pipe, a log, or beside JSON."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
