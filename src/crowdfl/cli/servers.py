"""`crowdfl kgc | sp | csp`: run a role, manage its tokens and tasks; of SP, deposits, payments and the clock too.

What an operator sees and does works on the role's own store and folder, whether the service runs or not.
"""

import datetime
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer

from crowdfl.cli.output import Json, SettingsPath, show, write_rows
from crowdfl.errors import SettingsError, TaskNotEnded, TaskUnreadable
from crowdfl.settings import (
    DAY,
    TOKEN_ROLES,
    ComputingSettings,
    CspSettings,
    KgcSettings,
    ServiceSettings,
    SpSettings,
    in_cents,
    to_millionths,
)

if TYPE_CHECKING:
    from crowdfl.roles.csp_retention import CspRetention
    from crowdfl.roles.kgc_retention import KgcRetention
    from crowdfl.roles.ports import TaskStore
    from crowdfl.roles.records import StoredTask
    from crowdfl.roles.sp.operator import OperatorActions, Row
    from crowdfl.roles.sp.retention import SpRetention
    from crowdfl.services.http.auth import TokenEntry, Tokens


_Task = Annotated[str, typer.Argument(help="The task's id, as `list` shows it.")]
_Reason = Annotated[str, typer.Option("--reason", help="Why, in a sentence: everyone in the task can read it.")]
_Days = Annotated[float, typer.Option("--days", min=0.0, help="How many days longer, up to the time to claim.")]
_File = Annotated[Path | None, typer.Argument(help="Where to write it; by default, it is printed.")]
_Results = Annotated[bool, typer.Option("--results", help="Erase averages, rewards and initial weights too.")]


def task_app(model: type[ServiceSettings]) -> typer.Typer:
    """The commands of one role."""
    app = typer.Typer(help="The tasks of this role: what they wait for, what is held of them.", no_args_is_help=True)

    @app.command("list", help="Show every task, its state, and what it waits for.")
    def _list(settings: SettingsPath, as_json: Json = False) -> None:
        with _opened(model, settings) as desk:
            rows = task_rows(desk)
        if as_json or rows:
            show(rows, "\n".join("\t".join(map(_plain, row.values())) for row in rows), as_json=as_json)

    @app.command("show", help="Show all about one task that is not secret.")
    def _show(settings: SettingsPath, task: _Task, as_json: Json = False) -> None:
        with _opened(model, settings) as desk:
            found = desk.details(desk.retention.store.task(task))
        show(found, "\n".join(f"{name}: {_plain(value)}" for name, value in found.items()), as_json=as_json)

    @app.command("purge", help="Erase at once what is held of a task that has ended. Safe to repeat.")
    def _purge(settings: SettingsPath, task: _Task, results: _Results = False) -> None:
        with _opened(model, settings) as desk:
            desk.purge(desk.retention.store.task(task), results=results)

    if model is not KgcSettings:

        @app.command("cancel", help="End a task: SP opens no further round, CSP answers no more. Final.")
        def _cancel(settings: SettingsPath, task: _Task, reason: _Reason) -> None:
            from crowdfl.roles.sp.operator import require_reason

            words = require_reason(reason)
            with _opened(model, settings) as desk:
                desk.cancel(task, words)

    if model is SpSettings:

        @app.command("why", help="Say whom a task waits for, since when, what was tried, and what you can do.")
        def _why(settings: SettingsPath, task: _Task, as_json: Json = False) -> None:
            from crowdfl.roles.sp.retention import SpRetention
            from crowdfl.roles.sp.why import causes, told
            from crowdfl.services.run import around_sp, open_retention
            from crowdfl.storage.settings_file import read_service

            found = read_service(SpSettings, settings)
            with open_retention(found) as retention:
                if isinstance(retention, SpRetention):
                    stored, store = retention.store.task(task), retention.store
                    reasons = causes(store, retention.blobs, stored, around_sp(found, store, retention.guard))
                    show([one.shown() for one in reasons], told(stored, reasons, str(settings)), as_json=as_json)

        @app.command(
            "consents", help="Show who agreed to which version of a task's consent text, with the proof: CSV, or JSON."
        )
        def _consents(settings: SettingsPath, task: _Task, file: _File = None, as_json: Json = False) -> None:
            from crowdfl.roles.sp.people import CONSENT_COLUMNS, consent_rows
            from crowdfl.services.run import open_books
            from crowdfl.storage.settings_file import read_service

            with open_books(read_service(SpSettings, settings), task) as books:
                rows = consent_rows(books.store, task)
            write_rows(rows, CONSENT_COLUMNS, file, as_json=as_json)

    if model is CspSettings:

        @app.command(
            "extend", help="Let people claim longer, once, after a server was away. Before the last day of claims."
        )
        def _extend(settings: SettingsPath, task: _Task, days: _Days) -> None:
            from crowdfl.roles.csp import extend_claims
            from crowdfl.roles.waiting import format_time
            from crowdfl.services.run import open_csp_books
            from crowdfl.storage.settings_file import read_service

            with open_csp_books(read_service(CspSettings, settings)) as books:
                until = extend_claims(books, task, days * DAY)
            typer.echo(
                f"claims are taken until {format_time(until)}; SP hears of it on the last day, and phones from SP"
            )

    return app


