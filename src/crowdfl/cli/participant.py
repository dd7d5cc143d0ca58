"""`crowdfl participant`: look, join, take part, be paid, leave."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdfl.cli.described import described
from crowdfl.cli.output import JsonLines, clean, show, show_event
from crowdfl.cli.own_code import Module, OwnLearnerName, OwnLossName, tell_code
from crowdfl.errors import SettingsError
from crowdfl.learning.training import LocalTrainer
from crowdfl.protocols.profile import Tools
from crowdfl.retry import Backoff
from crowdfl.roles.agent import Agent
from crowdfl.roles.documents import Definition
from crowdfl.roles.participant import LEAST_PARTICIPANTS, Participant
from crowdfl.services.client.peers import KgcClient, SpClient
from crowdfl.services.client.transport import Link, Service
from crowdfl.settings import ParticipantSettings, from_millionths
from crowdfl.storage.atomic import write_private
from crowdfl.storage.blobs import FileBlobs
from crowdfl.storage.pools import RandomizerPool

app = typer.Typer(help="Participant: look, join, take part, be paid, leave.", no_args_is_help=True)
_Invitation = Annotated[Path, typer.Argument(help="The invitation file you were given.")]
_Home = Annotated[Path, typer.Option(help="Where your keys and state for this task are kept.")]
_HOME = Path("participant")
_Least = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Take part only if every average is of at least so many people; kept for later. [default: {LEAST_PARTICIPANTS}]",
    ),
]
_LEAST_FILE = "least-participants"
_CALLS = Backoff(
    first=1.0, longest=5.0, deadline=30.0
)  # each miss is told; then an agent waits longer, others are told why
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Join without being asked.")]


@app.command()
def look(invitation: _Invitation, home: _Home = _HOME, as_json: JsonLines = False) -> None:
    """Show what the task is for, its terms, and who will read the model. Sends nothing about you."""
    with open_participant(invitation, home, as_json=as_json) as person:
        person.on_event = beside
        definition = person.look()
    show(definition.body(), described(definition, person.least_participants), as_json=as_json)
    if not as_json:
        typer.echo(f"to take part: crowdfl participant run {invitation} --data DATA --home FOLDER", err=True)


@app.command()
def join(
    invitation: _Invitation,
    home: _Home = _HOME,
    yes: _Yes = False,
    least_participants: _Least = None,
    as_json: JsonLines = False,
) -> None:
    """Make your keys, have them certified, and enrol. Safe to repeat."""
    with open_participant(invitation, home, as_json=as_json, least=least_participants) as person:
        agent = Agent(person, time.sleep)
        _ask(person, person.look(), agreed=yes or agent.has_joined, as_json=as_json)
        person.join(_read(invitation).invitation)


@app.command()
def run(  # noqa: PLR0913, PLR0917 -- each is an option
    invitation: _Invitation,
    data: Annotated[
        str,
        typer.Option(
            help="Whose data to train on: watch:0 to watch:9, csv:FOLDER and others; docs/learning.md lists them."
        ),
    ],
    home: _Home = _HOME,
    yes: _Yes = False,
    least_participants: _Least = None,
    as_json: JsonLines = False,
    module: Module = None,
    learner: OwnLearnerName = None,
    loss: OwnLossName = None,
    claim: Annotated[bool, typer.Option(help="Claim the rewards once the task has ended.")] = True,
    hold_upload: Annotated[
        int, typer.Option(help="Never send the upload of this round: for trying dropouts.", hidden=True)
    ] = 0,
) -> None:
    """Join and take part until the task ends; after an interruption, continue where it stopped."""
    least, hold = least_participants, hold_upload
    with open_participant(invitation, home, as_json=as_json, least=least, hold=hold) as person:
        agent = Agent(person, time.sleep)
        definition = agent.look()
        _ask(person, definition, agreed=yes or agent.has_joined, as_json=as_json)
        tell_code(module, learner, loss)
        trainer = LocalTrainer(data, definition.training, module, learner=learner, loss=loss)
        agent.take_part(definition, trainer, _read(invitation).invitation, claim=claim)


@app.command()
def rewards(invitation: _Invitation, home: _Home = _HOME, as_json: JsonLines = False) -> None:
    """Show what you earned, by round. Only you can read this."""
    with open_participant(invitation, home, as_json=as_json, joined=True) as person:
        for number, millionths in person.rewards().items():
            amount = from_millionths(millionths)
            show({"round": number, "amount": str(amount)}, f"round {number}: {amount:.6f}", as_json=as_json)


@app.command("claim")
def claim_now(
    invitation: _Invitation,
    home: _Home = _HOME,
    without_missing: Annotated[
        bool,
        typer.Option("--without-missing", help="Do not wait for rewards that the platform does not show, or refuses."),
    ] = False,
    as_json: JsonLines = False,
) -> None:
    """Claim what you earned, after the task's end. Both servers learn the amount only then. Safe to repeat."""
    with open_participant(invitation, home, as_json=as_json, joined=True) as person:
        person.on_event = beside  # the amount is this command's answer
        again = person.blobs.has("paid")  # a platform that was restored from a backup may have lost the claim
        amount = from_millionths(person.claim_again() if again else person.claim(without_missing=without_missing))
    show({"paid": str(amount)}, f"{amount:.6f}", as_json=as_json)


