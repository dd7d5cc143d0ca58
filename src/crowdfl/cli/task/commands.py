"""`crowdfl task`: what a requester does, one command for each step; `run` does them all."""

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdfl.cli.output import (
    Json,
    JsonLines,
    OwnLearnerName,
    OwnLossName,
    clean,
    show,
    show_event,
    tell_code,
    write_rows,
)
from crowdfl.cli.waiting import waiting
from crowdfl.errors import PackageMissing, SettingsError
from crowdfl.retry import Backoff
from crowdfl.settings import to_millionths

if TYPE_CHECKING:
    from crowdfl.documents.signed import Definition
    from crowdfl.learning.models.shape import Weights


app = typer.Typer(no_args_is_help=True)
_Settings = Annotated[Path, typer.Option("--settings", "-s", help="The requester's settings.toml.")]
_SETTINGS = Path("requester/settings.toml")
_STATES = ("running", "paused", "cancelled", "finished", "settled")
_LISTING = Backoff(deadline=3.0)  # a list of tasks says soon that the platform is away
_Task = Annotated[str, typer.Argument(help="The task's id.")]
_TaskFile = Annotated[Path, typer.Argument(help="A task file, as `crowdfl task new` prints it.")]
_Initial = Annotated[
    Path | None,
    typer.Option(
        "--initial",
        help="A model to start from, .safetensors or .npz; of people's functions it says what the model is.",
    ),
]
_Reference = Annotated[
    str | None,
    typer.Option(
        help="Data of your own, as `crowdfl participant run` takes it, to train on in each round of a task with "
        "`reference = true`."
    ),
]
Try = Annotated[
    list[str] | None,
    typer.Option(
        "--try",
        metavar="DATA",
        help="Somebody's data, such as npz:FILE#USER, or everyone's, such as csv:FOLDER: training on it shows whether the "
        "task and its `max_norm` fit. Repeatable.",
    ),
]
_Folder = Annotated[Path, typer.Argument(help="Where to write one file per invitation.")]


@app.command()
def new(
    profile: Annotated[
        str, typer.Option(help="shares, hardened or paper: docs/shares.md says when to take which.")
    ] = "shares",
    every: Annotated[bool, typer.Option("--all", help="Every setting, with what holds where it is left out.")] = False,
) -> None:
    """Print a commented task file to start from: what a person decides."""
    from crowdfl.cli.task.template import task_text
    from crowdfl.protocols.registry import profile_named

    typer.echo(task_text(profile_named(profile).name, every=every), nl=False)


@app.command()
def create(
    file: _TaskFile,
    settings: _Settings = _SETTINGS,
    learner: OwnLearnerName = None,
    loss: OwnLossName = None,
    initial_file: _Initial = None,
    try_on: Try = None,
    as_json: Json = False,
) -> None:
    """Have keys made and post the task. The same file is always the same task: safe to repeat."""
    from crowdfl.cli.task.trials import tell_trials, tried
    from crowdfl.cli.task.views import created_words
    from crowdfl.roles.dealt import dealt_words
    from crowdfl.roles.defining import defined, warnings
    from crowdfl.services.client.opening import RequesterFile, open_requester
    from crowdfl.storage.model_files import read_initial
    from crowdfl.storage.settings_file import read_task

    own = RequesterFile.read(settings)
    tell_code(learner, loss)
    with waiting("reading the task and making the initial model", quiet=as_json):
        found = read_task(file)
        start = None if initial_file is None else read_initial(initial_file)
        definition, initial = defined(file, found, learner, loss=loss, initial=start)
    trials = tried(try_on, definition, initial, (learner, loss), quiet=as_json)
    tell_trials(trials, definition, as_json=as_json)
    with open_requester(own) as requester, waiting("KGC makes the task's keys", quiet=as_json):
        task = requester.create(definition, initial)
    dealt, warned = dealt_words(definition), warnings(definition)
    told = {"task": task, "parameters": definition.spec.parameters} | ({"dealt": dealt} if dealt else {})
    told |= {"tried": [asdict(trial) for trial in trials]}
    show(told | ({"warnings": warned} if warned else {}), task, as_json=as_json)
    if not as_json:
        before = [f"dealt by KGC: {dealt}"] if dealt else []
        for line in (*before, *(f"warning: {words}" for words in warned), *created_words(task)):
            typer.echo(line, err=True)


