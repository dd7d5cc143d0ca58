"""`crowdfl`: the command tree, and one place that turns errors into messages and exit codes."""

import sys
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
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


@dataclass(frozen=True)
class _Place:
    """Where a command is, a function or the Typer of a group; what is said of it; and a package that it cannot do without."""

    where: str
    help: str
    needs: str | None = None


_EXTRAS = {"fastapi": "services", "httpx": "participant"}
# A command's module is loaded when the command is used: a phone need not load the servers, and a list of commands nothing.
_COMMANDS = {
    "init": _Place(
        "cli.workspace:init",
        "Make keys, certificate, tokens and settings: of one role with --role, or of KGC, SP, CSP and a requester.",
    ),
    "exchange": _Place("cli.exchange:app", "How organisations come to know each other's keys: docs/organisations.md."),
    "tls": _Place("cli.exchange:tls_app", "This service's own certificate."),
    "kgc": _Place("cli.servers:kgc_app", "The key generation centre: makes keys, certifies participants.", "fastapi"),
    "sp": _Place("cli.servers:sp_app", "The sensing platform: tasks, rounds, rewards, money.", "fastapi"),
    "csp": _Place(
        "cli.servers:csp_app", "The computation server: answers SP with the other half of the key.", "fastapi"
    ),
    "payer": _Place("cli.payer:app", "Whoever pays people out: make a key, open what to pay, and where."),
    "task": _Place("cli.task.commands:app", "Requester: define, fund, invite, watch, stop, fetch.", "httpx"),
    "participant": _Place("cli.participant:app", "Participant: look, join, take part, be paid, leave.", "httpx"),
    "phone": _Place(
        "cli.phone:app", "The page that phones take part with: host it elsewhere, or check an SP's.", "fastapi"
    ),
    "train": _Place(
        "cli.train:train",
        "Train on one person's data without encryption; show the learning curve and the held-out scores.",
    ),
    "evaluate": _Place(
        "cli.evaluate:evaluate",
        "Show how well a model does: accuracy and scores of each class and the confusion matrix, or the errors of values.",
    ),
    "predict": _Place("cli.evaluate:predict", "Show which label each window gets, and its probability; or its values."),
    "privacy": _Place("cli.privacy:app", "Plan a task with differential privacy."),
    "doctor": _Place(
        "cli.doctor.command:doctor",
        "Check this machine, and each role whose settings are given. Exits with 1 if something fails.",
    ),
    "backup": _Place(
        "cli.backup:backup",
        "Write a role's database, files and keys to one archive. The role may run meanwhile.",
        "fastapi",
    ),
    "upgrade": _Place(
        "cli.upgrade:upgrade",
        "Bring a role's database to this version: everything is read first, then a backup is written. Stop the service before.",
        "fastapi",
    ),
    "restore": _Place(
        "cli.backup:restore",
        "Put a role back from an archive, into an empty folder and an empty database. Then start it.",
        "fastapi",
    ),
    "drill": _Place(
        "cli.backup:drill",
        "Restore a role's newest backup in a scratch place, start it there without a network, and say what would be lost.",
        "fastapi",
    ),
}
# What another package adds, for one the laboratory, which stands beside this package in a clone.
_ADDED = {point.name: point for point in entry_points(group="crowdfl.commands")}
_LABORATORY = ("audit", "bench", "demo", "demo-phone", "reproduce", "wisdm")


class _Tree(TyperGroup):
    """Loads a command's module when the command is used. Help and completion list commands without loading any."""

    _lists_only = False

    # Typer's own types here are click's in one version and its copy of them in another, hence Any.

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        return [*_COMMANDS, *_ADDED, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        if cmd_name in _COMMANDS or cmd_name in _ADDED:
            said = _said(cmd_name) if self._lists_only else None
            command = _load(cmd_name) if said is None else _single(lambda: None, help=said)
        elif cmd_name in _LABORATORY:
            why = "is part of the laboratory, which stands beside the product: clone the repository and run `make demo` there"
            command = _refusing(f"`crowdfl {cmd_name}` {why}")
        else:
            return super().get_command(ctx, cmd_name)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        super(_Tree, self._list()).format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:  # noqa: ANN401
        ctx.command = found = self._list()  # completion asks the context's command for its commands
        return super(_Tree, found).shell_complete(ctx, incomplete)

    def _list(self) -> "_Tree":
        found = copy(self)
        found._lists_only = True
        return found


def _said(name: str) -> str | None:
    """Of a command, without loading it; None where only the command itself can say it."""
    if name in _COMMANDS:
        place = _COMMANDS[name]
        return place.help if _is_installed(place.needs) else f"Not installed: {escape(_pip(place.needs))}"
    package = import_module(_ADDED[name].module.partition(".")[0])
    said = getattr(package, "COMMANDS", {}).get(name)
    return None if said is None else str(said)


def _is_installed(package: str | None) -> bool:
    try:
        return package is None or find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _load(name: str) -> Any:  # noqa: ANN401
    """A command; if it needs a package that is not installed, a command that says so."""
    if name in _ADDED:
        try:
            found, said = _ADDED[name].load(), _said(name)
        except ModuleNotFoundError as missing:
            return _refusing(_missing(name, missing), help=f"Not installed: {missing.name}")
    else:
        place = _COMMANDS[name]
        if place.needs is not None and not _is_installed(place.needs):
            needed = _pip(place.needs)
            return _refusing(f"`crowdfl {name}` needs {place.needs}: `{needed}`", help=_said(name))
        module, _, attribute = place.where.partition(":")
        found, said = getattr(import_module(f"crowdfl.{module}"), attribute), place.help
    command = typer.main.get_group(found) if isinstance(found, typer.Typer) else _single(found)
    if said is not None:
        command.help = said
    return command


def _pip(package: str | None) -> str:
    return f"pip install 'crowdfl[{_EXTRAS.get(package or '', 'services')}]'"


def _missing(command: str, missing: ModuleNotFoundError) -> str:
    """What to do about a package that is missing; one of the project's own is a fault, and is raised."""
    if (missing.name or "").startswith("crowdfl"):
        raise missing
    place = _COMMANDS.get(command)
    how = "`make setup`, in a clone" if place is None else f"`{_pip(place.needs)}`"
    return f"`crowdfl {command}` needs {missing.name}: {how}"


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
    except ModuleNotFoundError as missing:  # commands import what they need when they run
        name = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        complain.print(f"[red]PackageMissing[/red]: {escape(_missing(name, missing))}", soft_wrap=True)
        sys.exit(EXIT_ERROR)
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
