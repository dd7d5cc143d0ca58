"""`crowdfl task`: what a requester does, one command for each step; `run` does them all."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdfl.cli.requester_file import RequesterFile, open_requester, write_invitations
from crowdfl.cli.settings_file import read_settings
from crowdfl.cli.task.files import FORMATS, defined, require_model_path, template, write_model
from crowdfl.cli.task.run import run, status_line
from crowdfl.cli.waiting import waiting
from crowdfl.errors import SettingsError
from crowdfl.settings import from_millionths, to_millionths

__all__ = [
    "app",
    "cancel",
    "close",
    "create",
    "fetch",
    "fund",
    "invite",
    "new",
    "pause",
    "report",
    "resume",
    "watch",
]

app = typer.Typer(help="Requester: define, fund, invite, watch, stop, fetch.", no_args_is_help=True)
_Settings = Annotated[Path, typer.Option("--settings", "-s", help="The requester's settings.toml.")]
_SETTINGS = Path("requester/settings.toml")
_Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
_STATES = ("running", "paused", "cancelled", "finished", "settled")
_Task = Annotated[str, typer.Argument(help="The task's id, as `create` printed it.")]


@app.command()
def new() -> None:
    """Print a commented task file to start from."""
    typer.echo(template, nl=False)


@app.command()
def create(
    file: Annotated[Path, typer.Argument(help="A task file, as `crowdfl task new` prints it.")],
    settings: _Settings = _SETTINGS,
    module: Annotated[str | None, typer.Option(help="Your own torch module: package.module:Class.")] = None,
    as_json: _Json = False,
) -> None:
    """Have keys made and post the task. Again with the same file is the same task."""
    own = RequesterFile.read(settings)
    with waiting("reading the task and making the initial model", quiet=as_json):
        definition, initial = defined(file, read_settings(file), module)
    with open_requester(own) as requester, waiting("KGC makes the task's keys", quiet=as_json):
        task = requester.create(definition, initial)
    typer.echo(json.dumps({"task": task, "parameters": definition.about.parameters}) if as_json else task)


@app.command()
def fund(
    task: _Task,
    amount: Annotated[str, typer.Argument(help="How much, such as 36.00.")],
    name: Annotated[str | None, typer.Option(help="Names the payment: a repeat is then the same payment.")] = None,
    settings: _Settings = _SETTINGS,
) -> None:
    """Pay into the task's escrow."""
    with open_requester(RequesterFile.read(settings)) as requester:
        requester.fund(task, to_millionths(amount), name)


@app.command()
def invite(
    task: _Task,
    folder: Annotated[Path, typer.Argument(help="Where to write one file per invitation.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1)] = 1,
    days: Annotated[float, typer.Option(min=0.001)] = 30.0,
    settings: _Settings = _SETTINGS,
    as_json: _Json = False,
) -> None:
    """Write single-use invitations, each with all that its holder needs to find and check the task."""
    own = RequesterFile.read(settings)
    with open_requester(own) as requester:
        paths = write_invitations(own, requester, task, folder, count, days)
    typer.echo(json.dumps({"invitations": [str(path) for path in paths]}) if as_json else "\n".join(map(str, paths)))


@app.command()
def watch(
    task: _Task,
    settings: _Settings = _SETTINGS,
    until: Annotated[str | None, typer.Option(help="Wait until the task is in this state, e.g. finished.")] = None,
    as_json: _Json = False,
) -> None:
    """Show where the task stands; with --until, wait and show every change."""
    if until is not None and until not in _STATES:
        raise SettingsError(f"a task is {', '.join(_STATES)}; it is never {until!r}")
    seen: dict[str, Any] | None = None
    with open_requester(RequesterFile.read(settings)) as requester:
        while True:
            status = requester.sp.status(task)
            if status != seen:
                typer.echo(json.dumps(status) if as_json else status_line(status))
                seen = status
            if until is None or status["state"] in (until, "settled"):
                return
            time.sleep(1.0)


@app.command()
def pause(task: _Task, settings: _Settings = _SETTINGS) -> None:
    """Let nothing move until it is resumed."""
    _order(task, "pause", settings)


@app.command()
def resume(task: _Task, settings: _Settings = _SETTINGS) -> None:
    """Go on after a pause."""
    _order(task, "resume", settings)


@app.command()
def cancel(task: _Task, settings: _Settings = _SETTINGS) -> None:
    """No further round; what is not earned yet comes back."""
    _order(task, "cancel", settings)


@app.command()
def close(task: _Task, settings: _Settings = _SETTINGS) -> None:
    """Nobody else can join; KGC destroys what it kept for that."""
    with open_requester(RequesterFile.read(settings)) as requester:
        requester.close_enrolment(task)


@app.command()
def fetch(
    task: _Task,
    model: Annotated[Path, typer.Argument(help="Where to write it; its definition is written beside it.")],
    settings: _Settings = _SETTINGS,
    form: Annotated[
        str | None, typer.Option("--format", help="safetensors or npz; without, as the file's name ends.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Open the final model, for this requester alone."""
    if form is not None and f".{form}" not in FORMATS:
        raise SettingsError(f"a model is written as safetensors or npz, not {form!r}")
    path = model if form is None or model.suffix == f".{form}" else model.with_name(f"{model.name}.{form}")
    require_model_path(path)
    with open_requester(RequesterFile.read(settings)) as requester, waiting("opening the model", quiet=as_json):
        write_model(path, requester.definition(task), requester.model(task))
    typer.echo(json.dumps({"model": str(path)}) if as_json else str(path))


@app.command()
def report(task: _Task, settings: _Settings = _SETTINGS, as_json: _Json = False) -> None:
    """What was paid in, earned by participants and returned, and every movement; what each of them was paid is not shown."""
    with open_requester(RequesterFile.read(settings)) as requester:
        found = requester.report(task)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name in ("paid_in", "rewards", "returned"):
        typer.echo(f"{name.replace('_', ' '):10} {from_millionths(found[name]):>16.6f}")
    for movement in found["movements"]:
        amount = from_millionths(movement["amount"])
        typer.echo(f"{amount:>27.6f}  {movement['name']}: {movement['source']} -> {movement['target']}")


app.command()(run)


def _order(task: str, action: str, settings: Path) -> None:
    with open_requester(RequesterFile.read(settings)) as requester:
        requester.order(task, action)