@app.command()
def explain(
    file: _TaskFile,
    learner: OwnLearnerName = None,
    loss: OwnLossName = None,
    initial_file: _Initial = None,
    try_on: Try = None,
    as_json: Json = False,
) -> None:
    """Show what a task's settings lead to, before anything is made: widths, chances, what is dealt, and warnings."""
    from crowdfl.cli.task.trials import trial_lines, tried
    from crowdfl.roles.defining import defined, explained
    from crowdfl.storage.model_files import read_initial
    from crowdfl.storage.settings_file import read_task

    tell_code(learner, loss)
    start = None if initial_file is None else read_initial(initial_file)
    definition, initial = defined(file, read_task(file), learner, loss=loss, initial=start)
    found = explained(definition.dated(time.time()))
    trials = tried(try_on, definition, initial, (learner, loss), quiet=as_json)
    lines = [f"profile        {found.profile}, {found.parameters} parameters", found.widths]
    lines += [f"dealt by KGC   {found.dealt}"] if found.dealt else []
    lines += [*found.plan, *found.texts]
    lines += [f"warning: {words}" for words in found.warnings]
    told = asdict(found) | {"tried": [asdict(trial) for trial in trials]}
    show(told, "\n".join([*lines, *trial_lines(trials, definition)]), as_json=as_json)


@app.command("list")
def list_tasks(settings: _Settings = _SETTINGS, as_json: Json = False) -> None:
    """Show every task of this requester: its state, rounds, people and money."""
    from crowdfl.cli.task.views import listed, problem_lines, task_lines
    from crowdfl.services.client.opening import RequesterFile, open_requester

    own = RequesterFile.read(settings)
    with open_requester(own, _LISTING) as requester, waiting("asking the platform", quiet=as_json):
        rows = listed(requester)
    none = f"no task yet in {own.folder}: `crowdfl task new > task.toml`"
    show({"tasks": rows}, *(task_lines(rows) or [none]), *problem_lines(rows), as_json=as_json)


@app.command()
def fund(
    task: _Task,
    amount: Annotated[str, typer.Argument(help="How much, such as 36.00.")],
    name: Annotated[str | None, typer.Option(help="Names the payment: a repeat is then the same payment.")] = None,
    settings: _Settings = _SETTINGS,
    as_json: Json = False,
) -> None:
    """Announce a payment into the task's escrow. It counts once the platform's operator has confirmed it."""
    from crowdfl.cli.task.views import fund_words
    from crowdfl.services.client.opening import RequesterFile, open_requester

    millionths = to_millionths(amount)
    if not millionths:
        raise SettingsError("an amount of 0 pays for nothing: say how much you pay in")
    with open_requester(RequesterFile.read(settings)) as requester:
        currency = requester.definition(task).settings.currency  # money must not go to a task that was mistyped
        deposit = requester.fund(task, millionths, name)
    told = {"task": task, "deposit": deposit, "amount": millionths, "state": "pending"}
    show(told, fund_words(task, deposit, millionths, currency), as_json=as_json)


@app.command()
def invite(
    task: _Task,
    folder: _Folder,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many.")] = 1,
    days: Annotated[float, typer.Option(min=0.001, help="How long they are good.")] = 30.0,
    replaces: Annotated[
        str,
        typer.Option(
            metavar="OLD",
            help="One, for somebody whose device is lost or replaced: the old invitation's file or number, or the name in the "
            "task. It takes that place: counted once; only the old device can claim what it has earned.",
        ),
    ] = "",
    links: Annotated[
        bool, typer.Option("--links", help="Write each as a link for a phone too, beside its file.")
    ] = False,
    codes: Annotated[
        bool, typer.Option("--qr", help="Write each as a QR code of its link too, and show it on a terminal.")
    ] = False,
    settings: _Settings = _SETTINGS,
    as_json: Json = False,
) -> None:
    """Write single-use invitations, each with all that its holder needs to find and check the task.

    Whoever has a file, link or code first can join with it: hand each to one person, by a way that others do not see.
    """
    from crowdfl.cli.task.links import code_in_letters, write_codes, write_links
    from crowdfl.documents.links import phone_page
    from crowdfl.roles.defining import invitation_warning
    from crowdfl.roles.phones import require_for_phones
    from crowdfl.services.client.opening import (
        RequesterFile,
        link_of,
        open_requester,
        replaced_number,
        write_invitations,
    )

    own, page = RequesterFile.read(settings), ""
    with open_requester(own) as requester:
        if links or codes:
            page = phone_page(own.settings)
            require_for_phones(requester.definition(task))
        made = write_invitations(own, requester, task, folder, count, days, replaces=replaced_number(replaces))
        hurry = invitation_warning(requester.definition(task), count)
    files = {"invitations": made, "links": write_links(made, page) if links else []}
    files["codes"] = write_codes(made, page) if codes else []
    named = {kind: [str(path) for path in paths] for kind, paths in files.items() if paths}
    show(named, "\n".join(path for paths in named.values() for path in paths), as_json=as_json)
    if not as_json:
        typer.echo(f"hand each to one person, who can: crowdfl participant look {made[0]}", err=True)
    if hurry:
        typer.echo(f"warning: {hurry}", err=True)
    if codes and not as_json and sys.stdout.isatty():
        for path in made:
            typer.echo(f"\n{path.stem}\n{code_in_letters(link_of(path, page))}")