@app.command()
def leave(invitation: _Invitation, home: _Home = _HOME, as_json: JsonLines = False) -> None:
    """Leave the task; what you earned stays claimable."""
    with open_participant(invitation, home, as_json=as_json, joined=True) as person:
        person.leave()


def _ask(person: Participant, definition: Definition, *, agreed: bool, as_json: bool) -> None:
    """Show what joining means, and continue only with a yes; who has joined was asked before."""
    if agreed:
        return
    if as_json:
        raise SettingsError("--json asks no questions: read `crowdfl participant look`, then add --yes")
    typer.echo(clean(described(definition, person.least_participants)))
    person.require_company(definition)  # no question about what is then refused
    typer.confirm("Join?", abort=True)


@dataclass
class _Holding(Participant):
    """One round's upload is never sent, however long one waits."""

    hold: int = 0

    def send(self, number: int) -> bool:
        if number == self.hold:
            self.on_event("holding", {"round": number})
            while True:
                time.sleep(3600)
        return super().send(number)


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


@contextmanager
def open_participant(
    invitation: Path, home: Path, *, as_json: bool, joined: bool = False, hold: int = 0, least: int | None = None
) -> Iterator[Participant]:
    """The participant that an invitation and a home folder make, with its links, which are closed at the end."""
    if joined and not (home / "keys").is_file():  # before anything is made there: the home may be mistyped
        raise SettingsError(f"nobody has joined with the home folder {home}: name the folder you joined with by --home")
    found = _read(invitation)
    with tempfile.TemporaryDirectory() as scratch:
        ca = Path(scratch) / "ca.pem" if found.ca else None
        if ca is not None:
            ca.write_text(found.ca or "")

        def tell(why: Exception, seconds: float) -> None:
            person.on_wait(why, seconds)

        def told(url: str) -> Service:
            return replace(Link(url, ca).open(retries=_CALLS), on_wait=tell)

        with closing(told(found.kgc)) as kgc, closing(SpClient(told(found.sp))) as sp:
            blobs = FileBlobs(home)
            person = _Holding(
                found.task,
                blobs,
                KgcClient(kgc),
                sp,
                found.kgc_key,
                Tools.unwatched(insecure_test_key=found.insecure_test_key),
                on_event=show_event if as_json else say,
                sp_key=found.sp_key,
                open_stock=lambda public: RandomizerPool.open(home / "randomizers.pool", public),
                least_participants=_least(home / _LEAST_FILE, least),
                hold=hold,
            )
            yield person


