"""`crowdfl task`: what a requester does."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdfl.cli.training import make_learner
from crowdfl.cli.workspace import RequesterFile, read_settings
from crowdfl.errors import SettingsError
from crowdfl.learning import watch as watch_data
from crowdfl.learning.model_files import to_npz, to_safetensors
from crowdfl.protocols.settings import TaskSettings, from_millionths, to_millionths
from crowdfl.roles.documents import Definition, ModelArray
from crowdfl.roles.requester import Requester
from crowdfl.services.links import RequesterKgcLink, RequesterSpLink
from crowdfl.services.run import SystemClock
from crowdfl.storage.atomic import write_private
from crowdfl.storage.blobs import FileBlobs

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
    "template",
    "watch",
]

app = typer.Typer(help="Requester: define, fund, invite, watch, stop, fetch.", no_args_is_help=True)
_Settings = Annotated[Path, typer.Option("--settings", "-s", help="The requester's settings.toml.")]
_SETTINGS = Path("requester/settings.toml")
_Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]

template = f"""# A task. Every setting is shown with its default; docs/security.md says what each one protects.
purpose = "Recognise which exercise the wearer of a watch is doing"
terms = "Windows of sensor data stay on your device. Only an encrypted model leaves it."
readers = "The requester reads the last average; every participant reads the others."
claim_window = 604800.0   # seconds after the end in which rewards can be claimed

[settings]
profile = "hardened"      # or "paper": the algorithms as printed, which leak
total = "shown"           # or "hidden": readers do not learn how many samples there are
max_participants = 10
max_samples = 1000        # of one participant in one round
clip = 16.0               # weights beyond are clipped
decimals = 6
lanes = 1024              # of the distance sketch; 0: no rewards
strategy = "retransmit"   # or "discard": what happens to uploads after the window
window = 3600.0           # seconds
grace = 600.0
min_participants = 3
rounds = 3
budget = "36.00"          # per round, prepaid
key_bits = 2048

[training]
learner = "network"       # or "softmax"
hidden = [32]
features = "motion"
labels = {json.dumps(list(watch_data.EXERCISES))}
epochs = 20
batch = 32
rate = 0.005
seed = 0
"""


@app.command()
def new() -> None:
    """Print a commented task file to start from."""
    typer.echo(template, nl=False)


@app.command()
def create(
    file: Annotated[Path, typer.Argument(help="A task file, as `crowdfl task new` prints it.")],
    settings: _Settings = _SETTINGS,
    as_json: _Json = False,
) -> None:
    """Have keys made and post the task. Again with the same file is the same task."""
    found = read_settings(file)
    try:
        learner = make_learner(found["training"])
        shapes = learner.shape
        definition = Definition(
            purpose=found["purpose"],
            terms=found["terms"],
            readers=found["readers"],
            arrays=tuple(ModelArray(n, tuple(s)) for n, s in zip(shapes.names, shapes.shapes, strict=True)),
            initial="",
            settings=TaskSettings.of(**found["settings"]),
            claim_window=float(found["claim_window"]),
            requester=b"",
            training=found["training"],
        )
    except (KeyError, TypeError, ValueError) as wrong:
        raise SettingsError(f"{file}: a setting is missing or wrong: {wrong}") from None
    with _requester(settings) as requester:
        task = requester.create(definition, learner.weights())
    typer.echo(json.dumps({"task": task, "parameters": shapes.parameters}) if as_json else task)


@app.command()
def fund(
    task: str,
    amount: str,
    name: Annotated[str | None, typer.Option(help="Names the payment: a repeat is then the same payment.")] = None,
    settings: _Settings = _SETTINGS,
) -> None:
    """Pay into the task's escrow."""
    with _requester(settings) as requester:
        requester.fund(task, to_millionths(amount), name)