@app.command()
def watch(
    task: _Task,
    settings: _Settings = _SETTINGS,
    until: Annotated[str | None, typer.Option(help="Wait until the task is in this state, e.g. finished.")] = None,
    reference: _Reference = None,
    as_json: Json = False,
) -> None:
    """Show where the task stands; with --until, wait and show every change."""
    from crowdfl.cli.task.views import status_words
    from crowdfl.learning.training import LocalTrainer
    from crowdfl.roles.following import Following
    from crowdfl.services.client.opening import RequesterFile, open_requester

    if until is not None and until not in _STATES:
        raise SettingsError(f"a task is never {until!r}; its states are {', '.join(_STATES)}")

    def tell(what: str, details: Mapping[str, Any]) -> None:
        shown = details if what == "status" else {"event": what, **details}
        show(shown, status_words(details) if what == "status" else _event_line(what, details), as_json=as_json)

    with open_requester(RequesterFile.read(settings)) as requester:
        definition = requester.definition(task)
        own = None if reference is None else LocalTrainer(reference, definition.training)
        campaign = Following(
            requester, time.sleep, tell, poll_seconds=1.0, reference=None if own is None else own.train
        )
        campaign.watch(task, lambda status: until in (None, status["state"]))


def _add_order(action: str, words: str) -> None:
    @app.command(action, help=words)
    def _order(task: _Task, settings: _Settings = _SETTINGS, as_json: Json = False) -> None:
        from crowdfl.cli.task.views import order_words
        from crowdfl.services.client.opening import RequesterFile, open_requester

        with open_requester(RequesterFile.read(settings)) as requester:
            requester.order(task, action)
        show({"task": task, "order": action}, order_words(action, task), as_json=as_json)


_add_order("pause", "Pause the task: nothing happens until it is resumed.")
_add_order("resume", "Continue a paused task.")
_add_order("cancel", "End the task without further rounds; money that was not earned is returned.")
_add_order("close", "Close enrolment: nobody else can join, and KGC destroys the key that it kept for newcomers.")


