"""`crowdfl participant`: look, join, take part, be paid, leave."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfl.cli.output import JsonLines, OwnLearnerName, OwnLossName, clean, show, show_event, tell_code
from crowdfl.errors import SettingsError
from crowdfl.settings import LEAST_PARTICIPANTS, from_millionths, money_words

if TYPE_CHECKING:
    from crowdfl.documents.signed import Definition
    from crowdfl.roles.participant.participant import Participant


app = typer.Typer(no_args_is_help=True)
_Invitation = Annotated[Path, typer.Argument(help="The invitation file you were given.")]
_Home = Annotated[
    Path | None,
    typer.Option(
        help="Where your keys and state for this task are kept. [default: beside the invitation, with the ending .home]"
    ),
]
_Least = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Take part only if every average is of at least so many people; kept for later. [default: {LEAST_PARTICIPANTS}]",
    ),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Join without being asked.")]
_Agree = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION", help="You have read this version of the task's consent text, and agree: it is signed."
    ),
]
_Language = Annotated[
    str,
    typer.Option(
        envvar=["LC_ALL", "LC_MESSAGES", "LANG"],
        show_default=False,
        metavar="TAG",
        help="Read what the requester wrote in this language, such as de, where the task has it. [default: your locale's]",
    ),
]


@app.command()
def look(invitation: _Invitation, home: _Home = None, language: _Language = "", as_json: JsonLines = False) -> None:
    """Show what the task is for, its terms, and who will read the model. Sends nothing about you."""
    with open_participant(invitation, home, as_json=as_json, reads=True, language=language) as person:
        person.on_event = beside
        definition = person.look()
    show(definition.body(), person.summary(definition), as_json=as_json)
    if not as_json:
        typer.echo(f"to take part: crowdfl participant run {invitation} --data DATA", err=True)


@app.command()
def join(
    invitation: _Invitation,
    home: _Home = None,
    yes: _Yes = False,
    agree: _Agree = None,
    language: _Language = "",
    least_participants: _Least = None,
    as_json: JsonLines = False,
) -> None:
    """Make your keys, have them certified, and enrol. Safe to repeat."""
    from crowdfl.roles.participant.agent import Agent
    from crowdfl.services.client.opening import read_invitation

    own: dict[str, Any] = {"least": least_participants, "agree": agree, "language": language}
    with open_participant(invitation, home, as_json=as_json, **own) as person:
        agreed = yes or Agent(person, time.sleep).has_joined
        _ask(person, person.look(), agreed=agreed, as_json=as_json)
        person.join(read_invitation(invitation).invitation)


@app.command()
def run(  # noqa: PLR0913, PLR0917 -- each is an option
    invitation: _Invitation,
    data: Annotated[
        str,
        typer.Option(help="Whose data: watch:0 to watch:9, csv:FOLDER and others; docs/learning.md lists them."),
    ],
    home: _Home = None,
    yes: _Yes = False,
    agree: _Agree = None,
    language: _Language = "",
    least_participants: _Least = None,
    as_json: JsonLines = False,
    learner: OwnLearnerName = None,
    loss: OwnLossName = None,
    claim: Annotated[bool, typer.Option(help="Claim the rewards once the task has ended.")] = True,
    hold_upload: Annotated[
        int, typer.Option(help="Never send the upload of this round: for trying dropouts.", hidden=True)
    ] = 0,
) -> None:
    """Join and take part until the task ends; after an interruption, continue where it stopped."""
    from crowdfl.learning.training import LocalTrainer
    from crowdfl.roles.participant.agent import Agent
    from crowdfl.services.client.opening import read_invitation

    own: dict[str, Any] = {"least": least_participants, "agree": agree, "language": language}
    with open_participant(invitation, home, as_json=as_json, hold=hold_upload, **own) as person:
        agent = Agent(person, time.sleep)
        definition = agent.look()
        _ask(person, definition, agreed=yes or agent.has_joined, as_json=as_json)
        tell_code(learner, loss)
        trainer = LocalTrainer(data, definition.training, learner, loss=loss)
        agent.take_part(definition, trainer, read_invitation(invitation).invitation, claim=claim)


@app.command()
def status(invitation: _Invitation, home: _Home = None, as_json: JsonLines = False) -> None:
    """Show which rounds you uploaded to, and what your privacy was charged."""
    with open_participant(invitation, home, as_json=as_json, joined=True, reads=True) as person:
        uploaded, epsilon = person.uploaded(), person.epsilon()
        told = {"who": person.keys.who, "uploaded": uploaded, "epsilon": epsilon} | _money_told(person)
        money = _money_lines(person)
    rounds = ", ".join(map(str, uploaded)) or "none yet"
    lines = [f"you are {told['who']}", f"uploaded to rounds: {rounds}", *money, _epsilon_words(**epsilon)]
    show(told, "\n".join(lines), as_json=as_json)


def _money_told(person: "Participant") -> dict[str, Any]:
    """What was earned, and what the platform has answered; nothing of a task without rewards."""
    if person.definition.settings.budget is None:
        return {}
    answer = person.claimed.answer
    by_round = {
        "earned": person.rewards(),
        "claimed": {**answer.paid, **answer.unused},
        "disputed": dict(answer.disputed),
    }
    return {"currency": person.currency, "millionths": by_round}


def _money_lines(person: "Participant") -> list[str]:
    if person.definition.settings.budget is None:
        return []
    answer = person.claimed.answer
    earned = sum(person.rewards().values())
    lines = [f"earned: {money_words(earned, person.currency)}"]
    lines += [f"claimed, for the platform to pay: {money_words(answer.amount, person.currency)}"]
    numbers = ", ".join(map(str, sorted(answer.disputed)))
    return [*lines, *([f"disputed, until the platform's operator has decided: round {numbers}"] if numbers else [])]


def _epsilon_words(charged: float | None = None, spent: float = 0.0, others: float = 0.0) -> str:
    if charged is None:
        return "noise: none in this task"
    return (
        f"epsilon: {charged:.3g} charged for this task, of which opened rounds have spent {spent:.3g}; with the tasks whose "
        f"homes lie beside this one {charged + others:.3g}"
    )


@app.command()
def rewards(invitation: _Invitation, home: _Home = None, as_json: JsonLines = False) -> None:
    """Show what you earned, by round. Only you can read this."""
    with open_participant(invitation, home, as_json=as_json, joined=True, reads=True) as person:
        for number, millionths in person.rewards().items():
            told = {"round": number, "amount": str(from_millionths(millionths)), "currency": person.currency}
            show(told, f"round {number}: {money_words(millionths, person.currency)}", as_json=as_json)


@app.command()
def evidence(
    invitation: _Invitation,
    home: _Home = None,
    out: Annotated[Path | None, typer.Option(help="A file for all of it, with what each server has signed.")] = None,
    as_json: JsonLines = False,
) -> None:
    """Show where the platform's word and the second server's signed record differ, and whom to send that to."""
    from crowdfl.roles.participant.event_words import event_words

    with open_participant(invitation, home, as_json=as_json, joined=True, reads=True) as person:
        found = person.export_evidence()
        differences = person.evidence.differences()
    if out is not None:
        out.write_text(json.dumps(found, indent=2), encoding="utf-8")
    lines = [
        event_words("words differ", {"round": number, "said": said, "signed": signed})
        for number, (said, signed) in differences.items()
    ]
    to = found["send_to"]
    asked = [f"send it to: {clean(to['contact'])}"] if to["contact"] else []
    paying = [f"and to whoever pays, whose key is {to['payer']}"] if to["payer"] else []
    words = [*lines, *asked, *paying] if lines else ["the platform's word and the signed records agree"]
    show(found, "\n".join(words), as_json=as_json)


@app.command("claim")
def claim_now(
    invitation: _Invitation,
    home: _Home = None,
    as_json: JsonLines = False,
) -> None:
    """Claim what you have earned so far: round by round where everyone gets the same, else after the last round. Both servers
    learn the amounts only then. Safe to repeat."""
    with open_participant(invitation, home, as_json=as_json, joined=True) as person:
        person.on_event = beside  # the amount is this command's answer
        amount = person.claim()
        answer = person.claimed.answer
        told = {
            "claimed": str(from_millionths(amount)),
            "currency": person.currency,
            "disputed": sorted(answer.disputed),
        }
    show(told, money_words(amount, person.currency), as_json=as_json)
    if not as_json and person.is_asked_where:
        typer.echo(f"say where it is to be paid: crowdfl participant pay-to {invitation} KIND TEXT", err=True)


@app.command("pay-to")
def pay_to(
    invitation: _Invitation,
    kind: Annotated[str, typer.Argument(help="email, iban or text, as the platform pays people.")],
    text: Annotated[str, typer.Argument(help="The address, the IBAN, or in words. Only the payer can read it.")],
    home: _Home = None,
    as_json: JsonLines = False,
) -> None:
    """Say where your claim is to be paid, sealed to whoever pays. Again, to correct it until it is paid."""
    with open_participant(invitation, home, as_json=as_json, joined=True) as person:
        person.pay_to(kind, text)


@app.command()
def leave(
    invitation: _Invitation,
    home: _Home = None,
    withdraw: Annotated[
        bool,
        typer.Option("--withdraw", help="Take back what was sent and no server has begun to average. Final."),
    ] = False,
    as_json: JsonLines = False,
) -> None:
    """Leave the task; what you sent counts, and what you earned stays claimable."""
    with open_participant(invitation, home, as_json=as_json, joined=True) as person:
        person.leave(withdraw=withdraw)


def _ask(person: "Participant", definition: "Definition", *, agreed: bool, as_json: bool) -> None:
    """Show what joining means, and continue only with a yes; who has joined was asked before."""
    if agreed:
        return
    if as_json:
        raise SettingsError("--json asks no questions: read `crowdfl participant look`, then add --yes")
    typer.echo(clean(person.summary(definition)))
    person.require_company(definition)  # no question about what is then refused
    version = definition.consent.version
    if version and person.agree != version:
        typer.confirm(
            f"Do you agree to the consent text above, version {clean(version)}, by your signature?", abort=True
        )
        person.agree = version
    typer.confirm("Join?", abort=True)


@contextmanager
def open_participant(
    invitation: Path,
    home: Path | None,
    *,
    as_json: bool,
    hold: int = 0,
    **more: Any,  # noqa: ANN401 -- those of `invited`
) -> "Iterator[Participant]":
    """The participant that an invitation and a home folder make, with its links, which are closed at the end."""
    from crowdfl.cli.holding import HoldingParticipant
    from crowdfl.services.client.opening import home_of, invited, read_invitation

    with invited(read_invitation(invitation), home or home_of(invitation), HoldingParticipant, **more) as person:
        person.hold = hold
        person.on_event = show_event if as_json else say
        yield person


def beside(what: str, details: Mapping[str, Any]) -> None:
    """On standard error, for a command whose answer is one value."""
    from crowdfl.roles.participant.event_words import event_words

    if what != "claimed":
        typer.echo(event_words(what, details), err=True)


def say(what: str, details: Mapping[str, Any]) -> None:
    """An event in words, for the person at the device."""
    from crowdfl.roles.participant.event_words import event_words

    typer.echo(event_words(what, details))