@app.command()
def invite(
    task: str,
    folder: Annotated[Path, typer.Argument(help="Where to write one file per invitation.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1)] = 1,
    days: Annotated[float, typer.Option(min=0.001)] = 30.0,
    settings: _Settings = _SETTINGS,
) -> None:
    """Write single-use invitations, each with all that its holder needs to find and check the task."""
    own = RequesterFile.read(settings)
    folder.mkdir(parents=True, exist_ok=True)
    with _requester(settings) as requester:
        for number, invitation in enumerate(requester.invite(task, count, days * 86400)):
            contents = {
                "task": task,
                "invitation": invitation,
                "kgc": own.kgc.url,
                "sp": own.sp.url,
                "kgc_key": own.kgc_key.hex(),
                "ca": own.kgc.ca.read_text() if own.kgc.ca else None,
                "insecure_test_key": own.insecure_test_key,
            }
            write_private(folder / f"invitation-{number}.json", json.dumps(contents).encode())


@app.command()
def watch(
    task: str,
    settings: _Settings = _SETTINGS,
    until: Annotated[str | None, typer.Option(help="Wait until the task is in this state, e.g. finished.")] = None,
    as_json: _Json = False,
) -> None:
    """Show where the task stands; with --until, wait and show every change."""
    seen: dict[str, Any] | None = None
    with _requester(settings) as requester:
        while True:
            status = requester.sp.status(task)
            if status != seen:
                typer.echo(json.dumps(status) if as_json else _status_line(status))
                seen = status
            if until is None or status["state"] in (until, "settled"):
                return
            time.sleep(1.0)


@app.command()
def pause(task: str, settings: _Settings = _SETTINGS) -> None:
    """Let nothing move until it is resumed."""
    _order(task, "pause", settings)


@app.command()
def resume(task: str, settings: _Settings = _SETTINGS) -> None:
    """Go on after a pause."""
    _order(task, "resume", settings)


@app.command()
def cancel(task: str, settings: _Settings = _SETTINGS) -> None:
    """No further round; what is not earned yet comes back."""
    _order(task, "cancel", settings)


@app.command()
def close(task: str, settings: _Settings = _SETTINGS) -> None:
    """Nobody else can join; KGC destroys what it kept for that."""
    with _requester(settings) as requester:
        requester.close_enrolment(task)


@app.command()
def fetch(
    task: str,
    model: Annotated[Path, typer.Argument(help="Where to write it: .safetensors or .npz.")],
    settings: _Settings = _SETTINGS,
) -> None:
    """Open the final model, for this requester alone."""
    with _requester(settings) as requester:
        arrays = requester.model(task)
        shape = Definition.open(requester.blobs.get(f"{task}/definition").decode()).shape
    writers = {".safetensors": to_safetensors, ".npz": to_npz}
    if model.suffix not in writers:
        raise SettingsError(f"a model is written as {' or '.join(writers)}, not {model.suffix!r}")
    write_private(model, writers[model.suffix](shape, arrays), overwrite=True)


@app.command()
def report(task: str, settings: _Settings = _SETTINGS, as_json: _Json = False) -> None:
    """What was paid in, spent and returned."""
    with _requester(settings) as requester:
        found = requester.report(task)
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name in ("paid_in", "rewards", "returned"):
        typer.echo(f"{name:10} {from_millionths(found[name]):>16.6f}")


def _order(task: str, action: str, settings: Path) -> None:
    with _requester(settings) as requester:
        requester.order(task, action)


@contextmanager
def _requester(settings: Path) -> Iterator[Requester]:
    own = RequesterFile.read(settings)
    kgc, sp = RequesterKgcLink(own.kgc, own.kgc_token), RequesterSpLink(own.sp, own.sp_token)
    try:
        blobs = FileBlobs(own.folder / "state")
        yield Requester(blobs, SystemClock(), kgc, sp, own.insecure_test_key)
    finally:
        kgc.close()
        sp.close()


def _status_line(status: dict[str, Any]) -> str:
    rounds = ", ".join(f"round {r['number']} {r['state']} ({r['uploads']} uploads)" for r in status["rounds"])
    return f"{status['state']}: {status['enrolled']} enrolled; {rounds or 'no round yet'}"
