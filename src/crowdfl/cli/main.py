"""`crowdfl`: the command tree, and one place that turns errors into messages and exit codes."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from crowdfl import __version__
from crowdfl.cli.audit import audit
from crowdfl.cli.bench import app as bench_app
from crowdfl.cli.data import app as data_app
from crowdfl.cli.demo import demo
from crowdfl.cli.participant import app as participant_app
from crowdfl.cli.reproduce import reproduce
from crowdfl.cli.servers import csp_app, kgc_app, sp_app
from crowdfl.cli.task import app as task_app
from crowdfl.cli.train import train
from crowdfl.cli.workspace import init
from crowdfl.errors import CrowdFLError

__all__ = ["EXIT_ERROR", "EXIT_INTERRUPTED", "app", "run"]

EXIT_ERROR = 3  # 0: done; 1: a check the user asked for failed; 2: wrong usage; 3: a named error; 130: interrupted
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="crowdfl",
    help="Privacy-preserving mobile crowdsensing on federated learning.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals hold key material
)
app.command()(init)
app.add_typer(kgc_app, name="kgc")
app.add_typer(sp_app, name="sp")
app.add_typer(csp_app, name="csp")
app.add_typer(task_app, name="task")
app.add_typer(participant_app, name="participant")
app.command()(train)
app.add_typer(data_app, name="data")
app.command()(demo)
app.command()(audit)
app.add_typer(bench_app, name="bench")
app.command()(reproduce)


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
    except CrowdFLError as error:
        complain.print(f"[red]{type(error).__name__}[/red]: {error}", soft_wrap=True)
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        complain.print("interrupted")
        sys.exit(EXIT_INTERRUPTED)
