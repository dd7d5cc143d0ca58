"""`crowdfl participant`: look, join, take part, be paid, leave."""

import json
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from crowdfl.cli.training import evaluator, load_person, make_learner, trainer
from crowdfl.errors import NotThereYet, ServiceUnavailable, SettingsError
from crowdfl.protocols.profile import ParticipantKeys
from crowdfl.protocols.settings import from_millionths
from crowdfl.roles.participant import Participant, ParticipantSp
from crowdfl.services.clients import KgcClient
from crowdfl.services.links import Link, ParticipantLink
from crowdfl.storage.blobs import FileBlobs

__all__ = ["app", "claim_now", "join", "leave", "look", "rewards", "run"]

app = typer.Typer(help="Participant: look, join, take part, be paid, leave.", no_args_is_help=True)
_Invitation = Annotated[Path, typer.Argument(help="The invitation file you were given.")]
_Home = Annotated[Path, typer.Option(help="Where your keys and state for this task are kept.")]
_HOME = Path("participant")
_Json = Annotated[bool, typer.Option("--json", help="Print JSON lines and nothing else.")]


@app.command()
def look(invitation: _Invitation, home: _Home = _HOME, as_json: _Json = False) -> None:
    """What the task is for, on which terms, and who will read the model. Nothing is sent about you."""
    with _participant(invitation, home, as_json) as person:
        definition = person.look()
    if as_json:
        typer.echo(json.dumps(definition.body()))
        return
    typer.echo(f"Purpose: {definition.purpose}\nTerms: {definition.terms}\nReaders: {definition.readers}")
    typer.echo(f"Model: {definition.about.parameters:,} parameters; profile {definition.settings.profile}")
    typer.echo(f"Rounds: {definition.settings.rounds}; budget per round: {definition.settings.budget or 'none'}")


@app.command()
def join(invitation: _Invitation, home: _Home = _HOME, as_json: _Json = False) -> None:
    """Make your keys, have them certified, enrol. Again is fine."""
    with _participant(invitation, home, as_json) as person:
        person.join(_read(invitation)["invitation"])


@app.command()
def run(
    invitation: _Invitation,
    data: Annotated[str, typer.Option(help="Whose data to train on: watch:0 to watch:9.")],
    home: _Home = _HOME,
    as_json: _Json = False,
    claim: Annotated[bool, typer.Option(help="Claim the rewards once the task has ended.")] = True,
    hold_upload: Annotated[
        int, typer.Option(help="Never send the upload of this round: for trying dropouts.", hidden=True)
    ] = 0,
) -> None:
    """Join and take part until the task ends; interrupted, it goes on where it stopped."""
    with _participant(invitation, home, as_json) as person:
        person.join(_read(invitation)["invitation"])
        definition = person.look()
        split, learner = load_person(data), make_learner(definition.training)
        train, evaluate = trainer(split, learner), evaluator(split, learner, definition.training)
        if hold_upload:
            person.sp = cast(ParticipantSp, _Holding(person.sp, hold_upload, person))
        _follow(person, train, evaluate)
        if claim and definition.settings.budget is not None:
            _until_paid(person)


@app.command()
def rewards(invitation: _Invitation, home: _Home = _HOME, as_json: _Json = False) -> None:
    """What you earned, by round. Only you can read this."""
    with _participant(invitation, home, as_json) as person:
        for number, amount in person.rewards().items():
            line = {"round": number, "amount": str(from_millionths(amount))}
            typer.echo(json.dumps(line) if as_json else f"round {number}: {from_millionths(amount):.6f}")


@app.command("claim")
def claim_now(invitation: _Invitation, home: _Home = _HOME, as_json: _Json = False) -> None:
    """Be paid; both servers learn the amount now, and not before."""
    with _participant(invitation, home, as_json) as person:
        typer.echo(f"{from_millionths(person.claim()):.6f}")


@app.command()
def leave(invitation: _Invitation, home: _Home = _HOME, as_json: _Json = False) -> None:
    """Leave the task; what you earned stays claimable."""
    with _participant(invitation, home, as_json) as person:
        person.leave()


def _follow(person: Participant, train: Any, evaluate: Any) -> None:  # noqa: ANN401 -- the role's own callables
    """Step by step until the task has ended, with patience that grows while the platform is away."""
    misses = 0
    while True:
        try:
            did = person.step(train, evaluate)
            if not did and person.sp.status(person.task)["state"] not in ("running", "paused"):
                return
            misses = 0
        except ServiceUnavailable:
            misses = min(misses + 1, 6)
            did = False
        if not did:
            pause = 0.5 * 2**misses
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311 -- jitter, no secret


def _until_paid(person: Participant) -> None:
    while True:
        try:
            person.claim()
            return
        except (NotThereYet, ServiceUnavailable):
            time.sleep(1.0)


class _Holding:
    """A connection over which one round's upload never gets through, however long one waits."""

    def __init__(self, sp: ParticipantSp, number: int, person: Participant) -> None:
        self._sp, self._number, self._person = sp, number, person

    def send(self, task: str, number: int, keys: ParticipantKeys, upload: bytes) -> str:
        """Hangs in that round."""
        if number == self._number:
            self._person.on_event("holding", {"round": number})
            while True:
                time.sleep(3600)
        return self._sp.send(task, number, keys, upload)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- everything else goes through
        return getattr(self._sp, name)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return {name: found[name] for name in ("task", "invitation", "kgc", "sp", "kgc_key", "ca", "insecure_test_key")}
    except FileNotFoundError:
        raise SettingsError(f"there is no invitation at {path}") from None
    except (ValueError, KeyError, TypeError) as wrong:
        raise SettingsError(f"{path} is no invitation: {wrong}") from None


@contextmanager
def _participant(invitation: Path, home: Path, as_json: bool) -> Iterator[Participant]:
    found = _read(invitation)
    with tempfile.TemporaryDirectory() as scratch:
        ca = None
        if found["ca"]:
            ca = Path(scratch) / "ca.pem"
            ca.write_text(found["ca"])
        kgc, sp = Link(found["kgc"], ca).open(), ParticipantLink(Link(found["sp"], ca))
        try:
            yield Participant(
                found["task"],
                FileBlobs(home),
                KgcClient(kgc),
                sp,
                bytes.fromhex(found["kgc_key"]),
                found["insecure_test_key"],
                on_event=_say_json if as_json else _say,
            )
        finally:
            kgc.close()
            sp.close()


def _say(what: str, details: Mapping[str, Any]) -> None:
    typer.echo(f"{what}: " + ", ".join(f"{name} {value}" for name, value in details.items()))


def _say_json(what: str, details: Mapping[str, Any]) -> None:
    typer.echo(json.dumps({"event": what, **details}))