def task_rows(desk: "OperatorActions | PeerDesk") -> "list[Row]":
    """One for each task; of those that cannot be read, why."""
    rows: list[Row] = []
    store: TaskStore = desk.retention.store
    for stored in store.tasks():
        with suppress(TaskUnreadable):  # it is among the others then
            rows.append(desk.row(stored))
    for one in store.unreadable():
        blank = dict.fromkeys(rows[0]) if rows else {}
        waits = f"a version that can read it: {one.why}. Its money is held"
        rows.append(blank | {"task": one.task, "state": f"{one.state}, unreadable", "waits_for": waits})
    return rows


@contextmanager
def _opened(model: type[ServiceSettings], path: Path) -> "Iterator[OperatorActions | PeerDesk]":
    from crowdfl.roles.sp.retention import SpRetention
    from crowdfl.services.run import open_retention
    from crowdfl.storage.settings_file import read_service

    settings = read_service(model, path)
    with open_retention(settings) as retention:
        if isinstance(retention, SpRetention) and isinstance(settings, SpSettings):
            yield _sp_desk(retention, settings.max_clock_jump)
        elif not isinstance(retention, SpRetention):
            yield PeerDesk(retention)


def _sp_desk(retention: "SpRetention", max_clock_jump: float) -> "OperatorActions":
    from crowdfl.roles.sp.core import LedgerPorts
    from crowdfl.roles.sp.operator import OperatorActions
    from crowdfl.roles.sp.time import OperatorClock
    from crowdfl.services.client.transport import SystemClock

    clock, store = SystemClock(), retention.store
    return OperatorActions(
        retention, clock, LedgerPorts(store, OperatorClock(clock, time.monotonic, store, max_clock_jump))
    )


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {count}" for name, count in value.items()) or "nothing"
    if isinstance(value, list):
        return "; ".join(map(_plain, value)) or "none"
    return "-" if value is None else str(value)