@app.command()
def fetch(
    task: _Task,
    model: Annotated[Path, typer.Argument(help="Where to write it; its definition is written beside it.")],
    settings: _Settings = _SETTINGS,
    form: Annotated[
        str | None, typer.Option("--format", help="safetensors or npz; by default, as the file's name ends.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Decrypt the final model, which only this requester can, and write it to a file."""
    from crowdfl.services.client.opening import RequesterFile, open_requester
    from crowdfl.storage.model_files import FORMATS, require_model_path, write_model

    if form is not None and f".{form}" not in FORMATS:
        raise SettingsError(f"a model is written as safetensors or npz, not {form!r}")
    path = model if form is None or model.suffix == f".{form}" else model.with_name(f"{model.name}.{form}")
    require_model_path(path)
    with open_requester(RequesterFile.read(settings)) as requester, waiting("opening the model", quiet=as_json):
        write_model(path, requester.definition(task), requester.model(task))
        states = requester.states(task)
    found = {"model": str(path)} | ({"states": states} if states else {})
    show(found, str(path), *_state_lines(states), as_json=as_json)


def _state_lines(states: Mapping[int, str]) -> list[str]:
    from crowdfl.roles.participant.event_words import short_state

    return [f"state after round {number}: {short_state(state)}" for number, state in states.items()]


@app.command()
def report(
    task: _Task,
    settings: _Settings = _SETTINGS,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one page, to read, print and hand in.")
    ] = None,
    language: Annotated[str, typer.Option(help="Of the report: en, de or zh.")] = "en",
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Evaluate on what is held out of this, as `crowdfl evaluate` does; later reports have it too. Repeatable."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Report the campaign: who was asked and took part, consent, accuracy, money, what each party learnt, what went wrong."""
    from crowdfl.campaigns.report import TaskReport
    from crowdfl.services.client.opening import RequesterFile, open_requester
    from crowdfl.web.requester_console.model_evaluation import ModelEvaluation

    with open_requester(RequesterFile.read(settings)) as requester:
        if data:
            with waiting("evaluating", quiet=as_json):
                ModelEvaluation(requester).by_round(task, data, lambda *_: None)
        found = TaskReport.of(requester, task)
    words = found.text(language)
    if page is not None:
        page.write_text(found.html(language), encoding="utf-8")
        words = str(page)
    show(found.values() | ({"html": str(page)} if page else {}), words, as_json=as_json)


@app.command("people")
def people_now(
    task: _Task,
    file: Annotated[Path | None, typer.Argument(help="Where to write it; by default, it is printed.")] = None,
    settings: _Settings = _SETTINGS,
    as_json: Json = False,
) -> None:
    """Show who has joined, by the name in the task: how each came, invited or by the platform's list, and in which rounds each
    has sent, and in which it could have. CSV, or JSON."""
    from crowdfl.roles.sp.turnout import PEOPLE_COLUMNS
    from crowdfl.services.client.opening import RequesterFile, open_requester

    with open_requester(RequesterFile.read(settings)) as requester:
        requester.definition(task)
        write_rows(requester.sp.compliance(task)["people"], PEOPLE_COLUMNS, file, as_json=as_json)


@app.command()
def consents(
    task: _Task,
    file: Annotated[Path | None, typer.Argument(help="Where to write it; by default, it is printed.")] = None,
    settings: _Settings = _SETTINGS,
    as_json: Json = False,
) -> None:
    """Show who, by the name in the task, agreed to which version of its consent text, with the signed proof: CSV, or JSON."""
    from crowdfl.roles.sp.people import CONSENT_COLUMNS
    from crowdfl.services.client.opening import RequesterFile, open_requester

    with open_requester(RequesterFile.read(settings)) as requester:
        write_rows(requester.consents(task), CONSENT_COLUMNS, file, as_json=as_json)


@app.command()
def console(
    settings: _Settings = _SETTINGS,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0 takes a free one.")] = 0,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in this machine's browser.")
    ] = False,
    reference: _Reference = None,
) -> None:
    """Serve a page on this machine alone: create, fund, invite, watch, evaluate and stop tasks in a browser."""
    try:  # late: the packages of a server, which the other commands do not need
        from crowdfl.cli.task.console import serve_console
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("crowdfl"):
            raise
        raise PackageMissing(
            f"`crowdfl task console` needs {missing.name}: `pip install 'crowdfl[services]'`"
        ) from None
    serve_console(settings, port, open_page=open_page, reference=reference)


@app.command()
def run(
    file: _TaskFile,
    invitations: _Folder,
    model: Annotated[Path, typer.Argument(help="Where to write the final model: .safetensors or .npz.")],
    people: Annotated[int, typer.Option("--people", "-n", min=3, help="How many to invite and to wait for.")] = 5,
    settings: _Settings = _SETTINGS,
    learner: OwnLearnerName = None,
    loss: OwnLossName = None,
    try_on: Try = None,
    reference: _Reference = None,
    as_json: JsonLines = False,
) -> None:
    """Create a task, invite people, fund it once they have joined, and follow it until the money is settled."""
    from crowdfl.cli.task.trials import tell_trials, tried
    from crowdfl.learning.training import LocalTrainer
    from crowdfl.roles.defining import defined
    from crowdfl.roles.following import Following
    from crowdfl.services.client.opening import RequesterFile, open_requester, write_invitations
    from crowdfl.storage.model_files import require_model_path, write_model
    from crowdfl.storage.settings_file import read_task

    require_model_path(model)
    own = RequesterFile.read(settings)
    tell_code(learner, loss)
    definition, initial = defined(file, read_task(file), learner, loss=loss)
    trials = tried(try_on, definition, initial, (learner, loss), quiet=as_json)
    tell_trials(trials, definition, as_json=as_json)

    own_data = None
    if reference is not None:
        own_data = LocalTrainer(reference, definition.training, learner, loss=loss)
        own_data.prepare(definition.shape)

    def save(definition: "Definition", arrays: "Weights") -> str:
        write_model(model, definition, arrays)
        return str(model)

    with open_requester(own) as requester:

        def invite_all(task: str, count: int) -> str:
            write_invitations(own, requester, task, invitations, count, days=30.0)
            return str(invitations)

        campaign = Following(requester, time.sleep, show_event if as_json else _Teller(definition.settings.currency))
        campaign.reference = None if own_data is None else own_data.train
        campaign.run(definition, initial, people, invite=invite_all, save=save)


class _Teller:
    """What happens in a campaign, in words."""

    def __init__(self, currency: str) -> None:
        self._task, self._currency = "TASK", currency

    def __call__(self, what: str, details: Mapping[str, Any]) -> None:
        self._task = details.get("task", self._task)
        typer.echo(clean(self._words(what, details)))

    def _words(self, what: str, details: Mapping[str, Any]) -> str:
        from crowdfl.cli.task.views import fund_words, status_words, sum_words

        if what == "status":
            return status_words(details)
        if what == "report":
            return ", ".join(f"{name} {words}" for name, words in sum_words(details, self._currency).items())
        if what == "funded":
            return fund_words(self._task, details["deposit"], to_millionths(details["amount"]), self._currency)
        if what == "fetched":
            return "\n".join([f"fetched: model {details['model']}", *_state_lines(details.get("states", {}))])
        return _event_line(what, details)


def _event_line(what: str, details: Mapping[str, Any]) -> str:
    return f"{what}: " + ", ".join(f"{name} {value}" for name, value in details.items())
