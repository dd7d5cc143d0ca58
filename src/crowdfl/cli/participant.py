"""`crowdfl participant`: look, join, take part, be paid, leave."""

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer

from crowdfl.cli.training import LocalTrainer
from crowdfl.errors import ClaimRefused, NotReady, ServiceUnavailable, SettingsError, TooLate
from crowdfl.protocols.profile import ParticipantKeys, Tools
from crowdfl.roles.documents import Definition
from crowdfl.roles.participant import Participant, ParticipantSp
from crowdfl.services.client.links import Link, ParticipantLink
from crowdfl.services.client.peers import KgcClient
from crowdfl.settings import ParticipantSettings, from_millionths
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.pools import RandomizerPool

__all__ = ["app", "claim_now", "join", "leave", "look", "rewards", "run"]

app = typer.Typer(help="Participant: look, join, take part, be paid, leave.", no_args_is_help=True)
_Invitation = Annotated[Path, typer.Argument(help="The invitation file you were given.")]
_Home = Annotated[Path, typer.Option(help="Where your keys and state for this task are kept.")]
_HOME = Path("participant")
_Found = TypeVar("_Found")
_Json = Annotated[bool, typer.Option("--json", help="Print JSON lines and nothing else.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Join without being asked.")]


@app.command()
def look(invitation: _Invitation, home: _Home = _HOME, as_json: _Json = False) -> None:
    """What the task is for, on which terms, and who will read the model. Nothing is sent about you."""
    with _participant(invitation, home, as_json) as person:
        definition = person.look()
    if as_json:
        typer.echo(json.dumps(definition.body()))
    else:
        _show(definition)


@app.command()
def join(invitation: _Invitation, home: _Home = _HOME, yes: _Yes = False, as_json: _Json = False) -> None:
    """Make your keys, have them certified, enrol. Again is fine."""
    with _participant(invitation, home, as_json) as person:
        _ask(person, yes=yes, as_json=as_json)
        person.join(_read(invitation).invitation)


@app.command()
def run(
    invitation: _Invitation,
    data: Annotated[
        str,
        typer.Option(
            help="Whose data to train on: watch:0 to watch:9, csv:FOLDER and others; docs/learning.md lists them."
        ),
    ],
    home: _Home = _HOME,
    yes: _Yes = False,
    as_json: _Json = False,
    module: Annotated[
        str | None, typer.Option(help="The task's own torch module, which you agree to run: package.module:Class.")
    ] = None,
    claim: Annotated[bool, typer.Option(help="Claim the rewards once the task has ended.")] = True,
    hold_upload: Annotated[
        int, typer.Option(help="Never send the upload of this round: for trying dropouts.", hidden=True)
    ] = 0,
) -> None:
    """Join and take part until the task ends; interrupted, it goes on where it stopped."""
    with _participant(invitation, home, as_json) as person:
        definition = _patiently(person, lambda: _ask(person, yes=yes, as_json=as_json))
        lesson = LocalTrainer(data, definition.training, module)
        if not person.blobs.has("certificate"):
            lesson.prepare(definition.shape)  # whoever cannot train must not take a place
        if not person.has_left:  # else `join` is how to come back; what was earned is claimed all the same
            _patiently(person, lambda: person.join(_read(invitation).invitation))
        if hold_upload:
            person.sp = cast(ParticipantSp, _Holding(person.sp, hold_upload, person))
        _follow(person, lesson, definition.settings.window)
        if claim and definition.settings.budget is not None:
            _until_paid(person)


@app.command()
def rewards(invitation: _Invitation, home: _Home = _HOME, as_json: _Json = False) -> None:
    """What you earned, by round. Only you can read this."""
    _require_joined(home)
    with _participant(invitation, home, as_json) as person:
        for number, amount in person.rewards().items():
            line = {"round": number, "amount": str(from_millionths(amount))}
            typer.echo(json.dumps(line) if as_json else f"round {number}: {from_millionths(amount):.6f}")


@app.command("claim")
def claim_now(invitation: _Invitation, home: _Home = _HOME, as_json: _Json = False) -> None:
    """Be paid; both servers learn the amount now, and not before."""
    _require_joined(home)
    with _participant(invitation, home, as_json) as person:
        person.on_event = lambda _what, _details: None  # the amount is this command's answer
        amount = from_millionths(person.claim())
    typer.echo(json.dumps({"paid": str(amount)}) if as_json else f"{amount:.6f}")


@app.command()
def leave(invitation: _Invitation, home: _Home = _HOME, as_json: _Json = False) -> None:
    """Leave the task; what you earned stays claimable."""
    _require_joined(home)
    with _participant(invitation, home, as_json) as person:
        person.leave()


def _ask(person: Participant, *, yes: bool, as_json: bool) -> Definition:
    """Show what joining means, and go on only with a yes; who has joined was asked before."""
    definition = person.look()
    if not yes and not person.blobs.has("certificate"):
        if as_json:
            raise SettingsError("--json asks no questions: see `crowdfl participant look`, then say --yes")
        _show(definition)
        typer.confirm("Join?", abort=True)
    return definition