class PeerDesk:
    """What the operator of KGC or CSP can do."""

    def __init__(self, retention: "KgcRetention | CspRetention") -> None:
        self.retention = retention

    def row(self, stored: "StoredTask") -> "Row":
        from crowdfl.roles.waiting import format_time

        since = None if stored.ended_at is None else format_time(stored.ended_at)
        return {"task": stored.task, "state": stored.state, "since": since, "waits_for": self._waits_for(stored)}

    def details(self, stored: "StoredTask") -> "Row":
        from crowdfl.roles.csp_retention import CspRetention
        from crowdfl.roles.sp.operator import held_of

        definition, how = stored.opened, stored.end
        found: Row = {"purpose": definition.purpose, "requester": definition.requester.hex()}
        if isinstance(self.retention, CspRetention):
            found |= {
                "participants": len(self.retention.store.participants(stored.task)),
                "rounds_answered": self.retention.store.recorded_rounds(stored.task),
            }
        held = held_of(self.retention.held(), stored.task)
        return self.row(stored) | found | {"ended": None if how is None else how.words(), "held": held}

    def cancel(self, task: str, reason: str) -> None:
        from crowdfl.roles.csp import refuse_task
        from crowdfl.roles.csp_retention import CspRetention

        if isinstance(self.retention, CspRetention):
            refuse_task(self.retention.store, task, reason)

    def purge(self, stored: "StoredTask", *, results: bool) -> None:
        """Of one that the operator has refused, or that is past its life, this is the end."""
        from crowdfl.roles.csp import REFUSED
        from crowdfl.roles.records import EndedBy, Tombstone
        from crowdfl.roles.retention import OVER
        from crowdfl.roles.waiting import format_time

        del results  # SP alone has any
        until = self.retention.lives_until(stored)
        if stored.state not in (OVER, REFUSED) and self.retention.clock.now() <= until:
            raise TaskNotEnded(
                f"SP has not said that task {stored.task} is over, and it may go on until {format_time(until)}: "
                "nothing is erased"
            )
        why = "was refused" if stored.state == REFUSED else "is past its lifetime"
        self.retention.close(stored.task, Tombstone("expired", EndedBy.OPERATOR, f"it {why}"))

    def _waits_for(self, stored: "StoredTask") -> str:
        from crowdfl.roles.csp import REFUSED
        from crowdfl.roles.retention import OVER
        from crowdfl.roles.waiting import format_time

        if stored.state == OVER:
            return "nothing"
        if stored.state == REFUSED:
            return "SP to say that it is over, or `purge`"
        until = format_time(self.retention.lives_until(stored))
        return f"SP to say that it is over; by itself it ends after {until}"


deposit_app = typer.Typer(help="What requesters say to have paid in: confirm or reject it.", no_args_is_help=True)
_PaidTask = Annotated[str, typer.Argument(help="The task's id.")]
_AnyTask = Annotated[str | None, typer.Argument(help="The task's id; by default, all tasks.")]
_Name = Annotated[str, typer.Argument(help="The deposit's name, as `list` shows it.")]
_Amount = Annotated[str, typer.Argument(help="How much came in, such as 36.00; it must be what was announced.")]
_Currency = Annotated[str, typer.Argument(help="In which currency, such as EUR; it must be the task's.")]


class Resolution(StrEnum):
    """What the operator found out about a payment."""

    PAID = "paid"
    AGAIN = "again"


@deposit_app.command("list")
def list_deposits(settings: SettingsPath, task: _AnyTask = None, as_json: Json = False) -> None:
    """Show every deposit: pending, confirmed or rejected."""
    from crowdfl.roles.waiting import amount_words
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    with open_books(read_service(SpSettings, settings), task) as books:
        found = books.store.deposits(task)
        currencies = {one.task: books.store.task(one.task).opened.settings.currency for one in found}
    rows = [(one.task, one.name, amount_words(one.amount), currencies[one.task], str(one.state)) for one in found]
    values = [dict(zip(("task", "name", "amount", "currency", "state"), row, strict=True)) for row in rows]
    if as_json or rows:
        show(values, "\n".join("\t".join(row) for row in rows), as_json=as_json)


@deposit_app.command("confirm")
def confirm_deposit(settings: SettingsPath, task: _PaidTask, name: _Name, amount: _Amount, currency: _Currency) -> None:
    """Say that the money is there; from then on it can fund rounds. Safe to repeat."""
    from crowdfl.roles.sp.deposits import Deposits
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    with open_books(read_service(SpSettings, settings), task) as books:
        Deposits(books).confirm(task, name, to_millionths(amount), currency)
        typer.echo(f"deposit {name} is confirmed: {amount} {currency}")


