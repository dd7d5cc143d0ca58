"""`crowdfl`: the command tree, and one place that turns errors into messages and exit codes."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from crowdfl.cli.output import clean
from crowdfl.errors import CrowdFLError, PackageMissing
from crowdfl.version import __version__

EXIT_ERROR = 3  # 0: done; 1: a check the user asked for failed; 2: wrong usage; 3: a named error; 130: interrupted
EXIT_INTERRUPTED = 130

# Where each command is: a function, or the Typer of a group. Loaded when asked for: a phone need not load the servers.
_COMMANDS = {
    "init": "cli.workspace:init",
    "exchange": "cli.exchange:app",
    "tls": "cli.exchange:tls_app",
    "kgc": "cli.servers:kgc_app",
    "sp": "cli.servers:sp_app",
    "csp": "cli.servers:csp_app",
    "payer": "cli.payer:app",
    "task": "cli.task.commands:app",
    "participant": "cli.participant:app",
    "phone": "cli.phone:app",
    "train": "cli.train:train",
    "evaluate": "cli.evaluate:evaluate",
    "predict": "cli.evaluate:predict",
    "privacy": "cli.privacy:app",
    "doctor": "cli.doctor.command:doctor",
    "backup": "cli.backup:backup",
    "restore": "cli.backup:restore",
}
# What another package adds, for one the laboratory, which stands beside this package in a clone.
_ADDED = {point.name: point for point in entry_points(group="crowdfl.commands")}
_LABORATORY = ("audit", "bench", "demo", "demo-phone", "reproduce", "wisdm")


class _Tree(TyperGroup):
    """Loads a command's module when the command is used."""

    # Typer's own types here are click's in one version and its copy of them in another, hence Any.

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        return [*_COMMANDS, *_ADDED, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        if cmd_name in _COMMANDS or cmd_name in _ADDED:
            command = _load(cmd_name)
        elif cmd_name in _LABORATORY:
            why = "is part of the laboratory, which stands beside the product: clone the repository and run `make demo` there"
            command = _refusing(f"`crowdfl {cmd_name}` {why}")
        else:
            return super().get_command(ctx, cmd_name)
        command.name = cmd_name
        return command


def _load(name: str) -> Any:  # noqa: ANN401
    """A command; if it needs a package that is not installed, a command that says so."""
    module, _, attribute = _COMMANDS.get(name, ":").partition(":")
    try:
        found = getattr(import_module(f"crowdfl.{module}"), attribute) if module else _ADDED[name].load()
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("crowdfl"):
            raise
        return _missing(name, missing.name)
    return typer.main.get_group(found) if isinstance(found, typer.Typer) else _single(found)


def _missing(command: str, package: str | None) -> Any:  # noqa: ANN401
    extra = "participant" if command == "participant" else "services"
    needed = f"pip install 'crowdfl[{extra}]'"
    return _refusing(f"`crowdfl {command}` needs {package}: `{needed}`", help=f"Not installed: {escape(needed)}")


def _refusing(why: str, **options: Any) -> Any:  # noqa: ANN401
    def complain() -> None:
        raise PackageMissing(why)

    takes_all = {"allow_extra_args": True, "ignore_unknown_options": True}
    return _single(complain, context_settings=takes_all, **options)


def _single(function: Callable[..., None], **options: Any) -> Any:  # noqa: ANN401
    alone = typer.Typer(add_completion=False)
    alone.command(**options)(function)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="crowdfl",
    cls=_Tree,
    help="Privacy-preserving mobile crowdsensing on federated learning.",
    epilog="First steps: `crowdfl doctor` checks this machine, `crowdfl train --data watch:0` trains on one person's data, "
    "in a clone `make demo` runs a whole campaign. Then `crowdfl init` and docs/organisations.md.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals hold key material
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command."""


def run() -> None:
    """Entry point of the `crowdfl` command."""
    complain = Console(stderr=True, highlight=False)
    try:
        app()
    except (CrowdFLError, OSError) as error:  # not a closed pipe at standard output: Typer ends quietly there
        words = _told(error) if isinstance(error, OSError) else str(error)
        complain.print(f"[red]{type(error).__name__}[/red]: {escape(clean(words))}", soft_wrap=True)
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        complain.print("interrupted")
        sys.exit(EXIT_INTERRUPTED)


def _told(error: OSError) -> str:
    """What the system says, and of which file."""
    if error.strerror is None:
        return str(error) or "the system gives no reason"
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join((error.strerror, " -> ".join(names))) if names else error.strerror
