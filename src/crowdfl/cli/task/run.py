"""`crowdfl task run`: a requester that sees a campaign through, from the task file to the model and the bill."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdfl.cli.requester_file import RequesterFile, open_requester, write_invitations
from crowdfl.cli.settings_file import read_settings
from crowdfl.cli.task.files import defined, require_model_path, write_model
from crowdfl.errors import NotReady, SettingsError
from crowdfl.roles.requester import Requester
from crowdfl.settings import from_millionths, to_millionths

__all__ = ["run", "status_line"]

_ENDED = ("finished", "cancelled", "settled")


def run(
    file: Annotated[Path, typer.Argument(help="A task file, as `crowdfl task new` prints it.")],
    invitations: Annotated[Path, typer.Argument(help="Where to write one file per invitation.")],
    model: Annotated[Path, typer.Argument(help="Where to write the final model: .safetensors or .npz.")],
    people: Annotated[int, typer.Option("--people", "-n", min=3, help="Whom to invite, and to wait for.")] = 3,
    settings: Annotated[Path, typer.Option("--settings", "-s", help="The requester's settings.toml.")] = Path(
        "requester/settings.toml"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines and nothing else.")] = False,
) -> None:
    """Create a task, invite people, fund it once they have joined, and follow it until the money is settled."""
    say = _say_json if as_json else _say
    require_model_path(model)
    own = RequesterFile.read(settings)
    definition, initial = defined(file, read_settings(file))
    if people > definition.settings.max_participants:
        raise SettingsError(
            f"{people} people do not fit a task of max_participants {definition.settings.max_participants}"
        )
    with open_requester(own) as requester:
        task = requester.create(definition, initial)
        say("created", {"task": task, "parameters": definition.about.parameters})
        write_invitations(own, requester, task, invitations, people, days=30.0)
        say("invited", {"people": people, "folder": str(invitations)})
        _follow(requester, task, say, lambda status: status["enrolled"] >= people)
        requester.close_enrolment(task)  # everyone is in: KGC need not keep the participants' key any longer
        payment = definition.settings.rounds * to_millionths(definition.settings.budget or 0)
        if payment:
            requester.fund(task, payment, "all-rounds")
            say("funded", {"amount": str(from_millionths(payment))})
        _follow(requester, task, say, lambda status: status["state"] in _ENDED)
        try:
            write_model(model, requester.definition(task), requester.model(task))
            say("fetched", {"model": str(model)})
        except NotReady as none:
            say("no model", {"why": str(none)})
        _follow(requester, task, say, lambda status: status["state"] == "settled")
        say("report", requester.report(task))


def status_line(status: dict[str, Any]) -> str:
    """Where a task stands, in a line."""
    rounds = ", ".join(f"round {r['number']} {r['state']} ({r['uploads']} uploads)" for r in status["rounds"])
    key = status.get("key", "")
    warning = f" [{key}]" if "INSECURE" in key else ""
    return f"{status['state']}: {status['enrolled']} enrolled; {rounds or 'no round yet'}{warning}"


def _follow(
    requester: Requester,
    task: str,
    say: Callable[[str, dict[str, Any]], None],
    done: Callable[[dict[str, Any]], bool],
) -> None:
    """Show every change until it is as wanted, or the task has ended."""
    seen: dict[str, Any] | None = None
    while True:
        status = requester.sp.status(task)
        if status != seen:
            say("status", status)
            seen = status
        if done(status) or status["state"] == "settled":
            return
        time.sleep(0.5)


def _say(what: str, details: dict[str, Any]) -> None:
    if what == "status":
        typer.echo(status_line(details))
    elif what == "report":
        typer.echo(", ".join(f"{n.replace('_', ' ')} {from_millionths(details[n]):.6f}" for n in _SUMS))
    else:
        typer.echo(f"{what}: " + ", ".join(f"{name} {value}" for name, value in details.items()))


def _say_json(what: str, details: dict[str, Any]) -> None:
    typer.echo(json.dumps({"event": what, **details}))


_SUMS = ("paid_in", "rewards", "returned")