@deposit_app.command("reject")
def reject_deposit(settings: SettingsPath, task: _PaidTask, name: _Name) -> None:
    """Say that no such money came in. Safe to repeat."""
    from crowdfl.roles.sp.deposits import Deposits
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    with open_books(read_service(SpSettings, settings), task) as books:
        Deposits(books).reject(task, name)
        typer.echo(f"deposit {name} is rejected")


def payouts(
    settings: SettingsPath,
    task: _AnyTask = None,
    file: _File = None,
    as_json: Json = False,
) -> None:
    """Show who is owed how much, and whether it waits for payment, or for where to pay, is paid, or failed: CSV, or JSON."""
    from crowdfl.roles.records import UnreadableTask
    from crowdfl.roles.sp.instalments import forgotten_payments
    from crowdfl.roles.sp.operator import PAYMENT_COLUMNS, forgotten_rows, held_rows, payment_rows
    from crowdfl.services.client.transport import SystemClock
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    rows: list[Row] = []
    forgotten: dict[str, dict[str, int]] = {}
    with open_books(read_service(SpSettings, settings), task) as books:
        now, unread = SystemClock().now(), dict[str, UnreadableTask]()
        for one in [stored for stored in books.store.tasks() if task in (None, stored.task)]:
            try:
                shown = payment_rows(books.store, books.store.payments(one.task), now)
                forgotten[one.task] = forgotten_payments(books.store, one.task)
                rows += shown
            except TaskUnreadable as wrong:  # a row beside its own
                unread[one.task] = UnreadableTask(one.task, one.state, wrong.why)
        unread |= {one.task: one for one in books.store.unreadable() if task in (None, one.task)}
        held = [row for one in unread.values() for row in held_rows(books.store, one)]
    rows += [row for one, keys in forgotten.items() for row in forgotten_rows(one, keys)] + held
    write_rows(rows, PAYMENT_COLUMNS, file, as_json=as_json)


def batch(
    settings: SettingsPath,
    task: _PaidTask,
    file: Annotated[Path, typer.Argument(help="For the payer: it alone can read it.")],
) -> None:
    """Write what waits to be paid as one file, sealed to the payer; `results` reads what became of it."""
    from crowdfl.documents.payment_batch import seal_batch
    from crowdfl.roles.sp.operator import due_rows
    from crowdfl.services.client.transport import SystemClock
    from crowdfl.services.run import open_books
    from crowdfl.storage.atomic import write_private
    from crowdfl.storage.settings_file import read_service

    with open_books(read_service(SpSettings, settings), task) as books:
        payer = books.store.task(task).opened.payer
        if not payer:
            raise SettingsError("this task names no payer: pay by hand, and say how with `crowdfl sp resolve --note`")
        rows = due_rows(books.store, task, SystemClock().now())
        write_private(file, seal_batch(payer, task, rows), overwrite=True)
    typer.echo(f"{len(rows)} payments are in {file}: give it to the payer")


def results(
    settings: SettingsPath,
    task: _PaidTask,
    file: Annotated[Path, typer.Argument(help="What the payer wrote with `crowdfl payer result`.")],
) -> None:
    """Take in what became of a batch: all of it, or nothing. Safe to repeat."""
    from crowdfl.documents.payment_batch import read_results
    from crowdfl.roles.sp.payments import take_results
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    found = read_results(file.read_text(encoding="utf-8"))
    if any(one.task != task for one in found):
        raise SettingsError("this file of results is of another task")
    with open_books(read_service(SpSettings, settings), task) as books:
        counts = take_results(books, found)
    typer.echo(f"{counts['paid']} payments are paid, {counts['failed']} failed")