def _least(path: Path, chosen: int | None) -> int:
    """The least number of participants that was chosen now, which is kept, or before; else the usual one."""
    if chosen is not None:
        write_private(path, str(chosen).encode(), overwrite=True)
        return chosen
    if not path.exists():
        return LEAST_PARTICIPANTS
    kept = path.read_bytes()[:20]
    if not kept.isdigit() or int(kept) < 1:
        raise SettingsError(f"{path} does not hold a number of participants: choose one with --least-participants")
    return int(kept)


_SAID: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "joined": lambda e: f"joined as {e['who']}",
    "trained": lambda e: (
        f"round {e['round']}: trained on {e['samples']} samples; {e['clipped']} weights were clipped"
        + (f"; the update was scaled by {e['scaled']} to the task's largest norm" if "scaled" in e else "")
    ),
    "uploaded": lambda e: f"round {e['round']}: the upload is in{', late' if e['late'] else ''}; its receipt is kept",
    "refused": lambda e: f"round {e['round']}: the upload was not taken: {e['why']}",
    "nothing to contribute": lambda e: f"round {e['round']}: not part of it: {e['why']}",
    "read": lambda e: f"round {e['round']}: the average is read{_scores(e)}",
    "rewarded": lambda e: (
        f"round {e['round']}: you earned {from_millionths(e['millionths']):.6f}"
        + ("" if e["millionths"] else "; docs/incentives.md says what rewards follow")
    ),
    "paid": lambda e: (
        f"your claim of {from_millionths(e['millionths']):.6f} is accepted; the platform pays it out"
        + "".join(
            f"; round {number} had {from_millionths(amount):.6f} less left than you earned: ask the platform why"
            for number, amount in e.get("missing", {}).items()
        )
    ),
    "waiting": lambda e: f"waiting for the platform, next try in about {e['seconds']} s: {e['why']}",
    "restored": lambda _: "the platform was restored from a backup: looking whether it still has what you sent",
    "sending again": lambda e: f"round {e['round']}: the platform has lost your upload, which is sent again",
    "upload rejected": lambda e: (
        f"round {e['round']}: both servers together left your upload out, and it earns nothing: {e['why']}"
    ),
    "reward refused": lambda e: f"round {e['round']}: no reward: {e['why']}",
    "reward missing": lambda e: f"round {e['round']}: the reward cannot be read yet; it is tried again: {e['why']}",
    "average missing": lambda e: f"round {e['round']}: the average cannot be read; it is tried again: {e['why']}",
    "claiming without": lambda e: (
        f"the claim leaves out round {', '.join(map(str, e['rounds']))}: {e['why']}. Keep your home folder: its receipts "
        "prove your part; ask the platform about it"
    ),
    "claim refused": lambda e: (
        f"the platform says that your whole claim is refused: {e['why']}. It is kept, and tried again. `crowdfl participant "
        "claim --without-missing` claims without your newest rewards; keep your home folder, and ask the platform about it"
    ),
    "not paid": lambda e: f"not paid: {e['why']}",
    "given up": lambda e: (
        f"round {e['round']} was given up or cancelled: your upload was not averaged, nobody is paid for it"
    ),
    "left": lambda _: "you have left the task; what you earned stays claimable",
}


def _scores(event: Mapping[str, Any]) -> str:
    """How the average does on what this person holds out; and its state's digest, the same on every device."""
    scores = [f"{name} {value:.4g}" for name, value in event.items() if isinstance(value, float) and name != "windows"]
    on = f" on {event['windows']:.0f} windows of yours" if scores and "windows" in event else ""
    state = f"; its state is {event['state']}" if "state" in event else ""
    return (": " + ", ".join(scores) + on if scores else "") + state


def beside(what: str, details: Mapping[str, Any]) -> None:
    """On standard error, for a command whose answer is one value."""
    if what != "paid":
        typer.echo(_in_words(what, details), err=True)


def say(what: str, details: Mapping[str, Any]) -> None:
    """An event in words, for the person at the device."""
    typer.echo(_in_words(what, details))


def _in_words(what: str, details: Mapping[str, Any]) -> str:
    plain = f"{what}: " + ", ".join(f"{name} {value}" for name, value in details.items())
    return clean(_SAID[what](details) if what in _SAID else plain)