def _show(definition: Definition) -> None:
    settings = definition.settings
    typer.echo(f"Purpose: {definition.purpose}\nTerms: {definition.terms}\nReaders: {definition.readers}")
    typer.echo(f"Model: {definition.about.parameters:,} parameters; profile {settings.profile}, key of {settings.key}")
    typer.echo(
        f"Rounds: {settings.rounds}, each open for {settings.window:g} s; budget per round: {settings.budget or 'none'}"
    )


def _patiently(person: Participant, act: Callable[[], _Found]) -> _Found:
    """Again and again while the platform is away, for one who has joined: whoever has not should be told at once."""
    misses = 0
    while True:
        try:
            return act()
        except ServiceUnavailable as away:
            if not person.blobs.has("certificate"):
                raise
            misses += 1
            _wait_for_platform(person, away, misses)


def _wait_for_platform(person: Participant, away: ServiceUnavailable, misses: int) -> None:
    pause = min(0.5 * 2.0 ** min(misses, 10), 60.0)
    person.on_event("waiting", {"why": str(away), "seconds": round(pause, 1)})
    time.sleep(pause * (0.5 + random.random()))  # noqa: S311 -- jitter, no secret


def _follow(person: Participant, lesson: LocalTrainer, window: float) -> None:
    """Step by step until the task has ended. Looks less often while nothing happens or the platform is away."""
    longest = min(60.0, max(2.0, window / 20))
    pause, misses = 0.5, 0
    while True:
        try:
            did = person.step(lesson.train, lesson.evaluate) or (not person.has_left and person.stock_up())
            misses = 0
            if not did and person.state not in ("running", "paused"):
                return
            pause = 0.5 if did else min(pause * 1.5, longest)
        except ServiceUnavailable as away:
            misses += 1
            _wait_for_platform(person, away, misses)
            continue
        if not did:
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311 -- jitter, no secret


def _until_paid(person: Participant) -> None:
    pause = 0.5
    while True:
        try:
            person.claim()
            return
        except (ClaimRefused, TooLate) as refusal:
            person.on_event("not paid", {"why": str(refusal)})
            return
        except (NotReady, ServiceUnavailable):
            pause = min(pause * 1.5, 60.0)
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311 -- jitter, no secret


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


def _read(path: Path) -> ParticipantSettings:
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError):
        raise SettingsError(f"there is no invitation at {path}") from None
    except (ValueError, RecursionError) as wrong:
        raise SettingsError(f"{path} is not an invitation: {type(wrong).__name__} {wrong}") from None
    if not isinstance(found, dict):
        raise SettingsError(f"{path} is not an invitation: expected a JSON object, as `crowdfl task invite` writes it")
    return ParticipantSettings.parse(found, path)


def _require_joined(home: Path) -> None:
    """Before anything is made there: a mistyped home would look like one of somebody who has not joined yet."""
    if not (home / "keys").is_file():
        raise SettingsError(f"nobody has joined with the home folder {home}: name with --home the one you joined with")


@contextmanager
def _participant(invitation: Path, home: Path, as_json: bool) -> Iterator[Participant]:
    found = _read(invitation)
    with tempfile.TemporaryDirectory() as scratch:
        ca = None
        if found.ca:
            ca = Path(scratch) / "ca.pem"
            ca.write_text(found.ca)
        kgc, sp = Link(found.kgc, ca).open(), ParticipantLink(Link(found.sp, ca))
        try:
            yield Participant(
                found.task,
                FileBlobs(home),
                KgcClient(kgc),
                sp,
                found.kgc_key,
                Tools.unwatched(insecure_test_key=found.insecure_test_key),
                on_event=_say_json if as_json else _say,
                sp_key=found.sp_key,
                open_stock=lambda public: RandomizerPool.open(home / "randomizers.pool", public),
            )
        finally:
            kgc.close()
            sp.close()


_SAID: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "joined": lambda e: f"joined as {e['who']}",
    "trained": lambda e: f"round {e['round']}: trained on {e['samples']} samples; {e['clipped']} weights were clipped",
    "uploaded": lambda e: f"round {e['round']}: the upload is in{', late' if e['late'] else ''}; its receipt is kept",
    "refused": lambda e: f"round {e['round']}: the upload was not taken: {e['why']}",
    "rewarded": lambda e: f"round {e['round']}: you earned {from_millionths(e['millionths']):.6f}",
    "paid": lambda e: f"paid {from_millionths(e['millionths']):.6f}",
    "waiting": lambda e: f"the platform is away, next try in about {e['seconds']} s: {e['why']}",
    "not paid": lambda e: f"not paid: {e['why']}",
    "given up": lambda e: (
        f"round {e['round']} was given up or cancelled: your upload was not averaged, nobody is paid for it"
    ),
    "left": lambda _: "you have left the task; what you earned stays claimable",
}


def _say(what: str, details: Mapping[str, Any]) -> None:
    plain = f"{what}: " + ", ".join(f"{name} {value}" for name, value in details.items())
    typer.echo(_SAID[what](details) if what in _SAID else plain)


def _say_json(what: str, details: Mapping[str, Any]) -> None:
    typer.echo(json.dumps({"event": what, **details}))