def resolve(
    settings: SettingsPath,
    task: _PaidTask,
    payment: Annotated[
        str, typer.Argument(help="Its key, as `payouts` shows it; or the participant, who has one to pay.")
    ],
    how: Annotated[Resolution, typer.Argument(help="paid: the money was handed over; again: it was not, pay it.")],
    note: Annotated[
        str, typer.Option(help='How it was paid, as in "cash" or "voucher": needed where nobody said where to pay.')
    ] = "",
) -> None:
    """Say what became of a payment that is unknown, or that you made yourself."""
    from crowdfl.roles.sp.payments import resolve_payment
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    with open_books(read_service(SpSettings, settings), task) as books:
        resolve_payment(books, task, payment, how, note)
        typer.echo("the payment is paid" if how is Resolution.PAID else "the payment will be made again")


DISPUTE_COLUMNS = ("task", "participant", "round", "amount", "currency", "state", "books", "claim")


def disputes(
    settings: SettingsPath,
    task: _AnyTask = None,
    file: _File = None,
    as_json: Json = False,
) -> None:
    """Show unused uploads that people claim and the books do not owe for, with both proofs: CSV, or JSON."""
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    with open_books(read_service(SpSettings, settings), task) as books:
        found = books.store.disputes(task)
        currencies = {one.task: books.store.task(one.task).opened.settings.currency for one in found}
    rows = [
        (one.task, one.who, one.number, f"{in_cents(one.amount):f}", currencies[one.task], str(one.state), one.books)
        for one in found
    ]
    told = [
        dict(zip(DISPUTE_COLUMNS, (*row, one.claim.hex()), strict=True)) for row, one in zip(rows, found, strict=True)
    ]
    write_rows(told, DISPUTE_COLUMNS, file, as_json=as_json)


class Decision(StrEnum):
    """What the operator decides about a dispute."""

    PAY = "pay"
    REFUSE = "refuse"


def resolve_disputed(
    settings: SettingsPath,
    task: _PaidTask,
    participant: Annotated[str, typer.Argument(help="As `disputes` shows it.")],
    number: Annotated[int, typer.Argument(help="The round.")],
    how: Annotated[Decision, typer.Argument(help="pay: from what is held for it; refuse: that returns.")],
) -> None:
    """Decide a dispute, once you have looked at both proofs. Final; safe to repeat."""
    from crowdfl.roles.sp.claims import resolve_dispute
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    with open_books(read_service(SpSettings, settings), task) as books:
        resolve_dispute(books, task, participant, number, how)
        typer.echo("it is paid" if how is Decision.PAY else "it is refused")


def reconcile(
    settings: SettingsPath,
    task: _PaidTask,
    returned: Annotated[
        str, typer.Option(help="What your bank has handed back to this task's requester in all, such as 36.00.")
    ],
    paid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=AMOUNT",
            help="A payment that your bank has made and `payouts` lacks, such as KEY=7.20. Repeat it.",
        ),
    ] = None,
) -> None:
    """After a restore: say that this task's money is compared with the bank. It goes on, and payments run again."""
    from crowdfl.roles.restored import reconcile as reconcile_money
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    with open_books(read_service(SpSettings, settings), task) as books:
        reconcile_money(books, task, returned=to_millionths(returned), paid=dict(map(_paid, paid or ())))


def _paid(named: str) -> tuple[str, int]:
    key, equals, amount = named.partition("=")
    if not equals:
        raise SettingsError(
            f"--paid {named}: name a payment's key and how much your bank has paid, such as {named}=7.20"
        )
    return key, to_millionths(amount)


round_app = typer.Typer(help="One round that is stuck, while its task goes on.", no_args_is_help=True)
_Number = Annotated[int, typer.Argument(help="The round's number: the last one, as `task show` shows it.")]


@round_app.command("retry")
def retry(settings: SettingsPath, task: _PaidTask, number: _Number) -> None:
    """Stop waiting for CSP's answer and ask again, with the same bytes."""
    _retry(settings, task, number, void=False)


@round_app.command("void")
def void(settings: SettingsPath, task: _PaidTask, number: _Number) -> None:
    """Give the round up: its budget returns, and the next one opens. Try `retry` first: if CSP has opened the sum of a
    `shares` round, the next one ends the task."""
    _retry(settings, task, number, void=True)


def _retry(path: Path, task: str, number: int, *, void: bool) -> None:
    from crowdfl.roles.sp.core import LedgerPorts
    from crowdfl.roles.sp.operator import retry_round
    from crowdfl.services.client.transport import SystemClock
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    settings = read_service(SpSettings, path)
    with open_books(settings, task) as books:
        retry_round(LedgerPorts(books.store, SystemClock()), task, number, settings.lease, void=void)


clock_app = typer.Typer(help="The machine's clock, when SP does not believe it.", no_args_is_help=True)


@clock_app.command("confirm")
def confirm(
    settings: SettingsPath,
    as_json: Json = False,
) -> None:
    """Say that this machine's clock is right as it is now. Compare it with another clock first."""
    from crowdfl.roles.sp.time import confirm_clock
    from crowdfl.services.client.transport import SystemClock
    from crowdfl.services.run import open_books
    from crowdfl.storage.settings_file import read_service

    with open_books(read_service(SpSettings, settings)) as books:
        now = confirm_clock(books.store, SystemClock())
    said = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="seconds")
    show({"confirmed": said}, f"confirmed: it is {said}", as_json=as_json)


def guard_app(model: type[ComputingSettings]) -> typer.Typer:
    """Of SP or CSP."""
    app = typer.Typer(help="This server's notes of its steps: docs/backup.md.", no_args_is_help=True)

    @app.callback()
    def _group() -> None: ...

    @app.command("new")
    def _new(
        settings: SettingsPath,
        unchanged: Annotated[
            bool,
            typer.Option("--unchanged", help="The database was not set back since the notes were there: tasks go on."),
        ] = False,
    ) -> None:
        """Give lost notes up and begin new ones. Tasks that may have been set back end; what was earned stays claimable."""
        from crowdfl.services.run import give_guard_up
        from crowdfl.storage.settings_file import read_service

        give_guard_up(read_service(model, settings), unchanged=unchanged)

    return app


_Model = TypeVar("_Model", bound=ServiceSettings)

_BACKENDS = get_args(ComputingSettings.model_fields["compute"].annotation)
_Compute = Annotated[
    str | None,
    typer.Option(help=f"Where to compute: {', '.join(_BACKENDS)}; by default, as the settings say."),
]
_Scheduler = Annotated[
    str | None, typer.Option(help="With --compute dask: this role's own scheduler, tls://host:port.")
]
_Holder = Annotated[str, typer.Argument(help="A name for whoever holds the token.")]
_TokenRole = Annotated[str, typer.Argument(help=f"What it is good for: {', '.join(TOKEN_ROLES)}.")]
_Overlap = Annotated[
    float, typer.Option(min=0, max=8760, metavar="HOURS", help="How long the old token stays good beside the new one.")
]


@contextmanager
def _no_collection() -> Iterator[None]:
    """What is loaded stays: looking through it again and again took a fifth of a start. Once it listens, a server collects."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _role_app(model: type[_Model], serve: Callable[[_Model, Callable[[], _Model]], None]) -> typer.Typer:
    app = typer.Typer(no_args_is_help=True)
    token = typer.Typer(help="The tokens this role has given to others.", no_args_is_help=True)
    app.add_typer(token, name="token")

    def _serve(settings: SettingsPath) -> None:
        from crowdfl.storage.settings_file import read_service

        with _no_collection():
            serve(read_service(model, settings), lambda: read_service(model, settings))

    def _serve_computing(settings: SettingsPath, compute: _Compute = None, scheduler: _Scheduler = None) -> None:
        from crowdfl.storage.settings_file import read_service

        def read() -> _Model:
            return _with_compute(read_service(model, settings), compute, scheduler)

        with _no_collection():
            serve(read(), read)

    command = app.command(
        "serve", help="Run the role until SIGTERM or Ctrl-C; SIGHUP: read certificates, tokens and pins again."
    )
    command(_serve_computing if issubclass(model, ComputingSettings) else _serve)

    @token.command("add", help="Make a token and show it, once.")
    def _add(settings: SettingsPath, holder: _Holder, role: _TokenRole, as_json: Json = False) -> None:
        fresh = _tokens(model, settings).add(holder, role)
        show({"token": fresh}, fresh, as_json=as_json)

    @token.command("rotate", help="Replace a token and show the new one, once. The service need not be restarted.")
    def _rotate(settings: SettingsPath, holder: _Holder, overlap: _Overlap = 0.0, as_json: Json = False) -> None:
        fresh = _tokens(model, settings).rotate(holder, overlap * 3600)
        show({"token": fresh}, fresh, as_json=as_json)

    @token.command("revoke", help="Make the holder's token invalid.")
    def _revoke(settings: SettingsPath, holder: _Holder) -> None:
        _tokens(model, settings).revoke(holder)

    @token.command("list", help="Show who holds a token, for which role, and until when if another replaces it.")
    def _list(settings: SettingsPath, as_json: Json = False) -> None:
        tokens = _tokens(model, settings)
        entries = tokens.entries()
        if as_json or entries:
            rows = [{"name": entry.name, "role": entry.role, "until": entry.until} for entry in entries]
            show(rows, "\n".join(_told(entry, tokens.now()) for entry in entries), as_json=as_json)

    return app


def _told(entry: "TokenEntry", now: float) -> str:
    until = "" if entry.until is None else f"\t{'expired' if entry.ended(now) else 'good until'} {entry.until}"
    return f"{entry.name}\t{entry.role}{until}"


def _with_compute(found: _Model, compute: str | None, scheduler: str | None) -> _Model:
    """The command line overrides the file."""
    before = dict(found)
    values: dict[str, Any] = {"compute": compute or before["compute"]}
    if scheduler is not None:
        if values["compute"] != "dask":
            raise SettingsError("--scheduler needs --compute dask")
        values["dask"] = dict(before["dask"] or {}) | {"scheduler": scheduler}
    return found.changed(**values)


def _tokens(model: type[ServiceSettings], settings: Path) -> "Tokens":
    from crowdfl.services.http.auth import Tokens
    from crowdfl.storage.settings_file import read_service

    return Tokens(read_service(model, settings).data / "tokens.json")


def _serve_kgc(settings: KgcSettings, read: Callable[[], KgcSettings]) -> None:
    from crowdfl.services.server import serve_kgc

    serve_kgc(settings, read)


def _serve_sp(settings: SpSettings, read: Callable[[], SpSettings]) -> None:
    from crowdfl.services.server import serve_sp
    from crowdfl.web.console_app import add_pages

    serve_sp(settings, read, extend=add_pages)


def _serve_csp(settings: CspSettings, read: Callable[[], CspSettings]) -> None:
    from crowdfl.services.server import serve_csp

    serve_csp(settings, read)


kgc_app = _role_app(KgcSettings, _serve_kgc)
sp_app = _role_app(SpSettings, _serve_sp)
csp_app = _role_app(CspSettings, _serve_csp)
for _app, _model in ((kgc_app, KgcSettings), (sp_app, SpSettings), (csp_app, CspSettings)):
    _app.add_typer(task_app(_model), name="task")
for _app, _computing in ((sp_app, SpSettings), (csp_app, CspSettings)):
    _app.add_typer(guard_app(_computing), name="guard")
sp_app.add_typer(deposit_app, name="deposit")
sp_app.add_typer(round_app, name="round")
sp_app.add_typer(clock_app, name="clock")
sp_app.command("payouts")(payouts)
sp_app.command("batch")(batch)
sp_app.command("results")(results)
sp_app.command("resolve")(resolve)
sp_app.command("disputes")(disputes)
sp_app.command("resolve-dispute")(resolve_disputed)
sp_app.command("reconcile")(reconcile)
